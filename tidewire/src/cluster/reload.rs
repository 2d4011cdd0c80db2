//! Taking a changed configuration over while the cluster runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, TreeName};
use tokio::sync::oneshot;

use super::handle::{Cluster, Inner};
use crate::config::{ClusterConfig, Peer, TreeConfig, needs_restart};

/// What a [reload](Cluster::reload) did, by name, and what it could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Peers that were added.
    pub added: Vec<String>,
    /// Peers that are exchanged with in another way now.
    pub changed: Vec<String>,
    /// Peers that are listed no more, and have ended.
    pub removed: Vec<String>,
    /// Bytes of the logs that only such peers held.
    pub freed_bytes: u64,
    /// Trees that were opened.
    pub trees: Vec<String>,
    /// Sinks that were started.
    pub sinks: Vec<String>,
    /// Trees of which other keys are held now.
    pub interests: Vec<String>,
    /// Keys whose change takes a restart; they go on as they were.
    pub needs_restart: Vec<String>,
}

impl Reloaded {
    /// Whether anything is different now.
    pub fn did_something(&self) -> bool {
        [&self.added, &self.changed, &self.removed, &self.trees, &self.sinks, &self.interests]
            .iter()
            .any(|names| !names.is_empty())
    }
}

impl Cluster {
    /// Takes over what can change while it runs: the peers that the configuration lists, trees and sinks that are new in
    /// it, and which keys of a tree are held. Everything else stays as it is, and is named in the answer.
    ///
    /// # Errors
    /// `Invalid` for a configuration that breaks a rule: then nothing has changed. Otherwise as opening a tree, adding a peer
    /// or a sink; what came before is done then, and the next reload goes on. `Conflict` for fewer keys of a tree while
    /// something would be lost by it; everything else is done then.
    pub async fn reload(&self, config: ClusterConfig) -> Result<Reloaded, Error> {
        let config = config.validate().map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?;
        let _one = self.0.reloading.lock().await;
        let running = self.0.config();
        let mut done = Reloaded { needs_restart: needs_restart(&running, &config), ..Reloaded::default() };
        let mut next = ClusterConfig::clone(&running);
        for tree in &config.trees {
            if !running.trees.iter().any(|known| known.name == tree.name) {
                next.trees.push(tree.clone());
                self.0.set_config(next.clone());
                self.0.links.flows.know(tree);
                if let Err(error) = self.tree(&tree.name).await {
                    // It counts as new again when the file is mended.
                    next.trees.pop();
                    self.0.set_config(next);
                    return Err(error);
                }
                done.trees.push(tree.name.clone());
            }
        }
        self.reload_peers(&running.peers, &config.peers, &mut done).await?;
        next.peers = config.peers;
        self.0.set_config(next.clone());
        for sink in &config.sinks {
            let same =
                |known: &&crate::config::SinkConfig| (&known.tree, &known.name) == (&sink.tree, &sink.name);
            if !running.sinks.iter().any(|known| same(&known)) {
                self.start_sink(sink).await?;
                done.sinks.push(format!("{}/{}", sink.tree, sink.name));
                next.sinks.push(sink.clone());
                self.0.set_config(next.clone());
            }
        }
        self.reload_interests(&config.trees, next, &mut done).await?;
        Ok(done)
    }

    /// Has each tree hold the keys that it is to hold now. What one tree cannot is no matter of the others.
    async fn reload_interests(
        &self,
        wanted: &[TreeConfig],
        mut next: ClusterConfig,
        done: &mut Reloaded,
    ) -> Result<(), Error> {
        let mut first = Ok(());
        for tree in wanted {
            let Some(known) = next.trees.iter_mut().find(|known| known.name == tree.name) else { continue };
            match self.hold(tree).await {
                Ok(changed) => {
                    known.interest.clone_from(&tree.interest);
                    self.0.set_config(next.clone());
                    done.interests.extend(changed.then(|| tree.name.clone()));
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// To its end, also if nobody waits for it any more: links rest until it is done.
    async fn hold(&self, tree: &TreeConfig) -> Result<bool, Error> {
        let interest = tree
            .interest()
            .map_err(|error| Error::new(ErrorKind::Invalid, format!("interest of {}: {error}", tree.name)))?;
        let (name, cluster) = (TreeName::new(&tree.name)?, self.clone());
        let (answer, answered) = oneshot::channel();
        self.0.tasks.spawn(format!("holding keys of {name}"), async move {
            let Inner { links, tasks, random, .. } = &*cluster.0;
            let held = links.hold(&name, interest, tasks, random).await;
            let _gone = answer.send(held);
        });
        answered.await.unwrap_or_else(|_| Err(Error::shutting_down()))
    }

    async fn reload_peers(&self, before: &[Peer], wanted: &[Peer], done: &mut Reloaded) -> Result<(), Error> {
        let links = &self.0.links;
        let listed = self.list_peers(before, wanted, done).await;
        // Also after a change that failed: the links that ended for those before it are wanted.
        links.connect(&self.0.tasks, &self.0.random).await?;
        // A peer that is sent less than before holds the logs of the rest no more.
        done.freed_bytes += links.release_unlisted().await?;
        listed
    }

    async fn list_peers(&self, before: &[Peer], wanted: &[Peer], done: &mut Reloaded) -> Result<(), Error> {
        let links = &self.0.links;
        let wanted: BTreeMap<&String, &Peer> = wanted.iter().map(|peer| (&peer.id, peer)).collect();
        for gone in before.iter().filter(|peer| !wanted.contains_key(&peer.id)) {
            let id = ClusterId::new(&gone.id)?;
            if links.listed(&id).is_some() {
                done.freed_bytes += links.remove(&id).await?;
                done.removed.push(gone.id.clone());
            }
        }
        for (name, peer) in wanted {
            let id = ClusterId::new(name)?;
            match links.listed(&id) {
                Some(known) if known == *peer => continue,
                Some(_) => {
                    links.relist(&id, peer.clone()).await?;
                    done.changed.push(name.clone());
                }
                None => {
                    links.list(&id, peer.clone()).await?;
                    done.added.push(name.clone());
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The configuration that runs.
    pub(super) fn config(&self) -> Arc<ClusterConfig> {
        self.config.lock().clone()
    }

    fn set_config(&self, config: ClusterConfig) {
        *self.config.lock() = Arc::new(config);
    }
}
