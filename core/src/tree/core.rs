//! [`Tree`]: the handle that callers use.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::entry::{Row, Value};
use super::identity::TreeIdentity;
use super::members::Members;
use super::observer::{Observer, Observers, Observing};
use super::open::TreeGauges;
use super::operation::{Operation, PutOptions};
use super::reaping::{Graves, Reaper};
use super::seed::SeedBook;
use super::snapshot::Snapshots;
use super::state::State;
use super::token::Token;
use crate::causal::VersionVector;
use crate::clock::HybridClock;
use crate::error::{Error, ErrorKind};
use crate::id::{Hlc, Lsn, Version};
use crate::latest::Latest;
use crate::letters::TreeLetters;
use crate::limits::{Limits, MAX_BATCH_OPERATIONS, MAX_KEY_BYTES};
use crate::metrics::BufferMetrics;
use crate::record::{Interest, Mutation};
use crate::tasks::Tasks;
use crate::wal::file::FileStorage;
use crate::wal::{Bounds, Log, LogState, WalStorage, Writer};

/// Most steps of putting new keys in order before a walk: far more than the keys of any tree need, and an end while
/// others bring new ones as fast as they are sorted.
const SETTLING_STEPS: usize = 1 << 17;

/// Entries of the state that a digest takes in under one lock.
const DIGESTED_AT_ONCE: usize = 4_096;

/// What two clusters compare: equal when they hold the same live keys, values, versions and deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How far every origin was applied at that moment.
    pub frontier: VersionVector,
    /// The digest, 128 bits.
    pub digest: u128,
    /// How many keys are live.
    pub entries: u64,
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSize {
    /// Live keys.
    pub entries: u64,
    /// Bytes of keys and values in memory, tombstones included.
    pub state_bytes: u64,
    /// What is dead and not reaped yet.
    pub graves: Graves,
    /// What the log holds.
    pub log: Bounds,
}

pub(super) struct Inner {
    pub(super) identity: TreeIdentity,
    /// Which keys are held here, as it is told to others and asked of local writes.
    pub(super) interest: RwLock<Interest>,
    /// Keys that are not held any more are on their way out.
    pub(super) dropping: AtomicBool,
    pub(super) gauges: TreeGauges,
    pub(super) limits: Limits,
    pub(super) clock: Arc<HybridClock>,
    pub(super) writer: Writer,
    pub(super) storage: Arc<FileStorage>,
    pub(super) applied: Arc<AppliedState>,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) seeds: Arc<SeedBook>,
    /// None: not declared yet.
    pub(super) members: Mutex<Option<Members>>,
    pub(super) reaper: Reaper,
    pub(super) letters: Option<Arc<TreeLetters>>,
    pub(super) tasks: Tasks,
}

/// What the committer applies to, and what everybody else looks at.
pub(super) struct AppliedState {
    pub(super) state: RwLock<State>,
    pub(super) log: Log,
    /// The end of the applied log, and how often the frontier moved: wakes feeds and waiting reads.
    pub(super) moved: Latest<(Lsn, u64)>,
    pub(super) observers: Arc<Observers>,
    /// One digest at a time.
    pub(super) digesting: Mutex<()>,
}

impl AppliedState {
    /// Puts new keys in order, in small steps between which others have the state. Whoever walks through the keys after it
    /// has little to sort under his lock.
    pub(super) fn settle(&self) {
        for _ in 0..SETTLING_STEPS {
            if !self.state.read().settle_some() {
                return;
            }
        }
    }
}

/// A replicated key space. Cheap to clone; all clones are the same tree.
#[derive(Clone)]
pub struct Tree(pub(super) Arc<Inner>);

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("name", &self.0.identity.tree).finish_non_exhaustive()
    }
}

impl Tree {
    /// Sets a key. Returns its version once it is durable and visible.
    ///
    /// Dropping the future leaves open whether the write happens; state and log agree either way.
    ///
    /// # Errors
    /// `TooLarge` or `Invalid` for a key or value outside the limits; `Unavailable` when the log failed, the disk is
    /// full or the tree is stopping: then the write did not happen.
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<Version, Error> {
        self.write(vec![Mutation::set(key, value)]).await
    }

    /// Sets a key with options. Returns its version once it is durable and visible.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Invalid` for a time to live below a millisecond.
    pub async fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<Version, Error> {
        let set = Operation::SetWith(key.into(), value.into(), options);
        self.write(vec![set.mutation(|| self.0.clock.wall_millis())?]).await
    }

