//! [`ReceiveStatus`]: how one tree stands with one peer, seen from the receiving side.

use serde::Serialize;

/// What a link is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveState {
    /// There is no link, or nothing comes over it; the peer dials.
    Connecting,
    /// Records are on their way.
    Streaming,
    /// Everything that the peer is known to have is applied.
    CaughtUp,
    /// What has come waits: for writes of another cluster, or for the log here.
    Waiting,
    /// Stopped by the operator.
    Paused,
    /// The last thing that the peer sent was refused.
    Refused,
}

/// How far this cluster is behind its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReceiveLag {
    /// Records that the peer is known to have and that are not applied.
    pub entries: u64,
    /// Bytes that the peer is known to have and that are not applied.
    pub bytes: u64,
    /// How long ago it was last caught up; 0 while it is.
    pub seconds: f64,
}

/// What held groups wait for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitsFor {
    /// For writes of which cluster.
    pub origin: String,
    /// Up to which HLC, as a decimal number.
    pub hlc: String,
    /// For how long.
    pub seconds: f64,
    /// Bytes that wait.
    pub bytes: u64,
}

/// How one tree stands with one peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiveStatus {
    /// The peer.
    pub id: String,
    /// The tree.
    pub tree: String,
    /// Always `receive`.
    pub direction: &'static str,
    /// What the link is doing.
    pub state: ReceiveState,
    /// Why, where that is not plain.
    pub reason: Option<String>,
    /// How far behind.
    pub lag: ReceiveLag,
    /// What held groups wait for.
    pub waits_for: Option<WaitsFor>,
    /// Whether the peer is asked to pause; the reason says why.
    pub paused: bool,
    /// Records of the peer that were applied without all that they depend on, since this cluster started.
    pub applied_without_dependencies: u64,
    /// Records of the peer that can never be applied and are parked.
    pub dead_letters: u64,
    /// Seconds since the last page, if there was one since this cluster started.
    pub last_page_seconds: Option<f64>,
}
