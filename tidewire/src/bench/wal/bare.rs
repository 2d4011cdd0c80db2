//! The bare loop: what a durable write costs when nothing else is done. Tasks write, one thread takes what is pending (a
//! short wait for company that was there last time): one write into a written-over file, one sync, one wake.

use std::io::{self, IoSlice};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidewire_core::disk::DiskFile;
use tidewire_core::tasks::Tasks;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The file is written over from its beginning when so many bytes are written.
pub(crate) const FILE_BYTES: usize = 64 << 20;
const LINGER: Duration = Duration::from_micros(50);

#[derive(Default)]
struct Batch(OnceLock<Result<(), io::ErrorKind>>, Notify);
#[derive(Default)]
struct Pending(Vec<u8>, usize, Arc<Batch>);
#[derive(Default)]
struct Shared(Mutex<Pending>, Condvar);

/// The writing end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bare(Arc<Shared>);

impl Bare {
    /// Starts the thread, on a file of [`FILE_BYTES`] that were written before. It ends when its last writer has gone.
    pub(crate) fn start(tasks: &Tasks, file: Arc<dyn DiskFile>) -> Self {
        let (bare, work) = (Self(Arc::default()), tasks.clone());
        let shared = bare.0.clone();
        tasks.spawn("bare loop", async move {
            let _ended = work.blocking(move || commit(&shared, file.as_ref())).await;
        });
        bare
    }

    /// Writes a value so many times, as one unit. Returns when it is durable.
    pub(crate) async fn append(&self, value: &[u8], count: usize) -> io::Result<()> {
        let (batch, first) = {
            let mut pending = self.0.0.lock();
            (0..count).for_each(|_| pending.0.extend_from_slice(value));
            pending.1 += count;
            (pending.2.clone(), pending.1 == count)
        };
        if first {
            self.0.1.notify_one();
        }
        let woken = batch.1.notified();
        if batch.0.get().is_none() {
            woken.await;
        }
        batch.0.get().copied().unwrap_or(Err(io::ErrorKind::BrokenPipe)).map_err(io::Error::from)
    }
}

fn commit(shared: &Arc<Shared>, file: &dyn DiskFile) {
    let (mut at, mut company, mut buffer) = (0, 0, Vec::new());
    loop {
        shared.1.wait_while_for(&mut shared.0.lock(), |pending| pending.1 == 0, Duration::from_secs(1));
        if Arc::strong_count(shared) == 1 {
            return;
        }
        let began = Instant::now();
        while company > 1 && shared.0.lock().1 < company && began.elapsed() < LINGER {
            std::thread::yield_now();
        }
        let taken = std::mem::replace(&mut *shared.0.lock(), Pending(buffer, 0, Arc::default()));
        at = if at + taken.0.len() > FILE_BYTES { 0 } else { at };
        let written =
            file.write_all_at(&mut [IoSlice::new(&taken.0)], at as u64).and_then(|()| file.sync_data());
        (at, company, buffer) = (at + taken.0.len(), taken.1, taken.0);
        buffer.clear();
        let _ = taken.2.0.set(written.map_err(|error| error.kind()));
        taken.2.1.notify_waiters();
    }
}
