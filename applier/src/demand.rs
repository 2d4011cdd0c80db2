//! [`Demands`]: whose writes neighbours are asked for, because what is held has waited for them too long. Pure.
//!
//! A demand begins when a group has waited for an origin longer than a bound. It ends when the origin is heard over its own
//! link again and nothing waits for it, or when for long nothing has waited for it and no neighbour has brought any of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidewire_core::id::OriginTag;
use tokio::time::Instant;

use crate::gate::Waiting;

/// For how long nothing has waited for an origin that is heard over its own link again before neighbours are let off.
const SETTLED: Duration = Duration::from_secs(2);
/// For how long nobody has needed an origin that is not.
const UNUSED: Duration = Duration::from_mins(5);

/// A demand for an origin's writes.
#[derive(Debug)]
struct Demand {
    /// When something waited for it last.
    waited: Instant,
    /// When a neighbour brought some of it last, or it began.
    used: Instant,
    /// When it was heard over its own link last.
    heard: Option<Instant>,
}

/// What neighbours are asked for.
#[derive(Debug)]
pub(crate) struct Demands {
    after: Option<Duration>,
    demands: BTreeMap<OriginTag, Demand>,
}

impl Demands {
    /// Nothing is asked for yet. `after`: how long something may wait; none: nobody is ever asked.
    pub(crate) fn new(after: Option<Duration>) -> Self {
        Self { after, demands: BTreeMap::new() }
    }

    /// Something of an origin has come: over its own link, or by a neighbour.
    pub(crate) fn came(&mut self, origin: OriginTag, directly: bool, now: Instant) {
        let Some(demand) = self.demands.get_mut(&origin) else { return };
        if directly {
            demand.heard = Some(now);
        } else {
            demand.used = now;
        }
    }

    /// Whether anything is asked for, or may be: then time alone changes what is.
    pub(crate) fn is_asking(&self) -> bool {
        !self.demands.is_empty()
    }

    /// What is asked for now, given what waits.
    pub(crate) fn look<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a Waiting>,
        now: Instant,
    ) -> BTreeSet<OriginTag> {
        let Some(after) = self.after else { return BTreeSet::new() };
        for waiting in waiting {
            let due = now.duration_since(waiting.since) >= after;
            match self.demands.get_mut(&waiting.on) {
                Some(demand) => demand.waited = now,
                None if due => {
                    let demand = Demand { waited: now, used: now, heard: None };
                    self.demands.insert(waiting.on, demand);
                }
                None => {}
            }
        }
        self.demands.retain(|_, demand| {
            let returned = demand.heard.is_some_and(|heard| heard > demand.waited + SETTLED);
            let unused = now.duration_since(demand.waited.max(demand.used)) >= UNUSED;
            !returned && !unused
        });
        self.demands.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use tidewire_core::id::Hlc;

    use super::*;

    const A: OriginTag = OriginTag::new(1);
    const B: OriginTag = OriginTag::new(2);
    const SECOND: Duration = Duration::from_secs(1);

    fn waits(since: Instant) -> Waiting {
        Waiting { origin: B, on: A, until: Hlc::new(7), since, bytes: 9 }
    }

    #[tokio::test(start_paused = true)]
    async fn f15_neighbours_are_asked_once_a_wait_is_too_long_and_let_off_when_the_origin_is_back() {
        let (begin, mut demands) = (Instant::now(), Demands::new(Some(5 * SECOND)));
        let wait = waits(begin);
        assert!(demands.look([&wait].into_iter(), begin + 4 * SECOND).is_empty() && !demands.is_asking());
        assert_eq!(demands.look([&wait].into_iter(), begin + 5 * SECOND), [A].into());
        // Brought by a neighbour: nothing waits any more, and it goes on being asked for.
        demands.came(A, false, begin + 6 * SECOND);
        assert_eq!(demands.look([].into_iter(), begin + 60 * SECOND), [A].into());
        demands.came(A, true, begin + 6 * SECOND);
        assert_eq!(
            demands.look([].into_iter(), begin + 61 * SECOND),
            [A].into(),
            "heard before it had settled"
        );
        demands.came(A, true, begin + 62 * SECOND);
        assert!(demands.look([].into_iter(), begin + 62 * SECOND).is_empty() && !demands.is_asking());
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_needs_for_long_is_asked_for_no_more_and_what_is_used_is() {
        let (begin, mut demands) = (Instant::now(), Demands::new(Some(SECOND)));
        let wait = waits(begin);
        demands.look([&wait].into_iter(), begin + SECOND);
        demands.came(A, false, begin + 200 * SECOND);
        assert_eq!(demands.look([].into_iter(), begin + 400 * SECOND), [A].into());
        assert!(demands.look([].into_iter(), begin + 500 * SECOND).is_empty());
        let mut never = Demands::new(None);
        assert!(never.look([&wait].into_iter(), begin + 900 * SECOND).is_empty());
    }
}
