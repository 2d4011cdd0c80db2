//! The hybrid logical clock of a cluster, with its durable ceiling.
//!
//! Readings follow the wall clock and never go back (Kulkarni et al., "Logical Physical Clocks", 2014). No reading
//! above the durable ceiling is given out, and a restart begins at the ceiling: so no reading is given out twice, and
//! no promise about the past is broken by a wall clock that was set back. The ceiling is renewed by whoever asks
//! first when little of it is left, and only while the clock is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, MetaError};
use crate::id::Hlc;

/// How far above the wall clock a new ceiling lies.
const CEILING_LEAD_MS: u64 = 2_000;
/// A ceiling nearer to the wall clock than this is renewed.
const CEILING_MARGIN_MS: u64 = 1_000;
/// While the clock is ahead of the wall, a ceiling nearer than this many readings is renewed.
const AHEAD_MARGIN: u64 = 1 << 15;
/// While the clock is ahead of the wall, a new ceiling lies this many readings (one millisecond) above the clock, so
/// that a crash loop adds milliseconds and not the whole lead.
const AHEAD_LEAD: u64 = 1 << 16;

/// Where the time of day comes from. One per cluster, so that a simulation can let clocks drift apart.
pub trait WallClock: Send + Sync + 'static {
    /// Milliseconds since 1970. May jump in either direction.
    fn now_millis(&self) -> u64;
}

/// The wall clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now_millis(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Where the ceiling is kept. The metadata store implements it.
#[async_trait]
pub trait CeilingStore: Send + Sync + 'static {
    /// The stored ceiling, [`Hlc::ZERO`] if none was ever stored.
    async fn load(&self) -> Result<Hlc, MetaError>;

    /// Stores a ceiling; durable when it returns. Repeating it is harmless.
    async fn store(&self, ceiling: Hlc) -> Result<(), MetaError>;
}

/// The clock of a cluster: shared by all its trees.
pub struct HybridClock {
    wall: Arc<dyn WallClock>,
    store: Arc<dyn CeilingStore>,
    last: AtomicU64,
    ceiling: AtomicU64,
    renewing: tokio::sync::Mutex<()>,
    max_skew: Duration,
}

impl std::fmt::Debug for HybridClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HybridClock").field("last", &self.last()).field("ceiling", &self.ceiling()).finish()
    }
}

impl HybridClock {
    /// Opens the clock at its stored ceiling.
    ///
    /// # Errors
    /// When the ceiling cannot be read.
    pub async fn open(
        wall: Arc<dyn WallClock>,
        store: Arc<dyn CeilingStore>,
        max_skew: Duration,
    ) -> Result<Self, Error> {
        let start = store.load().await?.get();
        Ok(Self {
            wall,
            store,
            last: AtomicU64::new(start),
            ceiling: AtomicU64::new(start),
            renewing: tokio::sync::Mutex::new(()),
            max_skew,
        })
    }

    /// The last reading that was given out or observed.
    pub fn last(&self) -> Hlc {
        Hlc::new(self.last.load(Ordering::Acquire))
    }

    /// The highest reading that may be given out now.
    pub fn ceiling(&self) -> Hlc {
        Hlc::new(self.ceiling.load(Ordering::Acquire))
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn wall_millis(&self) -> u64 {
        self.wall.now_millis()
    }

    /// Makes sure that [`tick`](Self::tick) has room below the ceiling. Call it before each use, outside locks; it
    /// waits only when a ceiling has to be stored. Dropping it half way is harmless. Answers the wall clock as it was
    /// when this began, for [`tick_at`](Self::tick_at).
    ///
    /// # Errors
    /// `Unavailable` when nothing is left below the ceiling and a new one cannot be stored.
    pub async fn ready(&self) -> Result<u64, Error> {
        let wall = self.wall.now_millis();
        if self.due(wall).is_some() {
            self.renew().await?;
        }
        Ok(wall)
    }

    async fn renew(&self) -> Result<(), Error> {
        let Some((_, room)) = self.due(self.wall.now_millis()) else { return Ok(()) };
        let guard = if room {
            match self.renewing.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Ok(()),
            }
        } else {
            self.renewing.lock().await
        };
        let Some((target, room)) = self.due(self.wall.now_millis()) else { return Ok(()) };
        let stored = self.store.store(target).await;
        if stored.is_ok() {
            self.ceiling.fetch_max(target.get(), Ordering::AcqRel);
        }
        drop(guard);
        match stored {
            Ok(()) => Ok(()),
            Err(error) if room => {
                tracing::warn!(%error, "clock ceiling not renewed, some room is left");
                Ok(())
            }
            Err(error) => Err(Error::new(
                ErrorKind::Unavailable,
                "the clock's ceiling cannot be stored, so no write is taken; check the disk of data_dir",
            )
            .with_source(error)),
        }
    }

    /// The next ceiling if one is due, and whether there is room below the present one.
    fn due(&self, wall: u64) -> Option<(Hlc, bool)> {
        let last = self.last();
        let ceiling = self.ceiling();
        if last.millis() > wall {
            let near = last.get().saturating_add(AHEAD_MARGIN) >= ceiling.get();
            near.then(|| (Hlc::new(last.get().saturating_add(AHEAD_LEAD)), last < ceiling))
        } else {
            let near = Hlc::from_millis(wall.saturating_add(CEILING_MARGIN_MS)) > ceiling;
            near.then(|| (Hlc::from_millis(wall + CEILING_LEAD_MS), Hlc::from_millis(wall) < ceiling))
        }
    }

    /// Whether a reading can be given out below the ceiling.
    pub fn has_room(&self) -> bool {
        self.last() < self.ceiling()
    }

