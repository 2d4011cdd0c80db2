//! [`Sinks`]: the destinations that the trees of a cluster feed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewire_core::clock::WallClock;
use tidewire_core::cursors::{Registry, SINK, consumer_of};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{BootId, SinkName, TreeName};
use tidewire_core::meta::{MetaChange, MetaStore};
use tidewire_core::metrics::{BufferMetrics, Metrics};
use tidewire_core::random::Random;
use tidewire_core::sink::{
    DeadLetter, DeadLetters, Leases, Others, Sink, SinkHandle, SinkMetrics, SinkRunner, SinkSettings,
    SinkState,
};
use tidewire_core::tasks::Tasks;
use tidewire_core::tree::Tree;

use super::collecting::release;
use crate::status::{Lag, SinkStatus};

/// How long a stopping cluster waits for destinations to take what is in the log.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a sink of the library may be told, beside its own settings.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// How it is run: where it starts, what becomes of a record that is never taken, bounds and waits.
    pub settings: SinkSettings,
    /// Bytes that its dead letters may take. Default 16 MiB.
    pub dead_letter_bytes: u64,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self { settings: SinkSettings::default(), dead_letter_bytes: 16 * 1024 * 1024 }
    }
}

type Place = (TreeName, SinkName);

/// The sinks of a cluster.
pub(super) struct Sinks {
    meta: Arc<dyn MetaStore>,
    leases: Leases,
    wall: Arc<dyn WallClock>,
    metrics: SinkMetrics,
    running: Mutex<BTreeMap<Place, SinkHandle>>,
    /// One addition, removal or change at a time.
    changing: tokio::sync::Mutex<()>,
}

impl Sinks {
    pub(super) fn new(
        meta: Arc<dyn MetaStore>,
        boot: BootId,
        wall: Arc<dyn WallClock>,
        lease_ttl: Duration,
        metrics: &Metrics,
    ) -> Self {
        Self {
            // The lock of the data directory keeps other processes out: who held a lease before is gone.
            leases: Leases::new(meta.clone(), boot, Others::Gone, lease_ttl),
            meta,
            wall,
            metrics: SinkMetrics::new(metrics),
            running: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) async fn add(
        &self,
        tasks: &Tasks,
        random: &Random,
        (tree, cursors): (&Tree, Arc<Registry>),
        name: &str,
        sink: Box<dyn Sink>,
        options: SinkOptions,
    ) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        let place = (tree.identity().tree.clone(), SinkName::new(name)?);
        if self.running.lock().contains_key(&place) {
            let said = format!("sink {name} of tree {} is there already; remove it first", place.0);
            return Err(Error::new(ErrorKind::Conflict, said));
        }
        let letters =
            DeadLetters::open(self.meta.clone(), &place.0, &place.1, options.dead_letter_bytes).await?;
        let paused = self.meta.get(&paused_key(&place)).await?.is_some();
        // Before anybody can see it: from here on the log keeps what it needs.
        cursors.register(&consumer_of(&place.1)).await?;
        let runner = SinkRunner {
            tree: place.0.clone(),
            name: place.1.clone(),
            log: Arc::new(tree.clone()),
            cursors,
            leases: self.leases.clone(),
            letters: Arc::new(letters),
            settings: options.settings,
            wall: self.wall.clone(),
            random: random.fork(),
            metrics: self.metrics.clone(),
        };
        let handle = runner.spawn(tasks, sink, paused);
        self.running.lock().insert(place, handle);
        Ok(())
    }

    /// Ends a sink, and frees what it holds: its position, its dead letters. Also one that is registered and does not run.
    /// Answers how many bytes of the log only it held.
    pub(super) async fn remove(
        &self,
        tree: &Tree,
        name: &SinkName,
        cursors: &Registry,
    ) -> Result<u64, Error> {
        let _one = self.changing.lock().await;
        let place = (tree.identity().tree.clone(), name.clone());
        let handle = self.running.lock().get(&place).cloned();
        let consumer = consumer_of(name);
        if handle.is_none() && !cursors.stored().iter().any(|(registered, _)| *registered == consumer) {
            return Err(self.nothing(&place.0, name));
        }
        if let Some(handle) = &handle {
            handle.stop().await;
        }
        let freed = release(tree, cursors, &consumer).await?;
        DeadLetters::open(self.meta.clone(), &place.0, name, 0).await?.clear().await?;
        self.meta.commit(vec![MetaChange::delete(paused_key(&place))]).await?;
        self.running.lock().remove(&place);
        if let Some(handle) = handle {
            handle.forget();
        }
        Ok(freed)
    }

