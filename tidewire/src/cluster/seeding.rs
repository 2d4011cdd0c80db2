//! Seeding the trees of a cluster from a peer: by order, and what is shown of it.

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::tree::{SeedWish, Tree};

use super::handle::Cluster;

impl Cluster {
    /// Has a tree, or every tree that the peer exchanges, seeded from a peer: the peer sends a snapshot of it, which is
    /// joined with what is here by version, and then goes on with its log. Kept over restarts until it is done. Answers
    /// the trees.
    ///
    /// A log that was put back from an older copy gets back this way what its peers know of it. What was written on the
    /// copy since is written anew.
    ///
    /// # Errors
    /// `NotFound` for a peer or a tree that is not there; `Unavailable` when the order cannot be stored.
    pub async fn reseed(&self, peer: &str, tree: Option<&str>) -> Result<Vec<String>, Error> {
        let id = ClusterId::new(peer)?;
        let exchanged = self.0.links.exchanged(&id)?;
        let wanted = |found: &Tree| {
            let name = found.identity().tree.as_str();
            let listed = exchanged.is_empty() || exchanged.iter().any(|tree| tree == name);
            listed && tree.is_none_or(|tree| tree == name)
        };
        let trees: Vec<Tree> = self.trees().into_iter().filter(wanted).collect();
        if trees.is_empty() {
            let tree = tree.map_or_else(String::new, |tree| format!(" {tree}"));
            let said = format!("there is no tree{tree} here that is exchanged with {id}");
            return Err(Error::new(ErrorKind::NotFound, said));
        }
        let mut names = Vec::new();
        for tree in trees {
            tree.wish_for_seed(SeedWish { from: Some(id.clone()) }).await?;
            let name: &TreeName = &tree.identity().tree;
            self.0.links.restart_links(name);
            tracing::info!(tree = %name, peer = %id, "a snapshot is asked for");
            names.push(name.to_string());
        }
        Ok(names)
    }

    /// One reason for each tree that is being seeded, or is to be: what it shows is not yet what its peers have.
    pub(super) fn seeding(&self) -> Vec<String> {
        let reasons = self.trees().into_iter().filter_map(|tree| {
            let name = &tree.identity().tree;
            if let Some((peer, bytes)) = self.0.links.seed_of(name) {
                return Some(format!(
                    "tree {name}: reseeding, {bytes} bytes of a snapshot of {peer} have come"
                ));
            }
            tree.seed_wish().map(|wish| self.waits_for_seed(&tree, &wish))
        });
        reasons.collect()
    }

    /// What a tree that wants a seed waits for: from whom, who cannot give it, and what givers have yet to get themselves.
    fn waits_for_seed(&self, tree: &Tree, wish: &SeedWish) -> String {
        let name = &tree.identity().tree;
        let from = wish.from.as_ref().map_or_else(|| "a peer".to_owned(), ToString::to_string);
        let mut said = format!("tree {name}: reseeding, waits for {from} to send a snapshot");
        let (unfit, others) = self.0.links.unfit_givers(name);
        if !unfit.is_empty() {
            said += &format!("; {}", unfit.join("; "));
        }
        if !unfit.is_empty() && others == 0 {
            let held = tree.interest();
            said += &format!(
                "; no peer is left that could: add one that holds {held}, or let one of these hold them, or hold fewer keys here \
                 (interest of the tree)"
            );
        }
        let now = self.0.clock.wall_millis();
        for lack in tree.seed_lacks() {
            let seconds = now.saturating_sub(lack.since_ms) / 1_000;
            said += &format!("; for {seconds} s: {lack}");
        }
        said
    }
}
