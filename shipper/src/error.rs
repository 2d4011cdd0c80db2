//! [`ShipError`]: why a session with a peer ended, and what follows from it.

use std::collections::BTreeSet;
use std::time::Duration;

use tidewire_core::causal::Watermark;
use tidewire_core::error::{Error, LinkError, LinkErrorKind, SinkError, SinkErrorKind};
use tidewire_core::id::{ClusterId, Incarnation, Lsn, OriginTag, PartitionId};

use tidewire_core::record::Interest;

use crate::status::ShipperState;

/// Refusals that pass by themselves, so they are no reason to call a peer unwilling.
const PASSING: [&str; 4] = ["gap", "unavailable", "busy", "shutting_down"];

/// Why a session ended or never began. The source of the [`SinkError`] that ends the run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShipError {
    /// This log was restored from an older copy: the peer holds more of it, or something else, than is here. Nothing is
    /// sent, for it would be dropped as known or contradict what is there.
    #[error(
        "LogWentBack: in partition {partition} {peer} holds {} records up to HLC {}, here are {} up to HLC {}. \
         Stop this cluster and put back the newest copy of its data directory. If there is none, have this cluster \
         seeded by the peer that holds most of it: tidewire peers reseed PEER gets its lost writes back, and writes anew \
         what was written here since. Delete nothing on the peers: they hold writes that are lost here",
        held.next, held.hlc, here.next, here.hlc
    )]
    LogWentBack {
        /// Who holds more.
        peer: ClusterId,
        /// Where that shows.
        partition: PartitionId,
        /// What the peer holds there.
        held: Watermark,
        /// What is here.
        here: Watermark,
    },
    /// The peer holds writes of this cluster that belong to another log than the one here.
    #[error(
        "{peer} holds writes of incarnation {held} of this cluster's log, here is incarnation {here}: the log was created \
         anew under the old name. Stop this cluster and put back the newest copy of its data directory. If there is none, \
         retire this cluster's id on its peers and start this site under a new id. Delete nothing on the peers"
    )]
    IncarnationChanged {
        /// Who holds them.
        peer: ClusterId,
        /// The incarnation that it knows.
        held: Incarnation,
        /// The incarnation of the log here.
        here: Incarnation,
    },
    /// The peer holds keys that are not held here: what came from other clusters cannot be sent on, nor a seed be given.
    #[error(
        "{peer} holds {wanted}, and whole here {}: nothing is sent that would pass for all of it. Let this cluster hold \
         those keys too (interest of the tree), or set forward = false for {peer} and let other clusters send it the rest",
        here.as_ref().map_or_else(|| "is nothing yet".to_owned(), |here| format!("is only {here}"))
    )]
    Interest {
        /// Who holds them.
        peer: ClusterId,
        /// Which keys it holds.
        wanted: Interest,
        /// Of which everything is here.
        here: Option<Interest>,
    },
    /// The same peer needs a seed: the log no longer holds what it needs, and what would be missing in the seed would pass for
    /// deleted.
    #[error(
        "{peer} holds {wanted} and needs records that the log here no longer holds, it begins at {lowest}; a snapshot of this \
         cluster would not do, for whole here {}. Have a cluster that holds all of it seed the peer, by an order there: tidewire \
         peers reseed OTHER. If there is none, let this cluster hold those keys (interest of the tree), or {peer} fewer. Until \
         then nothing that is written here reaches {peer}",
        here.as_ref().map_or_else(|| "is nothing yet".to_owned(), |here| format!("is only {here}"))
    )]
    Unseeded {
        /// Who needs a seed.
        peer: ClusterId,
        /// Which keys it holds.
        wanted: Interest,
        /// Of which everything is here.
        here: Option<Interest>,
        /// The lowest position that is retained.
        lowest: Lsn,
    },
    /// The log no longer holds what the peer needs next.
    #[error(
        "{peer} needs records that the log here no longer holds, it begins at {lowest}: the peer must be seeded from a \
         snapshot, and it takes none now"
    )]
    FellOff {
        /// Who needs them.
        peer: ClusterId,
        /// The lowest position that is retained.
        lowest: Lsn,
    },
    /// Somebody else answered.
    #[error("meant to call {meant}, but {found:?} answered: correct the url of the peer")]
    WrongPeer {
        /// Whom the configuration names.
        meant: ClusterId,
        /// Who answered, by its own words.
        found: String,
    },
    /// The peer does not take what it is offered.
    #[error("{peer} refused ({kind}): {detail}")]
    Refused {
        /// Who.
        peer: ClusterId,
        /// The kind of refusal, as the protocol names it.
        kind: String,
        /// The peer's words.
        detail: String,
        /// Whether the same may work later though nobody changes anything.
        retry: bool,
    },
    /// The peer acknowledged nothing while pages were in flight.
    #[error("{peer} has acknowledged nothing for {} s while pages were on their way", silence.as_secs())]
    Silent {
        /// Who.
        peer: ClusterId,
        /// For how long.
        silence: Duration,
    },
    /// The peer ended the session in order, or the stream ended.
    #[error("{peer} ended the session: {reason}")]
    Ended {
        /// Who.
        peer: ClusterId,
        /// The peer's words.
        reason: String,
    },
    /// An origin has become known here since the peer was told which ones there are.
    #[error("writes of origin {origin} have come, of which {peer} was not told: a new hello names it")]
    NewOrigin {
        /// Who is to be told.
        peer: ClusterId,
        /// Which origin.
        origin: OriginTag,
    },
    /// The peer asks for other writes than the hello of this session named.
    #[error("{peer} asks for writes of {} other clusters: a new hello names them", wanted.len())]
    Asked {
        /// Who asks.
        peer: ClusterId,
        /// For whose writes.
        wanted: BTreeSet<OriginTag>,
    },
    /// An origin was left out for want of its records, and it is time to see whether the peer has them by now.
    #[error("looking again at what {peer} has: an origin was left out")]
    LookAgain {
        /// Who is called again.
        peer: ClusterId,
    },
    /// The link failed, or the far side broke the protocol.
    #[error("link to {peer}: {error}")]
    Link {
        /// Who should be there.
        peer: ClusterId,
        /// What happened.
        error: LinkError,
    },
    /// The log here could not be read.
    #[error("the log cannot be read: {0}")]
    Log(#[from] Error),
}

