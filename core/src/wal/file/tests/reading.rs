//! Reading: by strides, through filters, and one partition by offset.

use std::sync::Arc;

use super::rig::{PARTITIONS, Rig};
use crate::disk::{DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::StorageErrorKind;
use crate::id::{ClusterId, Lsn, Offset, OriginTag, PartitionId};
use crate::record::{Group, Kind, RECORD_HEADER_BYTES};
use crate::wal::file::{FileStorage, ReadBuffers};
use crate::wal::{Filter, Selected, Selection, WalStorage};

fn own() -> OriginTag {
    ClusterId::new("here").expect("name").tag()
}

fn filled(disk: &MemDisk, groups: usize) -> Rig {
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    for at in 0..groups {
        rig.append(1 + at % 4, 20 + at % 90).expect("appends");
    }
    rig
}

/// Position, partition, offset and key of every record, as whole groups show them.
type Row = (Lsn, PartitionId, Offset, Vec<u8>);

fn rows(groups: &[Arc<Group>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for framed in groups.iter().flat_map(|group| group.blocks()) {
        let mut next = [Offset::ZERO; PARTITIONS as usize];
        for run in framed.block.runs() {
            next[run.partition.index()] = run.first;
        }
        let mut lsn = framed.frame.first_lsn;
        for record in framed.block.records().flatten() {
            let offset = &mut next[record.partition.index()];
            rows.push((lsn, record.partition, *offset, record.key.to_vec()));
            (*offset, lsn) = (offset.next(), lsn.next());
        }
    }
    rows
}

fn selected(selection: &Selection) -> Vec<Row> {
    let row = |one: Selected<'_>| (one.lsn, one.record.partition, one.offset, one.record.key.to_vec());
    selection.iter().map(row).collect()
}

fn select_all(storage: &FileStorage, filter: &Filter, from: Lsn, stride: usize) -> Vec<Row> {
    let (mut rows, mut at) = (Vec::new(), from);
    let buffers = ReadBuffers::default();
    loop {
        let until = storage.stride(at, stride);
        let selection = storage.select((at, until), filter, &buffers).expect("reads");
        assert!(at == until || selection.next() > at, "the position moves whatever is wanted");
        let bytes = |one: Selected<'_>| {
            let end = one.record.end_key.map_or(0, |end| 4 + end.len());
            RECORD_HEADER_BYTES + one.record.key.len() + end + one.record.value.len()
        };
        let expected: usize = selection.iter().map(bytes).sum();
        assert_eq!(selection.bytes(), expected, "nothing but what is wanted is kept");
        rows.extend(selected(&selection));
        if selection.next() == at {
            return rows;
        }
        at = selection.next();
    }
}

#[tokio::test]
async fn strides_and_whole_readings_bring_the_same_groups_from_any_position() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 60);
    for from in 0..rig.next_lsn.get() {
        let from = Lsn::new(from);
        let whole = rig.read_all(from).await.expect("reads");
        for stride in [1, 500, 900, 1 << 20] {
            let (mut groups, mut at) = (Vec::new(), from);
            let buffers = ReadBuffers::default();
            while at < rig.next_lsn {
                let until = rig.storage.stride(at, stride);
                let read = rig.storage.read_stride(at, until, &buffers).expect("reads");
                assert_eq!(
                    read.last().map(|last| last.next_lsn()),
                    Some(until),
                    "a stride ends with a group"
                );
                groups.extend(read);
                at = until;
            }
            assert_eq!(groups, whole, "from {from} by {stride}");
        }
    }
}

#[test]
fn a_stride_is_about_as_long_as_was_asked_for() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 90);
    // Between two marks there may be so much: the distance of marks, and the group that goes beyond it.
    let (between, segments) = (300 + 700, rig.storage.bounds().retained_bytes / 1_000);
    for stride in [1, 400, 900, 1_500] {
        let (mut at, mut strides) = (Lsn::ZERO, 0);
        while at < rig.next_lsn {
            let until = rig.storage.stride(at, stride);
            let bytes = rig.storage.bytes_after(at) - rig.storage.bytes_after(until);
            assert!(bytes <= stride as u64 + between, "{bytes} from {at} by {stride}");
            (at, strides) = (until, strides + 1);
        }
        let most = rig.storage.bounds().retained_bytes / (stride as u64).max(300) + segments + 1;
        assert!(strides <= most, "{strides} strides of {stride}, and {most} are enough");
    }
}

