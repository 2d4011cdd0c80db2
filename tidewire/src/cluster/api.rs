//! The cluster as its HTTP API sees it.

use futures::future::BoxFuture;
use tidewire_core::error::Error;
use tidewire_core::gc::GcReport;
use tidewire_core::id::ClusterId;
use tidewire_core::metrics::Metrics;
use tidewire_core::tree::Tree;
use tokio_util::sync::CancellationToken;

use super::handle::Cluster;
use crate::http::Site;
use crate::status::Status;

impl Site for Cluster {
    fn id(&self) -> &ClusterId {
        Self::id(self)
    }

    fn find_tree(&self, name: &str) -> Option<Tree> {
        Self::find_tree(self, name)
    }

    fn trees(&self) -> Vec<Tree> {
        Self::trees(self)
    }

    fn status(&self) -> Status {
        Self::status(self)
    }

    fn gc<'a>(&'a self, tree: &'a str, dry_run: bool) -> BoxFuture<'a, Result<GcReport, Error>> {
        Box::pin(Self::gc(self, tree, dry_run))
    }

    fn metrics(&self) -> &Metrics {
        Self::metrics(self)
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        Self::readiness(self)
    }

    fn stop_token(&self) -> CancellationToken {
        Self::stop_token(self)
    }
}
