//! What differs between the configuration that runs and another one, by key.

use toml::{Table, Value};

use super::ClusterConfig;

/// The keys that differ and that a running cluster cannot take over, in order: everything but the peers, trees and
/// sinks that are new, and which keys of a tree are held.
pub(crate) fn needs_restart(running: &ClusterConfig, wanted: &ClusterConfig) -> Vec<String> {
    let (running, wanted) = (table(running), table(wanted));
    let mut keys = Vec::new();
    compare("", &running, &wanted, &mut keys);
    for (section, name) in [("trees", &["name"][..]), ("sinks", &["tree", "name"][..])] {
        compare_named(section, name, &running, &wanted, &mut keys);
    }
    keys
}

/// Plain settings always have a form as a table; if not, everything counts as the same and nothing is named.
fn table(config: &ClusterConfig) -> Table {
    Table::try_from(config).unwrap_or_default()
}

fn compare(path: &str, running: &Table, wanted: &Table, keys: &mut Vec<String>) {
    let mut names: Vec<&String> = running.keys().chain(wanted.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        if path.is_empty() && ["peers", "trees", "sinks"].contains(&name.as_str()) {
            continue;
        }
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if path.starts_with("trees[") && name == "interest" {
            continue;
        }
        match (running.get(name), wanted.get(name)) {
            (Some(Value::Table(running)), Some(Value::Table(wanted))) => compare(&at, running, wanted, keys),
            (running, wanted) if running != wanted => keys.push(at),
            _ => {}
        }
    }
}

/// Compares the entries of a repeated section that both have, and names those that are gone.
fn compare_named(section: &str, by: &[&str], running: &Table, wanted: &Table, keys: &mut Vec<String>) {
    let entries = |config: &Table| -> Vec<(String, Table)> {
        let all = config.get(section).and_then(Value::as_array).cloned().unwrap_or_default();
        let named = all.into_iter().filter_map(|entry| {
            let Value::Table(entry) = entry else { return None };
            let names: Vec<&str> = by.iter().filter_map(|key| entry.get(*key)?.as_str()).collect();
            Some((names.join("/"), entry.clone()))
        });
        named.collect()
    };
    let wanted = entries(wanted);
    for (name, running) in entries(running) {
        let at = format!("{section}[{name}]");
        match wanted.iter().find(|(other, _)| *other == name) {
            Some((_, wanted)) => compare(&at, &running, wanted, keys),
            None => keys.push(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Peer, SinkConfig, TreeConfig};

    fn config() -> ClusterConfig {
        let mut config = ClusterConfig::new("a", "./data");
        config.trees = vec![TreeConfig::new("orders")];
        config.sinks = vec![SinkConfig::new("out", "orders", "jsonl")];
        config
    }

    #[test]
    fn what_can_be_taken_over_is_not_named() {
        let (running, mut wanted) = (config(), config());
        wanted.peers.push(Peer::new("b", "http://127.0.0.1:1"));
        wanted.trees.push(TreeConfig::new("parcels"));
        wanted.trees[0].interest.push("eu/".into());
        wanted.sinks.push(SinkConfig::new("out", "parcels", "jsonl"));
        assert_eq!(needs_restart(&running, &wanted), Vec::<String>::new());
    }

    #[test]
    fn every_other_key_is_named_with_its_place() {
        let (running, mut wanted) = (config(), config());
        wanted.cluster.id = "b".into();
        wanted.limits.drain_budget = "3s".parse().expect("a duration");
        wanted.listen.http = "127.0.0.1:1".parse().expect("an address");
        wanted.trees[0].partitions = 3;
        wanted.sinks.clear();
        let keys = needs_restart(&running, &wanted);
        assert_eq!(
            keys,
            [
                "cluster.id",
                "limits.drain_budget",
                "listen.http",
                "trees[orders].partitions",
                "sinks[orders/out]"
            ]
        );
    }
}
