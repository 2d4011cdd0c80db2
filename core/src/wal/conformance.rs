//! The claims that every [`WalStorage`] must hold, to be run by a test of the implementation.
//!
//! ```ignore
//! conformance(async || WalSubject { storage: my_new_log().await, cluster, incarnation, partitions: 4 }).await;
//! ```

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::completion::Completion;
use super::filter::Filter;
use super::selection::Selection;
use super::storage::WalStorage;
use crate::causal::{OriginMarks, VersionVector};
use crate::error::{StorageError, StorageErrorKind};
use crate::id::{ClusterId, GroupSequence, Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId};
use crate::record::{Block, BlockBuilder, Frame, FramedBlock, Group, Kind, Mutation};

/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log under test: new and empty.
pub struct WalSubject {
    /// The provider.
    pub storage: Arc<dyn WalStorage>,
    /// The cluster whose log it is.
    pub cluster: ClusterId,
    /// The incarnation of the log.
    pub incarnation: Incarnation,
    /// Number of partitions.
    pub partitions: u16,
}

/// Runs all claims. `make` answers a new, empty log at each call.
///
/// # Panics
/// When a claim does not hold; the message says which.
pub async fn conformance(make: impl AsyncFn() -> WalSubject) {
    Trial::new(make().await).a_new_log_is_empty().await;
    Trial::new(make().await).what_is_answered_reads_back_as_the_same_bytes_in_order().await;
    Trial::new(make().await).a_read_begins_with_the_group_that_reaches_beyond_and_gives_at_least_one().await;
    Trial::new(make().await).a_filtered_read_shows_what_a_whole_one_does_and_moves_past_the_rest().await;
    Trial::new(make().await).groups_in_flight_become_readable_in_their_order().await;
    Trial::new(make().await).a_group_given_up_on_never_becomes_readable().await;
    Trial::new(make().await).what_is_behind_a_failed_group_stays_invisible().await;
    Trial::new(make().await).a_group_out_of_turn_is_refused_and_changes_nothing().await;
    Trial::new(make().await).making_a_sound_log_consistent_changes_nothing().await;
    Trial::new(make().await).a_repair_given_up_on_does_not_begin().await;
    Trial::new(make().await).a_trim_takes_nothing_at_or_above_its_position().await;
    Trial::new(make().await).what_was_trimmed_is_known_to_be_gone_by_offset().await;
    Trial::new(make().await).what_is_uncovered_is_never_passed_over().await;
    Trial::new(make().await).blocks_of_an_enrolled_origin_keep_their_bytes().await;
}

struct Trial {
    log: WalSubject,
    next_lsn: Lsn,
    next_group: GroupSequence,
    offsets: Vec<Offset>,
    hlc: Hlc,
    /// What must be readable.
    kept: Vec<Arc<Group>>,
}

type Answer = oneshot::Receiver<Result<(), StorageError>>;

impl Trial {
    fn new(log: WalSubject) -> Self {
        let offsets = vec![Offset::ZERO; usize::from(log.partitions)];
        Self {
            log,
            next_lsn: Lsn::ZERO,
            next_group: GroupSequence::ZERO,
            offsets,
            hlc: Hlc::new(1_000),
            kept: Vec::new(),
        }
    }

    fn framed(&mut self, block: Block) -> Arc<Group> {
        let frame = Frame {
            sequence: self.next_group,
            index: 0,
            frames: 1,
            length: u32::try_from(block.bytes().len()).expect("small"),
            first_lsn: self.next_lsn,
            closed: self.hlc,
            skip: 0,
        };
        let group = Arc::new(Group::new(vec![FramedBlock { frame, block }]));
        self.next_group = self.next_group.next();
        self.next_lsn = group.next_lsn();
        group
    }

    /// The group that comes next, as a writer makes it.
    fn group(&mut self, records: u64) -> Arc<Group> {
        let partitions = self.log.partitions;
        let mut builder = BlockBuilder::new(self.log.cluster.tag(), partitions, 0, 512);
        for at in 0..records {
            let mutation = Mutation::set(format!("{}/{at}", self.next_group), vec![7; 100]);
            let partition = PartitionId::of(&mutation.key, partitions);
            self.hlc = Hlc::new(self.hlc.get() + 1);
            let offset = &mut self.offsets[partition.index()];
            builder.push(&mutation, partition, *offset, self.hlc, false);
            *offset = offset.next();
        }
        let block = builder.seal(&VersionVector::default(), self.log.incarnation);
        self.framed(block)
    }

