//! [`Api`]: one request to one answer.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, EXPECT, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::tasks::Tasks;
use tidewire_core::tree::Tree;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::body::discard;
use super::config::HttpConfig;
use super::failure::Failure;
use super::path::Resource;
use super::query::Query;
use super::site::Site;
use super::snapshot::snapshot;

/// Streams of changes at one time: fewer than connections, so that they never keep everybody else out.
const MAX_STREAMS: usize = 512;
/// Bytes of all bodies that are being read or worked on.
const BODY_BUDGET: usize = 64 * 1024 * 1024;
/// The budget is counted in pieces of this many bytes.
const BUDGET_PIECE: usize = 1024;

/// What all connections share.
pub(super) struct Api {
    pub(super) site: Arc<dyn Site>,
    pub(super) config: HttpConfig,
    pub(super) tasks: Tasks,
    pub(super) streams: Arc<Semaphore>,
    /// A digest reads everything and keeps writes waiting: one at a time.
    pub(super) digests: Semaphore,
    bodies: Arc<Semaphore>,
}

impl Api {
    /// `config.address` is the bound one.
    pub(super) fn new(site: Arc<dyn Site>, config: HttpConfig, tasks: Tasks) -> Self {
        let largest = config.max_record_bytes.max(config.max_batch_bytes);
        let budget = BODY_BUDGET.max(largest.saturating_mul(2)).div_ceil(BUDGET_PIECE);
        Self {
            site,
            config,
            tasks,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            digests: Semaphore::new(1),
            bodies: Arc::new(Semaphore::new(budget.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Takes a part of the budget for bodies.
    pub(super) fn hold(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let pieces = u32::try_from(bytes.div_ceil(BUDGET_PIECE)).unwrap_or(u32::MAX);
        self.bodies.clone().try_acquire_many_owned(pieces).map_err(|_| {
            Error::new(ErrorKind::Busy, "too many large requests at once; send this one again in a moment")
        })
    }

    /// Answers a request, whatever it is.
    pub(super) async fn answer(&self, request: Request) -> Response {
        let (parts, mut body) = request.into_parts();
        let mut response = match self.route(&parts, &mut body).await {
            Ok(response) => response,
            Err(failure) => {
                // Whoever asks before sending a body needs only the answer.
                if !parts.headers.contains_key(EXPECT) {
                    discard(body).await;
                }
                failure.into_response()
            }
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        tracing::debug!(method = %parts.method, status = response.status().as_u16(), "http request");
        response
    }

    async fn route(&self, parts: &Parts, body: &mut Body) -> Result<Response, Failure> {
        let (headers, query) = (&parts.headers, parts.uri.query());
        if parts.uri.path().starts_with("/v1") {
            self.authorize(headers)?;
        }
        let resource = Resource::parse(parts.uri.path())?;
        let methods = resource.methods();
        if !methods.split(", ").any(|method| method == parts.method.as_str()) {
            return Err(Failure::Method(methods));
        }
        if matches!(
            resource,
            Resource::Key(..) | Resource::Batch(_) | Resource::Digest(_) | Resource::Snapshot(_)
        ) {
            Query::parse(query, &[])?;
        }
        // HEAD goes the way of GET; the connection leaves the body out.
        Ok(match (resource, &parts.method) {
            (Resource::Root, _) => self.page(),
            (Resource::Health, _) => "ok\n".into_response(),
            (Resource::Ready, _) => self.ready(),
            (Resource::Metrics, _) => self.metrics(),
            (Resource::Status, _) => self.status(),
            (Resource::Key(tree, key), &Method::PUT) => {
                self.put(&self.tree(&tree)?, key, headers, body).await?
            }
            (Resource::Key(tree, key), &Method::DELETE) => self.delete(&self.tree(&tree)?, key).await?,
            (Resource::Key(tree, key), _) => self.get(&self.tree(&tree)?, &key, headers).await?,
            (Resource::Keys(tree), &Method::DELETE) => self.delete_range(&self.tree(&tree)?, query).await?,
            (Resource::Keys(tree), _) => self.scan(self.tree(&tree)?, headers, query).await?,
            (Resource::Batch(tree), _) => self.batch(&self.tree(&tree)?, body).await?,
            (Resource::Changes(tree), _) => self.changes(&self.tree(&tree)?, query)?,
            (Resource::Admin(resource), method) => self.admin(resource, method, query, body).await?,
            (Resource::Digest(tree), _) => self.digest(self.tree(&tree)?).await?,
            (Resource::Gc(tree), _) => self.gc(&tree, query).await?,
            (Resource::Snapshot(tree), _) => snapshot(&self.tree(&tree)?).await?,
        })
    }

    pub(super) fn tree(&self, name: &str) -> Result<Tree, Error> {
        self.site.find_tree(name).ok_or_else(|| {
            let names: Vec<String> =
                self.site.trees().iter().map(|tree| tree.identity().tree.to_string()).collect();
            let said = match names.as_slice() {
                [] => "there is none; list it under [[trees]]".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            };
            Error::new(ErrorKind::NotFound, format!("no tree {name:?} on {}; {said}", self.site.id()))
        })
    }

    fn authorize(&self, headers: &HeaderMap) -> Result<(), Error> {
        let Some(token) = &self.config.token else { return Ok(()) };
        let sent = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
        });
        match sent {
            Some(sent) if same(sent, token.as_bytes()) => Ok(()),
            Some(_) => Err(Error::new(
                ErrorKind::Unauthorized,
                "this token is not the server's; take the one that its listen.token_file holds",
            )),
            None => Err(Error::new(
                ErrorKind::Unauthorized,
                "a token is needed: Authorization: Bearer TOKEN, or --token-file on the command line",
            )),
        }
    }
}

/// Compares in a time that depends on the lengths only.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |differ, (a, b)| std::hint::black_box(differ | (a ^ b)));
    a.len() == b.len() && differ == 0
}
