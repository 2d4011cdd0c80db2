//! [`Plan`]: what a run measures, and where.

use std::path::{Path, PathBuf};

use crate::engines::Engine;
use crate::failure::Outcome;
use crate::figures::Quartiles;
use crate::report::{Row, Section};
use crate::rounds::{Rounds, Side};
use crate::turn::{Figures, Turn, Work};

/// What a run measures, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dir: PathBuf,
    pub pairs: usize,
    /// Of one turn, at most: peers take half of it.
    pub seconds: f64,
    pub peers: Vec<Engine>,
    pub log_gib: u64,
}

impl Plan {
    /// Where an engine lies in a scenario.
    pub fn dir(&self, scenario: &str, side: &Side) -> PathBuf {
        self.dir.join(scenario).join(side.name.replace(' ', "-"))
    }

    /// Removes what a scenario left behind.
    pub fn clear(&self, scenario: &str) -> Outcome<()> {
        let dir: &Path = &self.dir.join(scenario);
        if dir.exists() {
            std::fs::remove_dir_all(dir)?;
        }
        Ok(())
    }

    /// The bare loop and Tidewire, and the peers if they are wanted.
    pub fn sides(&self, peers: bool) -> Vec<Side> {
        let own = [Engine::Bare, Engine::Log, Engine::Tree].into_iter();
        let peers = self.peers.iter().copied().filter(|_| peers);
        own.chain(peers).map(Side::of).collect()
    }

    /// How long a turn of an engine lasts.
    pub fn seconds_of(&self, engine: Engine) -> f64 {
        if engine.is_peer() { self.seconds / 2.0 } else { self.seconds }
    }

    /// One turn of a side.
    pub fn turn(&self, scenario: &str, side: &Side, work: Work) -> Outcome<Figures> {
        Turn { engine: side.engine, dir: self.dir(scenario, side), work }.run()
    }
}

/// A row for each side: a rate, with latencies and syncs.
pub fn rates(section: &mut Section, rounds: &Rounds, unit: &'static str) {
    for (side, figures) in &rounds.sides {
        let median = |of: &dyn Fn(&Figures) -> f64| Quartiles::of(figures.iter().map(of)).median;
        let counted = figures.iter().all(|figures| figures.syncs.is_some());
        let timed = figures.iter().any(|figures| figures.p99_us > 0.0);
        section.rows.push(Row {
            who: side.name.clone(),
            unit,
            figure: Quartiles::of(figures.iter().map(Figures::per_second)),
            p50_us: timed.then(|| median(&|figures| figures.p50_us)),
            p99_us: timed.then(|| median(&|figures| figures.p99_us)),
            // Syncs are counted over the warm-up as well.
            syncs_per_second: counted.then(|| {
                median(&|figures| {
                    figures.syncs.unwrap_or(0) as f64
                        / (figures.seconds + crate::window::WARM_UP.as_secs_f64())
                })
            }),
        });
    }
}

/// A row for each side: how long something took, in milliseconds.
pub fn times(section: &mut Section, rounds: &Rounds) {
    for (side, figures) in &rounds.sides {
        section.rows.push(Row {
            who: side.name.clone(),
            unit: "ms",
            figure: Quartiles::of(figures.iter().map(|figures| figures.seconds * 1_000.0)),
            p50_us: None,
            p99_us: None,
            syncs_per_second: None,
        });
    }
}
