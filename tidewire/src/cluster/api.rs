//! The cluster as its HTTP API sees it.

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::gc::GcReport;
use tidewire_core::id::ClusterId;
use tidewire_core::metrics::Metrics;
use tidewire_core::tree::Tree;
use tokio_util::sync::CancellationToken;

use super::handle::Cluster;
use crate::config::{ClusterConfig, ConfigError, Peer, Problem};
use crate::http::{Order, PeerAction, SinkAction, Site};
use crate::status::{Member, PeerSource, Status};

#[async_trait]
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

    async fn carry_out(&self, order: Order) -> Result<Value, Error> {
        match order {
            Order::Sink { name, tree, action } => {
                let tree = match tree {
                    Some(tree) => tree,
                    None => self.tree_of_sink(&name)?,
                };
                let mut freed = 0;
                match action {
                    SinkAction::Pause => self.pause_sink(&tree, &name).await?,
                    SinkAction::Resume => self.resume_sink(&tree, &name).await?,
                    SinkAction::Restart => self.restart_sink(&tree, &name)?,
                    SinkAction::Remove => freed = self.remove_sink(&tree, &name).await?,
                }
                Ok(json!({"sink": name, "tree": tree, "freed_bytes": freed}))
            }
            Order::DeadLetters { name, tree, action } => {
                let tree = match tree {
                    Some(tree) => tree,
                    None => self.tree_of_sink(&name)?,
                };
                self.carry_out_sink_letters(&tree, &name, action).await
            }
            Order::Letters { tree, action } => self.carry_out_letters(&tree, action).await,
            Order::AddPeer(peer) => {
                let id = peer.id.clone();
                self.check_peer(&peer)?;
                self.keep_peer(peer).await?;
                Ok(json!({"peer": id}))
            }
            Order::Peer { id, action } => {
                let mut freed = 0;
                match action {
                    PeerAction::Pause => self.pause_peer(&id).await?,
                    PeerAction::Resume => self.resume_peer(&id).await?,
                    PeerAction::Restart => self.restart_peer(&id).await?,
                    PeerAction::Seal => freed = self.seal_peer(&id).await?,
                }
                Ok(json!({"peer": id, "freed_bytes": freed}))
            }
            Order::ReseedPeer { id, tree } => {
                let trees = self.reseed(&id, tree.as_deref()).await?;
                Ok(json!({"peer": id, "trees": trees}))
            }
            Order::RemovePeer { id, until_restart } => {
                if !until_restart {
                    self.demand_unlisted(&id)?;
                }
                let freed = self.remove_peer(&id).await?;
                Ok(json!({"peer": id, "freed_bytes": freed}))
            }
        }
    }

    fn stop_token(&self) -> CancellationToken {
        Self::stop_token(self)
    }
}

impl Cluster {
    /// Whether a peer keeps the rules of the configuration.
    fn check_peer(&self, peer: &Peer) -> Result<(), Error> {
        let mut config = ClusterConfig::clone(&self.0.config());
        config.peers = vec![peer.clone()];
        let wrong = |error: ConfigError| {
            let named = |problem: &Problem| {
                // Of "peers[0].url" the part that the order has, too.
                let key = problem.key.rsplit('.').next().unwrap_or_default();
                format!("{key}: {}", problem.message)
            };
            let said: Vec<String> = error.problems().iter().map(named).collect();
            Error::new(ErrorKind::Invalid, format!("peer {}: {}", peer.id, said.join("; ")))
        };
        config.validate().map(drop).map_err(wrong)
    }

    /// What the configuration lists comes back, so it is not removed behind its back.
    fn demand_unlisted(&self, id: &str) -> Result<(), Error> {
        let listed = |member: &Member| member.id == id && member.source == PeerSource::Listed;
        if !self.peers().iter().any(listed) {
            return Ok(());
        }
        let said = format!(
            "peer {id} is listed in the configuration, which brings it back with the next start or reload: take it out of \
             the file and send SIGHUP, which removes it; or remove it only until then, with until_restart"
        );
        Err(Error::new(ErrorKind::Conflict, said))
    }
}
