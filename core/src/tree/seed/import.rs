//! [`Tree::import_seed`]: joins a whole seed with what is here.
//!
//! Step by step, and every step leaves the tree before the import or after it: the seed is read through and its clock
//! taken over; a snapshot of what both make together is written, beside the ones that are there; the record of seeds
//! names it, and from then on opening the tree begins with it; then the same is done in memory, where readers see it.
//! No page is applied meanwhile; local writes go on, and are newer than all that the seed holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::floors::Floors;
use super::join::{Join, Pair, stand};
use super::record::SeedRecord;
use super::rules::{Choice, Rules, Stand, joined};
use super::staging::Imported;
use super::survey::Theirs;
use crate::clock::HybridClock;
use crate::error::{Error, ErrorKind};
use crate::id::{Hlc, PartitionId};
use crate::tree::Tree;
use crate::tree::entry::Entry;
use crate::tree::image::RangeImage;
use crate::tree::snapshot::{
    EntryView, SnapshotFault, SnapshotFile, SnapshotHeader, SnapshotInfo, SnapshotWriter, cannot_write,
};
use crate::tree::state::State;

/// Chunks after which what is joined is written and synced, and others get the processor.
const CHUNKS_PER_STEP: usize = 4;
/// How many times faster than a snapshot a seed is joined.
const FASTER: u64 = 4;
/// How often it is looked whether the writes that were under way have arrived.
const LOOK: Duration = Duration::from_millis(5);
/// How long to wait before a step is done again that must not be left half done.
const PAUSE: Duration = Duration::from_millis(500);

/// What is left to do in memory.
struct Joining {
    join: Join,
    changed: u64,
}

impl Tree {
    /// Joins the seed that lies staged, of so many bytes.
    pub(super) async fn import_seed(&self, bytes: u64) -> Result<Imported, Error> {
        let (file, theirs) = self.survey().await?;
        let theirs = Arc::new(theirs);
        let one = self.0.snapshots.writing.lock().await;
        let _reading = self.0.applied.state.read().begin_reading();
        let rules = Arc::new(self.rules(&theirs).await?);
        let line = self.step_above(&theirs, &rules).await?;
        let rewritten = if rules.gone_back.is_empty() {
            0
        } else {
            self.await_own_writes().await;
            self.rescue(&file, &rules, &theirs.cuts, line).await?
        };
        self.keep_joined(&file, &theirs, &rules).await?;
        let changed = self.join_in_memory(&file, &theirs, &rules).await?;
        drop(one);
        self.take_another_snapshot();
        Ok(Imported { rows: theirs.rows, bytes, changed, rewritten })
    }

    /// A second snapshot, so that damage to the first one costs nothing but time, as always.
    fn take_another_snapshot(&self) {
        let tree = self.clone();
        let name = format!("snapshot after a seed of {}", self.0.identity.tree);
        self.0.tasks.spawn(name, async move {
            if let Err(error) = tree.snapshot().await {
                tracing::warn!(tree = %tree.0.identity.tree, %error, "no second snapshot after a seed; the next one comes by itself");
            }
        });
    }

    pub(super) fn unusable(&self, fault: &SnapshotFault) -> Error {
        let tree = &self.0.identity.tree;
        Error::new(
            ErrorKind::Corrupt,
            format!("a seed of {tree} is not what was sent: {fault}; it is asked for again"),
        )
    }

    async fn rules(&self, theirs: &Theirs) -> Result<Rules, Error> {
        let own = self.0.identity.origin();
        let mine = self.0.applied.state.read().claimed();
        let held = theirs.progress.watermarks.origin(own);
        let differences = self.differences(own, held).await?;
        let mut gone_back: BTreeSet<PartitionId> =
            differences.into_iter().map(|(partition, ..)| partition).collect();
        gone_back.append(&mut self.0.seeds.holes());
        let mut ranges = theirs.cuts.clone();
        for range in self.0.applied.state.read().ranges() {
            range.add_to(&mut ranges);
        }
        Ok(Rules {
            own,
            partitions: self.0.identity.partitions,
            mine,
            theirs: theirs.progress.clone(),
            gone_back,
            ranges,
            widening: self.0.seeds.widening(),
        })
    }

