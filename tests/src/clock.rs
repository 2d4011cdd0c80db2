//! [`SimClock`]: a wall clock that follows virtual time, can jump, and can drift.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tidewire_core::clock::WallClock;
use tokio::time::Instant;

/// Virtual time starts here: some day in 2026, in milliseconds since 1970.
const START_MS: i64 = 1_780_000_000_000;

/// The wall clock of one simulated site. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    began: Instant,
    offset_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that is `offset_ms` off.
    pub fn new(began: Instant, offset_ms: i64) -> Self {
        Self { began, offset_ms: Arc::new(AtomicI64::new(offset_ms)) }
    }

    /// Sets how far it is off.
    pub fn set_offset(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
    }
}

impl WallClock for SimClock {
    fn now_millis(&self) -> u64 {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).expect("simulations are short");
        u64::try_from(START_MS + elapsed + self.offset_ms.load(Ordering::Relaxed)).expect("offsets are small")
    }
}