    /// Deletes a key, whether it exists or not.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<Version, Error> {
        self.write(vec![Mutation::delete(key)]).await
    }

    /// Deletes the keys from `from` up to, and without, `to`: one write with one version. It removes what has a lower
    /// version, on every cluster, also what arrives there later; a write that is newer stays.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Invalid` when `from` is not below `to`; `TooLarge` when the range holds more keys than
    /// `range_delete_keys`: delete it in smaller ranges. Writes that come in meanwhile are not counted.
    pub async fn delete_range(&self, from: impl Into<Bytes>, to: impl Into<Bytes>) -> Result<Version, Error> {
        let (from, to) = (from.into(), to.into());
        self.check_key(&from)?;
        self.check_key(&to)?;
        if from >= to {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a range ends behind its beginning: `from` is its first key, `to` the key after its last",
            ));
        }
        let limit = self.0.limits.range_delete_keys;
        self.0.applied.settle();
        let held = self.0.applied.state.read().count_within(&from[..]..&to[..], limit.saturating_add(1));
        if held > limit {
            let said = format!("the range holds more than {limit} keys; delete it in smaller ranges");
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        self.write(vec![Mutation::delete_range(from, to)]).await
    }

    /// Applies operations on distinct keys all at once: one version, visible together on every cluster.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Invalid` for an empty batch or a key that occurs twice.
    pub async fn batch(&self, operations: Vec<Operation>) -> Result<Version, Error> {
        if operations.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a batch needs at least one operation"));
        }
        if operations.len() > MAX_BATCH_OPERATIONS {
            let said = format!(
                "a batch has at most {MAX_BATCH_OPERATIONS} operations, this one has {}",
                operations.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        let mut now = None;
        let mut wall = || *now.get_or_insert_with(|| self.0.clock.wall_millis());
        let mutations: Vec<Mutation> = operations
            .into_iter()
            .map(|operation| operation.mutation(&mut wall))
            .collect::<Result<_, _>>()?;
        let mut keys: Vec<&[u8]> = mutations.iter().map(|mutation| &mutation.key[..]).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a key occurs twice in the batch; its operations share one version",
            ));
        }
        self.write(mutations).await
    }

    async fn write(&self, mutations: Vec<Mutation>) -> Result<Version, Error> {
        let mut total = 0;
        for mutation in &mutations {
            self.check_key(&mutation.key)?;
            self.check_interest(mutation)?;
            let bytes = mutation.record_bytes();
            total += bytes;
            if bytes > self.0.limits.max_record_bytes {
                let limit = self.0.limits.max_record_bytes;
                let said = format!("a record of {bytes} bytes is over max_record_bytes = {limit}");
                return Err(Error::new(ErrorKind::TooLarge, said));
            }
        }
        let limit = self.0.limits.pending_bytes.max(self.0.limits.max_record_bytes);
        if total > limit {
            let said = format!("a batch of {total} bytes is over the limit of {limit} bytes; split it");
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        let hlc = self.0.writer.append(&mutations).await?;
        Ok(Version { hlc, origin: self.0.identity.origin() })
    }

    /// A write that this cluster does not hold itself would be lost to whoever is seeded from here.
    fn check_interest(&self, mutation: &Mutation) -> Result<(), Error> {
        let TreeIdentity { tree, cluster, .. } = &self.0.identity;
        let interest = self.0.interest.read();
        if interest.allows(mutation) {
            return Ok(());
        }
        let what = if mutation.end_key.is_some() {
            "a range outside of it, or of more than one prefix"
        } else {
            "other keys"
        };
        let said = format!(
            "{cluster} holds {interest} of tree {tree}: write {what} on a cluster that holds them, or widen interest"
        );
        Err(Error::new(ErrorKind::Invalid, said))
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Error> {
        if key.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a key has at least one byte"));
        }
        if key.len() > MAX_KEY_BYTES {
            let said = format!("a key of {} bytes is over the limit of {MAX_KEY_BYTES} bytes", key.len());
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        Ok(())
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.0.applied.state.read().get(key.as_ref(), || self.0.clock.wall_millis())
    }

    /// Live rows in key order: those with the prefix, after a key, at most `limit`. One call sees one moment.
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Vec<Row> {
        let now = self.0.clock.wall_millis();
        self.0.applied.settle();
        self.0.applied.state.read().scan(prefix, after, limit, now)
    }

    /// The digest of everything live, of one moment. Reads the whole state, in steps between which writes go on. Blocks.
    pub fn digest(&self) -> Digest {
        let applied = &self.0.applied;
        let _one = applied.digesting.lock();
        let now = self.0.clock.wall_millis();
        applied.state.read().begin_digest(now);
        loop {
            let state = applied.state.read();
            if let Some(digest) = state.digest_some(DIGESTED_AT_ONCE) {
                return Digest { frontier: state.claimed().frontier, digest, entries: state.live(now) };
            }
        }
    }

    /// How large it is. Also brings the gauges of its log up to date.
    pub fn size(&self) -> TreeSize {
        let log = self.0.storage.bounds();
        self.0.gauges.retained.set(i64::try_from(log.retained_bytes).unwrap_or(i64::MAX));
        self.0.gauges.physical.set(i64::try_from(log.physical_bytes).unwrap_or(i64::MAX));
        let now = self.0.clock.wall_millis();
        let state = self.0.applied.state.read();
        let graves = state.graves(now);
        self.0.gauges.show_graves(graves);
        TreeSize { entries: state.live(now), state_bytes: state.bytes(), graves, log }
    }

    /// Shows what waits in its buffers.
    pub fn show_buffers(&self, buffers: &BufferMetrics) {
        let Inner { limits, writer, applied, identity, .. } = &*self.0;
        let tree = identity.tree.as_str();
        // A record or a group of another cluster may be larger than the bound, alone.
        let pending = limits.pending_bytes.max(limits.max_record_bytes) as u64;
        buffers.show(tree, "pending", writer.pending_bytes(), pending);
        buffers.show(tree, "recent", applied.log.recent_bytes(), limits.recent_bytes as u64);
    }

    /// How far every origin is applied here.
    pub fn frontier(&self) -> VersionVector {
        self.0.applied.state.read().claimed().frontier
    }

    /// Who this is.
    pub fn identity(&self) -> &TreeIdentity {
        &self.0.identity
    }

    /// Why writes fail at present, if they do.
    pub fn failure(&self) -> Option<Error> {
        self.0.writer.failure()
    }

    /// Whether writes are taken, and if not, what is done about it.
    pub fn log_state(&self) -> LogState {
        self.0.writer.log_state()
    }

    /// What a client that was answered `version` has seen, to be carried to another cluster.
    pub fn token(&self, version: Version) -> Token {
        let mut seen = self.0.writer.observed();
        seen.raise(version.origin, version.hlc);
        Token::new(seen)
    }

    /// Waits until this cluster has everything that a token stands for. Cancel-safe.
    ///
    /// # Errors
    /// `Conflict` when that takes longer than `wait`; it names the origin that is missing.
    pub async fn wait_for(&self, token: &Token, wait: Duration) -> Result<(), Error> {
        let mut moved = self.0.applied.moved.follow();
        let arrives = async {
            loop {
                moved.get();
                if self.covers(token.frontier()) {
                    return;
                }
                moved.changed().await;
            }
        };
        if tokio::time::timeout(wait, arrives).await.is_ok() {
            return Ok(());
        }
        let missing = self.frontier().first_missing(token.frontier());
        let named = missing.map_or_else(String::new, |(origin, hlc)| {
            format!(": writes of {} up to {hlc} are missing", self.origin_name(origin))
        });
        Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "this cluster does not have what the token stands for after {} ms{named}",
                wait.as_millis()
            ),
        ))
    }

    fn covers(&self, wanted: &VersionVector) -> bool {
        let state = self.0.applied.state.read();
        let own = self.0.identity.origin();
        let frontier = state.parked.claimed(&state.progress.frontier);
        // Own writes are visible when they are answered, whether or not their group has promised anything yet.
        wanted.iter().all(|(origin, hlc)| {
            let here = frontier.get(origin);
            here >= hlc || (origin == own && self.own_last(&state) >= hlc)
        })
    }

    fn own_last(&self, state: &State) -> Hlc {
        let marks = state.progress.watermarks.origin(self.0.identity.origin());
        marks.and_then(|marks| marks.iter().map(|(_, mark)| mark.hlc).max()).unwrap_or_default()
    }

    /// Shows an observer every effective write from now on, until what is returned is dropped.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Observing {
        self.0.applied.observers.add(observer)
    }

    /// Makes durable what is pending and takes no more writes; gives up on what is left after `budget`.
    pub async fn drain(&self, budget: Duration) {
        self.0.writer.drain(budget).await;
    }

    /// Stops where it stands; what is in flight may or may not become durable, as in a crash.
    pub async fn kill(&self) {
        self.0.writer.kill().await;
    }

    /// Takes no more writes and fails what is pending, without waiting.
    pub fn abandon(&self) {
        self.0.writer.abandon();
    }
}
