//! [`Window`]: when measuring begins and ends. What comes before warms up and does not count. [`Laps`]: one writer's
//! writes within it.

use std::time::{Duration, Instant};

use crate::latencies::Latencies;
use crate::turn::Figures;

pub const WARM_UP: Duration = Duration::from_millis(150);

/// A stretch of time.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: Instant,
    pub to: Instant,
}

impl Window {
    /// From now, after a moment to warm up.
    pub fn new(seconds: f64) -> Self {
        let from = Instant::now() + WARM_UP;
        Self { from, to: from + Duration::from_secs_f64(seconds) }
    }

    /// Whether something that ended then counts.
    pub fn holds(&self, end: Instant) -> bool {
        self.from <= end && end < self.to
    }

    /// What came out of writes of so many records each.
    pub fn figures(&self, latencies: Latencies, records: usize) -> Figures {
        let writes = latencies.all();
        let records = (latencies.len() * records) as u64;
        let (p50_us, p99_us) = latencies.quantiles();
        Figures { records, seconds: (self.to - self.from).as_secs_f64(), p50_us, p99_us, writes, syncs: None }
    }
}

/// What one writer does, write after write, until the window is over.
pub struct Laps {
    window: Window,
    latencies: Latencies,
    began: Instant,
}

impl Laps {
    /// The first write begins now.
    pub fn new(window: Window) -> Self {
        Self { window, latencies: Latencies::default(), began: Instant::now() }
    }

    /// A write has been answered, and the next one begins. Whether there is one.
    pub fn next(&mut self) -> bool {
        let end = Instant::now();
        if self.window.holds(end) {
            self.latencies.record(end - self.began);
        } else {
            self.latencies.pass();
        }
        self.began = end;
        end < self.window.to
    }

    pub fn latencies(self) -> Latencies {
        self.latencies
    }
}
