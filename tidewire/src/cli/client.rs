//! [`Client`]: the HTTP API of one server, as the commands use it. Blocking; one request at a time.

use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use ureq::http::uri::Authority;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body, RequestBuilder};

use super::Failure;

/// Everything but these is encoded; a dot too, so that no key is taken for a path segment with a meaning.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');
/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a server may be silent: streams carry a keep-alive line every 15 s, a commit takes at most minutes.
const SILENCE: Duration = Duration::from_secs(60);

/// Whether it is a host, and a port that can be if there is one.
fn is_address(uri: &Uri) -> bool {
    let port = |authority: &Authority| {
        let behind = authority.as_str().rsplit(']').next().unwrap_or_default();
        !behind.contains(':') || authority.port_u16().is_some_and(|port| port > 0)
    };
    uri.path() == "/" && uri.query().is_none() && uri.authority().is_some_and(port)
}

/// How to reach the server.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Address of the server's HTTP API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7401")]
    url: String,
    /// File that holds the token to send
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a write answered.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) version: String,
    pub(crate) token: String,
}

/// A connection that is ready to be used.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    base: String,
    authorization: Option<String>,
}

impl Client {
    /// Checks the address and reads the token.
    pub(crate) fn new(connection: &Connection) -> Result<Self, Failure> {
        let base = connection.url.trim_end_matches('/');
        if base.starts_with("https://") {
            return Err(Failure::usage(format!("--url {base}: there is no TLS yet; use http://HOST:PORT")));
        }
        let fits = base.starts_with("http://") && base.parse::<Uri>().is_ok_and(|uri| is_address(&uri));
        if !fits {
            return Err(Failure::usage(format!("--url {base:?} is not an address; use http://HOST:PORT")));
        }
        let authorization = match &connection.token_file {
            Some(path) => {
                #[expect(clippy::disallowed_methods, reason = "the command line has no Disk")]
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::usage(format!("--token-file {}: cannot be read: {error}", path.display()))
                })?;
                Some(format!("Bearer {}", text.trim()))
            }
            None => None,
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(SILENCE))
            .timeout_per_write(Some(SILENCE))
            .user_agent(concat!("tidewire/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(Self { agent, base: base.to_owned(), authorization })
    }

    /// Sets a key; `ttl_seconds` is how long it is shown.
    pub(crate) fn put(
        &self,
        tree: &str,
        key: &[u8],
        value: &[u8],
        ttl_seconds: Option<u64>,
    ) -> Result<Written, Failure> {
        let mut request = self.agent.put(self.key_url(tree, key));
        if let Some(seconds) = ttl_seconds {
            request = request.header("Tidewire-TTL", seconds.to_string());
        }
        self.answer(self.authorized(request).send(value)).map(|response| written(&response))
    }

    pub(crate) fn delete_range(&self, tree: &str, from: &[u8], to: &[u8]) -> Result<Written, Failure> {
        let url = self.query_url(&tree_path(tree, "keys"), &[("from", from), ("to", to)]);
        let request = self.agent.delete(url);
        self.answer(self.authorized(request).call()).map(|response| written(&response))
    }

    pub(crate) fn delete(&self, tree: &str, key: &[u8]) -> Result<Written, Failure> {
        let request = self.agent.delete(self.key_url(tree, key));
        self.answer(self.authorized(request).call()).map(|response| written(&response))
    }

    /// The value of a key and its version.
    pub(crate) fn get(&self, tree: &str, key: &[u8]) -> Result<(Vec<u8>, String), Failure> {
        let request = self.agent.get(self.key_url(tree, key));
        let mut response = self.answer(self.authorized(request).call())?;
        let value = self.body(&mut response)?;
        Ok((value, written(&response).version))
    }

    /// One answer in JSON. `query` holds names and values that are not encoded yet.
    pub(crate) fn json(&self, path: &str, query: &[(&str, &[u8])]) -> Result<serde_json::Value, Failure> {
        let request = self.agent.get(self.query_url(path, query));
        let mut response = self.answer(self.authorized(request).call())?;
        let body = self.body(&mut response)?;
        serde_json::from_slice(&body).map_err(|error| self.not_understood(&error))
    }

    /// Sends JSON, and returns the answer in JSON.
    pub(crate) fn post_json(&self, path: &str, body: &[u8]) -> Result<serde_json::Value, Failure> {
        let request = self.agent.post(format!("{}{path}", self.base));
        let request = request.header("Content-Type", "application/json");
        let mut response = self.answer(self.authorized(request).send(body))?;
        let body = self.body(&mut response)?;
        serde_json::from_slice(&body).map_err(|error| self.not_understood(&error))
    }

    /// An order: a call that changes something, and its answer.
    pub(crate) fn order(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &[u8])],
        body: Option<Vec<u8>>,
    ) -> Result<serde_json::Value, Failure> {
        let url = self.query_url(path, query);
        let answer = match method {
            "DELETE" => self.authorized(self.agent.delete(url)).call(),
            _ => self.authorized(self.agent.post(url)).send(body.unwrap_or_default()),
        };
        let body = self.body(&mut self.answer(answer)?)?;
        serde_json::from_slice(&body).map_err(|error| self.not_understood(&error))
    }

    /// An answer that stays open.
    pub(crate) fn stream(
        &self,
        path: &str,
        query: &[(&str, &[u8])],
    ) -> Result<impl std::io::BufRead + use<>, Failure> {
        let request = self.agent.get(self.query_url(path, query));
        let response = self.answer(self.authorized(request).call())?;
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    /// The failure of an answer that is not what the contract says.
    pub(crate) fn not_understood(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::server(format!(
            "{}: the answer is not understood: {error}; is it a tidewire server of this version?",
            self.base
        ))
    }

    /// The failure of a connection that was lost on the way.
    pub(crate) fn lost(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::server(format!("{}: {error}; is `tidewire serve` running there? (--url)", self.base))
    }

    fn key_url(&self, tree: &str, key: &[u8]) -> String {
        format!("{}/v1/trees/{}/keys/{}", self.base, encode(tree.as_bytes()), encode(key))
    }

    fn query_url(&self, path: &str, query: &[(&str, &[u8])]) -> String {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        format!("{}{path}?{}", self.base, query.join("&")).trim_end_matches('?').to_owned()
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        }
    }

    fn answer(&self, result: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Failure> {
        let mut response = result.map_err(|error| match error {
            ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
                Failure::usage(format!("{}: {error}", self.base))
            }
            ureq::Error::Io(error) => self.lost(&error),
            error => self.lost(&error),
        })?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let body = self.body(&mut response)?;
        let message = serde_json::from_slice::<Refused>(&body).map_or_else(
            |_| format!("answered with status {status}; is it a tidewire server? (--url)"),
            |refused| refused.error.message,
        );
        Err(Failure::status(status, format!("{}: {message}", self.base)))
    }

    fn body(&self, response: &mut Response<Body>) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        response.body_mut().as_reader().read_to_end(&mut bytes).map_err(|error| self.lost(&error))?;
        Ok(bytes)
    }
}