    /// A reading above every one given out or observed before.
    ///
    /// # Errors
    /// `Unavailable` when the ceiling is reached, which [`ready`](Self::ready) prevents.
    pub fn tick(&self) -> Result<Hlc, Error> {
        self.tick_at(self.wall.now_millis())
    }

    /// The same by a wall clock that was read a moment ago, in milliseconds since 1970: one look at it serves both
    /// [`ready`](Self::ready) and this, which is called under locks.
    ///
    /// # Errors
    /// As [`tick`](Self::tick).
    pub fn tick_at(&self, wall_millis: u64) -> Result<Hlc, Error> {
        let wall = Hlc::from_millis(wall_millis).get();
        let mut last = self.last.load(Ordering::Acquire);
        loop {
            let ceiling = self.ceiling.load(Ordering::Acquire);
            let following = last.saturating_add(1);
            let wanted = if wall > last && wall <= ceiling { wall } else { following };
            if wanted > ceiling {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "the clock has reached its durable ceiling; retry the write",
                ));
            }
            match self.last.compare_exchange_weak(last, wanted, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Hlc::new(wanted)),
                Err(now) => last = now,
            }
        }
    }

    /// How far a remote reading is ahead of the wall, if that is more than this cluster accepts.
    pub fn excess_skew(&self, remote: Hlc) -> Option<Duration> {
        let ahead = Duration::from_millis(remote.millis().saturating_sub(self.wall.now_millis()));
        (ahead > self.max_skew).then_some(ahead)
    }

    /// Merges a remote reading: later ones are larger. Check [`excess_skew`](Self::excess_skew) first.
    pub fn observe(&self, remote: Hlc) {
        self.last.fetch_max(remote.get(), Ordering::AcqRel);
    }

    /// Stores the exact reading, so that the next start continues from it. Only when nothing ticks any more.
    ///
    /// # Errors
    /// When the store fails; the next start then begins at the ceiling, which is safe.
    pub async fn close(&self) -> Result<(), Error> {
        let guard = self.renewing.lock().await;
        let last = self.last();
        self.ceiling.store(last.get(), Ordering::Release);
        self.store.store(last).await?;
        drop(guard);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl WallClock for Hand {
        fn now_millis(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[derive(Default)]
    struct Kept(Mutex<(Hlc, u32)>);

    #[async_trait]
    impl CeilingStore for Kept {
        async fn load(&self) -> Result<Hlc, MetaError> {
            Ok(self.0.lock().0)
        }

        async fn store(&self, ceiling: Hlc) -> Result<(), MetaError> {
            let mut kept = self.0.lock();
            *kept = (ceiling, kept.1 + 1);
            Ok(())
        }
    }

    async fn open(wall: &Arc<Hand>, kept: &Arc<Kept>) -> HybridClock {
        HybridClock::open(wall.clone(), kept.clone(), Duration::from_secs(30)).await.expect("opens")
    }

    #[tokio::test]
    async fn f03_after_a_restart_with_the_wall_set_back_nothing_is_given_out_twice() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000_000, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        clock.ready().await.expect("ceiling");
        let before = (0..100).map(|_| clock.tick().expect("tick")).max().expect("some");
        wall.0.store(10, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        clock.ready().await.expect("ceiling");
        assert!(clock.tick().expect("tick") > before);
    }

    #[tokio::test]
    async fn f56_a_thousand_kills_leave_the_clock_less_than_five_seconds_ahead() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000_000, Ordering::Relaxed);
        for _ in 0..1_000 {
            let clock = open(&wall, &kept).await;
            for _ in 0..3 {
                clock.ready().await.expect("ceiling");
                clock.tick().expect("tick");
            }
        }
        let ahead = kept.0.lock().0.millis() - 1_000_000;
        assert!(ahead < 5_000, "{ahead} ms ahead");
    }

    #[tokio::test]
    async fn an_idle_clock_stores_nothing_and_a_busy_one_once_a_second() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000_000, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        for _ in 0..10_000 {
            wall.0.fetch_add(1, Ordering::Relaxed);
            clock.ready().await.expect("ceiling");
            let hlc = clock.tick().expect("tick");
            assert_eq!(hlc.millis(), wall.now_millis(), "a clock in use follows the wall");
        }
        let stores = kept.0.lock().1;
        assert!((9..=12).contains(&stores), "{stores} stores in ten seconds");
    }

    #[tokio::test]
    async fn no_reading_above_the_ceiling_is_given_out() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        assert!(clock.tick().is_err(), "nothing is stored yet");
        clock.ready().await.expect("ceiling");
        wall.0.store(100_000, Ordering::Relaxed);
        let late = clock.tick().expect("falls back to counting below the ceiling");
        assert!(late <= clock.ceiling());
    }

    #[tokio::test]
    async fn a_wall_clock_read_before_others_ticked_gives_a_later_reading_all_the_same() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        let early = clock.ready().await.expect("ceiling");
        assert_eq!(early, 1_000);
        wall.0.store(1_007, Ordering::Relaxed);
        let other = clock.tick().expect("tick");
        let late = clock.tick_at(early).expect("tick");
        assert!(late > other, "{late:?} after {other:?}");
    }

    #[tokio::test]
    async fn a_clean_stop_costs_no_lead() {
        let (wall, kept) = (Arc::new(Hand::default()), Arc::new(Kept::default()));
        wall.0.store(1_000, Ordering::Relaxed);
        let clock = open(&wall, &kept).await;
        clock.ready().await.expect("ceiling");
        let last = clock.tick().expect("tick");
        clock.close().await.expect("closes");
        assert_eq!(kept.0.lock().0, last);
    }
}
