//! [`Leases`] and [`Lease`]: one active runner for each sink of a tree, and an epoch that goes with each of its effects.
//!
//! A grant takes the next number of a counter that all leases of a store share, so an epoch is never given out twice,
//! whatever is deleted in between. Whoever holds a lease shows it by the record under `lease/`; a write that depends on
//! it expects that record, and is refused when another has been granted since.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::error::{MetaError, MetaErrorKind};
use crate::id::{BootId, Epoch, SinkName, TreeName};
use crate::meta::{MetaChange, MetaStore};

/// The next epoch, shared by all leases of a store.
const NEXT_EPOCH: &str = "lease-epoch";

/// Whether a holder of another run of the process can still be alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It cannot: the store belongs to one process at a time, and this is it. Taken over at once.
    Gone,
    /// It can: taken over when it has shown no sign of life for the time to live.
    MayLive,
}

/// Grants leases out of a store. Cheap to clone.
#[derive(Clone)]
pub struct Leases {
    meta: Arc<dyn MetaStore>,
    boot: BootId,
    others: Others,
    ttl: Duration,
}

impl Leases {
    /// Leases for this run of the process; a holder that shows no sign of life for `ttl` is taken over.
    pub fn new(meta: Arc<dyn MetaStore>, boot: BootId, others: Others, ttl: Duration) -> Self {
        Self { meta, boot, others, ttl }
    }

    /// Waits until nobody else holds the lease of a sink, and takes it. When the future is dropped it may have been
    /// granted; then it is free again after the time to live.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn acquire(&self, tree: &TreeName, sink: &SinkName) -> Result<Lease, MetaError> {
        let (key, beat_key) = (format!("lease/{tree}/{sink}"), format!("beat/{tree}/{sink}"));
        let mut seen: Option<(Option<Bytes>, Option<Bytes>, Instant)> = None;
        loop {
            let (held, beat) = (self.meta.get(&key).await?, self.meta.get(&beat_key).await?);
            if let Some(record) = &held
                && (self.others == Others::MayLive || self.is_ours(record))
            {
                let since = match &seen {
                    Some((record, sign, since)) if *record == held && *sign == beat => *since,
                    _ => Instant::now(),
                };
                seen = Some((held.clone(), beat, since));
                if since.elapsed() < self.ttl {
                    sleep(self.ttl / 5).await;
                    continue;
                }
            }
            if let Some(lease) = self.grant(&key, &beat_key, held).await? {
                return Ok(lease);
            }
        }
    }

    /// Takes the lease if it is still as it was seen.
    async fn grant(
        &self,
        key: &str,
        beat_key: &str,
        held: Option<Bytes>,
    ) -> Result<Option<Lease>, MetaError> {
        let next = self.meta.get(NEXT_EPOCH).await?;
        let epoch = match &next {
            Some(text) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
                    MetaError::new(MetaErrorKind::Corrupt, format!("{NEXT_EPOCH} holds no number"))
                })?
            }
            None => 1_u64,
        };
        let record = Bytes::from(format!("{epoch} {:016x}", self.boot.get()));
        let changes = vec![
            MetaChange::expect(NEXT_EPOCH, next),
            MetaChange::put(NEXT_EPOCH, (epoch + 1).to_string()),
            MetaChange::expect(key, held),
            MetaChange::put(key, record.clone()),
            MetaChange::delete(beat_key),
        ];
        match self.meta.commit(changes).await {
            Ok(()) => Ok(Some(Lease {
                meta: self.meta.clone(),
                key: key.to_owned(),
                beat_key: beat_key.to_owned(),
                record,
                epoch: Epoch::new(epoch),
                shows_life: self.others == Others::MayLive,
                ttl: self.ttl,
                shown: Instant::now(),
                beats: 0,
            })),
            Err(error) if error.kind() == MetaErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_ours(&self, record: &[u8]) -> bool {
        record.ends_with(format!(" {:016x}", self.boot.get()).as_bytes())
    }
}

