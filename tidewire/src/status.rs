//! [`Status`]: what a cluster says about itself, the same in the library, over HTTP and on the command line.
//!
//! Positions, clock readings and ids are decimal strings in JSON, because they exceed what a JSON number holds exactly;
//! counts, bytes and seconds are numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidewire_core::tree::{ReapHold, ReapReport};

use crate::config::Peer;

/// A whole cluster at one moment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// The version of the program.
    pub version: String,
    /// The id of this run.
    pub boot: String,
    /// Seconds since this run began.
    pub uptime_seconds: u64,
    /// The bound addresses.
    pub listen: ListenStatus,
    /// Whether it is fit for use, and if not, why.
    pub health: Health,
    /// Its trees, by name.
    pub trees: Vec<TreeStatus>,
    /// Its links: one entry for each peer, tree and direction.
    pub peers: Vec<PeerStatus>,
    /// The clusters that it knows as peers, and what was ordered about them.
    #[serde(default)]
    pub members: Vec<Member>,
    /// Its sinks, by tree and name.
    pub sinks: Vec<SinkStatus>,
}

/// Who says that a cluster is a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerSource {
    /// The configuration file, or the program.
    Listed,
    /// An order at run time, which is kept in the data directory.
    Kept,
    /// Nobody: only what was ordered about it is known.
    None,
}

/// A cluster that takes part, or did.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Member {
    /// Its name.
    pub id: String,
    /// Who says that it is a peer.
    pub source: PeerSource,
    /// Its links rest until they are resumed.
    pub paused: bool,
    /// It was sealed out: nothing is held for it, and nothing of it is taken.
    pub sealed: bool,
    /// How writes are exchanged with it; absent if it is no peer.
    pub peer: Option<Peer>,
}

/// The bound addresses; absent where nothing listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ListenStatus {
    /// The HTTP API.
    pub http: Option<String>,
    /// Links from other clusters.
    pub replication: Option<String>,
}

/// Whether a cluster is fit for use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// Everything works.
    Ok,
    /// It serves, and something needs attention.
    Degraded,
    /// It cannot take writes.
    Failing,
}

/// Health with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Health {
    /// The verdict.
    pub state: HealthState,
    /// One sentence for each thing that is wrong: what, where, what to do.
    pub reasons: Vec<String>,
}

/// One tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct TreeStatus {
    /// Its name.
    pub name: String,
    /// Its number of partitions.
    pub partitions: u16,
    /// Prefixes of the keys that are held here; absent: all keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interest: Vec<String>,
    /// Live entries.
    pub entries: u64,
    /// For each origin by name, the HLC up to which its writes are applied here.
    pub frontier: BTreeMap<String, String>,
    /// Its log.
    pub log: LogStatus,
    /// Its newest snapshot; absent while there is none.
    #[serde(default)]
    pub snapshot: Option<SnapshotStatus>,
    /// What is dead in it and not forgotten yet.
    #[serde(default)]
    pub dead: DeadStatus,
    /// What has come of other clusters and waits for writes that are not here yet, by origin.
    #[serde(default)]
    pub waiting: Vec<WaitingStatus>,
}

/// What is dead in a tree: kept until nothing older can arrive that would have to lose against it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DeadStatus {
    /// Deleted keys.
    pub tombstones: u64,
    /// Keys whose deadline has passed.
    pub expired: u64,
    /// Deleted ranges, in pieces that do not overlap.
    pub ranges: u64,
    /// The HLC up to which the dead are forgotten.
    pub reaped: String,
    /// What keeps the rest, as the last pass of the collector found; absent where nothing is dead.
    #[serde(default)]
    pub held_by: Option<String>,
    /// Up to when whatever keeps it would let it go, in milliseconds since 1970: for a cluster, up to when its writes are
    /// complete here.
    #[serde(default)]
    pub held_since_ms: Option<u64>,
}

impl DeadStatus {
    /// What a pass of the collector left.
    pub(crate) fn of(report: &ReapReport) -> Self {
        let held = (report.left.total() > 0).then_some(report);
        Self {
            tombstones: report.left.tombstones,
            expired: report.left.expired,
            ranges: report.left.ranges,
            reaped: report.reaped.to_string(),
            held_by: held.map(|report| held_by(&report.held_by)),
            held_since_ms: held.map(|report| report.complete.millis()),
        }
    }
}

