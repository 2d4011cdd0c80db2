//! The peers of a cluster, as its users handle them.

use tidewire_core::error::Error;
use tidewire_core::id::ClusterId;

use super::handle::Cluster;
use crate::config::Peer;
use crate::status::Member;

impl Cluster {
    /// Exchanges writes with another cluster from now on. Like a peer of the configuration it is listed by the program: as
    /// long as this cluster is open, and again when the program says so again. If one of that name was
    /// [kept](Self::keep_peer), this one takes its place.
    ///
    /// # Errors
    /// `Invalid` for a peer that cannot be, `Conflict` for one that is listed already.
    pub async fn add_peer(&self, peer: Peer) -> Result<(), Error> {
        let id = self.other(&peer)?;
        self.0.links.list(&id, peer).await?;
        self.0.links.connect(&self.0.tasks, &self.0.random).await
    }

    /// The same for a peer that is to be there after a restart too, until it is [removed](Self::remove_peer): it is kept in
    /// the data directory.
    ///
    /// # Errors
    /// `Invalid` for a peer that cannot be, `Conflict` when there is one of that name, `Unavailable` when it cannot be
    /// stored.
    pub async fn keep_peer(&self, peer: Peer) -> Result<(), Error> {
        let id = self.other(&peer)?;
        self.0.links.keep(&id, peer).await?;
        self.0.links.connect(&self.0.tasks, &self.0.random).await
    }

    fn other(&self, peer: &Peer) -> Result<ClusterId, Error> {
        self.0.links.check_peer(peer)?;
        ClusterId::new(&peer.id)
    }

    /// Ends the exchange with a peer and forgets it; one that the configuration lists comes back with the next start or
    /// reload. Answers how many bytes of the logs only this peer held: the next [`gc`](Self::gc) lets go of them, as far
    /// as they are in snapshots.
    ///
    /// Its writes that are here stay, and others that still get some pass them on. Whoever is gone for good is
    /// [sealed](Self::seal_peer) as well.
    ///
    /// # Errors
    /// `NotFound` when there is no such peer.
    pub async fn remove_peer(&self, id: &str) -> Result<u64, Error> {
        self.0.links.remove(&ClusterId::new(id)?).await
    }

    /// Has the links with a peer rest, both ways, until it is [resumed](Self::resume_peer), also over restarts. The logs are
    /// held for it meanwhile; status says how much.
    ///
    /// # Errors
    /// `NotFound` when there is no such peer, `Conflict` for one that was sealed out, `Unavailable` when it cannot be stored.
    pub async fn pause_peer(&self, id: &str) -> Result<(), Error> {
        self.0.links.pause(&ClusterId::new(id)?).await
    }

    /// Ends a pause, or lets a cluster return that was [sealed](Self::seal_peer) out. What it lacks by then comes from the
    /// log, or as a snapshot.
    ///
    /// # Errors
    /// `NotFound` when nothing is known of such a cluster, `Unavailable` when it cannot be stored.
    pub async fn resume_peer(&self, id: &str) -> Result<(), Error> {
        self.0.links.resume(&ClusterId::new(id)?).await?;
        self.0.links.connect(&self.0.tasks, &self.0.random).await
    }

    /// Drops the links with a peer, both ways, forgets what was noted against it, and dials again at once.
    ///
    /// # Errors
    /// `NotFound` when there is no such peer, `Conflict` for one that is paused or sealed.
    pub async fn restart_peer(&self, id: &str) -> Result<(), Error> {
        self.0.links.restart(&ClusterId::new(id)?).await?;
        self.0.links.connect(&self.0.tasks, &self.0.random).await
    }

    /// Counts a cluster that is away, a peer or not, out of everything, also over restarts: the logs hold nothing for it,
    /// nothing waits for its frontier, and nothing of it is taken until it is [resumed](Self::resume_peer). Answers how
    /// many bytes of the logs only it held.
    ///
    /// # Errors
    /// `NotFound` for a cluster that is not known here, `Conflict` for one that has a link to here, `Unavailable` when it
    /// cannot be stored.
    pub async fn seal_peer(&self, id: &str) -> Result<u64, Error> {
        self.0.links.seal(&ClusterId::new(id)?).await
    }

    /// Every peer, whoever listed it, and what was ordered about it.
    pub fn peers(&self) -> Vec<Member> {
        self.0.links.members()
    }

    /// Releases what the logs hold for clusters that are not peers, or not sent to, at this moment: once all peers are
    /// added after a start. Answers how many bytes only they held.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn release_unlisted_peers(&self) -> Result<u64, Error> {
        self.0.links.release_unlisted().await
    }
}
