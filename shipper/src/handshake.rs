//! Hello and what answers it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::causal::{OriginMarks, VersionVector, Watermarks};
use tidewire_core::error::LinkError;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{BootId, ClusterId, Incarnation, OriginTag, SessionNumber};
use tidewire_core::limits::MAX_KNOWN_CLUSTERS;
use tidewire_core::record::Interest;
use tidewire_core::transport::ZSTD;
use tidewire_core::transport::marks::{decode_vector, decode_watermarks};
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::{Located, TreeIdentity};

use crate::error::ShipError;
use crate::seeding::SeedTerms;

/// The only version of the protocol that there is.
const PROTOCOL: u32 = 1;

/// What a peer said in its Welcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct Welcomed {
    /// The number that every frame of the session carries.
    pub(crate) session: SessionNumber,
    /// What it holds of this log; none if nothing.
    pub(crate) marks: Option<OriginMarks>,
    /// What it holds of every origin.
    pub(crate) watermarks: Watermarks,
    /// What it has applied whole, by origin.
    pub(crate) frontier: VersionVector,
    /// The other origins that it takes over this link.
    pub(crate) taken: BTreeSet<OriginTag>,
    /// Those that it does not take, and why.
    pub(crate) not_taken: BTreeMap<OriginTag, String>,
    /// Bytes that may be sent beyond what is acknowledged.
    pub(crate) credit: u64,
    /// When it takes a snapshot instead of pages; None: not now.
    pub(crate) snapshot: Option<SeedTerms>,
    /// Whether it can unpack pages.
    pub(crate) unpacks: bool,
    /// Which keys it holds.
    pub(crate) interest: Interest,
}

/// The first frame: who calls, and about what. `forwarded` are the other origins that would be sent on; `packs`: pages
/// may be packed; `relays`: others are sent on, too, if the peer asks for them; `partial`: no seed of all that is held here can be
/// given now.
pub(crate) fn hello(
    identity: &TreeIdentity,
    boot: BootId,
    known: &[ClusterId],
    forwarded: &[(ClusterId, Incarnation)],
    packs: bool,
    relays: bool,
    (held, partial): (&Interest, bool),
) -> Frame {
    let names = known.iter().chain([&identity.cluster]).chain(forwarded.iter().map(|(name, _)| name));
    let offers = [(packs, ZSTD), (relays, wire::RELAY), (partial, wire::PARTIAL)];
    let mut known: Vec<String> = names.map(ToString::to_string).collect();
    known.sort_unstable();
    known.dedup();
    let hello = wire::Hello {
        cluster: identity.cluster.to_string(),
        boot_id: boot.get(),
        protocol_min: PROTOCOL,
        protocol_max: PROTOCOL,
        tree: identity.tree.to_string(),
        incarnation: identity.incarnation.get(),
        partitions: u32::from(identity.partitions),
        merge_mode: identity.merge.name().to_owned(),
        known_clusters: known,
        capabilities: offers
            .into_iter()
            .filter(|(offered, _)| *offered)
            .map(|(_, word)| word.to_owned())
            .collect(),
        interest: held.prefixes().to_vec(),
        forwarded: forwarded
            .iter()
            .map(|(name, incarnation)| wire::ForwardedOrigin {
                name: name.to_string(),
                incarnation: incarnation.get(),
            })
            .collect(),
    };
    Frame::new(0, Body::Hello(hello))
}

/// Reads the answer to Hello.
///
/// # Errors
/// When it is no welcome, or not from whom was meant, or knows another log under this cluster's name.
pub(crate) fn answer(frame: Frame, peer: &ClusterId, me: &TreeIdentity) -> Result<Welcomed, ShipError> {
    let welcome = match frame.body {
        Some(Body::Welcome(welcome)) => welcome,
        Some(Body::Refusal(wire::Refusal { kind, detail, retry })) => {
            return Err(ShipError::Refused { peer: peer.clone(), kind, detail, retry });
        }
        Some(Body::Goodbye(wire::Goodbye { reason })) => {
            return Err(ShipError::Ended { peer: peer.clone(), reason });
        }
        _ => return Err(ShipError::protocol(peer, "a hello is answered by a welcome or a refusal")),
    };
    if welcome.cluster != peer.as_str() {
        return Err(ShipError::WrongPeer {
            meant: peer.clone(),
            found: welcome.cluster.chars().take(64).collect(),
        });
    }
    if welcome.protocol != PROTOCOL || welcome.session == 0 || frame.session != welcome.session {
        return Err(ShipError::protocol(
            peer,
            "a welcome with a protocol or a session number that cannot be",
        ));
    }
    let link = |error: LinkError| ShipError::Link { peer: peer.clone(), error };
    let watermarks = decode_watermarks(&welcome.watermarks, me.partitions).map_err(link)?;
    let frontier = decode_vector(&welcome.frontier).map_err(link)?;
    let asked = welcome.snapshot.as_ref().map_or(0, |request| request.origins.len());
    if (welcome.forwarded.len() + welcome.not_forwarded.len()).max(asked) > MAX_KNOWN_CLUSTERS {
        return Err(ShipError::protocol(peer, "a welcome that names more origins than can be known"));
    }
    let interest = Interest::new(welcome.interest).map_err(|error| {
        ShipError::protocol(peer, format!("a welcome with an interest that cannot be: {error}"))
    })?;
    let not_taken = welcome.not_forwarded.into_iter();
    let marks = watermarks.origin(me.origin()).filter(|marks| marks.covered() > 0).cloned();
    check_incarnation(marks.as_ref(), peer, me)?;
    Ok(Welcomed {
        session: SessionNumber::new(welcome.session),
        marks,
        watermarks,
        frontier,
        taken: welcome.forwarded.into_iter().map(OriginTag::new).collect(),
        not_taken: not_taken.map(|refused| (OriginTag::new(refused.origin), refused.detail)).collect(),
        interest,
        credit: welcome.credit_bytes,
        unpacks: welcome.capabilities.iter().any(|capability| capability == ZSTD),
        snapshot: welcome.snapshot.map(|request| SeedTerms {
            now: request.now,
            origins: request.origins.into_iter().map(OriginTag::new).collect(),
        }),
    })
}

/// Positions of two incarnations are never compared.
pub(crate) fn check_incarnation(
    marks: Option<&OriginMarks>,
    peer: &ClusterId,
    me: &TreeIdentity,
) -> Result<(), ShipError> {
    match marks.map(OriginMarks::incarnation).filter(|held| *held != me.incarnation) {
        Some(held) => Err(ShipError::IncarnationChanged { peer: peer.clone(), held, here: me.incarnation }),
        None => Ok(()),
    }
}

/// Where shipping starts, if it may.
///
/// # Errors
/// When this log cannot be what the peer has records of, or no longer holds what it needs.
pub(crate) fn start(located: Located, peer: &ClusterId) -> Result<Cursor, ShipError> {
    let peer = peer.clone();
    match located {
        Located::At(cursor) => Ok(cursor),
        Located::WentBack { partition, held, here } => {
            Err(ShipError::LogWentBack { peer, partition, held, here })
        }
        Located::FellOff { lowest } => Err(ShipError::FellOff { peer, lowest }),
    }
}