/// What keeps the dead, for people.
fn held_by(hold: &ReapHold) -> String {
    match hold {
        ReapHold::Undeclared => "the start of the cluster".to_owned(),
        ReapHold::Origin(name) => format!("writes of {name} that may still come"),
        ReapHold::Consumer(name) => format!("{name}, which has not acknowledged more of the log"),
        ReapHold::Unheard(name) => format!("{name}, which was not heard since the start"),
        ReapHold::Unfilled(name) => format!("{name}, which has not delivered what the last seed brought"),
        ReapHold::Seed => "the seed that this tree waits for".to_owned(),
        ReapHold::Reading => "a snapshot that is written or sent".to_owned(),
        ReapHold::Parked => "a write that is kept aside".to_owned(),
        ReapHold::Age => "nobody: it died a moment ago".to_owned(),
    }
}

/// Writes of one origin that have come and wait for others, on which they depend.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WaitingStatus {
    /// Whose writes wait.
    pub origin: String,
    /// Their bytes, held in memory and not acknowledged.
    pub bytes: u64,
    /// Since when the first of them has waited, in milliseconds since 1970.
    pub since_ms: u64,
    /// What they wait for.
    pub waits_for: WaitsFor,
    /// What is kept from going meanwhile.
    pub pins: WaitingPins,
}

/// What a write waits for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WaitsFor {
    /// Whose writes.
    pub origin: String,
    /// Up to which HLC.
    pub hlc: String,
    /// The peers over which they would come: that cluster itself, and those that carry its writes now.
    pub from: Vec<ComesFrom>,
    /// Peers that forward on demand are asked for them.
    pub asked: bool,
}

/// A link over which something would come.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ComesFrom {
    /// The peer.
    pub peer: String,
    /// What the link from it is doing.
    pub state: PeerState,
}

/// What is kept while writes wait.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct WaitingPins {
    /// The peers that brought them, whose logs keep them until they are applied here.
    pub logs_of: Vec<String>,
    /// Deletions above this HLC are not reaped here.
    pub reaping_above: String,
}

/// The newest snapshot of a tree: opening the tree replays the log from what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SnapshotStatus {
    /// The position of the log that it covers.
    pub covered: String,
    /// Entries in it, tombstones included.
    pub entries: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Seconds since it was begun.
    pub age_seconds: u64,
}

/// The log of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LogStatus {
    /// The first position that is kept.
    pub first: String,
    /// The position of the next record.
    pub next: String,
    /// Bytes of what is kept.
    pub retained_bytes: u64,
    /// Bytes of the files.
    pub physical_bytes: u64,
    /// The consumer that keeps most of it from going.
    pub pinned_by: Option<PinnedBy>,
}

/// What keeps a log from being trimmed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PinnedBy {
    /// The consumer's name.
    pub consumer: String,
    /// Bytes that it holds.
    pub bytes: u64,
    /// The position from which on it holds them.
    pub since: String,
}

/// Which way a link carries writes, seen from this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the peer.
    Send,
    /// From the peer.
    Receive,
}

/// What a link is doing, whichever way.
pub use tidewire_shipper::ShipperState as PeerState;

/// One link: a peer, a tree, a direction.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct PeerStatus {
    /// The peer's name.
    pub id: String,
    /// The tree.
    pub tree: String,
    /// Which way.
    pub direction: Direction,
    /// What it is doing.
    pub state: PeerState,
    /// Why, where the state needs a reason.
    pub reason: Option<String>,
    /// How far the receiving side is behind.
    pub lag: Lag,
    /// When the last acknowledgement came or went, in milliseconds since 1970.
    pub last_ack: Option<u64>,
    /// Received from it and never to be applied here: parked as dead letters.
    #[serde(default)]
    pub dead_letters: u64,
    /// Received from it and applied without all that it depends on, as `on_stall` says; since the start.
    #[serde(default)]
    pub applied_without_dependencies: u64,
}

/// One sink of a tree.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SinkStatus {
    /// Its name.
    pub name: String,
    /// The tree that feeds it.
    pub tree: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is doing: `starting`, `running`, `caught_up`, `backing_off`, `stalled`, `halted`, `paused`, `stopped`.
    pub state: String,
    /// Why, where the state needs a reason.
    pub reason: Option<String>,
    /// How far the destination is behind the log.
    pub lag: Lag,
    /// The stored position.
    pub checkpoint: Option<String>,
    /// Records of the log that became durable at the destination since this run began.
    pub delivered: u64,
    /// Failed attempts in a row.
    pub failures: u32,
    /// Records that the destination does not take, parked.
    pub dead_letters: u64,
}

/// How far one side is behind the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Lag {
    /// Records that are still to come.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The age of what is shown, in seconds.
    pub seconds: f64,
}