impl ShipError {
    /// A refusal of a page, whose kind alone says what follows.
    pub(crate) fn refused_page(peer: &ClusterId, kind: String, detail: String) -> Self {
        let retry = PASSING.contains(&kind.as_str());
        Self::Refused { peer: peer.clone(), kind, detail, retry }
    }

    pub(crate) fn protocol(peer: &ClusterId, what: impl Into<String>) -> Self {
        Self::Link { peer: peer.clone(), error: LinkError::new(LinkErrorKind::Protocol, what) }
    }

    /// What the shipper shows until a session is open again.
    pub(crate) fn state(&self) -> ShipperState {
        match self {
            Self::FellOff { .. } => ShipperState::FellOff,
            Self::LogWentBack { .. }
            | Self::IncarnationChanged { .. }
            | Self::Interest { .. }
            | Self::Unseeded { .. }
            | Self::WrongPeer { .. } => ShipperState::Refused,
            Self::Refused { kind, .. } if kind == "paused" => ShipperState::Paused,
            Self::Refused { kind, .. } if !PASSING.contains(&kind.as_str()) => ShipperState::Refused,
            _ => ShipperState::Connecting,
        }
    }

    /// How the pump takes it: a halt is tried again slowly, the rest with growing waits.
    pub(crate) fn sink_kind(&self) -> SinkErrorKind {
        match self {
            Self::LogWentBack { .. }
            | Self::IncarnationChanged { .. }
            | Self::Interest { .. }
            | Self::Unseeded { .. }
            | Self::FellOff { .. }
            | Self::WrongPeer { .. }
            | Self::Refused { retry: false, .. } => SinkErrorKind::Config,
            Self::Link { error, .. } if error.kind() == LinkErrorKind::Config => SinkErrorKind::Config,
            Self::Refused { .. } | Self::Link { .. } => SinkErrorKind::Destination,
            Self::Silent { .. }
            | Self::Ended { .. }
            | Self::NewOrigin { .. }
            | Self::Asked { .. }
            | Self::LookAgain { .. }
            | Self::Log(_) => SinkErrorKind::Transient,
        }
    }
}

impl From<ShipError> for SinkError {
    fn from(error: ShipError) -> Self {
        Self::new(error.sink_kind(), "nothing is shipped now").with_source(error)
    }
}
