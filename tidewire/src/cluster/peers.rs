//! [`Links`] at run time: peers that come, change, rest, return and go.
//!
//! One change at a time. What is remembered of a change is durable before anything is done; what was done to the links
//! and the logs then follows from the roll, so that a change that was cut short is finished by ordering it again.

use std::collections::BTreeSet;

use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, TreeName};
use tidewire_core::limits::MAX_KNOWN_CLUSTERS;
use tidewire_core::random::Random;
use tidewire_core::tasks::Tasks;
use tidewire_core::tree::LogView;
use tidewire_shipper::ShipperHandle;

use super::collecting::release;
use super::links::{Enrolled, Links, PEER, consumer};
use super::membership::{Entry, Note, Roll, store};
use crate::config::Peer;
use crate::status::Member;

impl Links {
    /// Takes over what is remembered of peers. Those of `listed` are about to be listed: what was kept of them is
    /// forgotten, the list counts.
    pub(super) async fn recall(&self, listed: &BTreeSet<ClusterId>) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        let mut roll = Roll::read(self.meta.as_ref()).await?;
        for (id, why) in roll.doubt(|peer| self.check_peer(peer)) {
            tracing::error!(peer = %id, why, "a peer that was added at run time cannot be; nothing is exchanged with it, and what is held for it stays: remove it, and add it again");
        }
        self.state.lock().roll.remember(roll.clone());
        for id in listed {
            self.forget_kept(id).await?;
        }
        let sealed: Vec<ClusterId> = roll.sealed().cloned().collect();
        if let Some(server) = self.server() {
            for id in &sealed {
                server.seal(id).await;
            }
        }
        let kept: Vec<ClusterId> = roll.peers().map(|(id, _)| id.clone()).collect();
        for id in kept.iter().filter(|id| !listed.contains(*id)) {
            self.let_in(id)?;
        }
        Ok(())
    }

    /// From now on everybody is on the roll whom the metadata and the configuration know. Before, nobody is told who takes
    /// part in a tree: somebody would be missing, and what he may still write against would be reaped.
    pub(super) fn complete_roll(&self) {
        let mut state = self.state.lock();
        state.complete = true;
        state.declare();
    }

    /// Whether a peer can be at all.
    ///
    /// # Errors
    /// `Invalid`, with every rule that it breaks.
    pub(super) fn check_peer(&self, peer: &Peer) -> Result<(), Error> {
        let problems = peer.problems(&self.id, self.dials_urls);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Invalid, format!("peer {}: {}", peer.id, problems.join("; "))))
    }

    /// What is wrong with peers that were added at run time.
    pub(super) fn doubtful(&self) -> Vec<String> {
        let state = self.state.lock();
        let said = |(id, why): (&ClusterId, &str)| {
            format!(
                "peer {id} was added at run time and cannot be: {why}; nothing is exchanged with it, and what is held for it \
                 stays: remove it (tidewire peers remove {id}), and add it again"
            )
        };
        state.roll.doubtful().map(said).collect()
    }

    /// Adds a peer that the configuration or the program lists.
    ///
    /// # Errors
    /// `Conflict` when it is listed already.
    pub(super) async fn list(&self, id: &ClusterId, peer: Peer) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.check_room(id)?;
        self.check_peer(&peer)?;
        if self.entry(id).is_some_and(|entry| entry.listed.is_some()) {
            let said = format!("peer {id} is there already; remove it first");
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        self.forget_kept(id).await?;
        self.take_over(id, peer).await
    }

    /// The peer is listed from now on as it is given here.
    pub(super) async fn relist(&self, id: &ClusterId, peer: Peer) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.check_room(id)?;
        self.check_peer(&peer)?;
        self.forget_kept(id).await?;
        self.take_over(id, peer).await
    }

    async fn take_over(&self, id: &ClusterId, peer: Peer) -> Result<(), Error> {
        self.end_shippers(id).await;
        self.state.lock().roll.list(id, Some(peer));
        self.let_in(id)?;
        self.state.lock().declare();
        Ok(())
    }

    /// Adds a peer and remembers it.
    ///
    /// # Errors
    /// `Conflict` when there is one of that name.
    pub(super) async fn keep(&self, id: &ClusterId, peer: Peer) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.check_room(id)?;
        self.check_peer(&peer)?;
        if self.demand_peer(id).is_ok() {
            let said = format!("peer {id} is there already; remove it first");
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        let mut note = self.note(id);
        note.kept = Some(peer);
        self.remember(id, note).await?;
        self.let_in(id)
    }

    /// Ends the exchange with a peer, and forgets it unless it was sealed. Answers how many bytes of logs only it held.
    ///
    /// # Errors
    /// `NotFound` when nothing is known or held for such a peer.
    pub(super) async fn remove(&self, id: &ClusterId) -> Result<u64, Error> {
        let _one = self.changing.lock().await;
        let holds = |enrolled: &Enrolled| {
            enrolled.cursors.stored().iter().any(|(registered, _)| *registered == consumer(id))
        };
        let doubted = self.entry(id).is_some_and(|entry| entry.bad.is_some());
        let known = self.demand_peer(id);
        if known.is_err() && !doubted && !self.enrolled().iter().any(holds) {
            return known.map(|()| 0);
        }
        let note = self.note(id);
        self.remember(id, Note { sealed: note.sealed, ..Note::default() }).await?;
        self.state.lock().roll.list(id, None);
        self.state.lock().declare();
        self.end_shippers(id).await;
        if let Some(server) = self.server().filter(|_| !note.sealed) {
            server.remove(id).await;
        }
        let freed = self.release_all(id).await?;
        self.withdraw_seeds().await?;
        tracing::info!(peer = %id, bytes = freed, "peer removed; these bytes of the log are no longer held for it");
        Ok(freed)
    }

    /// Has the links with a peer rest, both ways, until they are resumed, also over restarts. Its holds stay.
    ///
    /// # Errors
    /// `NotFound` when there is no such peer, `Conflict` for one that was sealed out.
    pub(super) async fn pause(&self, id: &ClusterId) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.active_peer(id)?;
        let note = self.note(id);
        self.remember(id, Note { paused: true, ..note }).await?;
        let resting = self.shippers_of(id);
        futures::future::join_all(resting.iter().map(|(shipper, _)| shipper.stop())).await;
        if let Some(server) = self.server() {
            server.pause(id);
        }
        tracing::info!(peer = %id, "peer paused; the log is held for it until it is resumed, removed or sealed");
        Ok(())
    }

    /// Ends a pause, and lets return who was sealed out.
    ///
    /// # Errors
    /// `NotFound` when nothing is known of such a cluster.
    pub(super) async fn resume(&self, id: &ClusterId) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        let entry = self.entry(id);
        let sealed = entry.as_ref().is_some_and(|entry| entry.note.sealed);
        if !sealed {
            self.demand_peer(id)?;
        }
        if sealed {
            // Before anything of it is taken: what it wrote may be covered here and lacking.
            for enrolled in self.enrolled() {
                enrolled.tree.let_return(id).await?;
            }
        }
        let kept = self.note(id).kept;
        self.remember(id, Note { kept, ..Note::default() }).await?;
        self.end_shippers(id).await;
        if let Some(server) = self.server() {
            server.unseal(id);
        }
        if entry.is_some_and(|entry| entry.peer().is_some()) {
            self.let_in(id)?;
        }
        tracing::info!(peer = %id, sealed, "peer resumed");
        Ok(())
    }

    /// Drops the links with a peer, both ways, and what was noted against it; both are begun anew.
    ///
    /// # Errors
    /// `NotFound` when there is no such peer, `Conflict` for one that is paused or sealed.
    pub(super) async fn restart(&self, id: &ClusterId) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.active_peer(id)?;
        if self.note(id).paused {
            let said = format!("peer {id} is paused; resume it");
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        self.end_shippers(id).await;
        if let Some(server) = self.server() {
            server.restart(id);
        }
        Ok(())
    }

    /// Counts a cluster that is away out of everything: nothing is held or waited for on its account, and nothing of it is
    /// taken, until it is resumed. Answers how many bytes of logs only it held.
    ///
    /// # Errors
    /// `NotFound` for a cluster that is not known here, `Conflict` for one that has a link to here, `Invalid` for this one.
    pub(super) async fn seal(&self, id: &ClusterId) -> Result<u64, Error> {
        let _one = self.changing.lock().await;
        if *id == self.id {
            let said = format!("{id} is this cluster itself; a cluster is sealed by the others");
            return Err(Error::new(ErrorKind::Invalid, said));
        }
        let knows = |enrolled: &Enrolled| enrolled.tree.origins().iter().any(|(name, _)| name == id);
        let known = self.demand_peer(id);
        if known.is_err() && !self.enrolled().iter().any(knows) {
            return known.map(|()| 0);
        }
        if self.server().is_some_and(|server| server.is_live(id)) {
            let said = format!(
                "{id} is not away, it has a link to here now: stop it first; to end the exchange alone, remove the peer"
            );
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        // Nothing of it may be applied any more before it stops to count: what waits of it may be older than what is
        // reaped from then on.
        if let Some(server) = self.server() {
            server.seal(id).await;
        }
        let note = self.note(id);
        if let Err(error) = self.remember(id, Note { sealed: true, ..note }).await {
            if let Some(server) = self.server() {
                server.unseal(id);
            }
            if known.is_ok() {
                self.let_in(id)?;
            }
            return Err(error);
        }
        self.end_shippers(id).await;
        let freed = self.release_all(id).await?;
        self.withdraw_seeds().await?;
        tracing::warn!(peer = %id, bytes = freed, "sealed out: nothing is held for it, and nothing of it is taken until it is resumed");
        Ok(freed)
    }

    /// Releases what is held for clusters that are sent to no more. Answers how many bytes of logs only they held.
    pub(super) async fn release_unlisted(&self) -> Result<u64, Error> {
        let _one = self.changing.lock().await;
        let mut freed = 0;
        for enrolled in self.enrolled() {
            let tree = &enrolled.tree.identity().tree;
            for known in enrolled.cursors.consumers() {
                let Some(peer) = known.name.strip_prefix(PEER) else { continue };
                let needed = |id: ClusterId| self.state.lock().roll.sends(&id, tree);
                if ClusterId::new(peer).is_ok_and(needed) {
                    continue;
                }
                let bytes = release(&enrolled.tree, &enrolled.cursors, &known.name).await?;
                tracing::info!(consumer = known.name, %tree, bytes, "peer is not listed any more; these bytes of the log are no longer held for it");
                freed += bytes;
            }
        }
        self.withdraw_seeds().await?;
        Ok(freed)
    }

    /// Starts what is missing.
    pub(super) async fn connect(&self, tasks: &Tasks, random: &Random) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        self.start_missing(tasks, random).await
    }

    /// Everybody on the roll.
    pub(super) fn members(&self) -> Vec<Member> {
        self.state.lock().roll.show()
    }

    /// How a peer is listed, if it is.
    pub(super) fn listed(&self, id: &ClusterId) -> Option<Peer> {
        self.entry(id)?.listed
    }

    fn entry(&self, id: &ClusterId) -> Option<Entry> {
        self.state.lock().roll.get(id).cloned()
    }

    fn note(&self, id: &ClusterId) -> Note {
        self.state.lock().roll.note(id)
    }

    fn enrolled(&self) -> Vec<Enrolled> {
        self.state.lock().trees.values().cloned().collect()
    }

    fn demand_peer(&self, id: &ClusterId) -> Result<(), Error> {
        self.state.lock().roll.peer(id).map(drop)
    }

    fn active_peer(&self, id: &ClusterId) -> Result<(), Error> {
        self.demand_peer(id)?;
        if self.note(id).sealed {
            let said = format!("peer {id} was sealed out; resume lets it return");
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        Ok(())
    }

    fn check_room(&self, id: &ClusterId) -> Result<(), Error> {
        let state = self.state.lock();
        let others = state.roll.peers().filter(|(other, _)| *other != id).count();
        if others + 1 >= MAX_KNOWN_CLUSTERS {
            let said = format!("{others} peers are known; at most {} are allowed", MAX_KNOWN_CLUSTERS - 1);
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        Ok(())
    }

    async fn remember(&self, id: &ClusterId, note: Note) -> Result<(), Error> {
        let doubted = self.entry(id).is_some_and(|entry| entry.bad.is_some());
        if note != self.note(id) || doubted {
            store(&self.meta, id, &note).await?;
            let mut state = self.state.lock();
            state.roll.set_note(id, note);
            state.declare();
        }
        Ok(())
    }

    async fn forget_kept(&self, id: &ClusterId) -> Result<(), Error> {
        let note = self.note(id);
        if note.kept.is_none() {
            return Ok(());
        }
        tracing::info!(peer = %id, "the configuration lists this peer now; what was added at run time counts no more");
        self.remember(id, Note { kept: None, ..note }).await
    }

    /// Opens the door for a peer as the roll has it.
    fn let_in(&self, id: &ClusterId) -> Result<(), Error> {
        let Some(entry) = self.entry(id) else { return Ok(()) };
        let Some(peer) = entry.active() else {
            tracing::warn!(peer = %id, "the peer is sealed out, or what is remembered of it cannot be: nothing is exchanged with it");
            return Ok(());
        };
        let trees = trees_of(peer)?;
        let limited = !peer.receive || !trees.is_empty();
        if let Some(server) = self.server() {
            server.allow(id, limited.then(|| if peer.receive { trees } else { BTreeSet::new() }));
            if entry.note.paused {
                server.pause(id);
            } else {
                server.resume(id);
            }
        }
        Ok(())
    }

    fn shippers_of(&self, id: &ClusterId) -> Vec<(ShipperHandle, TreeName)> {
        let state = self.state.lock();
        let of_peer = state.shippers.iter().filter(|((peer, _), _)| peer == id);
        of_peer.map(|((_, tree), shipper)| (shipper.clone(), tree.clone())).collect()
    }

    /// Stops every shipper to a peer and forgets it.
    async fn end_shippers(&self, id: &ClusterId) {
        let ended = self.shippers_of(id);
        futures::future::join_all(ended.iter().map(|(shipper, _)| shipper.stop())).await;
        self.state.lock().shippers.retain(|(peer, _), _| peer != id);
        for (_, tree) in ended {
            self.shipper_metrics.forget(&tree, id);
        }
    }

    /// Waits no more for seeds that were ordered from clusters with which the tree is not exchanged any more.
    async fn withdraw_seeds(&self) -> Result<(), Error> {
        for Enrolled { tree, .. } in self.enrolled() {
            let name = &tree.identity().tree;
            let gives = |from: &ClusterId| {
                let listed =
                    |trees: Vec<String>| trees.is_empty() || trees.iter().any(|tree| tree == name.as_str());
                self.active_peer(from).is_ok() && self.exchanged(from).is_ok_and(listed)
            };
            let from = tree.seed_wish().and_then(|wish| wish.from);
            if let Some(from) = from.filter(|from| !gives(from)) {
                tree.withdraw_seed(&from).await?;
                tracing::warn!(tree = %name, peer = %from, "the snapshot that was to come from this peer is not waited for any more");
            }
        }
        Ok(())
    }

    async fn release_all(&self, id: &ClusterId) -> Result<u64, Error> {
        let mut freed = 0;
        for enrolled in self.enrolled() {
            freed += release(&enrolled.tree, &enrolled.cursors, &consumer(id)).await?;
        }
        Ok(freed)
    }
}

/// The trees that a peer is limited to, none if it is not.
fn trees_of(peer: &Peer) -> Result<BTreeSet<TreeName>, Error> {
    peer.trees.iter().map(TreeName::new).collect()
}
