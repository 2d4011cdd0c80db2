//! What comes too late: older than what is reaped here, so it might bring back what was deleted. Each such record is
//! parked, and the link goes on. Where there is no room for the letters, [`LeftOut`] remembers an origin that a relay
//! brings, and links leave it out alone; the origin's own link is refused until there is room.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tidewire_core::causal::OriginMarks;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, Offset, OriginTag, PartitionId};
use tidewire_core::letters::Letter;
use tidewire_core::tree::{ApplyTarget, Parking, Progress};

use crate::applier::Applier;
use crate::port::{Ending, Port};
use crate::refusal::{Refusal, RefusalKind};

/// Why a record that is too late is parked.
pub(crate) const TOO_LATE: &str = "it comes too late: it is older than what was deleted and is forgotten here, and might bring \
    it back, for nothing waited for its origin then. To have its value, write it anew; then drop this letter";

/// The way out where it is too much to be parked.
pub(crate) const TOO_MUCH: &str = "If it is too much for that, leave that cluster as it is, seal it out here (tidewire peers \
    seal), and write anew on another one what it alone has (tidewire scan shows it); only then let it begin again with an \
    empty tree under a new name";

/// What a letter takes beside its bytes and its reason, at least.
const LETTER_BYTES: u64 = 64;

#[derive(Debug)]
struct Late {
    /// What was covered of it when it came too late.
    marks: Option<OriginMarks>,
    /// Bytes of the letters for which there was no room.
    bytes: u64,
    detail: String,
}

/// The origins that links leave out, because what they wrote came too late and there was no room to park it.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Mutex<BTreeMap<OriginTag, Late>>);

impl LeftOut {
    /// Leaves an origin out from the next session on. Answers what is said of it.
    pub(crate) fn note(
        &self,
        origin: OriginTag,
        marks: Option<&OriginMarks>,
        late: &[Letter],
        why: &Error,
    ) -> String {
        let detail = format!(
            "{} of its records come too late: what was deleted up to then is forgotten here, and they might bring it \
             back; to park them there is no room: {why}; or seal it out here (tidewire peers seal)",
            late.len()
        );
        let cost = |letter: &Letter| (letter.bytes.len() + letter.reason.len()) as u64 + LETTER_BYTES;
        let bytes = late.iter().map(cost).sum();
        self.0.lock().insert(origin, Late { marks: marks.cloned(), bytes, detail: detail.clone() });
        detail
    }

    /// Why an origin is left out of a session that begins now, if it is. It is tried again when there is room, or when what
    /// was late has come otherwise.
    pub(crate) fn refusal(&self, origin: &ClusterId, target: &dyn ApplyTarget) -> Option<Refusal> {
        let mut all = self.0.lock();
        let late = all.get(&origin.tag())?;
        let room = |Parking { bytes, most_bytes, .. }| bytes + late.bytes <= most_bytes;
        let progress = target.progress();
        let moved = progress.watermarks.origin(origin.tag()) != late.marks.as_ref();
        if moved || target.parking().is_some_and(room) {
            all.remove(&origin.tag());
            return None;
        }
        Some(Refusal::new(RefusalKind::Reaped, late.detail.clone()))
    }
}

/// Has what comes too late parked with its page. False: there is no room. Then a relay's link begins anew and leaves the
/// origin out; the origin's own link is refused.
pub(crate) fn take_late(
    applier: &Applier,
    port: &Port,
    applied: &Progress,
    letters: &mut Vec<Letter>,
    late: Vec<Letter>,
) -> bool {
    let known: BTreeSet<_> = letters.iter().map(name_of).collect();
    letters.extend(late.into_iter().filter(|letter| !known.contains(&name_of(letter))));
    let (Some(error), Some(origin)) =
        (applier.target().cannot_park(letters), letters.first().map(|letter| letter.origin))
    else {
        return true;
    };
    if origin == port.peer.tag() {
        port.end(Ending::Refused(no_room(&port.peer, letters.len(), &error)));
        return false;
    }
    let detail = applier.left_out().note(origin, applied.watermarks.origin(origin), letters, &error);
    let (tree, name) = (&applier.identity().tree, applier.name(origin));
    tracing::warn!(%tree, peer = %port.peer, origin = name, detail, "an origin is left out of the links that forward it");
    port.end(Ending::Goodbye("an origin that it forwards comes too late and is left out from now on"));
    false
}

/// Why an origin's own link is refused. To begin again at once would lose what it alone has.
fn no_room(origin: &ClusterId, late: usize, why: &Error) -> Refusal {
    let keeps_none = why.kind() == ErrorKind::Refused;
    let kind = if keeps_none { RefusalKind::Reaped } else { RefusalKind::DeadLettersFull };
    let again = if keeps_none {
        "give the tree dead_letter_bytes here, and restart"
    } else {
        "it is tried again as soon as there is room: settle other letters (tidewire dead-letters list), or raise \
         dead_letter_bytes of the tree here"
    };
    let detail = format!(
        "{late} records of {origin} come too late: what was deleted up to then is forgotten here, and they might bring it \
         back, for nothing waited for {origin} then. They are to be parked as dead letters, for which there is no room: \
         {why}. Nothing of them is lost: {again}. {TOO_MUCH}"
    );
    Refusal::new(kind, detail)
}

fn name_of(letter: &Letter) -> (PartitionId, Offset) {
    (letter.dot().partition, letter.dot().offset)
}
