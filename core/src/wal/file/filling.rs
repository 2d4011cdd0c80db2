//! Filling ahead: while a log grows, and has no file to use again, the file of its next segment is written full of zeros
//! beforehand, so that a commit finds room that the disk knows already.
//!
//! Never in the way: it happens in slices beside the commits, each synced, at a bounded rate, and no faster than the
//! log grows. Nobody waits for it. A file that is not ready when it is needed is left for the segment after, or taken
//! as far as it is; a file that cannot be filled is removed, and the log grows its files itself. The file that is being
//! filled belongs to the filler alone: no sync of it can hide the failure of a commit's, and none of its writes can hit
//! a group. Idle logs fill nothing and have no task.
//!
//! In a simulation a slice is filled in place, behind the commit that called for it: the same slices in every run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::segment::SegmentNumber;
use super::segments::Segments;
use super::spare::Spare;
use super::storage::FileStorage;
use super::zeros::write_zeros;
use crate::disk::{DiskFile, OpenMode};
use crate::tasks::Threads;

const ENDING: &str = ".filling";

/// What is known of filling.
#[derive(Default)]
pub(super) struct Filling {
    /// The file that is being filled.
    file: Option<Partial>,
    /// A filler is at work.
    running: bool,
    /// While this segment is being written, nothing is filled any more: it failed.
    given_up: Option<SegmentNumber>,
}

/// Whether somebody has to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Idle,
    Due,
}

/// A file that is filled up to a place.
struct Partial {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    goal: u64,
    /// The next segment when it was begun: its name. Whoever takes a file takes that number first, so no two files
    /// have one name, not even while one is being turned into a segment.
    number: SegmentNumber,
    /// A slice of it is being written.
    busy: bool,
}

/// A slice that is due.
struct Slice {
    from: u64,
    to: u64,
    goal: u64,
    number: SegmentNumber,
    /// None: the file has to be made first.
    file: Option<Arc<dyn DiskFile>>,
}

impl Filling {
    /// Bytes of the file that is being filled.
    pub(super) fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |partial| partial.bytes)
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// Hands over a file that is half full at least, unless it is being written to at this moment.
    pub(super) fn take(&mut self, wanted: u64) -> Option<Spare> {
        let partial = self.file.take_if(|partial| !partial.busy && partial.bytes * 2 >= wanted)?;
        Some(Spare { path: partial.path, file: partial.file, bytes: partial.bytes, former: false })
    }

    /// Whether a file in a log's directory is one that was being filled: of no use after a restart, because what wrote
    /// it may write on.
    pub(super) fn left_behind(name: &str) -> bool {
        name.ends_with(ENDING)
    }
}

impl FileStorage {
    /// The slice that is due now: none until an eighth of the last segment is used, all of them at five eighths.
    fn slice_due(&self, segments: &Segments) -> Option<Slice> {
        let last = segments.list.last()?;
        let filling = &segments.filling;
        let step = self.limits.fill_slice_bytes as u64;
        if step == 0 || !segments.spares.is_empty() || filling.given_up == Some(last.header.number) {
            return None;
        }
        let (size, next) = (self.segment_bytes(last.header.number), self.segment_bytes(segments.next_number));
        let share = last.bytes().saturating_sub(size / 8).saturating_mul(2).min(size);
        let wanted = u64::try_from(u128::from(next) * u128::from(share) / u128::from(size.max(1))).ok()?;
        let (from, goal, number, file) = match &filling.file {
            Some(partial) => (partial.bytes, partial.goal, partial.number, Some(partial.file.clone())),
            None => (0, next, segments.next_number, None),
        };
        let to = goal.min(from + step);
        (from < to && to <= wanted).then_some(Slice { from, to, goal, number, file })
    }

    /// Takes note that a slice is due, if nobody is at work on it yet.
    pub(super) fn wants_filling(&self, segments: &mut Segments) -> Fill {
        if segments.filling.running || self.slice_due(segments).is_none() {
            return Fill::Idle;
        }
        segments.filling.running = true;
        Fill::Due
    }

    /// Has everything filled that is due, beside the caller.
    pub(super) fn fill_ahead(&self) {
        if self.tasks.threads() == Threads::Inline {
            self.fill_slice();
            self.segments.write().filling.running = false;
            return;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            // Without a runtime there is nowhere else to do it.
            return;
        }
        let (this, tasks) = (self.this.clone(), self.tasks.clone());
        let pause = self.limits.fill_slice_bytes as f64 / self.limits.fill_bytes_per_second.max(1) as f64;
        self.tasks.spawn("fill ahead", async move {
            while let Some(storage) = this.upgrade() {
                match tasks.blocking(move || storage.fill_slice()).await {
                    Ok(true) => tokio::time::sleep(Duration::from_secs_f64(pause)).await,
                    _ => return,
                }
            }
        });
    }

    /// Fills one slice, if one is due. If not, the filler is done.
    pub(super) fn fill_slice(&self) -> bool {
        let slice = {
            let mut segments = self.segments.write();
            let due = self.slice_due(&segments);
            if let Some(partial) = &mut segments.filling.file {
                partial.busy = due.is_some();
            }
            segments.filling.running = due.is_some();
            due
        };
        let Some(slice) = slice else { return false };
        if let Err(error) = self.fill(&slice) {
            tracing::info!(dir = %self.dir.display(), %error, "nothing is filled ahead; the log grows its files itself");
            self.give_up_filling();
        }
        true
    }

    fn fill(&self, slice: &Slice) -> io::Result<()> {
        let room = self.disk.available(&self.dir)?;
        if room.is_some_and(|room| room < slice.to - slice.from + self.limits.segment_bytes_max) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let file = match &slice.file {
            Some(file) => file.clone(),
            None => self.begin_filling(slice)?,
        };
        write_zeros(file.as_ref(), slice.from, slice.to)?;
        file.sync_data()?;
        let path = filling_path(&self.dir, slice.number);
        let full = (slice.to == slice.goal).then(|| Spare::filled_path(&self.dir, slice.number));
        if let Some(spare) = &full {
            self.disk.rename(&path, spare)?;
        }
        let mut segments = self.segments.write();
        match full {
            Some(path) => {
                segments.filling.file = None;
                segments.spares.push(Spare { path, file, bytes: slice.to, former: false });
            }
            None => {
                if let Some(partial) = &mut segments.filling.file {
                    partial.bytes = slice.to;
                    partial.busy = false;
                }
            }
        }
        Ok(())
    }

    fn begin_filling(&self, slice: &Slice) -> io::Result<Arc<dyn DiskFile>> {
        let path = filling_path(&self.dir, slice.number);
        let file = self.disk.open(&path, OpenMode::CreateNew)?;
        let (goal, number) = (slice.goal, slice.number);
        let partial = Partial { path, file: file.clone(), bytes: 0, goal, number, busy: true };
        self.segments.write().filling.file = Some(partial);
        Ok(file)
    }

    /// Removes the file that could not be filled: what room it took is of more use elsewhere.
    fn give_up_filling(&self) {
        let gone = {
            let mut segments = self.segments.write();
            segments.filling.given_up = segments.list.last().map(|last| last.header.number);
            segments.filling.file.take()
        };
        let Some(partial) = gone else { return };
        if self.disk.remove(&partial.path).is_err() {
            self.segments.write().dead.push((partial.path, partial.bytes));
        }
    }
}

fn filling_path(dir: &Path, number: SegmentNumber) -> PathBuf {
    dir.join(format!("{:020}{ENDING}", number.0))
}
