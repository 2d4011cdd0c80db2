//! [`ClusterConfig`] and its parts: what a cluster is told, as plain data.
//!
//! A part has the same names here, in the file and in the environment. Nothing here checks anything:
//! [`ClusterConfig::validate`] does, once, before anything is opened.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewire_core::limits::{DEFAULT_PARTITIONS, Limits};
use tidewire_core::record::{Interest, InterestError};
use tidewire_shipper::Compression;

use super::{ByteSize, Forward, HumanDuration};

/// Everything that one cluster is told.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Who this cluster is and where its data lie.
    pub cluster: Identity,
    /// Where it listens.
    #[serde(default)]
    pub listen: Listen,
    /// Bounds.
    #[serde(default)]
    pub limits: LimitSettings,
    /// The write-ahead log.
    #[serde(default)]
    pub log: LogSettings,
    /// The trees that are created at start.
    #[serde(default)]
    pub trees: Vec<TreeConfig>,
    /// The clusters that it exchanges writes with.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// Destinations that are fed from a tree.
    #[serde(default)]
    pub sinks: Vec<SinkConfig>,
}

impl ClusterConfig {
    /// The defaults for a cluster of this name with its data in this directory; no trees, no peers.
    pub fn new(id: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            cluster: Identity { id: id.into(), data_dir: data_dir.into() },
            listen: Listen::default(),
            limits: LimitSettings::default(),
            log: LogSettings::default(),
            trees: Vec::new(),
            peers: Vec::new(),
            sinks: Vec::new(),
        }
    }

    /// The bounds that the library works within: the defaults with what is set here.
    pub fn limits(&self) -> Limits {
        Limits {
            max_record_bytes: self.limits.max_record_bytes.as_len(),
            max_clock_skew: self.limits.max_clock_skew.get(),
            commit_deadline: self.limits.commit_deadline.get(),
            drain_budget: self.limits.drain_budget.get(),
            relay_after: self.limits.relay_after.get(),
            range_delete_keys: usize::try_from(self.limits.range_delete_keys).unwrap_or(usize::MAX),
            lease_ttl: self.limits.lease_ttl.get(),
            pending_bytes: self.log.pending_bytes.as_len(),
            recent_bytes: self.log.recent_bytes.as_len(),
            segment_bytes_min: self.log.segment_bytes_min.get(),
            segment_bytes_max: self.log.segment_bytes_max.get(),
            linger: self.log.linger.get(),
            wal_retention: self.log.wal_retention.get(),
            wal_max_bytes: self.log.wal_max_bytes.get(),
            ..Limits::default()
        }
    }
}

/// `[cluster]`: who this cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The cluster's name, the same for ever.
    pub id: String,
    /// The directory of everything that is kept.
    #[serde(default = "Identity::default_data_dir")]
    pub data_dir: PathBuf,
}

impl Identity {
    fn default_data_dir() -> PathBuf {
        PathBuf::from("./data")
    }
}

/// `[listen]`: addresses. Port 0 picks a free one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    /// The HTTP API.
    pub http: SocketAddr,
    /// Links from other clusters.
    pub replication: SocketAddr,
    /// Allows addresses that other machines can reach, without TLS.
    pub insecure_plaintext: bool,
    /// The file with the token that requests under `/v1` have to present; None: anybody may ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            http: (Ipv4Addr::LOCALHOST, 7401).into(),
            replication: (Ipv4Addr::LOCALHOST, 7400).into(),
            insecure_plaintext: false,
            token_file: None,
        }
    }
}

