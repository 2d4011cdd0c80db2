//! [`Report`]: tables for people, JSON for programs, and whether the targets are met.

use std::fmt::Write;

use serde::Serialize;

use crate::figures::Quartiles;

/// A target for the ratio of one side by another.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
        }
    }
}

/// One engine's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub who: String,
    pub unit: &'static str,
    pub figure: Quartiles,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub syncs_per_second: Option<f64>,
}

/// One side by another.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub of: String,
    pub by: String,
    pub what: &'static str,
    pub ratio: Quartiles,
    pub target: Option<Target>,
    pub met: Option<bool>,
}

/// One table.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    pub scenario: &'static str,
    pub title: String,
    pub pairs: usize,
    pub rows: Vec<Row>,
    pub ratios: Vec<Ratio>,
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub machine: Vec<String>,
    pub seconds: f64,
    pub sections: Vec<Section>,
}

impl Section {
    pub fn new(scenario: &'static str, title: impl Into<String>, pairs: usize) -> Self {
        Self { scenario, title: title.into(), pairs, rows: Vec::new(), ratios: Vec::new() }
    }

    /// Adds a ratio.
    pub fn ratio(
        &mut self,
        (of, by): (&str, &str),
        what: &'static str,
        ratio: Quartiles,
        target: Option<Target>,
    ) {
        let met = target.map(|target| target.met(ratio.median));
        self.ratios.push(Ratio { of: of.to_owned(), by: by.to_owned(), what, ratio, target, met });
    }

    /// As a piece of Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("\n### {} ({} pairs)\n\n", self.title, self.pairs);
        let _ =
            writeln!(text, "| who | median | quartiles | p50 | p99 | syncs/s |\n|---|--:|--:|--:|--:|--:|");
        for row in &self.rows {
            let micros = |value: Option<f64>| value.map_or_else(String::new, |us| format!("{us:.0} us"));
            let syncs = row.syncs_per_second.map_or_else(String::new, |rate| format!("{rate:.0}"));
            let _ = writeln!(
                text,
                "| {} | {} {} | {} to {} | {} | {} | {} |",
                row.who,
                number(row.figure.median),
                row.unit,
                number(row.figure.first),
                number(row.figure.third),
                micros(row.p50_us),
                micros(row.p99_us),
                syncs
            );
        }
        if !self.ratios.is_empty() {
            let _ = writeln!(
                text,
                "\n| ratio of paired runs | median | quartiles | target | |\n|---|--:|--:|--:|---|"
            );
        }
        for ratio in &self.ratios {
            let target = ratio.target.map_or_else(String::new, Target::text);
            let met = ratio.met.map_or("", |met| if met { "met" } else { "MISSED" });
            let _ = writeln!(
                text,
                "| {}: {} / {} | {:.3} | {:.3} to {:.3} | {target} | {met} |",
                ratio.what, ratio.of, ratio.by, ratio.ratio.median, ratio.ratio.first, ratio.ratio.third
            );
        }
        text
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100_000.0 => format!("{:.0} k", value / 1_000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.3}"),
    }
}
