//! [`Plan`]: everybody's turns, round after round, so that whatever else the machine does falls on everybody.

use std::time::Duration;

use crate::failure::Outcome;
use crate::kind::{Kind, Kit};
use crate::limits::limits;
use crate::measure::{Figures, LivePlan, Turn, measure};
use crate::report::{Section, Side};
use crate::workload::Workload;

/// A turn whose backlog takes so many times what it should is cut short.
const TOO_LONG: u32 = 4;
/// The fewest entries of a backlog, however slow somebody is.
const FEWEST: f64 = 1_000.0;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub pairs: usize,
    pub entries: u64,
    pub batch: u64,
    pub backlog: Duration,
    pub live: Duration,
    pub peak: Duration,
}

impl Plan {
    /// All rounds with values of one size. Before them, a turn of everybody that does not count: it says how many entries
    /// take how long, and looks for the peak. Every other round goes backwards.
    pub async fn run(&self, kit: &Kit, kinds: &[Kind], value_bytes: usize) -> Outcome<Section> {
        let workload = Workload::new(value_bytes, self.batch);
        let limits = limits(&kit.dir, &workload, self.entries.min(300_000)).await?;
        let mut sides = Vec::new();
        for kind in kinds {
            sides.push(self.first(*kind, kit, &workload).await?);
        }
        for round in 0..self.pairs {
            for place in 0..sides.len() {
                let at = if round % 2 == 0 { place } else { sides.len() - 1 - place };
                let side = &mut sides[at];
                let turn =
                    Turn { entries: side.entries, most: self.backlog * TOO_LONG, live: self.live_of(side) };
                let figures = measure(side.kind, kit, &workload, turn).await;
                let figures = figures.map_err(|error| format!("{}: {error}", side.kind.name()))?;
                say(side.kind, round + 1, &figures);
                side.figures.push(figures);
            }
        }
        Ok(Section::new(value_bytes, self.pairs, limits, &sides))
    }

    async fn first(&self, kind: Kind, kit: &Kit, workload: &Workload) -> Outcome<Side> {
        let live = if self.live.is_zero() { LivePlan::None } else { LivePlan::Peak { lasting: self.peak } };
        let turn = Turn { entries: kind.first_entries(self.entries), most: self.backlog * TOO_LONG, live };
        let figures = measure(kind, kit, workload, turn).await;
        let figures = figures.map_err(|error| format!("{}: {error}", kind.name()))?;
        say(kind, 0, &figures);
        let fits = figures.backlog.per_second * self.backlog.as_secs_f64();
        let entries = (fits.max(FEWEST) as u64).min(self.entries);
        Ok(Side { kind, entries, peak: figures.peak, figures: Vec::new() })
    }

    /// Live writes go at half of the peak.
    fn live_of(&self, side: &Side) -> LivePlan {
        match side.peak {
            Some(peak) if !self.live.is_zero() => {
                LivePlan::Rate { per_second: peak / 2.0, lasting: self.live }
            }
            _ => LivePlan::None,
        }
    }
}

/// A line for whoever waits; the tables come at the end of a size.
fn say(kind: Kind, round: usize, figures: &Figures) {
    let live = figures.live.map_or_else(String::new, |live| {
        let lags = live.lags;
        format!(
            ", live {:.0}/s p50 {:.2} p99 {:.2} ms of {} probes",
            live.per_second, lags.p50_ms, lags.p99_ms, lags.probes
        )
    });
    let peak = figures.peak.map_or_else(String::new, |peak| format!(", peak {peak:.0}/s"));
    eprintln!(
        "round {round}: {}: loaded in {:.1} s, first after {:.1} s, {:.0} entries/s{}{peak}{live}",
        kind.name(),
        figures.loaded_in.as_secs_f64(),
        figures.first_after.as_secs_f64(),
        figures.backlog.per_second,
        if figures.backlog.whole { "" } else { " (cut short)" }
    );
}
