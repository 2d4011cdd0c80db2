//! [`Http`]: requests to a server's HTTP API over connections that are kept.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::failure::Outcome;

/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// A client of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

impl Http {
    /// Of a server on a port of loopback.
    pub fn new(port: u16) -> Self {
        Self::at(&format!("127.0.0.1:{port}"))
    }

    /// Of a server at an address.
    pub fn at(address: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { client, base: format!("http://{address}") }
    }

    /// One request; an answer other than 200 is an error.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Outcome<(HeaderMap, Bytes)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into()))?;
        let answer = tokio::time::timeout(PATIENCE, self.client.request(request)).await??;
        let (parts, body) = answer.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await??.to_bytes();
        if parts.status != 200 {
            return Err(format!("{path}: {}: {}", parts.status, String::from_utf8_lossy(&body)).into());
        }
        Ok((parts.headers, body))
    }
}