/// Rounds of the log: so many groups of partition 0, then one of partition 1.
const ROUND: usize = 3;

#[test]
fn one_partition_is_read_where_it_lies_and_nowhere_else() {
    let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(1));
    let mut rig = Rig::open(Arc::new(FaultyDisk::over_memory(disk.clone(), faults.clone()))).expect("opens");
    let (often, seldom) = (PartitionId::new(0), PartitionId::new(1));
    for _ in 0..8 {
        for _ in 0..ROUND {
            rig.append_to(often, 1).expect("appends");
        }
        rig.append_to(seldom, 3).expect("appends");
    }
    rig.append_to(often, 2).expect("appends");
    let key = (own(), seldom);
    let reads = |storage: &FileStorage, from: u64| {
        let before = faults.count(DiskOperation::Read);
        let page = storage.read_partition(key, Offset::new(from), rig.next_lsn, usize::MAX).expect("reads");
        assert_eq!(page.len() as u64, 24 - from, "from {from}");
        faults.count(DiskOperation::Read) - before
    };
    let over = Arc::new(FaultyDisk::over_memory(disk.copy(), faults.clone()));
    let reopened = Rig::open_from(over, rig.next_lsn).expect("opens by footers");
    for storage in [&rig.storage, &reopened.storage] {
        // A group lies in one stretch between marks, and several stretches lie in a segment.
        for from in 0..24 {
            let reads = reads(storage, from);
            assert!((1..=8 - from / 3).contains(&reads), "{reads} reads from {from}");
        }
        assert_eq!(reads(storage, 24), 0, "nothing is behind the end");
    }
    let filter = Filter::all().partitions([seldom]);
    let before = faults.count(DiskOperation::Read);
    let whole = (Lsn::ZERO, Lsn::new(u64::MAX));
    let selection = rig.storage.select(whole, &filter, &ReadBuffers::default()).expect("reads");
    let first_segment = faults.count(DiskOperation::Read) - before;
    assert!(first_segment as usize <= selection.len() / 3, "{first_segment} for {}", selection.len());
}

#[tokio::test]
async fn f06_a_filtered_reading_in_two_halves_is_one_reading() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 70);
    let all = rows(&rig.read_all(Lsn::ZERO).await.expect("reads"));
    for filter in [Filter::all(), Filter::all().partitions([PartitionId::new(1)]), Filter::all().prefix("4")]
    {
        let expected: Vec<_> = {
            let groups = rig.read_all(Lsn::ZERO).await.expect("reads");
            selected(&Selection::of_groups(&groups, (Lsn::ZERO, rig.next_lsn), &filter).expect("reads"))
        };
        for limit in [1, 1_400, 1 << 20] {
            let (mut shown, mut at, mut longest) = (Vec::new(), Lsn::ZERO, 0);
            while at < rig.next_lsn {
                let read =
                    rig.storage.read_filtered((at, rig.next_lsn), &filter, limit).await.expect("reads");
                assert!(read.next() > at, "the position moves");
                longest = longest.max(read.next().since(at));
                shown.extend(selected(&read));
                at = read.next();
            }
            assert_eq!(shown, expected, "{filter:?} by {limit}");
            assert!(limit == 1 || longest > all.len() as u64 / 30, "{longest} of {} by {limit}", all.len());
        }
    }
}

