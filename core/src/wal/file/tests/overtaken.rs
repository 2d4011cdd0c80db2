//! A write that hangs in the disk, and a repair that goes on without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::rig::Rig;
use crate::disk::{DiskFaults, DiskOperation, FaultyDisk, MemDisk};
use crate::error::StorageError;
use crate::id::Lsn;
use crate::wal::{Completion, WalStorage};

const OPERATIONS: [DiskOperation; 5] = [
    DiskOperation::Open,
    DiskOperation::Write,
    DiskOperation::Sync,
    DiskOperation::SyncDir,
    DiskOperation::Rename,
];

type Answer = Arc<Mutex<Option<Result<(), StorageError>>>>;

fn completion() -> (Completion, Answer) {
    let told = Answer::default();
    let tell = told.clone();
    (Completion::new(move |answer| *tell.lock() = Some(answer)), told)
}

/// What the tests go through.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Whether the file of the next segment lies ready.
    ahead: bool,
    /// Whether the log is told that nobody waits for the write any more, as a writer does.
    given_up: bool,
    operation: DiskOperation,
    nth: u64,
}

/// A log whose next group begins a segment, and the groups it holds.
fn full(case: Case, disk: &MemDisk, faults: &DiskFaults) -> (Rig, Vec<(Lsn, Lsn)>) {
    let disk = Arc::new(FaultyDisk::new(Arc::new(disk.clone()), faults.clone()));
    let mut rig = if case.ahead { Rig::open(disk) } else { Rig::open_growing(disk) }.expect("opens");
    let held = (0..6).map(|_| rig.append(1, 300).expect("appends")).collect();
    (rig, held)
}

/// Appends a group, and has the log repaired while the disk is busy with one of its calls. Answers whether it came to that.
fn overtaken(case: Case, rig: &mut Rig, faults: &DiskFaults, held: &mut Vec<(Lsn, Lsn)>) -> bool {
    let group = rig.group(1, 300);
    let (done, answer) = completion();
    let (fate, repaired, storage) = (done.fate().clone(), Answer::default(), rig.storage.clone());
    let (told, landed) = (repaired.clone(), answer.clone());
    faults.before_nth(case.operation, case.nth, move || {
        let landed = landed.lock().is_some();
        if !landed && (!case.given_up || fate.give_up()) {
            let (done, answer) = completion();
            storage.reconcile(done);
            *told.lock() = answer.lock().take();
        }
    });
    let place = (group.first_lsn(), group.next_lsn());
    rig.next_lsn = group.next_lsn();
    rig.storage.append(Arc::new(group), done);
    faults.heal();
    let appended = answer.lock().take().expect("files answer before they return");
    let repaired = repaired.lock().take();
    if let Some(repaired) = &repaired {
        assert!(repaired.is_ok(), "{case:?}: the disk works for others");
        assert!(appended.is_err(), "{case:?}: a repair has gone on without it");
    }
    if appended.is_ok() {
        rig.next_group = rig.next_group.next();
        held.push(place);
    }
    repaired.is_some()
}

async fn readable(rig: &Rig) -> Vec<(Lsn, Lsn)> {
    let groups = rig.read_all(Lsn::ZERO).await.expect("readable");
    groups.iter().map(|group| (group.first_lsn(), group.next_lsn())).collect()
}

#[tokio::test]
async fn f25_a_write_that_a_repair_overtakes_leaves_no_trace_whatever_it_was_doing_then() {
    let mut met = BTreeMap::<_, u32>::new();
    for (ahead, given_up) in [(false, false), (false, true), (true, false), (true, true)] {
        for operation in OPERATIONS {
            for nth in 1..20 {
                let case = Case { ahead, given_up, operation, nth };
                let (disk, faults) = (MemDisk::new(), DiskFaults::from_seed(1));
                let (mut rig, mut held) = full(case, &disk, &faults);
                if !overtaken(case, &mut rig, &faults, &mut held) {
                    continue;
                }
                *met.entry(operation).or_default() += 1;
                assert_eq!(readable(&rig).await, held, "{case:?}");
                for seed in 0..3 {
                    let opened = Rig::open(Arc::new(disk.copy().crash(seed))).expect("opens");
                    assert_eq!(opened.shown, held, "{case:?}: after a crash");
                }
                let opened = Rig::open(Arc::new(disk.copy())).expect("opens");
                assert_eq!(opened.shown, held, "{case:?}: after a stop");
                for at in 0..8 {
                    held.push(rig.append(1, 100 + 40 * at).expect("the log goes on"));
                    assert_eq!(readable(&rig).await, held, "{case:?}");
                    let opened = Rig::open(Arc::new(disk.copy().crash(at as u64))).expect("opens");
                    assert_eq!(opened.shown, held, "{case:?}: what was written after it");
                }
            }
        }
    }
    let all = OPERATIONS.iter().all(|operation| met.get(operation).is_some_and(|met| *met >= 2));
    assert!(all && met[&DiskOperation::Write] >= 8, "calls of the disk that were overtaken: {met:?}");
}