    /// From here on local writes stand above everything that the seed holds: by their clock, by what they may have seen,
    /// and where the giver holds more of this cluster's writes than are here, by their offsets. Answers an HLC between
    /// the local writes before and those after.
    async fn step_above(&self, theirs: &Theirs, rules: &Rules) -> Result<Hlc, Error> {
        let own = rules.own;
        let held = theirs.progress.watermarks.origin(own);
        let mut floors = Floors::default();
        for (partition, mark) in held.into_iter().flat_map(|held| held.iter()) {
            if rules.gone_back.contains(&partition) {
                floors.raise(own, partition, mark);
            }
        }
        if !floors.is_empty() {
            // Durable before a record stands above the hole, and known to whoever reads the log.
            let seeds = self.0.seeds.clone();
            self.0
                .tasks
                .blocking(move || {
                    seeds.change(|record| {
                        record.holes.extend(floors.iter().map(|((_, partition), _)| partition));
                        record.floors.join(&floors);
                    })
                })
                .await??;
            self.0.seeds.next_epoch();
        }
        self.0.clock.observe(theirs.newest);
        let offsets: Vec<_> = held
            .into_iter()
            .flat_map(|held| held.iter())
            .map(|(partition, mark)| (partition, mark.next))
            .collect();
        self.0.writer.step_above(&offsets, &theirs.observed);
        tick(&self.0.clock).await
    }

