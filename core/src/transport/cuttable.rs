//! A transport with switches: cuts, heals and slows the links of another one, per peer. For demonstrations and tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::cuttable_link::{Switch, wrap};
use super::link::Link;
use super::seam::{DialTarget, Listener, Transport};
use crate::error::LinkError;
use crate::id::ClusterId;

/// What is done to the links with one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) cut: bool,
    /// How often it was cut: a link that was open at a cut stays broken after the heal.
    pub(super) cuts: u64,
    pub(super) delay: Duration,
}

/// The faults of all peers; a peer without an entry has none.
pub(super) type Faults = BTreeMap<ClusterId, Fault>;

/// Wraps a transport. Cheap to clone; clones share their switches.
///
/// A cut breaks the peer's links at once and refuses new ones, dialled or accepted, until it is healed. A delay holds back
/// what arrives from the peer (so both sides need one for both directions) and keeps order and throughput. On accepted
/// links the peer is the cluster that the `Hello` names.
#[derive(Clone)]
pub struct CuttableTransport {
    inner: Arc<dyn Transport>,
    faults: watch::Sender<Faults>,
}

impl std::fmt::Debug for CuttableTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CuttableTransport").field("faults", &*self.faults.borrow()).finish_non_exhaustive()
    }
}

impl CuttableTransport {
    /// Wraps a transport, with no fault yet.
    pub fn new(inner: Arc<dyn Transport>) -> Self {
        Self { inner, faults: watch::Sender::default() }
    }

    /// Breaks every link with the peer, and refuses new ones until [`heal`](Self::heal).
    pub fn cut(&self, peer: &ClusterId) {
        self.change(peer, |fault| {
            fault.cuts += u64::from(!fault.cut);
            fault.cut = true;
        });
    }

    /// Ends a cut.
    pub fn heal(&self, peer: &ClusterId) {
        self.change(peer, |fault| fault.cut = false);
    }

    /// Whether the peer is cut off.
    pub fn is_cut(&self, peer: &ClusterId) -> bool {
        self.faults.borrow().get(peer).is_some_and(|fault| fault.cut)
    }

    /// Holds back every frame that arrives from the peer for this long, from now on.
    pub fn set_delay(&self, peer: &ClusterId, delay: Duration) {
        self.change(peer, |fault| fault.delay = delay);
    }

    fn change(&self, peer: &ClusterId, change: impl FnOnce(&mut Fault)) {
        self.faults.send_modify(|faults| change(faults.entry(peer.clone()).or_default()));
    }
}

#[async_trait]
impl Transport for CuttableTransport {
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError> {
        let mut switch = Switch::new(self.faults.subscribe());
        switch.join(&target.peer)?;
        let link = tokio::select! { biased;
            error = switch.broken() => return Err(error),
            link = self.inner.dial(target) => link?,
        };
        Ok(wrap(link, switch))
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        Ok(Box::new(CuttableListener { inner: self.inner.listen().await?, faults: self.faults.clone() }))
    }
}

struct CuttableListener {
    inner: Box<dyn Listener>,
    faults: watch::Sender<Faults>,
}

#[async_trait]
impl Listener for CuttableListener {
    async fn accept(&mut self) -> Result<Link, LinkError> {
        Ok(wrap(self.inner.accept().await?, Switch::new(self.faults.subscribe())))
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    async fn close(&mut self) {
        self.inner.close().await;
    }
}
