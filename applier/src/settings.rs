//! [`Settings`]: the bounds of the receiving side of one tree, and the fixed times of a link.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::limits::Limits;

/// A link that has not said Hello by then is closed.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Links that may be open without having said Hello; further ones wait to be accepted.
pub(crate) const MAX_STRANGERS: usize = 64;
/// How long the last words on a link may take, and then how long the far side may take to end it.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);
/// First and longest wait before groups are offered again to a log that failed.
pub(crate) const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A call of the tree that takes longer shows as a busy log, and peers are asked to pause until it is answered.
pub(crate) const BUSY: Duration = Duration::from_secs(1);
/// How often an acknowledgement is repeated to a peer of which something is still not applied, so that it knows that
/// somebody is alive here.
pub(crate) const REPEAT_ACK: Duration = Duration::from_secs(10);
/// How often what is held is looked at while nothing arrives: dependencies on this cluster's own writes are met
/// without a page.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);
/// Pages and heartbeats that may wait for the applier beside the bound in bytes.
pub(crate) const INBOX: usize = 256;
/// What a block in memory costs beside its bytes.
pub(crate) const BLOCK_OVERHEAD: u64 = 256;

/// The bounds of the receiving side of one tree, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// What may wait, in the queue or for dependencies, over all peers. At the bound a peer gets no credit and its link
    /// is not read; one that has nothing waiting may always bring one page, so that peers whose writes depend on each
    /// other never wait for room forever.
    pub buffer_bytes: u64,
    /// The most credit that a new link gets before its first acknowledgement.
    pub initial_credit_bytes: u64,
    /// What one call of the tree takes, unless a single group is larger.
    pub apply_bytes: u64,
    /// A larger page is refused. Not below the largest group that a peer can commit.
    pub max_page_bytes: usize,
    /// A larger record is refused: the tree's own limit.
    pub max_record_bytes: usize,
    /// How long a group may wait for another cluster's writes before peers that relay on demand are asked for them; zero:
    /// none is asked.
    pub relay_after: Duration,
    /// How long a group waits for what it depends on; None: until it comes. After that it is applied without, which gives
    /// up causality for this group alone.
    pub apply_after: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            buffer_bytes: 16 * 1024 * 1024,
            initial_credit_bytes: 8 * 1024 * 1024,
            apply_bytes: 4 * 1024 * 1024,
            max_page_bytes: 32 * 1024 * 1024,
            max_record_bytes: Limits::default().max_record_bytes,
            relay_after: Limits::default().relay_after,
            apply_after: None,
        }
    }
}

impl Settings {
    /// Checks that the bounds fit each other.
    ///
    /// # Errors
    /// `Invalid`, with the rule that is broken.
    pub fn validate(self) -> Result<Self, Error> {
        let rules = [
            (self.buffer_bytes > 0, "buffer_bytes must be above 0"),
            (self.apply_bytes > 0, "apply_bytes must be above 0"),
            (self.apply_after != Some(Duration::ZERO), "apply_after must be above 0; leave it out to wait"),
            (
                self.initial_credit_bytes <= self.buffer_bytes,
                "initial_credit_bytes must not exceed buffer_bytes",
            ),
            (
                self.max_record_bytes <= self.max_page_bytes,
                "max_page_bytes must hold a record of max_record_bytes",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(self),
            Some((_, rule)) => Err(Error::new(ErrorKind::Invalid, *rule)),
        }
    }
}
