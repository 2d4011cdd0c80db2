//! [`Flow`]: what a session knows of the flow on its link beside the window. Pure.
//!
//! The pause that the peer asks for, the turn of the open wave under a rate limit, whether pages are packed, what is told
//! of the log beyond a page, and when a promise is to be measured.

use std::collections::BTreeMap;

use tidewire_core::causal::Watermarks;
use tidewire_core::id::{ClusterId, OriginTag};
use tidewire_core::transport::marks::encode_offsets;
use tidewire_core::transport::wire;
use tokio::time::{Duration, Instant};

use crate::packing::{Packing, Seen};
use crate::rate::RateLimit;
use crate::settings::Settings;

/// A limit shows for so long after something last waited for its turn.
const LIMITED: Duration = Duration::from_secs(1);

/// Whether the open wave has a turn.
#[derive(Clone, Copy, Debug)]
enum Turn {
    NotTaken,
    At(Instant),
    Come,
}

/// The flow on one link.
#[derive(Debug)]
pub(crate) struct Flow {
    packing: Packing,
    rate: Option<RateLimit>,
    turn: Turn,
    /// Bytes that the turn is for. The wave may have grown when it comes.
    taken: u64,
    /// When something last waited for its turn.
    limited_at: Option<Instant>,
    pause: Option<wire::Pause>,
    /// The most that the peer ever granted: what is missing of it waits there.
    most_credit: u64,
    /// Where records of an origin end, if that is not told yet.
    beyond: BTreeMap<OriginTag, Vec<wire::PartitionMark>>,
    beyond_bytes: u64,
    canary_every: Option<Duration>,
    canary_at: Instant,
    canary_due: bool,
}

impl Flow {
    /// The flow of a session that begins; `unpacks`: the peer can unpack pages.
    pub(crate) fn new(settings: &Settings, unpacks: bool, credit: u64, now: Instant) -> Self {
        Self {
            packing: Packing::new(settings.compression, unpacks),
            rate: settings.rate.clone(),
            turn: Turn::NotTaken,
            taken: 0,
            limited_at: None,
            pause: None,
            most_credit: credit,
            beyond: BTreeMap::new(),
            beyond_bytes: 0,
            canary_every: settings.canary,
            canary_at: now,
            canary_due: false,
        }
    }

    /// Whether a wave of that size, which may leave otherwise, has its turn. Takes one for it.
    pub(crate) fn may_leave(&mut self, bytes: u64, now: Instant) -> bool {
        let Some(rate) = &self.rate else { return true };
        if let Turn::NotTaken = self.turn {
            self.turn = Turn::At(rate.take(bytes, now));
            self.taken = bytes;
        }
        self.on_time(now);
        let comes = matches!(self.turn, Turn::At(_));
        if comes {
            self.limited_at = Some(now);
        }
        !comes
    }

    /// The wave has left, as so many bytes.
    pub(crate) fn left(&mut self, sent: u64) {
        self.turn = Turn::NotTaken;
        if let Some(rate) = &self.rate {
            rate.settle(self.taken, sent);
        }
    }

    /// When the open wave has its turn, if it waits for that.
    pub(crate) fn turn_at(&self) -> Option<Instant> {
        if let Turn::At(at) = self.turn { Some(at) } else { None }
    }

