//! What becomes of records that can never be applied: tried some times, then parked, or refused. The thin part around
//! `faults`.

use parking_lot::Mutex;
use tidewire_core::error::{Error, ErrorKind};
use tidewire_core::id::{ClusterId, OriginTag};
use tidewire_core::letters::Letter;
use tidewire_core::tree::{ApplyTarget, ReadyGroup};

use crate::applier::Applier;
use crate::faults::{Fault, TRIES};
use crate::gate::GaveUp;
use crate::metrics::Origins;
use crate::port::{Ending, Port};
use crate::refusal::{Refusal, RefusalKind};

/// Decides about a page with records that can never be applied: what to park of it.
///
/// # Errors
/// When it is to be sent again first, or there is no room for the letters, or none are kept.
pub(crate) fn judge(applier: &Applier, peer: &ClusterId, faults: Vec<Fault>) -> Result<Vec<Letter>, Refusal> {
    let Some(Fault { kind, letter }) = faults.first() else { return Ok(Vec::new()) };
    let (kind, dot) = (*kind, letter.dot());
    let detail = format!(
        "the record {}/{}/{} from {peer} can never be applied: {}",
        applier.name(dot.origin),
        dot.partition,
        dot.offset,
        letter.reason
    );
    let letters: Vec<Letter> = faults.into_iter().map(|fault| fault.letter).collect();
    match applier.target().cannot_park(&letters) {
        Some(error) if error.kind() == ErrorKind::Refused => return Err(Refusal::new(kind, detail)),
        Some(error) => {
            let detail = format!("{detail}; nothing behind it is taken, for {error}");
            return Err(Refusal::new(RefusalKind::DeadLettersFull, detail));
        }
        None => {}
    }
    match applier.attempts().count(dot) {
        tries if tries < TRIES => {
            let detail = format!("{detail}; after it was sent {TRIES} times it is parked");
            Err(Refusal::new(RefusalKind::Unavailable, detail))
        }
        _ => Ok(letters),
    }
}

/// What can never be applied is parked durably before the rest is applied.
pub(crate) async fn park_and_apply(
    target: &dyn ApplyTarget,
    letters: Vec<Letter>,
    groups: Vec<ReadyGroup>,
) -> Result<(), Error> {
    if !letters.is_empty() {
        target.park(letters).await?;
    }
    target.apply(groups).await.map(drop)
}

/// Counts what was taken of an origin, or ends the session over which it came.
pub(crate) fn tell_taken(
    origins: &Mutex<Origins>,
    port: &Port,
    origin: OriginTag,
    taken: Result<u64, Refusal>,
) {
    let origins = origins.lock();
    let metrics = origins.get(&origin).map(|(_, metrics)| metrics);
    match taken {
        Ok(duplicates) => {
            metrics.inspect(|metrics| _ = metrics.duplicates.inc_by(duplicates));
        }
        Err(refusal) => {
            if refusal.kind == RefusalKind::Gap {
                metrics.inspect(|metrics| _ = metrics.gaps.inc());
            }
            port.end(Ending::Refused(refusal));
        }
    }
}

/// Says that records of an origin are applied without what they depend on.
pub(crate) fn tell_given_up(applier: &Applier, origins: &Mutex<Origins>, given_up: &GaveUp) {
    let GaveUp { origin, on, until, records } = *given_up;
    tracing::warn!(
        tree = %applier.identity().tree,
        origin = applier.name(origin),
        waited_for = applier.name(on),
        %until,
        records,
        "applied without what it depends on: on_stall says so"
    );
    if let Some((_, series)) = origins.lock().get(&origin) {
        series.gave_up.inc_by(records);
    }
}