/// A lease that was granted. Dropping it does not release it: that takes the time to live.
pub struct Lease {
    meta: Arc<dyn MetaStore>,
    key: String,
    beat_key: String,
    record: Bytes,
    epoch: Epoch,
    shows_life: bool,
    ttl: Duration,
    shown: Instant,
    beats: u64,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("key", &self.key).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Lease {
    /// The number of this grant.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What goes into every transaction of the holder: it happens only while the lease is this one.
    pub fn fence(&self) -> MetaChange {
        MetaChange::expect(self.key.clone(), Some(self.record.clone()))
    }

    /// Shows that the holder is alive, if it is time to. Call it more often than three times in the time to live.
    ///
    /// # Errors
    /// `Conflict` when the lease is another's; also `Io`, and then the holder has to end when it lasts for the time to
    /// live, which the answer of [`is_stale`](Self::is_stale) says.
    pub async fn renew(&mut self) -> Result<(), MetaError> {
        if !self.shows_life || self.shown.elapsed() < self.ttl / 3 {
            return Ok(());
        }
        let now = Instant::now();
        let beat = MetaChange::put(self.beat_key.clone(), format!("{} {}", self.epoch, self.beats + 1));
        self.meta.commit(vec![self.fence(), beat]).await?;
        (self.shown, self.beats) = (now, self.beats + 1);
        Ok(())
    }

    /// Whether the last sign of life is so old that another may have taken over.
    pub fn is_stale(&self) -> bool {
        self.shows_life && self.shown.elapsed() >= self.ttl
    }

    /// Gives the lease back: the next one is granted at once.
    ///
    /// # Errors
    /// `Conflict` when it is another's already, or when the store fails; then it is free after the time to live.
    pub async fn release(self) -> Result<(), MetaError> {
        let gone = [MetaChange::delete(self.key.clone()), MetaChange::delete(self.beat_key.clone())];
        self.meta.commit([vec![self.fence()], gone.to_vec()].concat()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::MemMeta;

    const TTL: Duration = Duration::from_secs(15);

    fn leases(meta: &MemMeta, boot: u64, others: Others) -> Leases {
        Leases::new(Arc::new(meta.clone()), BootId::new(boot), others, TTL)
    }

    async fn acquire(leases: &Leases) -> Lease {
        let (tree, sink) = (TreeName::new("orders").expect("a name"), SinkName::new("out").expect("a name"));
        leases.acquire(&tree, &sink).await.expect("the store works")
    }

    #[tokio::test(start_paused = true)]
    async fn f37_a_former_holder_changes_nothing_any_more() {
        let meta = MemMeta::new();
        let old = acquire(&leases(&meta, 1, Others::MayLive)).await;
        let began = Instant::now();
        let mut new = acquire(&leases(&meta, 2, Others::MayLive)).await;
        assert!((TTL..TTL * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(new.epoch() > old.epoch() && old.is_stale());
        let error = meta.commit(vec![old.fence(), MetaChange::put("x", "old")]).await.expect_err("stale");
        assert_eq!(error.kind(), MetaErrorKind::Conflict);
        assert_eq!(old.release().await.expect_err("stale").kind(), MetaErrorKind::Conflict);
        meta.commit(vec![new.fence(), MetaChange::put("x", "new")]).await.expect("it holds the lease");
        sleep(TTL / 2).await;
        new.renew().await.expect("it holds the lease");
    }

    #[tokio::test(start_paused = true)]
    async fn f38_an_epoch_is_never_given_out_again_though_the_lease_is_deleted() {
        let meta = MemMeta::new();
        let mut last = Epoch::ZERO;
        for boot in 1..5 {
            let lease = acquire(&leases(&meta, boot, Others::MayLive)).await;
            assert!(lease.epoch() > last);
            last = lease.epoch();
            lease.release().await.expect("released");
            assert_eq!(meta.list("lease/").await.expect("readable"), []);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_shows_life_is_not_taken_over_and_who_released_is_at_once() {
        let meta = MemMeta::new();
        let mut old = acquire(&leases(&meta, 1, Others::MayLive)).await;
        let (other, began) = (leases(&meta, 2, Others::MayLive), Instant::now());
        let hold = async {
            for _ in 0..60 {
                sleep(Duration::from_secs(1)).await;
                old.renew().await.expect("held");
            }
            old.release().await.expect("released");
        };
        tokio::join!(hold, acquire(&other));
        assert!(began.elapsed() >= Duration::from_secs(60) && began.elapsed() < Duration::from_secs(64));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_dead_process_held_is_free_at_once_where_only_one_can_live() {
        let meta = MemMeta::new();
        let old = acquire(&leases(&meta, 1, Others::Gone)).await;
        let began = Instant::now();
        let new = acquire(&leases(&meta, 2, Others::Gone)).await;
        assert_eq!((began.elapsed(), new.epoch() > old.epoch()), (Duration::ZERO, true));
        acquire(&leases(&meta, 2, Others::Gone)).await;
        assert!(began.elapsed() >= TTL, "a second runner of one process waits like any other");
    }
}
