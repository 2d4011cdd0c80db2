//! Reading a request's body: never more than its limit, and all of them together never more than a budget.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use tidewire_core::error::{Error, ErrorKind};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::api::Api;
use super::failure::invalid;

/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(60);
/// What is read and thrown away of a body that was refused.
const DISCARD_BYTES: usize = 16 * 1024 * 1024;
/// How long that may take.
const DISCARD_TIME: Duration = Duration::from_secs(2);
/// First allocation for a body, whatever it claims to be.
const FIRST_BYTES: usize = 16 * 1024;

/// A body, and its part of the budget for as long as it is held.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    _held: OwnedSemaphorePermit,
}

impl Api {
    /// Reads a body; what it does not read stays there. `bound` names the limit.
    ///
    /// # Errors
    /// `TooLarge` above the limit, `Busy` above the budget of all bodies, `Invalid` when it breaks off or takes too
    /// long.
    pub(super) async fn receive(
        &self,
        body: &mut Body,
        limit: usize,
        bound: &str,
    ) -> Result<Received, Error> {
        let claimed = body.size_hint().upper().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let too_large =
            || Error::new(ErrorKind::TooLarge, format!("the body is over {bound} = {limit} bytes"));
        if claimed.is_some_and(|claimed| claimed > limit) {
            return Err(too_large());
        }
        let held = self.hold(claimed.unwrap_or(limit))?;
        let mut bytes = BytesMut::with_capacity(claimed.unwrap_or(FIRST_BYTES).min(FIRST_BYTES));
        let mut stream = std::mem::take(body).into_data_stream();
        let deadline = Instant::now() + BODY_TIME;
        loop {
            let Ok(chunk) = timeout_at(deadline, stream.next()).await else {
                return Err(invalid(format!("the body took longer than {} s", BODY_TIME.as_secs())));
            };
            let Some(chunk) = chunk else { return Ok(Received { bytes: bytes.freeze(), _held: held }) };
            let chunk = chunk.map_err(|error| invalid("the body broke off").with_source(error))?;
            if chunk.len() > limit - bytes.len() {
                *body = Body::from_stream(stream);
                return Err(too_large());
            }
            bytes.extend_from_slice(&chunk);
        }
    }
}

/// Reads on in a body that was refused, within bounds: a client that is still writing when the connection is closed
/// would not see the answer.
pub(super) async fn discard(body: Body) {
    let deadline = Instant::now() + DISCARD_TIME;
    let (mut stream, mut left) = (body.into_data_stream(), DISCARD_BYTES);
    while let Ok(Some(Ok(chunk))) = timeout_at(deadline, stream.next()).await {
        if chunk.len() > left {
            return;
        }
        left -= chunk.len();
    }
}
