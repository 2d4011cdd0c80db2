//! [`Observer`]: code in this process that learns of every effective write, before its writer does.
//!
//! For caches and counters that must not lag behind what callers were answered. It sees what is applied while the
//! process runs, not what a start replays; whoever needs every change reads [`changes`](super::Tree::changes).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::superseded::Superseded;
use crate::id::{Lsn, OriginTag, TreeName, Version};
use crate::record::{Group, Kind, RecordView};

/// Learns of effective writes.
///
/// Called once for each, in log order, after its whole group is visible and before whoever waits for it is woken, and
/// by one thread at a time. It runs where the log is committed: it must not block, nor wait for a write of the same
/// tree; reading the tree is fine. A panic is logged and ends this observer alone.
pub trait Observer: Send + Sync + 'static {
    /// A write was applied, and won.
    fn applied(&self, write: &ObservedWrite<'_>);
}

/// A write as an [`Observer`] sees it: borrowed, so copy what you keep.
#[derive(Clone, Copy, Debug)]
pub struct ObservedWrite<'a> {
    /// What happened, with key and value.
    pub record: RecordView<'a>,
    /// Its version.
    pub version: Version,
    /// Where it lies in this log.
    pub lsn: Lsn,
    /// Whether it was committed here; else it came from elsewhere.
    pub local: bool,
}

/// An observer at work; it ends when this is dropped. A call that is under way may still end after that.
#[must_use = "dropping it ends the observer"]
pub struct Observing {
    number: u64,
    observers: Weak<Observers>,
}

impl std::fmt::Debug for Observing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observing").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        if let Some(observers) = self.observers.upgrade() {
            observers.remove(self.number);
        }
    }
}

/// The observers of a tree.
#[derive(Default)]
pub(super) struct Observers {
    /// How many there are: a tree without any looks at nothing else.
    count: AtomicUsize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    observers: Vec<(u64, Arc<dyn Observer>)>,
}

impl Observers {
    pub(super) fn add(self: &Arc<Self>, observer: Arc<dyn Observer>) -> Observing {
        let mut list = self.list.lock();
        let number = list.next;
        list.next += 1;
        list.observers.push((number, observer));
        self.count.store(list.observers.len(), Ordering::Release);
        Observing { number, observers: Arc::downgrade(self) }
    }

    fn remove(&self, number: u64) {
        let mut list = self.list.lock();
        let at = list.observers.iter().position(|(known, _)| *known == number);
        let removed = at.map(|at| list.observers.remove(at));
        self.count.store(list.observers.len(), Ordering::Release);
        // What an observer holds is dropped outside the lock: that may be another one.
        drop(list);
        drop(removed);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Shows a group that was applied, without what lost.
    pub(super) fn show(&self, tree: &TreeName, own: OriginTag, group: &Group, lost: &Superseded) {
        let observers = self.list.lock().observers.clone();
        for (number, observer) in observers {
            let shown = catch_unwind(AssertUnwindSafe(|| show(observer.as_ref(), own, group, lost)));
            if let Err(panic) = shown {
                let said = message(panic.as_ref());
                tracing::error!(%tree, observer = number, panic = said, "an observer panicked; it is called no more");
                self.remove(number);
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn show(observer: &dyn Observer, own: OriginTag, group: &Group, lost: &Superseded) {
    for framed in group.blocks() {
        let origin = framed.block.origin();
        let mut lsn = framed.frame.first_lsn;
        for record in framed.block.records().flatten().skip(usize::from(framed.frame.skip)) {
            if record.kind != Kind::Mark && !lost.contains(lsn) {
                let version = Version { hlc: record.hlc, origin };
                observer.applied(&ObservedWrite { record, version, lsn, local: origin == own });
            }
            lsn = lsn.next();
        }
    }
}
