//! One cluster's place on the network in memory.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::{Duration, sleep};

use super::network::{BACKLOG, MemNetwork};
use crate::error::{LinkError, LinkErrorKind};
use crate::id::ClusterId;
use crate::transport::link::Link;
use crate::transport::seam::{DialTarget, Listener, Transport};

/// How long a dial into a cut takes to fail.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The transport of one cluster on a [`MemNetwork`].
#[derive(Clone, Debug)]
pub struct MemTransport {
    network: MemNetwork,
    cluster: ClusterId,
}

impl MemTransport {
    pub(super) fn new(network: MemNetwork, cluster: ClusterId) -> Self {
        Self { network, cluster }
    }
}

#[async_trait]
impl Transport for MemTransport {
    async fn dial(&self, target: &DialTarget) -> Result<Link, LinkError> {
        let name = target.url.strip_prefix("mem://").and_then(|name| ClusterId::new(name).ok()).ok_or_else(
            || {
                LinkError::new(
                    LinkErrorKind::Config,
                    format!("{:?} is not mem:// and a cluster's name", target.url),
                )
            },
        )?;
        let unreachable = |why| LinkError::new(LinkErrorKind::Unreachable, format!("{}: {why}", target.url));
        let (there, back) =
            (self.network.wire(&self.cluster, &name), self.network.wire(&name, &self.cluster));
        if there.cut_since.is_some() || back.cut_since.is_some() {
            sleep(CONNECT_TIMEOUT).await;
            return Err(unreachable("no answer"));
        }
        let random = self.network.state.lock().random.clone();
        sleep(there.draw_delay(&random) + back.draw_delay(&random)).await;
        let listener = self.network.state.lock().listeners.get(&name).map(|(_, backlog)| backlog.clone());
        let backlog = listener.ok_or_else(|| unreachable("nobody listens there"))?;
        let (mine, theirs) = self.network.join(&self.cluster, &name);
        backlog.try_send(theirs).map_err(|_| unreachable("too many links wait to be accepted"))?;
        Ok(mine)
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, LinkError> {
        let (backlog, waiting) = mpsc::channel(BACKLOG);
        let mut state = self.network.state.lock();
        if state.listeners.contains_key(&self.cluster) {
            return Err(LinkError::new(LinkErrorKind::Config, format!("{} listens already", self.cluster)));
        }
        state.next_number += 1;
        let number = state.next_number;
        state.listeners.insert(self.cluster.clone(), (number, backlog));
        let (network, cluster) = (self.network.clone(), self.cluster.clone());
        Ok(Box::new(MemListener { network, cluster, number, waiting }))
    }
}

struct MemListener {
    network: MemNetwork,
    cluster: ClusterId,
    number: u64,
    waiting: mpsc::Receiver<Link>,
}

impl MemListener {
    /// Takes this listener off the network, unless a newer one has its place.
    fn leave(&mut self) {
        let mut state = self.network.state.lock();
        if state.listeners.get(&self.cluster).is_some_and(|(number, _)| *number == self.number) {
            state.listeners.remove(&self.cluster);
        }
        self.waiting.close();
    }
}

#[async_trait]
impl Listener for MemListener {
    async fn accept(&mut self) -> Result<Link, LinkError> {
        self.waiting
            .recv()
            .await
            .ok_or_else(|| LinkError::new(LinkErrorKind::Closed, "this listener is closed"))
    }

    fn address(&self) -> String {
        format!("mem://{}", self.cluster)
    }

    async fn close(&mut self) {
        self.leave();
        while self.waiting.try_recv().is_ok() {}
    }
}

impl Drop for MemListener {
    fn drop(&mut self) {
        self.leave();
    }
}
