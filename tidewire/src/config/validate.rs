//! The rules of a configuration: one function a subject, one [`Problem`] for each rule that is broken.
//!
//! Nothing is corrected in silence, and what is not built yet is refused by name rather than ignored.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tidewire_core::error::Error;
use tidewire_core::id::{ClusterId, SinkName, TreeName};
use tidewire_core::limits::{MAX_KNOWN_CLUSTERS, MAX_PARTITIONS, MAX_RECORD_BYTES_CEILING};

use super::{
    ByteSize, ClusterConfig, ConfigError, Delivery, Forward, HumanDuration, Peer, Problem, sink_types,
};

/// Dead letters lie in the metadata store and in memory.
const MAX_DEAD_LETTER_BYTES: u64 = 1024 * 1024 * 1024;

impl ClusterConfig {
    /// Checks every rule and hands the configuration back unchanged.
    ///
    /// # Errors
    /// One problem for each broken rule, with the key, what was given, and what is allowed.
    pub fn validate(self) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        check_name("cluster.id", ClusterId::new(&self.cluster.id), &mut problems);
        if self.cluster.data_dir.as_os_str().is_empty() {
            problems
                .push(Problem::new("cluster.data_dir", "is empty; give the directory to keep the data in"));
        }
        self.check_listen(&mut problems);
        self.check_bounds(&mut problems);
        self.check_trees(&mut problems);
        self.check_peers(&mut problems);
        self.check_sinks(&mut problems);
        ConfigError::unless_empty(problems)?;
        Ok(self)
    }

    fn check_listen(&self, problems: &mut Vec<Problem>) {
        let listen = &self.listen;
        if listen.http == listen.replication && listen.http.port() != 0 {
            problems.push(Problem::new(
                "listen.replication",
                format!("{} is taken by listen.http; give each its own port", listen.replication),
            ));
        }
        for (key, address) in [("listen.http", listen.http), ("listen.replication", listen.replication)] {
            if !address.ip().is_loopback() {
                self.need_plaintext(key, &address, problems);
            }
        }
    }

    fn need_plaintext(&self, key: &str, address: &dyn Display, problems: &mut Vec<Problem>) {
        if !self.listen.insecure_plaintext {
            problems.push(Problem::new(
                key,
                format!(
                    "{address} can be reached from other machines and there is no TLS yet; use a loopback address, or set listen.insecure_plaintext = true on a network you trust"
                ),
            ));
        }
    }

    fn check_bounds(&self, problems: &mut Vec<Problem>) {
        const KIB: u64 = 1024;
        const GIB: u64 = 1024 * 1024 * KIB;
        let (limits, log) = (&self.limits, &self.log);
        let ceiling = MAX_RECORD_BYTES_CEILING as u64;
        let sizes = [
            ("limits.max_record_bytes", limits.max_record_bytes, KIB, ceiling),
            ("log.segment_bytes_min", log.segment_bytes_min, 4 * KIB, log.segment_bytes_max.get()),
            ("log.segment_bytes_max", log.segment_bytes_max, 4 * KIB, 4 * GIB),
            ("log.pending_bytes", log.pending_bytes, 64 * KIB, GIB),
            ("log.recent_bytes", log.recent_bytes, 0, 4 * GIB),
        ];
        for (key, given, least, most) in sizes {
            check_range(key, given, ByteSize::new(least), ByteSize::new(most), problems);
        }
        let record = limits.max_record_bytes;
        if log.pending_bytes < record && record.get() <= ceiling {
            let message = format!(
                "{} cannot hold one record of limits.max_record_bytes = {record}; write \"{record}\" or more, or lower that limit",
                log.pending_bytes
            );
            problems.push(Problem::new("log.pending_bytes", message));
        }
        let times = [
            (
                "limits.max_clock_skew",
                limits.max_clock_skew,
                Duration::from_millis(1),
                Duration::from_hours(1),
            ),
            (
                "limits.commit_deadline",
                limits.commit_deadline,
                Duration::from_millis(100),
                Duration::from_mins(10),
            ),
            ("limits.drain_budget", limits.drain_budget, Duration::ZERO, Duration::from_hours(1)),
            ("limits.relay_after", limits.relay_after, Duration::ZERO, Duration::from_hours(1)),
            ("limits.lease_ttl", limits.lease_ttl, Duration::from_secs(3), Duration::from_mins(10)),
            ("log.linger", log.linger, Duration::ZERO, Duration::from_millis(10)),
        ];
        for (key, given, least, most) in times {
            check_range(key, given, HumanDuration::from(least), HumanDuration::from(most), problems);
        }
        let shortest = HumanDuration::from(Duration::from_mins(1));
        if log.wal_retention.get() > Duration::ZERO && log.wal_retention < shortest {
            let message = format!(
                "{} would leave a peer no time to come back; write {shortest} or more, or \"0s\" for no such bound",
                log.wal_retention
            );
            problems.push(Problem::new("log.wal_retention", message));
        }
        if log.wal_max_bytes.get() > 0 && log.wal_max_bytes < log.segment_bytes_max {
            let message = format!(
                "{} is less than one segment, log.segment_bytes_max = {}, which always stays; write more, or \"0B\" for no bound",
                log.wal_max_bytes, log.segment_bytes_max
            );
            problems.push(Problem::new("log.wal_max_bytes", message));
        }
    }

    fn check_trees(&self, problems: &mut Vec<Problem>) {
        let mut seen = BTreeSet::new();
        for (index, tree) in self.trees.iter().enumerate() {
            let at = |key: &str| format!("trees[{index}].{key}");
            check_name(&at("name"), TreeName::new(&tree.name), problems);
            if !seen.insert(&tree.name) {
                problems.push(Problem::new(
                    at("name"),
                    format!("{:?} is listed twice; list each tree once", tree.name),
                ));
            }
            check_range(&at("partitions"), tree.partitions, 1, MAX_PARTITIONS, problems);
            let (least, most) = (Duration::from_secs(1), Duration::from_hours(24));
            check_range(&at("apply_after"), tree.apply_after, least.into(), most.into(), problems);
            let most = ByteSize::new(MAX_DEAD_LETTER_BYTES);
            check_range(&at("dead_letter_bytes"), tree.dead_letter_bytes, ByteSize::new(0), most, problems);
            if let Err(error) = tree.interest() {
                problems.push(Problem::new(at("interest"), error.to_string()));
            }
        }
    }

    fn check_peers(&self, problems: &mut Vec<Problem>) {
        let most = MAX_KNOWN_CLUSTERS - 1;
        if self.peers.len() > most {
            problems.push(Problem::new(
                "peers",
                format!("{} are listed; at most {most} are allowed", self.peers.len()),
            ));
        }
        let mut seen = BTreeSet::new();
        for (index, peer) in self.peers.iter().enumerate() {
            let at = |key: &str| format!("peers[{index}].{key}");
            check_name(&at("id"), ClusterId::new(&peer.id), problems);
            if peer.id == self.cluster.id {
                problems.push(Problem::new(
                    at("id"),
                    format!("{:?} is this cluster's own id (cluster.id); name the other cluster", peer.id),
                ));
            }
            if !seen.insert(&peer.id) {
                problems.push(Problem::new(
                    at("id"),
                    format!("{:?} is listed twice; list each peer once", peer.id),
                ));
            }
            problems.extend(peer.ways().into_iter().map(|(key, said)| Problem::new(at(key), said)));
            self.check_peer_trees(peer, &at("trees"), problems);
            self.check_peer_url(peer, &at("url"), problems);
        }
    }

    fn check_peer_trees(&self, peer: &Peer, key: &str, problems: &mut Vec<Problem>) {
        let known: Vec<&str> = self.trees.iter().map(|tree| tree.name.as_str()).collect();
        for name in peer.trees.iter().filter(|name| !known.contains(&name.as_str())) {
            problems.push(Problem::new(key, no_such_tree(name, &known)));
        }
    }

    fn check_peer_url(&self, peer: &Peer, key: &str, problems: &mut Vec<Problem>) {
        match peer.url.as_deref().map(url_host) {
            None => {}
            Some(Err(message)) => problems.push(Problem::new(key, message)),
            Some(Ok(host)) if is_loopback(host) => {}
            Some(Ok(host)) => self.need_plaintext(key, &host, problems),
        }
    }

    fn check_sinks(&self, problems: &mut Vec<Problem>) {
        let known: Vec<&str> = self.trees.iter().map(|tree| tree.name.as_str()).collect();
        let mut seen = BTreeSet::new();
        for (index, sink) in self.sinks.iter().enumerate() {
            let at = |key: &str| format!("sinks[{index}].{key}");
            check_name(&at("name"), SinkName::new(&sink.name), problems);
            if !seen.insert((&sink.tree, &sink.name)) {
                let said =
                    format!("{:?} is listed twice for tree {:?}; give each its own", sink.name, sink.tree);
                problems.push(Problem::new(at("name"), said));
            }
            if !known.contains(&sink.tree.as_str()) {
                problems.push(Problem::new(at("tree"), no_such_tree(&sink.tree, &known)));
            }
            if sink.delivery == Delivery::ExactlyOnce {
                problems.push(Problem::new(
                    at("delivery"),
                    "\"exactly_once\" does not exist yet; write delivery = \"at_least_once\"",
                ));
            }
            match sink_types::named(&sink.kind) {
                Err(message) => problems.push(Problem::new(at("type"), message)),
                Ok(built_in) => {
                    if let Err(invalid) = (built_in.build)(sink.settings.clone()) {
                        let told = invalid.problems().iter();
                        problems.extend(told.map(|(key, message)| {
                            let key = if key.is_empty() { at("type") } else { at(key) };
                            Problem::new(key, message.clone())
                        }));
                    }
                }
            }
        }
    }
}

