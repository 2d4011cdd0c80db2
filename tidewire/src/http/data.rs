//! One key: put, get, delete.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::Version;
use tidewire_core::tree::{PutOptions, Token, Tree};

use super::api::Api;
use super::failure::invalid;
use super::json::version_text;
use super::query::Query;

const VERSION: &str = "tidewire-version";
const TOKEN: &str = "tidewire-token";
const WAIT: &str = "tidewire-wait";
const TTL: &str = "tidewire-ttl";
/// How long a read waits for its token if it does not say.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);
/// How long a read may wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Api {
    pub(super) async fn put(
        &self,
        tree: &Tree,
        key: Bytes,
        headers: &HeaderMap,
        body: &mut Body,
    ) -> Result<Response, Error> {
        let ttl = text_of(headers, TTL)?.map(ttl_of_seconds).transpose()?;
        let value = self.receive(body, self.config.max_record_bytes, "max_record_bytes").await?;
        Ok(written(tree, tree.put_with(key, value.bytes.clone(), PutOptions { ttl }).await?))
    }

    pub(super) async fn delete(&self, tree: &Tree, key: Bytes) -> Result<Response, Error> {
        Ok(written(tree, tree.delete(key).await?))
    }

    pub(super) async fn delete_range(&self, tree: &Tree, raw: Option<&str>) -> Result<Response, Error> {
        let mut query = Query::parse(raw, &["from", "from_base64", "to", "to_base64"])?;
        let from = query.take_bytes("from", "from_base64")?;
        let to = query.take_bytes("to", "to_base64")?;
        let (Some(from), Some(to)) = (from, to) else {
            let name = &tree.identity().tree;
            let said =
                format!("deleting a range of {name} needs from and to; without them nothing is deleted");
            return Err(invalid(said));
        };
        Ok(written(tree, tree.delete_range(from, to).await?))
    }

    pub(super) async fn get(&self, tree: &Tree, key: &[u8], headers: &HeaderMap) -> Result<Response, Error> {
        self.await_token(tree, headers).await?;
        let Some(found) = tree.get(key) else {
            return Err(Error::new(ErrorKind::NotFound, format!("no such key in {}", tree.identity().tree)));
        };
        let version = header(&version_text(tree, found.version));
        let octets = HeaderValue::from_static("application/octet-stream");
        Ok(([(CONTENT_TYPE.as_str(), octets), (VERSION, version)], found.value).into_response())
    }

    /// Waits until this cluster has what the request's token stands for, if it has one.
    pub(super) async fn await_token(&self, tree: &Tree, headers: &HeaderMap) -> Result<(), Error> {
        let wait = match text_of(headers, WAIT)?.map(|text| text.trim().parse().map(Duration::from_millis)) {
            None => DEFAULT_WAIT,
            Some(Ok(wait)) if wait <= MAX_WAIT => wait,
            Some(_) => {
                let most = MAX_WAIT.as_millis();
                return Err(invalid(format!("Tidewire-Wait is a number of milliseconds up to {most}")));
            }
        };
        let Some(token) = text_of(headers, TOKEN)?.map(str::parse::<Token>).transpose()? else {
            return Ok(());
        };
        let stop = self.site.stop_token();
        tokio::select! {
            biased;
            waited = tree.wait_for(&token, wait) => waited,
            () = stop.cancelled() => Err(Error::shutting_down()),
        }
    }
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Error> {
    let text = headers.get(name).map(|value| value.to_str()).transpose();
    text.map_err(|_| invalid(format!("the header {name} is no text")))
}

fn ttl_of_seconds(text: &str) -> Result<Duration, Error> {
    match text.trim().parse::<u64>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(invalid("Tidewire-TTL is a number of whole seconds, at least 1")),
    }
}

fn written(tree: &Tree, version: Version) -> Response {
    let token = header(&tree.token(version).to_string());
    [(VERSION, header(&version_text(tree, version))), (TOKEN, token)].into_response()
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("names of clusters and numbers are plain ASCII")
}
