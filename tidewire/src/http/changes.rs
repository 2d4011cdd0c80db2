//! The changes of a tree as lines that keep coming.
//!
//! A stream is pulled by its connection: it holds one read of the log and one chunk of lines, however slow the client
//! is.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tree::{Event, Start, Tree};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::failure::{error_json, invalid};
use super::json::{write_change, write_line, write_resolved};
use super::query::Query;

/// After this long without a line an empty one is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Lines are handed to the connection in pieces of about this many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

type Events = Pin<Box<dyn Stream<Item = Result<Event, Error>> + Send>>;

impl Api {
    pub(super) fn changes(&self, tree: &Tree, raw: Option<&str>) -> Result<Response, Error> {
        let mut query = Query::parse(raw, &["cursor", "from", "format", "resolved"])?;
        match query.take_text("format")?.as_deref() {
            None | Some("json") => {}
            Some(other) => {
                return Err(invalid(format!("format {other:?} is not there; this version has json")));
            }
        }
        let resolved = match query.take_text("resolved")?.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(invalid("resolved is true or false")),
        };
        let start = match (query.take_text("cursor")?, query.take_text("from")?.as_deref()) {
            (Some(_), Some(_)) => return Err(invalid("cursor and from exclude each other")),
            (Some(cursor), None) => Start::At(cursor.parse()?),
            (None, None | Some("now")) => Start::Now,
            (None, Some("beginning")) => Start::Beginning,
            (None, Some(_)) => return Err(invalid("from is now or beginning; a cursor goes into cursor=")),
        };
        let place = self.streams.clone().try_acquire_owned().map_err(|_| {
            Error::new(ErrorKind::Busy, "too many streams of changes are open; close one or ask again later")
        })?;
        let mut events: Events = Box::pin(tree.changes(start).into_stream());
        // A cursor that the log cannot serve is known at once, while there still is a status to say it with.
        let first = events.next().now_or_never().flatten().transpose()?;
        let lines = Lines {
            tree: tree.clone(),
            events,
            first,
            resolved,
            quiet_since: Instant::now(),
            ended: false,
            stop: self.site.stop_token(),
            _place: place,
        };
        let body = Body::from_stream(futures::stream::unfold(lines, Lines::next));
        Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
    }
}

struct Lines {
    tree: Tree,
    events: Events,
    first: Option<Event>,
    resolved: bool,
    quiet_since: Instant,
    ended: bool,
    stop: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Lines {
    /// The next piece: everything that is there already, up to a size.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let mut chunk = Vec::new();
        if let Some(first) = self.first.take() {
            self.write(&mut chunk, Ok(first));
        }
        while chunk.is_empty() {
            if self.ended {
                return None;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                event = self.events.next() => self.take(&mut chunk, event),
                () = tokio::time::sleep_until(self.quiet_since + KEEP_ALIVE) => chunk.push(b'\n'),
            }
        }
        while chunk.len() < CHUNK_BYTES && !self.ended {
            match self.events.next().now_or_never() {
                Some(event) => self.take(&mut chunk, event),
                None => break,
            }
        }
        self.quiet_since = Instant::now();
        Some((Ok(chunk.into()), self))
    }

    fn take(&mut self, chunk: &mut Vec<u8>, event: Option<Result<Event, Error>>) {
        match event {
            Some(event) => self.write(chunk, event),
            None => self.ended = true,
        }
    }

    fn write(&mut self, chunk: &mut Vec<u8>, event: Result<Event, Error>) {
        match event {
            Ok(Event::Change(change)) => write_change(chunk, &self.tree, &change),
            Ok(Event::Resolved { frontier, cursor }) if self.resolved => {
                write_resolved(chunk, &self.tree, &frontier, cursor);
            }
            Ok(Event::Resolved { .. }) => {}
            Err(error) => {
                // The status is long gone; the last line says why there are no more.
                write_line(chunk, &error_json(&error));
                self.ended = true;
            }
        }
    }
}
