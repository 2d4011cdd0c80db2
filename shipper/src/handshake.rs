//! Hello and what answers it. Pure.

use tidewire_core::causal::OriginMarks;
use tidewire_core::error::LinkError;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{BootId, ClusterId, SessionNumber};
use tidewire_core::transport::marks::decode_watermarks;
use tidewire_core::transport::wire::{self, Frame, frame::Body};
use tidewire_core::tree::{Located, TreeIdentity};

use crate::error::ShipError;

/// The only version of the protocol that there is.
const PROTOCOL: u32 = 1;

/// What a peer said in its Welcome.
#[derive(Clone, Debug)]
pub(crate) struct Welcomed {
    /// The number that every frame of the session carries.
    pub(crate) session: SessionNumber,
    /// What it holds of this log; none if nothing.
    pub(crate) marks: Option<OriginMarks>,
    /// Bytes that may be sent beyond what is acknowledged.
    pub(crate) credit: u64,
}

/// The first frame: who calls, and about what.
pub(crate) fn hello(identity: &TreeIdentity, boot: BootId, known: &[ClusterId]) -> Frame {
    let mut known: Vec<String> = known.iter().chain([&identity.cluster]).map(ToString::to_string).collect();
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
        capabilities: Vec::new(),
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
    let watermarks = decode_watermarks(&welcome.watermarks, me.partitions)
        .map_err(|error: LinkError| ShipError::Link { peer: peer.clone(), error })?;
    let marks = watermarks.origin(me.origin()).filter(|marks| marks.covered() > 0).cloned();
    check_incarnation(marks.as_ref(), peer, me)?;
    Ok(Welcomed { session: SessionNumber::new(welcome.session), marks, credit: welcome.credit_bytes })
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
