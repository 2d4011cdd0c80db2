//! [`Ticket`]: what everybody in one group waits for. One wake per group.

use std::sync::OnceLock;

use tokio::sync::Notify;

use crate::error::Error;

/// The outcome of one group.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    result: OnceLock<Result<(), Error>>,
    done: Notify,
}

impl Ticket {
    /// Tells the outcome to everybody. The first one counts.
    pub(super) fn complete(&self, result: Result<(), Error>) {
        let _ = self.result.set(result);
        self.done.notify_waiters();
    }

    /// Waits for the outcome. Dropping the future changes nothing about the group.
    pub(super) async fn wait(&self) -> Result<(), Error> {
        loop {
            // It counts from here on, not from its first poll: an outcome that comes after the look below wakes it.
            let done = self.done.notified();
            if let Some(result) = self.result.get() {
                return result.clone();
            }
            done.await;
        }
    }
}
