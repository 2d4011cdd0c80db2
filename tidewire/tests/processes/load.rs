//! Writers that remember what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};

use super::api::Api;
use super::server::Server;
use super::{eventually, pause};

/// Operations of a batch.
pub(super) const BATCH: usize = 500;
/// Writers at a time.
const WRITERS: usize = 4;
/// Batches that may follow the place of a kill before it has happened.
const SLACK: usize = 2;

/// The entry with this number: the value can be told from the key.
pub(super) fn entry(number: usize) -> (String, String) {
    (format!("key-{number:07}"), format!("value-of-{number}"))
}

/// Writes entries in batches, each until it is acknowledged, and calls `disturb` when the batches with the given numbers
/// are reached: while it runs the writers go on, but not past the next place.
pub(super) fn write_all(port: u16, entries: usize, places: &[usize], mut disturb: impl FnMut()) {
    let batches = entries / BATCH;
    let (begun, disturbed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let writer = |api: Api| {
        loop {
            let batch = begun.fetch_add(1, Ordering::Relaxed);
            if batch >= batches {
                return;
            }
            let due = places.iter().filter(|place| **place + SLACK <= batch).count();
            eventually("the disturbance happens", 120, || {
                (disturbed.load(Ordering::Relaxed) >= due).then_some(())
            });
            let ops: Vec<_> = (batch * BATCH..(batch + 1) * BATCH).map(entry).collect();
            eventually("a batch is acknowledged", 120, || api.wrote_batch(&ops).then_some(()));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| writer(Api::new(port)));
        }
        for place in places {
            eventually("the writers reach the place", 120, || {
                (begun.load(Ordering::Relaxed) > *place).then_some(())
            });
            disturb();
            disturbed.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Entries that go in one by one until told to stop. What is not acknowledged is not tried again.
#[derive(Debug, Default)]
pub(super) struct Stream {
    next: AtomicUsize,
    stop: AtomicBool,
    acknowledged: Mutex<BTreeMap<String, String>>,
}

impl Stream {
    /// Starts the writers in a scope.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        server: &Server,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        self.stop.store(false, Ordering::Relaxed);
        let apis: Vec<_> = (0..WRITERS).map(|_| server.api()).collect();
        let write = |api: Api| {
            while !self.stop.load(Ordering::Relaxed) {
                let (key, value) = entry(self.next.fetch_add(1, Ordering::Relaxed));
                if api.wrote(&key, &value) {
                    self.acknowledged.lock().expect("no writer panics").insert(key, value);
                } else {
                    pause(2);
                }
            }
        };
        apis.into_iter().map(|api| scope.spawn(move || write(api))).collect()
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// How many writes were acknowledged so far.
    pub(super) fn count(&self) -> usize {
        self.acknowledged.lock().expect("no writer panics").len()
    }

    /// Fails unless every acknowledged write is there.
    pub(super) fn assert_kept(&self, server: &Server) {
        let found = server.api().scan();
        let acknowledged = self.acknowledged.lock().expect("no writer panics");
        let lost: Vec<_> =
            acknowledged.iter().filter(|(key, value)| found.get(*key) != Some(value)).collect();
        let (first, all) = (lost.iter().take(5).collect::<Vec<_>>(), acknowledged.len());
        assert!(lost.is_empty(), "{} of {all} acknowledged writes are lost: {first:?}", lost.len());
    }
}
