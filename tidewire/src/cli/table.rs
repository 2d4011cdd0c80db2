//! [`Table`]: columns for people to read.

use std::fmt;

/// Rows of text under a head, aligned when printed.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned).into()] }
    }

    /// Adds a row below.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Bytes in the unit that people read: one decimal from KiB on.
pub(crate) fn bytes_for_people(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A span of time in its two largest units.
pub(crate) fn seconds_for_people(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["A", "LONG HEAD"]);
        table.row(["wide cell".to_owned(), "x".to_owned()]);
        assert_eq!(table.to_string(), "A          LONG HEAD\nwide cell  x\n");
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        let shown: Vec<String> =
            [0, 1023, 1024, 1536, 64 << 20, 5 << 30, 3 << 40].map(bytes_for_people).into();
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "64.0 MiB", "5.0 GiB", "3.0 TiB"]);
    }

    #[test]
    fn spans_are_shown_in_their_two_largest_units() {
        let shown: Vec<String> = [5, 61, 7_260, 90_000].map(seconds_for_people).into();
        assert_eq!(shown, ["5s", "1m 1s", "2h 1m", "1d 1h"]);
    }
}
