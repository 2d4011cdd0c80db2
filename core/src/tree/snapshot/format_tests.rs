//! Claims about the bytes of a snapshot: round trips, golden bytes, and that damage is noticed wherever it is.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::chunk::EntryView;
use super::file::{SnapshotFault, SnapshotFile};
use super::header::SnapshotHeader;
use super::name::SnapshotName;
use super::writer::SnapshotWriter;
use crate::causal::{OriginMarks, Watermarks};
use crate::disk::{Disk, MemDisk, read_whole, write_atomically};
use crate::id::{Hlc, Incarnation, Lsn, Offset, OriginTag, PartitionId, Version};
use crate::tree::image::RangeImage;
use crate::tree::target::Progress;

const DIR: &str = "/s";
const NAME: SnapshotName = SnapshotName::new(7);

/// An entry that owns what a view borrows.
type Owned = (Vec<u8>, Option<Vec<u8>>, u64, u64, Option<u64>);

fn view((key, value, hlc, lsn, deadline_ms): &Owned) -> EntryView<'_> {
    EntryView {
        key,
        value: value.as_deref(),
        version: Version { hlc: Hlc::new(*hlc), origin: OriginTag::new(hlc % 3) },
        lsn: Lsn::new(*lsn),
        deadline_ms: *deadline_ms,
    }
}

fn header() -> SnapshotHeader {
    let mut watermarks = Watermarks::default();
    for origin in [3, 9] {
        let mut marks = OriginMarks::new(Incarnation::new(origin + 100), 2);
        marks.advance(PartitionId::new(1), Offset::new(origin * 7), Hlc::new(origin * 11));
        watermarks.insert(OriginTag::new(origin), marks);
    }
    let version = Version { hlc: Hlc::new(77), origin: OriginTag::new(9) };
    SnapshotHeader {
        incarnation: Incarnation::new(0x1122_3344_5566_7788),
        number: NAME.number(),
        covered: Lsn::new(5_000),
        written_ms: 1_700_000_000_000,
        clock: Hlc::new(99),
        partitions: 2,
        progress: Progress {
            frontier: [(OriginTag::new(3), Hlc::new(40)), (OriginTag::new(9), Hlc::new(99))]
                .into_iter()
                .collect(),
            watermarks,
            reaped: Hlc::new(33),
        },
        observed: [(OriginTag::new(9), Hlc::new(98))].into_iter().collect(),
        ranges: vec![RangeImage {
            from: Bytes::from_static(b"a"),
            to: Bytes::from_static(b"b"),
            version,
            lsn: Lsn::new(4_999),
        }],
    }
}

fn write(disk: &MemDisk, entries: &[Owned], chunk_bytes: usize) {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = SnapshotWriter::create(shared, Path::new(DIR), &header(), chunk_bytes).expect("created");
    for entry in entries {
        writer.chunk().push(&view(entry));
        writer.settle();
        writer.write().expect("written");
    }
    writer.finish(Lsn::new(6_000), vec![Lsn::new(10)..Lsn::new(12)]).expect("finished");
}

/// Reads everything; the entries that it held.
fn read(disk: &MemDisk) -> Result<(SnapshotHeader, Vec<Owned>), SnapshotFault> {
    let file = SnapshotFile::open(disk, Path::new(DIR), NAME)?;
    let mut entries = Vec::new();
    for first in (0..file.chunks()).step_by(2) {
        let run = first..file.chunks().min(first + 2);
        let (before, counted) = (entries.len(), file.entries(run.clone()));
        file.read(run, |chunk| {
            for entry in chunk.entries() {
                let EntryView { key, value, version, lsn, deadline_ms } = entry?;
                assert_eq!(version.origin.get(), version.hlc.get() % 3);
                let value = value.map(<[u8]>::to_vec);
                entries.push((key.to_vec(), value, version.hlc.get(), lsn.get(), deadline_ms));
            }
            Ok(())
        })?;
        assert_eq!(entries.len() - before, counted);
    }
    assert_eq!(file.footer.superseded, [Lsn::new(10)..Lsn::new(12)]);
    assert_eq!((file.footer.end, file.footer.entries), (Lsn::new(6_000), entries.len() as u64));
    Ok((file.header, entries))
}

fn samples(count: u64) -> Vec<Owned> {
    let value = |at: u64| {
        (!at.is_multiple_of(5)).then(|| format!("value {at} of many").repeat(at as usize % 4).into_bytes())
    };
    (0..count)
        .map(|at| {
            (format!("key-{at:04}").into_bytes(), value(at), 1_000 + at, at, (at % 7 == 0).then_some(at))
        })
        .collect()
}