    fn send(&self, group: &Arc<Group>, given_up: bool) -> Answer {
        let (told, answer) = oneshot::channel();
        let done = Completion::new(move |result| drop(told.send(result)));
        if given_up {
            assert!(done.fate().give_up(), "nothing has come of it yet");
        }
        self.log.storage.append(group.clone(), done);
        answer
    }

    async fn answered(answer: Answer) -> Result<(), StorageError> {
        let answer = timeout(PATIENCE, answer).await.expect("an append is answered");
        answer.expect("an answer is given or dropped, never lost")
    }

    async fn append(&mut self, records: u64) {
        let group = self.group(records);
        Self::answered(self.send(&group, false)).await.expect("a sound log takes a group");
        self.kept.push(group);
    }

    async fn reconcile(&self, given_up: bool) -> Result<(), StorageError> {
        let (told, answer) = oneshot::channel();
        let done = Completion::new(move |result| drop(told.send(result)));
        if given_up {
            assert!(done.fate().give_up(), "nothing has come of it yet");
        }
        self.log.storage.reconcile(done);
        Self::answered(answer).await
    }

    /// The number of the first that failed comes again; its positions do not.
    fn go_back_to(&mut self, failed: &Group) {
        self.next_group = failed.sequence();
    }

    async fn read_all(&self, from: Lsn) -> Vec<Arc<Group>> {
        let (mut groups, mut at) = (Vec::new(), from);
        loop {
            let read = timeout(PATIENCE, self.log.storage.read(at, 300)).await.expect("a read ends");
            let read = read.expect("what is retained is readable");
            let Some(last) = read.last() else { return groups };
            at = last.next_lsn();
            groups.extend(read);
        }
    }

    async fn holds_what_was_kept(&self) {
        let first = self.log.storage.bounds().first;
        let kept: Vec<_> = self.kept.iter().filter(|group| group.next_lsn() > first).cloned().collect();
        assert!(self.read_all(first).await == kept, "readable is what was answered, and nothing else");
        let bounds = self.log.storage.bounds();
        assert_eq!(bounds.records, kept.iter().map(|group| group.records()).sum::<u64>());
        assert_eq!(bounds.retained_bytes, kept.iter().map(|group| group.stored_bytes()).sum::<u64>());
        assert_eq!(bounds.next, self.kept.last().map_or(Lsn::ZERO, |last| last.next_lsn()));
    }

    async fn a_new_log_is_empty(self) {
        assert!(self.read_all(Lsn::ZERO).await.is_empty());
        let bounds = self.log.storage.bounds();
        assert_eq!((bounds.first, bounds.next, bounds.records), (Lsn::ZERO, Lsn::ZERO, 0));
        assert_eq!(self.log.storage.bytes_after(Lsn::ZERO), 0);
        assert!((1..=16).contains(&self.log.storage.in_flight()), "from 1 to 16 groups are in flight");
    }

    async fn what_is_answered_reads_back_as_the_same_bytes_in_order(mut self) {
        for records in [1, 5, 2, 40, 1] {
            self.append(records).await;
            self.holds_what_was_kept().await;
        }
    }

