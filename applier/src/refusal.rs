//! [`Refusal`]: why a link or a page is not taken, for programs and for people.

use std::fmt;

use tidewire_core::id::PageId;
use tidewire_core::transport::wire;

/// What kind of refusal. The names are part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// No protocol version in common.
    Protocol,
    /// The caller is not a peer here.
    UnknownPeer,
    /// The tree is not open here, or not for this peer.
    UnknownTree,
    /// The number of partitions differs.
    Partitions,
    /// Concurrent writes are merged in another way.
    MergeMode,
    /// Two names of clusters share a tag.
    TagCollision,
    /// The origin's log is not the one that is known here.
    Incarnation,
    /// Two processes speak as one cluster.
    TwoCopies,
    /// Records came back to their origin.
    OwnOrigin,
    /// Something before this is missing.
    Gap,
    /// Bytes were damaged.
    Checksum,
    /// The origin's clock is too far ahead of this cluster's.
    ClockSkew,
    /// A record is over this cluster's limit.
    TooLarge,
    /// What was sent cannot be meant.
    Malformed,
    /// The log here cannot be written now.
    Unavailable,
    /// A seed comes in over another link.
    Busy,
    /// The operator here has paused the links of the caller.
    Paused,
    /// The operator here has sealed the caller, or an origin, out.
    Sealed,
    /// A record is older than what was reaped here.
    Reaped,
    /// A record can never be applied, and there is no room to park it.
    DeadLettersFull,
    /// A relay does not hold all the keys that are held here.
    Interest,
}

impl RefusalKind {
    /// The name on the wire and in status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::UnknownPeer => "unknown_peer",
            Self::UnknownTree => "unknown_tree",
            Self::Partitions => "partitions",
            Self::MergeMode => "merge_mode",
            Self::TagCollision => "tag_collision",
            Self::Incarnation => "incarnation",
            Self::TwoCopies => "two_copies",
            Self::OwnOrigin => "own_origin",
            Self::Gap => "gap",
            Self::Checksum => "checksum",
            Self::ClockSkew => "clock_skew",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Unavailable => "unavailable",
            Self::Busy => "busy",
            Self::Paused => "paused",
            Self::Sealed => "sealed",
            Self::Reaped => "reaped",
            Self::DeadLettersFull => "dead_letters_full",
            Self::Interest => "interest",
        }
    }

    /// Whether the same attempt may succeed later. A peer or a tree that is not known yet may be added at any moment.
    pub(crate) const fn may_retry(self) -> bool {
        match self {
            Self::UnknownPeer
            | Self::UnknownTree
            | Self::Gap
            | Self::Checksum
            | Self::ClockSkew
            | Self::Unavailable
            | Self::Busy
            | Self::Paused
            | Self::DeadLettersFull => true,
            Self::Protocol
            | Self::Partitions
            | Self::MergeMode
            | Self::TagCollision
            | Self::Incarnation
            | Self::TwoCopies
            | Self::OwnOrigin
            | Self::TooLarge
            | Self::Reaped
            | Self::Interest
            | Self::Malformed
            | Self::Sealed => false,
        }
    }
}

/// Why something is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What kind.
    pub(crate) kind: RefusalKind,
    /// What was found, what was expected, and what to do.
    pub(crate) detail: String,
    /// Which page, if it was one.
    pub(crate) page: Option<PageId>,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), page: None }
    }

    #[must_use]
    pub(crate) fn of_page(mut self, page: PageId) -> Self {
        self.page = Some(page);
        self
    }

    pub(crate) fn to_wire(&self) -> wire::Refusal {
        wire::Refusal {
            kind: self.kind.name().into(),
            detail: self.detail.clone(),
            retry: self.kind.may_retry(),
        }
    }

    pub(crate) fn to_page_wire(&self) -> Option<wire::PageRefusal> {
        let page_id = self.page?.get();
        Some(wire::PageRefusal { page_id, kind: self.kind.name().into(), detail: self.detail.clone() })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.detail)
    }
}