    /// Pauses a sink, durably: it stays so over a restart.
    pub(super) async fn pause(&self, tree: &TreeName, name: &SinkName) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        let handle = self.handle(tree, name)?;
        let key = paused_key(&(tree.clone(), name.clone()));
        self.meta.commit(vec![MetaChange::put(key, "")]).await?;
        handle.pause().await;
        Ok(())
    }

    /// Ends a pause.
    pub(super) async fn resume(&self, tree: &TreeName, name: &SinkName) -> Result<(), Error> {
        let _one = self.changing.lock().await;
        let handle = self.handle(tree, name)?;
        let key = paused_key(&(tree.clone(), name.clone()));
        self.meta.commit(vec![MetaChange::delete(key)]).await?;
        handle.resume();
        Ok(())
    }

    /// Tries again at once, also what is halted.
    pub(super) fn restart(&self, tree: &TreeName, name: &SinkName) -> Result<(), Error> {
        self.handle(tree, name)?.restart();
        Ok(())
    }

    /// The places of every sink of this name.
    pub(super) fn named(&self, name: &SinkName) -> Vec<TreeName> {
        let running = self.running.lock();
        running.keys().filter(|(_, sink)| sink == name).map(|(tree, _)| tree.clone()).collect()
    }

    /// The dead letters of a sink.
    pub(super) async fn dead_letters(
        &self,
        tree: &TreeName,
        name: &SinkName,
    ) -> Result<Vec<DeadLetter>, Error> {
        let handle = self.handle(tree, name)?;
        handle.dead_letters().list().await
    }

    /// Gives up one of them.
    pub(super) async fn drop_letter(
        &self,
        tree: &TreeName,
        name: &SinkName,
        letter: &DeadLetter,
    ) -> Result<(), Error> {
        self.handle(tree, name)?.dead_letters().give_up(letter).await
    }

    fn handle(&self, tree: &TreeName, name: &SinkName) -> Result<SinkHandle, Error> {
        let found = self.running.lock().get(&(tree.clone(), name.clone())).cloned();
        found.ok_or_else(|| self.nothing(tree, name))
    }

    fn nothing(&self, tree: &TreeName, name: &SinkName) -> Error {
        let running = self.running.lock();
        let names: Vec<String> = running.keys().map(|(tree, sink)| format!("{sink} of {tree}")).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::new(ErrorKind::NotFound, format!("there is no sink {name} of tree {tree}; there are: {there}"))
    }

    /// Delivers what is in the log as far as destinations take it within a budget, then ends every sink in order.
    pub(super) async fn stop(&self, budget: Duration) {
        let handles: Vec<SinkHandle> = self.running.lock().values().cloned().collect();
        let budget = FAREWELL.min(budget);
        futures::future::join_all(handles.iter().map(|handle| handle.drain(budget))).await;
    }

    /// Every sink at one moment; brings the gauges up to date.
    pub(super) fn status(&self) -> Vec<SinkStatus> {
        let running: Vec<(Place, SinkHandle)> =
            self.running.lock().iter().map(|(place, handle)| (place.clone(), handle.clone())).collect();
        running.iter().map(|((tree, name), handle)| status_of(tree, name, handle)).collect()
    }

    /// Shows what is handed over and not durable.
    pub(super) fn show_buffers(&self, buffers: &BufferMetrics) {
        for ((tree, name), handle) in &*self.running.lock() {
            let status = handle.status();
            buffers.show(tree.as_str(), &consumer_of(name), status.buffered, status.buffer_budget);
        }
    }

    /// One sentence for each sink that does not deliver.
    pub(super) fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for ((tree, name), handle) in &*self.running.lock() {
            let status = handle.status();
            let bad = matches!(status.state, SinkState::BackingOff | SinkState::Stalled | SinkState::Halted);
            let lost = status.state == SinkState::Starting && status.reason.is_some();
            if bad || lost {
                let reason = status.reason.unwrap_or_default();
                troubles.push(format!("sink {name} ({tree}) is {}: {reason}", status.state.name()));
            }
        }
        troubles
    }

    /// Sinks that are registered with a tree's log and do not run.
    pub(super) fn idle_consumers(&self, tree: &TreeName, cursors: &Registry) -> Vec<String> {
        let running = self.running.lock();
        let registered = cursors
            .stored()
            .into_iter()
            .filter_map(|(consumer, _)| consumer.strip_prefix(SINK).map(str::to_owned));
        registered
            .filter(|name| {
                let name = SinkName::new(name);
                name.is_ok_and(|name| !running.contains_key(&(tree.clone(), name)))
            })
            .collect()
    }
}

fn paused_key((tree, sink): &Place) -> String {
    format!("paused/{tree}/{sink}")
}

fn status_of(tree: &TreeName, name: &SinkName, handle: &SinkHandle) -> SinkStatus {
    let status = handle.status();
    SinkStatus {
        name: name.to_string(),
        tree: tree.to_string(),
        kind: status.kind.to_owned(),
        state: status.state.name().to_owned(),
        reason: status.reason,
        lag: Lag { entries: status.lag_entries, bytes: status.lag_bytes, seconds: status.lag_seconds },
        checkpoint: status.checkpoint.map(|checkpoint| checkpoint.to_string()),
        delivered: status.delivered,
        failures: status.failures,
        dead_letters: status.dead_letters,
    }
}