    async fn a_filtered_read_shows_what_a_whole_one_does_and_moves_past_the_rest(mut self) {
        for records in [3, 1, 30, 2, 9, 1, 40, 7] {
            self.append(records).await;
        }
        let (own, end) = (self.log.cluster.tag(), self.next_lsn);
        let narrow = Filter::all().partitions([PartitionId::new(1), PartitionId::new(3)]);
        let filters = [
            Filter::all(),
            narrow.clone(),
            narrow.origins([own]),
            Filter::all().origins([OriginTag::new(!own.get())]),
            Filter::all().kinds([Kind::Delete]),
            Filter::all().prefix("3/"),
        ];
        let essence = |read: &Selection| -> Vec<_> {
            read.iter().map(|one| (one.lsn, one.origin, one.offset, one.record.key.to_vec())).collect()
        };
        for (filter, from) in filters.iter().flat_map(|filter| [(filter, 0), (filter, 2), (filter, 37)]) {
            let (from, until) = (Lsn::new(from), Lsn::new(end.get() - 3));
            let whole = Selection::of_groups(&self.kept, (from, until), filter).expect("readable");
            let (mut at, mut read) = (from, Vec::new());
            while at < until {
                let some = timeout(PATIENCE, self.log.storage.read_filtered((at, until), filter, 300));
                let some = some.await.expect("a read ends").expect("what is retained is readable");
                assert!(some.next() > at, "what is left out is progress too");
                assert!(some.next() <= until, "nothing behind the end is looked at");
                read.extend(essence(&some));
                at = some.next();
            }
            assert_eq!((at, read), (until, essence(&whole)), "{filter:?} from {from}");
        }
    }

    async fn a_read_begins_with_the_group_that_reaches_beyond_and_gives_at_least_one(mut self) {
        for _ in 0..12 {
            self.append(3).await;
        }
        for at in 0..36 {
            let read = self.log.storage.read(Lsn::new(at), 1).await.expect("readable");
            assert_eq!(read[0].first_lsn(), Lsn::new(at / 3 * 3), "read from {at}");
        }
        let all: u64 = self.kept.iter().map(|group| group.stored_bytes()).sum();
        let bytes = self.log.storage.bytes_after(Lsn::ZERO);
        assert_eq!(bytes, all);
        assert!(self.log.storage.read(Lsn::new(36), 1).await.expect("readable").is_empty(), "behind the end");
        assert_eq!(self.log.storage.bytes_after(Lsn::new(36)), 0);
    }

    async fn groups_in_flight_become_readable_in_their_order(mut self) {
        for _ in 0..4 {
            let groups: Vec<_> = (0..self.log.storage.in_flight()).map(|_| self.group(2)).collect();
            let answers: Vec<_> = groups.iter().map(|group| self.send(group, false)).collect();
            for answer in answers {
                let next = self.log.storage.bounds().next;
                let whole = groups.iter().chain(&self.kept).any(|group| group.next_lsn() == next);
                assert!(whole || next == Lsn::ZERO, "the end is that of a group: {next}");
                Self::answered(answer).await.expect("a sound log takes groups");
            }
            self.kept.extend(groups);
            self.holds_what_was_kept().await;
        }
    }

    async fn a_group_given_up_on_never_becomes_readable(mut self) {
        self.append(2).await;
        let late = self.group(3);
        let refused = Self::answered(self.send(&late, true)).await;
        assert!(refused.is_err(), "nobody waits for it: it must not be said to be durable");
        self.holds_what_was_kept().await;
        self.reconcile(false).await.expect("a sound log can be made consistent");
        self.holds_what_was_kept().await;
        self.go_back_to(&late);
        self.append(2).await;
        assert_eq!(self.kept[1].first_lsn(), Lsn::new(5), "positions leave a gap");
        self.append(1).await;
        self.holds_what_was_kept().await;
    }

    async fn what_is_behind_a_failed_group_stays_invisible(mut self) {
        self.append(1).await;
        for _ in 0..3 {
            let failed = self.group(2);
            let behind: Vec<_> = (1..self.log.storage.in_flight()).map(|_| self.group(1)).collect();
            let first = self.send(&failed, true);
            let answers: Vec<_> = behind.iter().map(|group| self.send(group, false)).collect();
            assert!(Self::answered(first).await.is_err());
            for answer in answers {
                // It may have landed or not; nobody may see it.
                let _ = Self::answered(answer).await;
            }
            self.holds_what_was_kept().await;
            self.reconcile(false).await.expect("a sound log can be made consistent");
            self.holds_what_was_kept().await;
            self.go_back_to(&failed);
            self.append(1).await;
        }
        self.holds_what_was_kept().await;
    }

    async fn a_group_out_of_turn_is_refused_and_changes_nothing(mut self) {
        self.append(1).await;
        let repeated = self.kept[0].clone();
        assert!(Self::answered(self.send(&repeated, false)).await.is_err(), "that number was taken");
        self.holds_what_was_kept().await;
    }