/// `[limits]`: bounds that a user may meet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Key, value and header of one record together.
    pub max_record_bytes: ByteSize,
    /// How far ahead of the wall clock a remote write may be.
    pub max_clock_skew: HumanDuration,
    /// How long a write may take to become durable.
    pub commit_deadline: HumanDuration,
    /// How long a stop may take to finish what is pending.
    pub drain_budget: HumanDuration,
    /// How long a write may wait for another cluster's before peers that forward on demand are asked; zero: never.
    pub relay_after: HumanDuration,
    /// Most keys that one range delete removes.
    pub range_delete_keys: u32,
    /// How long the runner of a sink may show no sign of life before it stops to deliver.
    pub lease_ttl: HumanDuration,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max_record_bytes: ByteSize::new(limits.max_record_bytes as u64),
            max_clock_skew: limits.max_clock_skew.into(),
            commit_deadline: limits.commit_deadline.into(),
            drain_budget: limits.drain_budget.into(),
            relay_after: limits.relay_after.into(),
            range_delete_keys: u32::try_from(limits.range_delete_keys).unwrap_or(u32::MAX),
            lease_ttl: limits.lease_ttl.into(),
        }
    }
}

/// `[log]`: the write-ahead log of each tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Size of the first segment file; the next ones double.
    pub segment_bytes_min: ByteSize,
    /// Size at which segment files stop doubling.
    pub segment_bytes_max: ByteSize,
    /// Bytes that may wait for the disk.
    pub pending_bytes: ByteSize,
    /// Recent groups kept in memory for those that follow the log.
    pub recent_bytes: ByteSize,
    /// Longest time that a group waits for company.
    pub linger: HumanDuration,
    /// What is older may go though a consumer needs it; zero: nothing may.
    pub wal_retention: HumanDuration,
    /// A log that retains more raises an alarm; zero: no bound.
    pub wal_max_bytes: ByteSize,
}

impl Default for LogSettings {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            segment_bytes_min: ByteSize::new(limits.segment_bytes_min),
            segment_bytes_max: ByteSize::new(limits.segment_bytes_max),
            pending_bytes: ByteSize::new(limits.pending_bytes as u64),
            recent_bytes: ByteSize::new(limits.recent_bytes as u64),
            linger: limits.linger.into(),
            wal_retention: limits.wal_retention.into(),
            wal_max_bytes: ByteSize::new(limits.wal_max_bytes),
        }
    }
}

/// How concurrent writes of one key become one value. Pinned when the tree is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Merge {
    /// The write with the greatest version wins.
    #[default]
    Lww,
}

/// What a foreign write waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    /// It becomes visible after everything that its writer had seen.
    #[default]
    Causal,
    /// It becomes visible when it arrives, in its origin's order.
    Eventual,
}

/// What becomes of a foreign write whose dependencies do not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStall {
    /// It waits for them, however long.
    #[default]
    Wait,
    /// After `apply_after` it becomes visible without them, counted and shown.
    ApplyAfter,
}

/// One of `[[trees]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TreeConfig {
    /// The tree's name.
    pub name: String,
    /// Its number of partitions, pinned when it is created.
    #[serde(default = "TreeConfig::default_partitions")]
    pub partitions: u16,
    /// How concurrent writes become one value.
    #[serde(default)]
    pub merge: Merge,
    /// What a foreign write waits for.
    #[serde(default)]
    pub consistency: Consistency,
    /// What becomes of a foreign write whose dependencies do not come.
    #[serde(default)]
    pub on_stall: OnStall,
    /// How long it waits for them where `on_stall` is to apply it then.
    #[serde(default = "TreeConfig::default_apply_after")]
    pub apply_after: HumanDuration,
    /// Bytes of records that can never be applied here and are parked; zero: they are refused instead.
    #[serde(default = "TreeConfig::default_dead_letter_bytes")]
    pub dead_letter_bytes: ByteSize,
    /// Key prefixes that this cluster wants to hold; empty: all.
    #[serde(default)]
    pub interest: Vec<String>,
    /// How often peers are asked to measure how long the way to them is, also while nothing is written; zero: never.
    #[serde(default = "TreeConfig::default_canary")]
    pub canary: HumanDuration,
}

