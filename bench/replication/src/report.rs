//! [`Report`]: tables for people, JSON for programs, and whether the targets are met.

use std::fmt::Write;

use serde::Serialize;

use crate::figures::Quartiles;
use crate::kind::Kind;
use crate::limits::Limits;
use crate::measure::Figures;

/// A live write may take so many synced writes, and so much more, in the middle; and so much in one of a hundred.
const SYNCED_WRITES: f64 = 2.0;
const MORE_MS: f64 = 1.0;
const P99_MS: f64 = 10.0;

/// One system with values of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub who: &'static str,
    /// Entries of a turn's backlog.
    pub entries: u64,
    pub backlog_per_second: Quartiles,
    pub first_after_seconds: Quartiles,
    /// Turns in which not all arrived in the time allowed: their rate is that of what did.
    pub cut_short: usize,
    pub peak_per_second: Option<f64>,
    pub live_per_second: Option<f64>,
    pub p50_ms: Option<Quartiles>,
    pub p99_ms: Option<Quartiles>,
}

/// Tidewire by another, turn by turn of one round.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub by: &'static str,
    pub ratio: Quartiles,
    pub at_least: f64,
    pub met: bool,
}

/// What Tidewire's live writes are held to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LiveTarget {
    /// Two synced writes of the same turn and a millisecond, less what the median took: at least zero.
    pub p50_room_ms: Quartiles,
    pub synced_write_ms: Quartiles,
    pub met: bool,
}

/// Values of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    pub value_bytes: usize,
    pub pairs: usize,
    pub limits: Limits,
    pub rows: Vec<Row>,
    pub ratios: Vec<Ratio>,
    pub live: Option<LiveTarget>,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub machine: Vec<String>,
    pub left_out: Vec<String>,
    pub seconds: f64,
    pub sections: Vec<Section>,
}

/// The turns of one system.
pub struct Side {
    pub kind: Kind,
    pub entries: u64,
    pub peak: Option<f64>,
    pub figures: Vec<Figures>,
}

impl Side {
    fn row(&self) -> Row {
        let of = |figure: fn(&Figures) -> f64| Quartiles::of(self.figures.iter().map(figure));
        let lives = || self.figures.iter().filter_map(|figures| figures.live);
        let some = lives().next();
        Row {
            who: self.kind.name(),
            entries: self.entries,
            backlog_per_second: of(|figures| figures.backlog.per_second),
            first_after_seconds: of(|figures| figures.first_after.as_secs_f64()),
            cut_short: self.figures.iter().filter(|figures| !figures.backlog.whole).count(),
            peak_per_second: self.peak,
            live_per_second: some.map(|live| live.per_second),
            p50_ms: some.map(|_| Quartiles::of(lives().map(|live| live.lags.p50_ms))),
            p99_ms: some.map(|_| Quartiles::of(lives().map(|live| live.lags.p99_ms))),
        }
    }

    fn live_target(&self) -> Option<LiveTarget> {
        let lives =
            || self.figures.iter().filter_map(|figures| Some((figures.synced_write_ms, figures.live?)));
        lives().next()?;
        let room = lives().map(|(synced, live)| SYNCED_WRITES * synced + MORE_MS - live.lags.p50_ms);
        let p50_room_ms = Quartiles::of(room);
        let p99 = Quartiles::of(lives().map(|(_, live)| live.lags.p99_ms));
        let met = p50_room_ms.median >= 0.0 && p99.median <= P99_MS;
        Some(LiveTarget {
            p50_room_ms,
            synced_write_ms: Quartiles::of(lives().map(|(synced, _)| synced)),
            met,
        })
    }
}

/// How many times another's backlog rate Tidewire's is to be.
fn at_least(kind: Kind) -> f64 {
    if kind == Kind::Mirrormaker { 1.0 } else { 5.0 }
}

impl Section {
    /// What the turns of all sides say.
    pub fn new(value_bytes: usize, pairs: usize, limits: Limits, sides: &[Side]) -> Self {
        let ours = sides.iter().find(|side| side.kind == Kind::Tidewire);
        let others = sides.iter().filter(|side| side.kind != Kind::Tidewire);
        let ratios = ours.into_iter().flat_map(|ours| others.clone().map(move |other| (ours, other)));
        let ratios = ratios.map(|(ours, other)| {
            let pairs = ours.figures.iter().zip(&other.figures);
            let ratio = Quartiles::of(pairs.map(|(a, b)| a.backlog.per_second / b.backlog.per_second));
            let at_least = at_least(other.kind);
            Ratio { by: other.kind.name(), ratio, at_least, met: ratio.median >= at_least }
        });
        Self {
            value_bytes,
            pairs,
            limits,
            rows: sides.iter().map(Side::row).collect(),
            ratios: ratios.collect(),
            live: ours.and_then(Side::live_target),
        }
    }

    /// As a piece of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("\n### {} B, {} rounds\n\n", self.value_bytes, self.pairs);
        let limits = self.limits;
        let _ = writeln!(
            text,
            "Limits: a synced write of 4 KiB {:.2} ms; synced MiB a second {:.0}; applied without a wire {} entries/s\n",
            limits.synced_write_ms,
            limits.synced_mib_per_second,
            number(limits.applied_per_second)
        );
        text += "| who | backlog entries/s | quartiles | entries | first after | peak | live at | p50 | p99 |\n\
                 |---|--:|--:|--:|--:|--:|--:|--:|--:|\n";
        for row in &self.rows {
            let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), number);
            let ms = |ms: Option<Quartiles>| {
                ms.map_or_else(
                    || "-".to_owned(),
                    |ms| format!("{:.2} ({:.2} to {:.2}) ms", ms.median, ms.first, ms.third),
                )
            };
            let backlog = row.backlog_per_second;
            let cut =
                if row.cut_short > 0 { format!(", {} cut short", row.cut_short) } else { String::new() };
            let _ = writeln!(
                text,
                "| {} | {} | {} to {} | {}{cut} | {:.2} s | {} | {} | {} | {} |",
                row.who,
                number(backlog.median),
                number(backlog.first),
                number(backlog.third),
                row.entries,
                row.first_after_seconds.median,
                rate(row.peak_per_second),
                rate(row.live_per_second),
                ms(row.p50_ms),
                ms(row.p99_ms)
            );
        }
        text + &self.targets()
    }

    fn targets(&self) -> String {
        let word = |met: bool| if met { "met" } else { "MISSED" };
        let mut text = String::from("\n| target | median | quartiles | |\n|---|--:|--:|---|\n");
        for ratio in &self.ratios {
            let Quartiles { first, median, third } = ratio.ratio;
            let (by, least, met) = (ratio.by, ratio.at_least, word(ratio.met));
            let _ = writeln!(
                text,
                "| backlog, Tidewire / {by} >= {least} | {median:.2} | {first:.2} to {third:.2} | {met} |"
            );
        }
        if let Some(live) = self.live {
            let Quartiles { first, median, third } = live.p50_room_ms;
            let _ = writeln!(
                text,
                "| live p50 <= 2 synced writes ({:.2} ms each) + 1 ms, p99 <= 10 ms: room of p50 | {median:.2} ms | {first:.2} to {third:.2} | {} |",
                live.synced_write_ms.median,
                word(live.met)
            );
        }
        text
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0} k", value / 1_000.0),
        value => format!("{value:.0}"),
    }
}