    /// Time has passed.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.turn_at().is_some_and(|at| at <= now) {
            self.turn = Turn::Come;
        }
        if let Some(every) = self.canary_every.filter(|_| self.canary_at <= now) {
            self.canary_due = true;
            self.canary_at = now + every;
        }
    }

    /// Whether the next promise about the local origin is to be measured; each time once.
    pub(crate) fn take_canary(&mut self) -> bool {
        std::mem::take(&mut self.canary_due)
    }

    /// An acknowledgement came. `full`: a page waits because the window is full; `took`: what was acknowledged took so long.
    pub(crate) fn hear(&mut self, ack: &mut wire::Ack, full: bool, in_flight: u64, took: Option<Duration>) {
        self.pause = ack.pause.take();
        self.most_credit = self.most_credit.max(ack.credit_bytes);
        let at_peer = self.most_credit - ack.credit_bytes;
        if let Some(took) = took {
            self.packing.see(Seen { full, in_flight, at_peer, took });
        }
    }

    /// Packs the parts of a page where that pays. Says how many bytes there are to send.
    pub(crate) fn pack(&mut self, parts: &mut [wire::Page], bytes: u64) -> u64 {
        self.packing.pack(parts, bytes)
    }

    /// The log was looked at: what is covered up to its end, and how many bytes are still to be taken over.
    pub(crate) fn look(&mut self, ends: &Watermarks, bytes: u64) {
        let ends = ends.iter().map(|(origin, marks)| {
            let ends: Vec<_> = marks.iter().map(|(partition, mark)| (partition, mark.next)).collect();
            (origin, encode_offsets(&ends))
        });
        self.beyond = ends.collect();
        self.beyond_bytes = bytes;
    }

    /// Tells with a page of an origin what there is beyond it, if that is not told yet.
    pub(crate) fn tell(&mut self, origin: OriginTag, last: &mut wire::Page) {
        if let Some(tails) = self.beyond.remove(&origin) {
            last.tails = tails;
            last.tail_bytes = self.beyond_bytes;
        }
    }

    /// Why the peer takes nothing, if it has asked for a pause.
    pub(crate) fn paused(&self, peer: &ClusterId) -> Option<String> {
        let wire::Pause { kind, detail } = self.pause.as_ref()?;
        let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        Some(format!("{peer} asks for a pause ({}): {}", short(kind, 32), short(detail, 512)))
    }

    /// That pages wait for their turn under the limit, if they did a moment ago.
    pub(crate) fn limited(&self, now: Instant) -> Option<String> {
        let rate = self.rate.as_ref()?.bytes_per_second();
        let lately = self.limited_at.is_some_and(|at| now.duration_since(at) < LIMITED);
        lately.then(|| format!("limited to {rate} bytes a second by rate_limit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_wave_waits_for_its_turn_once_and_a_turn_that_came_stays() {
        let now = Instant::now();
        let settings = Settings { rate: Some(RateLimit::new(1_000)), ..Settings::default() };
        let mut flow = Flow::new(&settings, false, MIB, now);
        assert!(flow.may_leave(1_100, now), "the first has nothing to wait for");
        flow.left(1_100);
        assert!(!flow.may_leave(500, now) && !flow.may_leave(500, now));
        let at = flow.turn_at().unwrap();
        assert_eq!(at - now, Duration::from_secs(1));
        assert!(flow.limited(now).is_some_and(|said| said.contains("1000 bytes a second")));
        flow.on_time(at);
        assert_eq!(flow.turn_at(), None, "nothing to wait for any more, whatever the window says");
        assert!(flow.may_leave(500, at));
        flow.left(100);
        assert!(!flow.may_leave(1, at));
        assert_eq!(
            flow.turn_at().unwrap() - at,
            Duration::from_millis(100),
            "what packing saved is given back"
        );
        assert!(flow.limited(at + LIMITED).is_none());
    }

    #[test]
    fn a_canary_is_due_once_in_its_time() {
        let now = Instant::now();
        let settings = Settings { canary: Some(Duration::from_secs(10)), ..Settings::default() };
        let mut flow = Flow::new(&settings, false, MIB, now);
        let mut due = |seconds| {
            flow.on_time(now + Duration::from_secs(seconds));
            flow.take_canary()
        };
        assert_eq!(
            [0, 1, 9, 10, 11, 25, 34, 35].map(&mut due),
            [true, false, false, true, false, true, false, true]
        );
        let mut never = Flow::new(&Settings::default(), false, MIB, now);
        never.on_time(now + Duration::from_secs(1_000));
        assert!(!never.take_canary());
    }
}
