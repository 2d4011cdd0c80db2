//! The live lines of the demo: redrawn on a terminal, one a second elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::cli::bytes_for_people;
use crate::local::LocalSite;
use crate::status::{Direction, PeerStatus};

/// Where progress is shown.
pub(super) struct Board {
    terminal: bool,
    drawn: usize,
}

impl Board {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stdout().is_terminal(), drawn: 0 }
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.drawn = 0;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// Shows every link.
    pub(super) fn show(&mut self, at: Duration, issued: u64, sites: &[LocalSite]) -> std::io::Result<()> {
        let links: Vec<String> = sites.iter().flat_map(links_of).collect();
        let mut out = std::io::stdout().lock();
        if self.terminal {
            if self.drawn > 0 {
                write!(out, "\x1b[{}A", self.drawn)?;
            }
            writeln!(out, "\x1b[2K{:4.0} s  {issued} writes", at.as_secs_f64())?;
            for link in &links {
                writeln!(out, "\x1b[2K        {link}")?;
            }
            self.drawn = links.len() + 1;
        } else {
            writeln!(out, "{:4.0} s  {issued} writes | {}", at.as_secs_f64(), links.join(" | "))?;
        }
        out.flush()
    }
}

fn links_of(site: &LocalSite) -> Vec<String> {
    let Some(cluster) = site.cluster() else { return vec![format!("{} is down", site.name())] };
    let peers = cluster.status().peers;
    peers
        .iter()
        .filter(|peer| peer.direction == Direction::Send)
        .map(|peer| link(site.name(), peer))
        .collect()
}

fn link(from: &str, peer: &PeerStatus) -> String {
    let state = serde_json::to_value(peer.state).unwrap_or_default();
    format!(
        "{from}>{} {} {} entries {} {:.0} ms",
        peer.id,
        state.as_str().unwrap_or_default(),
        peer.lag.entries,
        bytes_for_people(peer.lag.bytes),
        peer.lag.seconds * 1_000.0
    )
}