    async fn making_a_sound_log_consistent_changes_nothing(mut self) {
        for _ in 0..3 {
            self.reconcile(false).await.expect("a sound log can be made consistent");
            self.append(2).await;
            self.reconcile(false).await.expect("a sound log can be made consistent");
            self.holds_what_was_kept().await;
        }
    }

    async fn a_repair_given_up_on_does_not_begin(mut self) {
        self.append(2).await;
        assert!(self.reconcile(true).await.is_err(), "another one may be at work by now");
        self.append(2).await;
        self.holds_what_was_kept().await;
    }

    async fn a_trim_takes_nothing_at_or_above_its_position(mut self) {
        for _ in 0..60 {
            self.append(2).await;
        }
        for before in [0, 31, 60, 120].map(Lsn::new) {
            self.log.storage.trim(before).await.expect("a sound log can be trimmed");
            let bounds = self.log.storage.bounds();
            assert!(bounds.first <= before, "{} was trimmed up to {}", before, bounds.first);
            assert_eq!(bounds.trimmed_records + bounds.records, 120);
            self.holds_what_was_kept().await;
            if bounds.first > Lsn::ZERO {
                let gone = self.log.storage.read(Lsn::ZERO, 1).await.expect_err("it is gone");
                assert_eq!(gone.kind(), StorageErrorKind::Trimmed, "{gone}");
            }
        }
        self.append(1).await;
        assert_eq!(self.kept[60].first_lsn(), Lsn::new(120), "positions go on");
        self.holds_what_was_kept().await;
    }

    async fn what_was_trimmed_is_known_to_be_gone_by_offset(mut self) {
        for _ in 0..60 {
            self.append(2).await;
        }
        self.log.storage.trim(Lsn::new(90)).await.expect("a sound log can be trimmed");
        let first = self.log.storage.bounds().first;
        let origin = self.log.cluster.tag();
        for partition in (0..self.log.partitions).map(PartitionId::new) {
            let gone = self.kept.iter().filter(|group| group.next_lsn() <= first);
            let blocks = gone.flat_map(|group| group.blocks());
            let runs = blocks.flat_map(|framed| framed.block.runs().collect::<Vec<_>>());
            let end = runs.filter(|run| run.partition == partition).map(|run| run.end()).max();
            assert_eq!(self.log.storage.trimmed_end(origin, partition), end.unwrap_or_default());
        }
    }

    async fn what_is_uncovered_is_never_passed_over(mut self) {
        let origin = self.log.cluster.tag();
        let mut marks = OriginMarks::new(self.log.incarnation, self.log.partitions);
        for _ in 0..30 {
            self.append(1).await;
        }
        assert_eq!(self.log.storage.first_uncovered(origin, None), Lsn::ZERO);
        for (at, group) in self.kept.iter().enumerate() {
            for run in group.blocks()[0].block.runs() {
                marks.advance(run.partition, run.end(), Hlc::ZERO);
            }
            let from = self.log.storage.first_uncovered(origin, Some(&marks));
            assert!(from <= group.next_lsn(), "after {at} groups: {from}");
        }
        assert_eq!(self.log.storage.first_uncovered(origin, Some(&marks)), Lsn::new(30), "all is covered");
    }

    async fn blocks_of_an_enrolled_origin_keep_their_bytes(mut self) {
        let (other, incarnation) = (ClusterId::new("another-site").expect("a name"), Incarnation::new(4_711));
        self.append(1).await;
        for _ in 0..2 {
            self.log.storage.enroll(&other, incarnation).await.expect("an origin can be enrolled, and again");
        }
        let changed = self.log.storage.enroll(&other, Incarnation::new(4_712)).await;
        assert!(changed.is_err(), "an origin keeps its incarnation");
        let mut builder = BlockBuilder::new(other.tag(), self.log.partitions, 0, 512);
        let mutation = Mutation::set("there", "value");
        let partition = PartitionId::of(&mutation.key, self.log.partitions);
        builder.push(&mutation, partition, Offset::new(9), Hlc::new(77), false);
        let block = builder.seal(&VersionVector::default(), incarnation);
        let group = self.framed(block);
        Self::answered(self.send(&group, false)).await.expect("it is known");
        self.kept.push(group);
        self.holds_what_was_kept().await;
    }
}