    /// Waits until the local writes that have their positions are applied.
    async fn await_own_writes(&self) {
        while self.0.writer.local_promise().await.is_none() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes the snapshot of both, and names it in the record: the one step that counts.
    async fn keep_joined(
        &self,
        file: &Arc<SnapshotFile>,
        theirs: &Theirs,
        rules: &Arc<Rules>,
    ) -> Result<(), Error> {
        let (snapshots, seeds, tasks) = (self.0.snapshots.clone(), self.0.seeds.clone(), &self.0.tasks);
        let number = snapshots.next_number();
        let header = self.joined_header(number, theirs, rules);
        let mut floors = seeds.floors();
        floors.join(&Floors::between(&rules.mine.watermarks, &theirs.progress.watermarks));
        if rules.widening.is_some() {
            // The log lacks what was left out of it before, whoever asks for it.
            let foreign = rules.mine.watermarks.iter().filter(|(origin, _)| *origin != rules.own);
            foreign.for_each(|(origin, marks)| floors.raise_to(origin, marks));
        }
        let forgone: BTreeSet<_> =
            seeds.owes(&theirs.progress.watermarks).into_iter().map(|owed| owed.origin).collect();
        let (pending, book) = ((number, floors), seeds.clone());
        let begin = move |record: &mut SeedRecord| {
            record.forgo(forgone);
            record.pending = Some(pending);
        };
        tasks.blocking(move || book.change(begin)).await??;
        match self.write_joined(file, rules, header).await {
            Ok(info) => {
                self.settle().await?;
                tasks
                    .blocking(move || {
                        snapshots.add(info);
                        snapshots.drop_below(number);
                    })
                    .await
            }
            Err(error) => {
                // While the file may be there, the record goes on to name it.
                let given_up = tasks.blocking(move || {
                    snapshots.take_back(number).map_err(|error| cannot_write(&snapshots, error))?;
                    seeds.change(|record| record.pending = None)
                });
                given_up.await??;
                Err(error)
            }
        }
    }

    /// Takes the pending seed over in the record. The snapshot is there, so there is no way back any more.
    async fn settle(&self) -> Result<(), Error> {
        loop {
            let seeds = self.0.seeds.clone();
            match self.0.tasks.blocking(move || seeds.change(SeedRecord::settle)).await? {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!(tree = %self.0.identity.tree, %error, "a seed cannot be completed, tried again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn joined_header(&self, number: u64, theirs: &Theirs, rules: &Rules) -> SnapshotHeader {
        let (header, _reading) = self.snapshot_header(number);
        let mut ranges = rules.ranges.clone();
        for range in &header.ranges {
            range.add_to(&mut ranges);
        }
        SnapshotHeader {
            progress: joined(&header.progress, &theirs.progress, rules.partitions),
            ranges: ranges.iter().map(RangeImage::of).collect(),
            ..header
        }
    }

    async fn write_joined(
        &self,
        file: &Arc<SnapshotFile>,
        rules: &Arc<Rules>,
        header: SnapshotHeader,
    ) -> Result<SnapshotInfo, Error> {
        let tasks = &self.0.tasks;
        let (snapshots, first, chunk) =
            (self.0.snapshots.clone(), header.clone(), self.0.limits.snapshot_chunk_bytes);
        let begun = tasks.blocking(move || snapshots.begin(&first, chunk)).await?;
        let mut writer = begun.map_err(|error| self.failed(error))?;
        let mut join = Join::new(file, &self.interest());
        loop {
            let (applied, rules) = (self.0.applied.clone(), rules.clone());
            let step = tasks.blocking(move || {
                let (pairs, bytes) = join.some(&applied, chunk * CHUNKS_PER_STEP)?;
                pairs.iter().for_each(|pair| add(&mut writer, &rules, pair));
                writer.write()?;
                Ok::<_, SnapshotFault>((writer, join, bytes))
            });
            let (back, rest, bytes) = step.await?.map_err(|fault| self.unkept(fault))?;
            (writer, join) = (back, rest);
            if bytes == 0 {
                break;
            }
            self.rest(bytes).await;
        }
        let applied = self.0.applied.clone();
        let finished = tasks.blocking(move || {
            let (end, superseded) = {
                let state = applied.state.read();
                (state.next_lsn, state.superseded())
            };
            let (footer, bytes) = writer.finish(end, superseded)?;
            Ok(SnapshotInfo::of(&header, &footer, bytes))
        });
        finished.await?.map_err(|error| self.failed(error))
    }

    /// Leaves the disk and the state to the writes for a moment: a seed goes a few times as fast as a snapshot.
    async fn rest(&self, bytes: u64) {
        let pace = self.0.limits.snapshot_bytes_per_second.saturating_mul(FASTER);
        match bytes.saturating_mul(1_000_000).checked_div(pace) {
            Some(micros) => tokio::time::sleep(Duration::from_micros(micros)).await,
            None => tokio::task::yield_now().await,
        }
    }

    fn unkept(&self, fault: SnapshotFault) -> Error {
        match fault {
            SnapshotFault::Io(error) => self.failed(error),
            fault => self.unusable(&fault),
        }
    }

    /// Does in memory what the snapshot holds already.
    async fn join_in_memory(
        &self,
        file: &Arc<SnapshotFile>,
        theirs: &Arc<Theirs>,
        rules: &Arc<Rules>,
    ) -> Result<u64, Error> {
        self.0.seeds.set_joining(true);
        let mut joining = Joining { join: Join::new(file, &self.interest()), changed: 0 };
        loop {
            let (applied, rules) = (self.0.applied.clone(), rules.clone());
            let most = self.0.limits.snapshot_chunk_bytes;
            let step = self.0.tasks.blocking(move || {
                let (pairs, bytes) = joining.join.some(&applied, most)?;
                let mut state = applied.state.write();
                for pair in &pairs {
                    joining.changed += u64::from(state.take_pair(&rules, pair));
                }
                Ok::<_, SnapshotFault>((joining, bytes))
            });
            match step.await? {
                Ok((back, 0)) => {
                    joining = back;
                    break;
                }
                Ok((back, bytes)) => {
                    joining = back;
                    self.rest(bytes).await;
                }
                // There is no way back; what is joined twice is the same.
                Err(fault) => {
                    tracing::warn!(tree = %self.0.identity.tree, %fault, "a seed cannot be read, tried again");
                    tokio::time::sleep(PAUSE).await;
                    joining = Joining { join: Join::new(file, &self.interest()), changed: 0 };
                }
            }
        }
        self.finish_joining(theirs, rules.partitions);
        Ok(joining.changed)
    }

    fn finish_joining(&self, theirs: &Theirs, partitions: u16) {
        {
            let mut state = self.0.applied.state.write();
            theirs.ranges.iter().for_each(|range| state.install_range(range));
            state.progress = joined(&state.progress, &theirs.progress, partitions);
            self.0.seeds.has_joined();
            // In one moment with the marks: who reads the log from before never sees a record from after.
            self.0.seeds.next_epoch();
        }
        self.0.seeds.set_joining(false);
        self.0.applied.moved.modify(|(_, count)| *count += 1);
    }
}

impl State {
    /// Makes of a key what the rules say, given what a seed says of it and what is here now. Says whether that changed
    /// it.
    fn take_pair(&mut self, rules: &Rules, pair: &Pair) -> bool {
        let here = self.find(&pair.key).map(|entry| Stand { version: entry.version, live: entry.is_live() });
        let fresh = match (rules.resolve(&pair.key, here, pair.row.as_ref().map(stand)), &pair.row) {
            (Choice::Row, Some(row)) => {
                Entry::new(&row.key, row.value.as_deref(), row.deadline_ms, row.version, row.lsn)
            }
            (Choice::Grave(version, lsn), _) => Entry::new(&pair.key, None, None, version, lsn),
            _ => return false,
        };
        self.overwrite(fresh);
        true
    }
}

fn add(writer: &mut SnapshotWriter, rules: &Rules, pair: &Pair) {
    let (here, row) = (pair.here.as_ref(), pair.row.as_ref());
    let grave;
    let (value, deadline_ms, version, lsn) =
        match (rules.resolve(&pair.key, here.map(stand), row.map(stand)), here, row) {
            (Choice::Here, Some(image), _) | (Choice::Row, _, Some(image)) => {
                (image.value.as_deref(), image.deadline_ms, image.version, image.lsn)
            }
            (Choice::Grave(version, lsn), ..) => {
                grave = None;
                (grave, None, version, lsn)
            }
            _ => return,
        };
    writer.chunk().push(&EntryView { key: &pair.key, value, version, lsn, deadline_ms });
    writer.settle();
}

/// One reading of the clock, as soon as it can give one.
async fn tick(clock: &HybridClock) -> Result<Hlc, Error> {
    loop {
        clock.ready().await?;
        if let Ok(hlc) = clock.tick() {
            return Ok(hlc);
        }
        tokio::time::sleep(LOOK).await;
    }
}