impl Peer {
    /// What contradicts itself about the ways of an exchange: key and problem.
    fn ways(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if self.url.is_none() && self.send {
            let said = "is missing; give the address of";
            problems.push((
                "url",
                format!("{said} {:?}, or write send = false to only receive from it", self.id),
            ));
        }
        if self.forward != Forward::Never && !self.send {
            let said = "nothing is sent to this peer, so nothing can be forwarded; write send = true, or forward = false";
            problems.push(("forward", said.to_owned()));
        }
        if !self.send && !self.receive {
            let said = "nothing is sent to this peer, and nothing is taken from it; write send = true, or take it out";
            problems.push(("receive", said.to_owned()));
        }
        problems
    }

    /// Why it cannot be a peer of a cluster, whoever says so: one line for each rule that it breaks. Its address is looked
    /// at if peers are dialled by it.
    pub(crate) fn problems(&self, cluster: &ClusterId, dials_urls: bool) -> Vec<String> {
        let mut problems: Vec<String> =
            self.ways().into_iter().map(|(key, said)| format!("{key}: {said}")).collect();
        let name = ClusterId::new(&self.id).map(drop);
        let trees = self.trees.iter().map(|tree| TreeName::new(tree).map(drop));
        problems
            .extend([name].into_iter().chain(trees).filter_map(|checked| Some(checked.err()?.to_string())));
        if self.id == cluster.as_str() {
            problems.push(format!("{:?} is this cluster itself; name the other one", self.id));
        }
        if let Some(Err(said)) = self.url.as_deref().filter(|_| dials_urls).map(url_host) {
            problems.push(said);
        }
        problems
    }
}

