//! [`Latest`]: a value that many tasks follow, which wakes them in the order in which they began to wait.
//!
//! Tokio's `watch` wakes its receivers in a random order that no seed of ours decides; a simulation could not be repeated.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<(u64, T)>,
    changed: Notify,
}

/// The side that sets the value.
#[derive(Debug)]
pub struct Latest<T>(Arc<Shared<T>>);

impl<T: Clone> Latest<T> {
    /// Starts with a value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: Mutex::new((0, value)), changed: Notify::new() }))
    }

    /// The value.
    pub fn get(&self) -> T {
        self.0.value.lock().1.clone()
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
            changed.await;
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
        tokio::task::yield_now().await;
        latest.set(1);
        latest.set(2);
        tasks.join().await;
        assert_eq!(*woken.lock(), (0..50).collect::<Vec<_>>());
        assert_eq!(tasks.panics(), Vec::<String>::new());
    }
}