impl TreeConfig {
    /// A tree with the defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            partitions: DEFAULT_PARTITIONS,
            merge: Merge::default(),
            consistency: Consistency::default(),
            on_stall: OnStall::default(),
            apply_after: Self::default_apply_after(),
            dead_letter_bytes: Self::default_dead_letter_bytes(),
            interest: Vec::new(),
            canary: Self::default_canary(),
        }
    }

    /// Which keys are held.
    ///
    /// # Errors
    /// When a prefix cannot be, or there are too many.
    pub fn interest(&self) -> Result<Interest, InterestError> {
        Interest::new(self.interest.iter().cloned())
    }

    fn default_canary() -> HumanDuration {
        Duration::ZERO.into()
    }

    fn default_partitions() -> u16 {
        DEFAULT_PARTITIONS
    }

    fn default_apply_after() -> HumanDuration {
        Duration::from_secs(30).into()
    }

    fn default_dead_letter_bytes() -> ByteSize {
        ByteSize::new(16 * 1024 * 1024)
    }
}

/// One of `[[peers]]`: a cluster that this one exchanges writes with. Who is not listed is refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The other cluster's name.
    pub id: String,
    /// Where it takes links; needed to send to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether this cluster sends to it.
    #[serde(default = "Peer::default_send")]
    pub send: bool,
    /// Whether it sends its own writes here. If not, it is not let in, and nothing waits for writes of it.
    #[serde(default = "Peer::default_send")]
    pub receive: bool,
    /// The trees that are exchanged; empty: all.
    #[serde(default)]
    pub trees: Vec<String>,
    /// Whether writes of other clusters are sent on to it too, as a relay does; never its own.
    #[serde(default)]
    pub forward: Forward,
    /// Bytes of pages a second that are sent to it, over all trees; zero: no limit.
    #[serde(default = "Peer::default_rate_limit")]
    pub rate_limit: ByteSize,
    /// Whether what is sent to it is packed.
    #[serde(default)]
    pub compression: Compression,
}

impl Peer {
    /// A peer with which all trees are exchanged, both ways.
    pub fn new(id: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            url: Some(url.into()),
            send: true,
            receive: true,
            trees: Vec::new(),
            forward: Forward::Never,
            rate_limit: Self::default_rate_limit(),
            compression: Compression::default(),
        }
    }

    fn default_rate_limit() -> ByteSize {
        ByteSize::new(0)
    }

    /// The same peer, with writes of other clusters sent on to it, or not.
    #[must_use]
    pub fn forward(self, forward: impl Into<Forward>) -> Self {
        Self { forward: forward.into(), ..self }
    }

    fn default_send() -> bool {
        true
    }
}

/// How often a sink may deliver one record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Once, and again after a failure.
    #[default]
    AtLeastOnce,
    /// Once, whatever happens.
    ExactlyOnce,
}

/// Where a sink begins that has never run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkStart {
    /// With the oldest change that the log retains.
    #[default]
    Beginning,
    /// With the next change.
    Now,
}

/// What becomes of a record that the destination will never take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnPoison {
    /// The sink stops and says so; nothing is left out.
    #[default]
    Stop,
    /// It is parked among the dead letters, and the sink goes on.
    DeadLetter,
}

/// One of `[[sinks]]`: the keys that every type has, and those of its type.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SinkConfig {
    /// The sink's name.
    pub name: String,
    /// The tree that feeds it.
    pub tree: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// How often it may deliver one record.
    #[serde(default)]
    pub delivery: Delivery,
    /// Where it begins when it has never run.
    #[serde(default)]
    pub start: SinkStart,
    /// What becomes of a record that the destination will never take.
    #[serde(default)]
    pub on_poison: OnPoison,
    /// The keys of its type; the connector reads and checks them.
    #[serde(flatten)]
    pub settings: toml::Table,
}

impl SinkConfig {
    /// A sink with the defaults and no keys of its type yet.
    pub fn new(name: impl Into<String>, tree: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            tree: tree.into(),
            kind: kind.into(),
            delivery: Delivery::default(),
            start: SinkStart::default(),
            on_poison: OnPoison::default(),
            settings: toml::Table::new(),
        }
    }
}
