//! What the metrics of a [`Site`] say.

use std::collections::BTreeMap;

use crate::site::Site;
use crate::world::World;

impl Site {
    /// The sum of a counter over all its series.
    pub fn counter(&self, name: &str) -> u64 {
        let text = self.cluster().expect("it runs").metrics().render();
        let series = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let values: Vec<f64> = series.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!values.is_empty(), "{name} has no series:\n{text}");
        values.iter().sum::<f64>() as u64
    }

    /// How many records the applier counted as applied, by origin.
    pub fn applied(&self) -> BTreeMap<String, u64> {
        let text = self.cluster().expect("it runs").metrics().render();
        let of = |line: &str| {
            let origin = line.split_once("origin=\"")?.1.split_once('"')?.0.to_owned();
            Some((origin, line.rsplit(' ').next()?.parse().ok()?))
        };
        let lines = text.lines().filter(|line| line.starts_with("tidewire_applied_records_total{"));
        lines.filter_map(of).collect()
    }
}

impl World {
    /// A counter of every site.
    pub fn counters(&self, name: &str) -> Vec<u64> {
        self.sites.iter().map(|site| site.counter(name)).collect()
    }

    /// Fails when records still go over links though nobody writes and everything has arrived.
    pub async fn demand_stillness(&self) {
        let still = ["tidewire_shipped_records_total", "tidewire_applied_records_total"];
        let before = still.map(|name| self.counters(name));
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let after = still.map(|name| self.counters(name));
        assert_eq!(before, after, "seed {}: something goes round", self.seed);
    }
}
