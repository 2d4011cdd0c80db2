//! [`News`]: somebody could be reached again, so whoever waits to try again tries now.
//!
//! After a cut each consumer would come back by its own clock, up to half a minute apart, and what one peer has by then
//! the others only wait for. Whoever gets through says so, and the waits of the others end. That costs each of them one
//! attempt, a few times a second at most.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::latest::{Follower, Latest};

/// How long nothing is news after something was.
const OLD_AFTER: Duration = Duration::from_millis(200);

/// Tells the consumers of a cluster that one of them got through. Clones are the same.
#[derive(Clone, Debug)]
pub struct News(Arc<Latest<Option<Instant>>>);

impl Default for News {
    fn default() -> Self {
        Self(Arc::new(Latest::new(None)))
    }
}

impl News {
    /// Somebody was reached.
    pub fn tell(&self) {
        let now = Instant::now();
        if self.0.get().is_none_or(|last| now.duration_since(last) >= OLD_AFTER) {
            self.0.set(Some(now));
        }
    }

    /// Hears what is told from now on.
    pub(super) fn follow(&self) -> Follower<Option<Instant>> {
        self.0.follow()
    }
}