/// A tree's resource in the API.
pub(crate) fn tree_path(tree: &str, resource: &str) -> String {
    format!("/v1/trees/{}/{resource}", encode(tree.as_bytes()))
}

/// A name as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    encode(name.as_bytes())
}

pub(super) fn encode(bytes: &[u8]) -> String {
    percent_encode(bytes, KEPT).to_string()
}

fn written(response: &Response<Body>) -> Written {
    let header = |name: &str| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    Written { version: header("Tidewire-Version"), token: header("Tidewire-Token") }
}

#[derive(Deserialize)]
struct Refused {
    error: RefusedError,
}

#[derive(Deserialize)]
struct RefusedError {
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(url: &str) -> Connection {
        Connection { url: url.to_owned(), token_file: None, json: false }
    }

    #[test]
    fn keys_of_any_bytes_are_one_path_segment() {
        let client = Client::new(&connection("http://127.0.0.1:1/")).expect("an address");
        assert_eq!(client.key_url("t", b".."), "http://127.0.0.1:1/v1/trees/t/keys/%2E%2E");
        assert_eq!(client.key_url("t", b"a/b?c\xff"), "http://127.0.0.1:1/v1/trees/t/keys/a%2Fb%3Fc%FF");
        let url = client.query_url("/x", &[("prefix", b"a&b"), ("limit", b"5")]);
        assert_eq!(url, "http://127.0.0.1:1/x?prefix=a%26b&limit=5");
    }

    #[test]
    fn an_address_without_scheme_or_with_a_path_is_refused() {
        for url in ["127.0.0.1:7401", "https://h:1", "http://h:1/v1", "http://a b:1", ""] {
            assert!(Client::new(&connection(url)).is_err(), "{url}");
        }
    }
}