fn replace(disk: &MemDisk, bytes: &[u8]) {
    write_atomically(disk, &Path::new(DIR).join(NAME.file()), bytes).expect("replaced");
}

fn owned() -> impl Strategy<Value = Owned> {
    let key = proptest::collection::vec(any::<u8>(), 1..20);
    let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
    (key, value, any::<u64>(), any::<u64>(), proptest::option::of(any::<u64>()))
}

proptest! {
    #[test]
    fn a_snapshot_reads_back_as_it_was_written(
        entries in proptest::collection::vec(owned(), 0..60), chunk_bytes in 1_usize..2_000,
    ) {
        let disk = MemDisk::new();
        write(&disk, &entries, chunk_bytes);
        let (found, read) = read(&disk).expect("intact");
        prop_assert_eq!(found, header());
        prop_assert_eq!(read, entries);
        prop_assert_eq!(disk.list(Path::new(DIR)).expect("listed"), [NAME.file()]);
    }

    #[test]
    fn bytes_that_are_no_snapshot_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let disk = MemDisk::new();
        disk.create_dir_all(Path::new(DIR)).expect("created");
        replace(&disk, &bytes);
        prop_assert!(read(&disk).is_err());
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let disk = MemDisk::new();
    write(&disk, &samples(25), 300);
    let bytes = read_whole(&disk, &Path::new(DIR).join(NAME.file())).expect("written");
    assert!(read(&disk).is_ok() && bytes.len() > 600, "{}", bytes.len());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            replace(&disk, &damaged);
            assert!(read(&disk).is_err(), "bit {bit} of byte {at}");
        }
        replace(&disk, &bytes[..at]);
        assert!(read(&disk).is_err(), "cut at {at}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    replace(&disk, &longer);
    assert!(read(&disk).is_err(), "a byte too many");
}

#[test]
fn a_chunk_at_the_place_of_another_is_noticed() {
    let disk = MemDisk::new();
    // Entries of the same sizes, so that the chunks are equally long.
    let entry = |at: u64| (format!("key-{at:04}").into_bytes(), Some(vec![b'x'; 40]), 1_000 + at, 5, None);
    write(&disk, &(0..4).map(entry).collect::<Vec<_>>(), 1);
    let path = Path::new(DIR).join(NAME.file());
    let bytes = read_whole(&disk, &path).expect("written");
    let file = SnapshotFile::open(&disk, Path::new(DIR), NAME).expect("intact");
    let places: Vec<_> =
        file.footer.chunks.iter().map(|chunk| (chunk.at as usize, chunk.length as usize)).collect();
    assert_eq!(places[0].1, places[1].1, "chunks are exchanged below");
    let mut swapped = bytes.clone();
    for (from, to) in [(places[0], places[1]), (places[1], places[0])] {
        swapped[to.0..to.0 + to.1].copy_from_slice(&bytes[from.0..from.0 + from.1]);
    }
    replace(&disk, &swapped);
    assert!(matches!(read(&disk), Err(SnapshotFault::Format(_))));
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let disk = MemDisk::new();
    write(&disk, &samples(1), 300);
    let mut bytes = read_whole(&disk, &Path::new(DIR).join(NAME.file())).expect("written");
    bytes[4] = 4;
    replace(&disk, &bytes);
    let fault = read(&disk).expect_err("refused");
    assert!(fault.is_newer() && fault.to_string().contains("version 4"), "{fault}");
}

#[test]
fn the_golden_bytes_of_every_version_are_read() {
    let first = include_str!("../../../golden/snapshot-v1.hex");
    let mut before = header();
    // The first version knew of no reaping.
    before.progress.reaped = Hlc::ZERO;
    read_golden(first, before);
    // In the second the values stood among the keys.
    read_golden(include_str!("../../../golden/snapshot-v2.hex"), header());
    let golden = read_golden(include_str!("../../../golden/snapshot-v3.hex"), header());
    // What a packer makes of the same entries may change; everything else is written as it was.
    assert!(golden.starts_with(&header().encode()));
}

fn read_golden(hex: &str, header: SnapshotHeader) -> Vec<u8> {
    let hex = hex.split_whitespace().collect::<String>();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    let golden: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let entries = vec![
        (b"alpha".to_vec(), Some(b"one ".repeat(12)[..47].to_vec()), 1_000, 10, None),
        (b"beta".to_vec(), None, 1_001, 11, None),
        (b"gamma".to_vec(), Some(b"three".to_vec()), 1_002, 12, Some(1_700_000_000_500)),
    ];
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new(DIR)).expect("created");
    replace(&disk, &golden);
    assert_eq!(read(&disk).expect("intact"), (header, entries));
    golden
}