fn check_name<T>(key: &str, name: Result<T, Error>, problems: &mut Vec<Problem>) {
    if let Err(error) = name {
        problems.push(Problem::new(key, error.to_string()));
    }
}

fn check_range<T: PartialOrd + Display>(key: &str, given: T, least: T, most: T, problems: &mut Vec<Problem>) {
    if given < least || given > most {
        problems.push(Problem::new(key, format!("{given} is outside {least} to {most}")));
    }
}

fn no_such_tree(name: &str, known: &[&str]) -> String {
    if known.is_empty() {
        return format!("there is no tree {name:?}: add it under [[trees]]");
    }
    format!("there is no tree {name:?} under [[trees]]; allowed: {}", known.join(", "))
}

/// The host of a peer's `http://host:port`.
fn url_host(url: &str) -> Result<&str, String> {
    let form = "allowed: http://HOST:PORT, such as \"http://10.0.0.2:7400\"";
    if url.starts_with("https://") {
        return Err(format!("{url:?} asks for TLS, which does not exist yet; {form}"));
    }
    if url.contains('@') {
        return Err(format!("a URL holds no credentials; {form}"));
    }
    let refused = || format!("{url:?} is not the address of a peer; {form}");
    let rest = url.strip_prefix("http://").ok_or_else(refused)?;
    let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':').ok_or_else(refused)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_fits = match bracketed {
        Some(address) => address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
    };
    let port_fits =
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0);
    if host_fits && port_fits { Ok(host) } else { Err(refused()) }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || format!("{host}:0").parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_url_is_a_scheme_a_host_and_a_port() {
        for (url, host) in [
            ("http://127.0.0.1:7400", "127.0.0.1"),
            ("http://us-east.example:7400/", "us-east.example"),
            ("http://[::1]:7400", "[::1]"),
        ] {
            assert_eq!(url_host(url).expect(url), host);
        }
        for url in [
            "us-east:7400",
            "http://us-east",
            "http://:7400",
            "http://a:0",
            "http://a:+7",
            "http://a:70000",
            "http://a:1/x",
            "http://[nonsense]:1",
            "http://a b:1",
            "ftp://a:1",
            "https://a:1",
            "http://user:secret@a:1",
        ] {
            let error = url_host(url).expect_err(url);
            assert!(error.contains("http://HOST:PORT"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        assert!(is_loopback("localhost") && is_loopback("127.8.0.1") && is_loopback("[::1]"));
        assert!(!is_loopback("10.0.0.1") && !is_loopback("example.org") && !is_loopback("[::]"));
    }

    #[test]
    fn the_defaults_are_valid() {
        ClusterConfig::new("eu-west", "./data").validate().expect("defaults");
    }

    #[test]
    fn the_bounds_of_the_collector_are_off_or_leave_room() {
        let problems = |retention: &str, bytes: &str| -> Vec<String> {
            let mut config = ClusterConfig::new("eu-west", "./data");
            config.log.wal_retention = retention.parse().expect("a duration");
            config.log.wal_max_bytes = bytes.parse().expect("a size");
            let error = config.validate().err();
            let keys =
                error.map(|error| error.problems().iter().map(|problem| problem.key.clone()).collect());
            keys.unwrap_or_default()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(problems("0s", "0B"), none);
        assert_eq!(problems("7d", "10GiB"), none);
        assert_eq!(problems("5s", "1MiB"), ["log.wal_retention", "log.wal_max_bytes"]);
    }

    #[test]
    fn every_broken_rule_is_reported_at_once() {
        let mut config = ClusterConfig::new("EU", "");
        config.peers.push(Peer::new("EU", "http://10.0.0.1:1"));
        let error = config.validate().expect_err("wrong");
        let keys: Vec<&str> = error.problems().iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["cluster.id", "cluster.data_dir", "peers[0].id", "peers[0].id", "peers[0].url"]);
    }
}
