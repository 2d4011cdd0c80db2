//! [`WalStorage`]: the seam to where groups become durable.

use std::sync::Arc;

use async_trait::async_trait;

use super::completion::Completion;
use super::filter::Filter;
use super::selection::Selection;
use crate::causal::OriginMarks;
use crate::error::StorageError;
use crate::id::{ClusterId, Incarnation, Lsn, Offset, OriginTag, PartitionId};
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

/// Where a log lives.
///
/// An implementer keeps these duties, which the suite `conformance` runs as tests:
///
/// - A group is durable whole or not at all. Before it becomes readable the provider says so through
///   [`Completion::land`]; where that is refused the group was given up on, and never becomes readable, even if its
///   bytes are stored already or still arrive.
/// - Groups are numbered without a gap, and the writer has up to [`in_flight`](Self::in_flight) of them without an
///   answer, appended in the order of their numbers. They may land and be answered in any order. Readable is a prefix:
///   a group that has landed waits until all before it have.
/// - Once a group has failed or was given up on, the writer takes all behind it for failed, landed or not, appends
///   nothing more, and calls `reconcile`. After that the log ends where the readable prefix ended; the next group has
///   the number that follows there, and higher positions than any before.
/// - A call may block its thread only if one group at a time is in flight. The writer bounds its own wait whatever the
///   provider does; a call that hangs costs the log a thread, not its writers.
#[async_trait]
pub trait WalStorage: Send + Sync + 'static {
    /// How many groups the writer may have on their way at once, from 1 to 16: more than one where a write takes long
    /// however small it is. Asked once.
    fn in_flight(&self) -> usize {
        1
    }

    /// Makes a group durable, all or nothing. May answer before or after it returns. `done` says when nobody waits for
    /// it any more: stopping early then is welcome, and not needed.
    fn append(&self, group: Arc<Group>, done: Completion);

    /// Whole groups in log order, from the first that reaches beyond `from`, about `limit` bytes of them and at least
    /// one if there is one. Checksums are verified.
    ///
    /// # Errors
    /// `Trimmed` below what is retained; `Corrupt` and `Io` name the place.
    async fn read(&self, from: Lsn, limit: usize) -> Result<Vec<Arc<Group>>, StorageError>;

    /// The records that a filter wants from a position on, up to another, in about `limit` bytes of the log: with where
    /// reading goes on, which lies behind all that was looked at, wanted or not. A provider that knows from an index what
    /// lies where can leave out reading the rest.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    async fn read_filtered(
        &self,
        (from, until): (Lsn, Lsn),
        filter: &Filter,
        limit: usize,
    ) -> Result<Selection, StorageError> {
        let groups = self.read(from, limit).await?;
        Selection::of_groups(&groups, (from, until), filter)
    }

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

    /// After a failed append: makes the tail consistent, so that what failed, and what was in flight behind it, stays
    /// invisible whatever becomes of it. Called again when it failed, and while an earlier call hangs: one that was given
    /// up on must not begin.
    fn reconcile(&self, done: Completion);

    /// Makes an origin known, durably, before its first block is appended: its incarnation is needed to verify it.
    ///
    /// # Errors
    /// When it cannot be stored.
    async fn enroll(&self, origin: &ClusterId, incarnation: Incarnation) -> Result<(), StorageError>;
}
