//! [`WalStorage`]: the seam to where groups become durable.

use std::sync::Arc;

use async_trait::async_trait;

use crate::causal::OriginMarks;
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, GroupSequence, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::record::Group;

/// What a log holds, known without I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The lowest position that is retained.
    pub first: Lsn,
    /// The position after the last durable record.
    pub next: Lsn,
    /// How many records are retained.
    pub records: u64,
    /// Bytes of the groups that are retained.
    pub retained_bytes: u64,
    /// Bytes that the log's files occupy, those kept for new segments included.
    pub physical_bytes: u64,
    /// How many records were trimmed since the log was opened.
    pub trimmed_records: u64,
    /// How many bytes of groups were trimmed since the log was opened.
    pub trimmed_bytes: u64,
}

/// The answer to one [`append`](WalStorage::append) or [`reconcile`](WalStorage::reconcile): given once, from any
/// thread; dropped unused it means failed.
pub struct Completion(Option<Answer>);

type Answer = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Completion")
    }
}

impl Completion {
    /// Calls `answer` when the provider is done.
    pub fn new(answer: impl FnOnce(Result<(), StorageError>) + Send + 'static) -> Self {
        Self(Some(Box::new(answer)))
    }

    /// Gives the answer.
    pub fn complete(mut self, result: Result<(), StorageError>) {
        if let Some(answer) = self.0.take() {
            answer(result);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer(Err(StorageError::new(
                StorageErrorKind::Io,
                "the log provider dropped a write without an answer",
            )));
        }
    }
}

/// Where a log lives.
///
/// An implementer keeps these duties: a group is durable whole or not at all, and durable groups are a prefix of those
/// appended; a group whose append failed never becomes readable after `reconcile` succeeded; reads see durable groups
/// only. The writer calls `append` for one group at a time, and `reconcile` only when no answer is awaited any more
/// (a late one is ignored).
#[async_trait]
pub trait WalStorage: Send + Sync + 'static {
    /// Makes a group durable, all or nothing. May block the thread; may answer before or after it returns.
    fn append(&self, group: Arc<Group>, done: Completion);

    /// Whole groups in log order, from the first that reaches beyond `from`, about `limit` bytes of them and at least
    /// one if there is one. Checksums are verified.
    ///
    /// # Errors
    /// `Trimmed` below what is retained; `Corrupt` and `Io` name the place.
    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError>;

    /// What the log holds.
    fn bounds(&self) -> Bounds;

    /// Bytes of groups from a position to the end, to the accuracy of the index.
    fn bytes_after(&self, lsn: Lsn) -> u64;

    /// A position at or below the first record of `origin` that `held` does not cover; the end if all is covered. From
    /// the index, without reading records.
    fn first_uncovered(&self, origin: OriginTag, held: Option<&OriginMarks>) -> Lsn;

    /// Where the offsets of an origin's partition end that were trimmed: a record below may be gone, none at or above it
    /// is. Exact, whatever gaps the offsets have.
    fn trimmed_end(&self, origin: OriginTag, partition: PartitionId) -> Offset;

    /// Lets go of what lies below a position, in the portions that the provider keeps: nothing at or above it goes, and
    /// less than everything below it may. That it went is durable before anything is removed; positions, offsets and
    /// numbers of groups go on as if nothing had happened.
    ///
    /// # Errors
    /// When that cannot be made durable: nothing is removed then.
    async fn trim(&self, before: Lsn) -> Result<(), StorageError>;

    /// Gives up on a group whose answer is late. True: it never becomes readable, even if it lands later. False: it is
    /// durable already, and its answer is on the way. Does not block; called under the writer's lock.
    fn give_up(&self, sequence: GroupSequence) -> bool;

    /// After a failed append: makes the tail consistent, so that what failed stays invisible whatever becomes of it.
    /// May block the thread; may answer before or after it returns.
    fn reconcile(&self, done: Completion);

    /// Makes an origin known, durably, before its first block is appended: its incarnation is needed to verify it.
    ///
    /// # Errors
    /// When it cannot be stored.
    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError>;
}
