//! [`Site`]: what the API needs of a cluster.

use async_trait::async_trait;
use futures::future::BoxFuture;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::gc::GcReport;
use tidewire_core::id::ClusterId;
use tidewire_core::metrics::Metrics;
use tidewire_core::tree::Tree;
use tokio_util::sync::CancellationToken;

use super::admin::Order;
use crate::status::Status;

/// A cluster as the API sees it. Every call but [`gc`](Site::gc) and an order is answered from memory and may happen once
/// per request.
#[async_trait]
pub trait Site: Send + Sync + 'static {
    /// The cluster's name.
    fn id(&self) -> &ClusterId;

    /// A tree that is open. Never creates one.
    fn find_tree(&self, name: &str) -> Option<Tree>;

    /// The trees that are open, by name.
    fn trees(&self) -> Vec<Tree>;

    /// Everything at one moment. Where it does not know the address of the API, the API puts in its own.
    fn status(&self) -> Status;

    /// One pass of the collector over a tree's log.
    ///
    /// # Errors
    /// When there is no such tree, or nothing could be decided or trimmed.
    fn gc<'a>(&'a self, tree: &'a str, dry_run: bool) -> BoxFuture<'a, Result<GcReport, Error>>;

    /// The registry that `/metrics` shows.
    fn metrics(&self) -> &Metrics;

    /// Whether everything works; if not, one reason for each thing that is wrong.
    ///
    /// # Errors
    /// The reasons.
    fn readiness(&self) -> Result<(), Vec<String>>;

    /// Does what an operator orders, and answers with what came of it.
    ///
    /// # Errors
    /// When it cannot be done; here, always.
    async fn carry_out(&self, order: Order) -> Result<serde_json::Value, Error> {
        drop(order);
        Err(Error::new(ErrorKind::NotFound, "this server takes no orders"))
    }

    /// Fires when the API has to stop: no new connections, streams end, requests in flight have five seconds.
    fn stop_token(&self) -> CancellationToken;
}
