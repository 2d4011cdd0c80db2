//! [`Route`]: which origins a link carries, where each stands at the peer, and which it has to leave out. Pure.
//!
//! The local origin is always carried, or there is no session. Of the others a link carries what the peer takes and what
//! is known here under the same history; the rest is named and left out, and the link goes on.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_core::causal::OriginMarks;
use tidewire_core::feed::Cursor;
use tidewire_core::id::{ClusterId, Incarnation, OriginTag};
use tidewire_core::tree::{Located, TreeIdentity};

use crate::handshake::Welcomed;

/// Which origins a link carries.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// What the peer covers of each origin that is carried.
    pub(crate) carried: BTreeMap<OriginTag, OriginMarks>,
    /// Whose blocks are passed over on purpose: the peer's own, and what cannot be carried.
    pub(crate) omitted: BTreeSet<OriginTag>,
    /// Why not all is carried: one line for each origin.
    pub(crate) reasons: Vec<String>,
    /// Everything before this is covered by the peer, or not carried.
    pub(crate) from: Cursor,
    /// Whether other origins than the local one are carried at all.
    pub(crate) forwards: bool,
    /// What the peer has asked for, where that alone is forwarded; None: it is not asked.
    pub(crate) asked: Option<BTreeSet<OriginTag>>,
    /// An origin is left out because the log lacks what the peer needs of it: that passes when the peer has got it
    /// otherwise.
    pub(crate) fell_off: bool,
}

impl Route {
    /// A route for the local origin, of which the peer covers `held`, which is everything before `from`.
    pub(crate) fn new(me: &TreeIdentity, held: Option<OriginMarks>, from: Cursor) -> Self {
        let held = held.unwrap_or_else(|| OriginMarks::new(me.incarnation, me.partitions));
        let carried = [(me.origin(), held)].into();
        Self {
            carried,
            omitted: BTreeSet::new(),
            reasons: Vec::new(),
            from,
            forwards: false,
            asked: None,
            fell_off: false,
        }
    }

    /// From here on other origins are carried too, never the peer's own.
    pub(crate) fn forward(&mut self, peer: &ClusterId) {
        self.forwards = true;
        self.omitted.insert(peer.tag());
    }

    /// From here on other origins are carried too if the peer asks for them; it has asked for these.
    pub(crate) fn forward_on_demand(&mut self, peer: &ClusterId, asked: BTreeSet<OriginTag>) {
        if !asked.is_empty() {
            self.forward(peer);
        }
        self.asked = Some(asked);
    }

    /// Whether something that the peer asks for is not carried.
    pub(crate) fn owes(&self) -> bool {
        self.asked.iter().flatten().any(|origin| !self.carried.contains_key(origin))
    }

    /// Takes an origin up that the peer takes, given where its history goes on for the peer.
    pub(crate) fn take_up(&mut self, name: &ClusterId, held: OriginMarks, located: Located) {
        match located {
            Located::At(cursor) => {
                self.carried.insert(name.tag(), held);
                if cursor.lsn < self.from.lsn {
                    self.from = cursor;
                }
            }
            Located::WentBack { partition, held, here } => self.leave_out(
                name,
                &format!(
                    "in partition {partition} at offset {} its last write has HLC {} there and {} here: {name} went back \
                     to an older copy of its data; see what its own link says",
                    held.next, held.hlc, here.hlc
                ),
            ),
            Located::FellOff { lowest } => {
                self.fell_off = true;
                self.leave_out(
                    name,
                    &format!(
                        "the peer needs writes of it that the log here no longer holds, it begins at {lowest}: they \
                         must come from {name} itself, or from a snapshot"
                    ),
                );
            }
        }
    }

    /// Leaves an origin out, and says why.
    pub(crate) fn leave_out(&mut self, name: &ClusterId, why: &str) {
        self.omitted.insert(name.tag());
        self.reasons.push(format!("writes of {name} are not forwarded: {why}"));
    }
}

/// What the peer covers of an origin that is to be forwarded.
///
/// # Errors
/// Why the peer and this cluster cannot mean the same by it.
pub(crate) fn held_of(
    welcomed: &Welcomed,
    name: &ClusterId,
    incarnation: Incarnation,
    partitions: u16,
) -> Result<OriginMarks, String> {
    let origin = name.tag();
    if let Some(detail) = welcomed.not_taken.get(&origin) {
        return Err(detail.clone());
    }
    if !welcomed.taken.contains(&origin) {
        return Err("the peer takes only this cluster's own: upgrade it".to_owned());
    }
    match welcomed.watermarks.origin(origin) {
        Some(held) if held.covered() == 0 => Ok(OriginMarks::new(incarnation, partitions)),
        Some(held) if held.incarnation() != incarnation => Err(format!(
            "the peer holds writes of incarnation {} of its log, here it is {incarnation}: the log of {name} was created \
             anew under the old name; put the old one back, or give {name} a new name",
            held.incarnation()
        )),
        Some(held) => Ok(held.clone()),
        None => Ok(OriginMarks::new(incarnation, partitions)),
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