#[tokio::test]
async fn f06_a_filtered_reading_brings_what_a_whole_one_would_and_always_moves() {
    let disk = MemDisk::new();
    let rig = filled(&disk, 70);
    let all = rows(&rig.read_all(Lsn::ZERO).await.expect("reads"));
    let partition = PartitionId::new(1);
    type Wanted = Box<dyn Fn(&Row) -> bool>;
    let filters: Vec<(Filter, Wanted)> = vec![
        (Filter::all(), Box::new(|_| true)),
        (Filter::all().kinds([Kind::Delete]), Box::new(|_| false)),
        (Filter::all().kinds([Kind::Set]), Box::new(|_| true)),
        (Filter::all().origins([OriginTag::new(1)]), Box::new(|_| false)),
        (Filter::all().partitions([partition]), Box::new(move |row| row.1 == partition)),
        (Filter::all().prefix("4"), Box::new(|row| row.3.starts_with(b"4"))),
        (Filter::all().prefix("nothing"), Box::new(|_| false)),
        (
            Filter::all().keys("2", Some("5".into())).partitions([partition]),
            Box::new(move |row| row.1 == partition && (&b"2"[..]..&b"5"[..]).contains(&&row.3[..])),
        ),
    ];
    let reopened = Rig::open_from(Arc::new(disk.copy()), rig.next_lsn).expect("opens by footers");
    for (filter, wanted) in &filters {
        for storage in [&rig.storage, &reopened.storage] {
            for (from, stride) in [(0, 1), (0, 1 << 20), (33, 600)] {
                let from = Lsn::new(from);
                let expected: Vec<Row> =
                    all.iter().filter(|row| row.0 >= from && wanted(row)).cloned().collect();
                assert_eq!(select_all(storage, filter, from, stride), expected, "{filter:?} from {from}");
            }
        }
        let groups = rig.read_all(Lsn::ZERO).await.expect("reads");
        let (from, until) = (Lsn::new(20), Lsn::new(60));
        let in_memory = Selection::of_groups(&groups, (from, until), filter).expect("reads");
        let expected: Vec<Row> =
            all.iter().filter(|row| (from..until).contains(&row.0) && wanted(row)).cloned().collect();
        assert_eq!((selected(&in_memory), in_memory.next()), (expected, until));
    }
}

#[tokio::test]
async fn a_delete_of_a_range_is_shown_to_whoever_wants_a_key_in_it() {
    let disk = MemDisk::new();
    let mut rig = Rig::open(Arc::new(disk.clone())).expect("opens");
    rig.append_range("c", "f").expect("appends");
    let wants = |filter: Filter| !select_all(&rig.storage, &filter, Lsn::ZERO, 1).is_empty();
    assert!(wants(Filter::all().prefix("d")) && wants(Filter::all().prefix("")));
    assert!(wants(Filter::all().keys("a", Some("ca".into()))));
    assert!(!wants(Filter::all().prefix("f")) && !wants(Filter::all().keys("a", Some("c".into()))));
}

#[tokio::test]
async fn one_partition_reads_from_any_offset_and_its_figures_are_exact() {
    let disk = MemDisk::new();
    let mut rig = filled(&disk, 60);
    for _ in 0..2 {
        let first = rig.storage.bounds().first;
        let all = rows(&rig.read_all(first).await.expect("reads"));
        let reopened = Rig::open_from(Arc::new(disk.copy()), rig.next_lsn).expect("opens by footers");
        for storage in [&rig.storage, &reopened.storage] {
            for at in 0..PARTITIONS {
                let key = (own(), PartitionId::new(at));
                let of: Vec<&Row> = all.iter().filter(|row| row.1 == key.1).collect();
                let extent = storage.partition(key);
                assert_eq!(extent.records, of.len() as u64);
                assert_eq!(extent.next, of.last().expect("some").2.next());
                assert_eq!(extent.first, of[0].2);
                let whole = storage.read_partition(key, extent.first, Lsn::new(u64::MAX), usize::MAX);
                assert_eq!(whole.expect("reads").bytes() as u64, extent.bytes);
                for from in extent.first.get()..extent.next.get() {
                    let from = Offset::new(from);
                    let page = storage.read_partition(key, from, Lsn::new(u64::MAX), 150).expect("reads");
                    let shown = selected(&page);
                    let expected: Vec<Row> = of
                        .iter()
                        .filter(|row| row.2 >= from)
                        .take(shown.len())
                        .map(|row| (*row).clone())
                        .collect();
                    assert_eq!(shown, expected, "from {from}");
                    assert!(!shown.is_empty());
                    let end = Lsn::new(first.get() + all.len() as u64 / 2);
                    let below = storage.read_partition(key, from, end, usize::MAX).expect("reads");
                    let count = of.iter().filter(|row| row.2 >= from && row.0 < end).count();
                    assert_eq!(below.len(), count, "below {end}");
                }
            }
        }
        rig.storage.trim(Lsn::new(60)).await.expect("trims");
    }
    let key = (own(), PartitionId::new(0));
    let error = rig.storage.read_partition(key, Offset::ZERO, rig.next_lsn, 1).expect_err("trimmed");
    assert_eq!(error.kind(), StorageErrorKind::Trimmed);
    rig.append(1, 1).expect("appends");
}
