//! [`Latest`]: a value that many tasks follow, which wakes them in the order in which they began to wait.
//!
//! Tokio's `watch` wakes its receivers in a random order that no seed of ours decides; a simulation could not be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<(u64, T)>,
    changed: Notify,
    /// Tasks that wait, or were woken and have not run since.
    waiting: AtomicUsize,
}

/// A task that waits, until it runs again or is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn on(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The side that sets the value.
#[derive(Debug)]
pub struct Latest<T>(Arc<Shared<T>>);

impl<T: Clone> Latest<T> {
    /// Starts with a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: Mutex::new((0, value)),
            changed: Notify::new(),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// The value.
    pub fn get(&self) -> T {
        self.0.value.lock().1.clone()
    }

    /// Whether somebody waits for another value, or was woken by one and has not run since.
    pub fn is_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire) > 0
    }

    /// Changes the value in place and wakes everybody who waits for that.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut now = self.0.value.lock();
            now.0 += 1;
            change(&mut now.1);
        }
        self.0.changed.notify_waiters();
    }

    /// Replaces the value and wakes everybody who waits for that.
    pub fn set(&self, value: T) {
        self.modify(|now| *now = value);
    }

    /// Follows the value from now on.
    pub fn follow(&self) -> Follower<T> {
        Follower { shared: self.0.clone(), seen: self.0.value.lock().0 }
    }
}

/// Somebody who follows the value.
#[derive(Debug)]
pub struct Follower<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

impl<T: Clone> Follower<T> {
    /// The value, which is seen now.
    pub fn get(&mut self) -> T {
        let now = self.shared.value.lock();
        self.seen = now.0;
        now.1.clone()
    }

    /// Waits until the value is another than the last one seen. Cancel-safe.
    pub async fn changed(&self) {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if self.shared.value.lock().0 != self.seen {
                return;
            }
            let waiting = Waiting::on(&self.shared.waiting);
            changed.await;
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tasks::{Tasks, Threads};
    use futures::FutureExt;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn followers_see_the_last_value_once_and_wake_in_the_order_in_which_they_waited() {
        let latest = Latest::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks = Tasks::new(Threads::Inline);
        for number in 0..50 {
            let (mut follower, woken) = (latest.follow(), woken.clone());
            tasks.spawn("follow", async move {
                follower.changed().await;
                assert_eq!(follower.get(), 2);
                assert!(follower.changed().now_or_never().is_none());
                woken.lock().push(number);
            });
        }
        assert!(!latest.is_awaited());
        tokio::task::yield_now().await;
        assert!(latest.is_awaited());
        latest.set(1);
        latest.set(2);
        assert!(latest.is_awaited(), "they have yet to run");
        tasks.join().await;
        assert!(!latest.is_awaited());
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
        assert_eq!(tasks.panics(), Vec::<String>::new());
    }
}
