//! [`RedbMeta`]: metadata in a redb file, behind one thread.

use std::path::Path;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::contract::{MetaChange, MetaStore};
use super::redb_worker::{Opener, RedbWorker, Request, open_file};
use crate::error::{MetaError, MetaErrorKind};
use crate::tasks::panic_text;

/// Most requests that wait for the thread; at the bound callers wait. Each is a few hundred bytes.
const MAX_WAITING: usize = 64;

/// Metadata in a redb file.
///
/// One thread owns the file, so nothing here blocks a runtime; transactions that wait at the same time become durable
/// with one sync. A failure of the disk fails the requests at hand; the file is opened anew for the next ones, so the
/// store works again when the disk does. Dropping the store waits for its thread, at most a few transactions.
pub struct RedbMeta {
    requests: mpsc::Sender<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RedbMeta {
    /// Opens the file, or creates it in its existing directory. Blocks for a few disk operations.
    ///
    /// # Errors
    /// `Corrupt` when it is damaged or no such file, `Io` otherwise, also when another process has it open.
    pub fn open(path: &Path) -> Result<Self, MetaError> {
        let path = path.to_owned();
        Self::start(Box::new(move || open_file(&path)))
    }

    /// Starts the thread once the file could be opened.
    pub(super) fn start(mut open: Opener) -> Result<Self, MetaError> {
        let database = open()?;
        let (requests, inbox) = mpsc::channel(MAX_WAITING);
        let worker = RedbWorker::new(database, open, inbox);
        let thread = std::thread::Builder::new()
            .name("tidewire-meta".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| {
                MetaError::new(MetaErrorKind::Io, "cannot start the metadata thread").with_source(error)
            })?;
        Ok(Self { requests, thread: Mutex::new(Some(thread)) })
    }

    /// Finishes what was asked before, closes the file and ends the thread. Everything asked afterwards fails.
    ///
    /// # Errors
    /// When the thread had panicked.
    pub async fn close(&self) -> Result<(), MetaError> {
        let (done, ended) = oneshot::channel();
        if self.requests.send(Request::Close(done)).await.is_ok() {
            // Answered by dropping the sender, after the file is closed.
            let _ = ended.await;
        }
        self.join()
    }

    fn join(&self) -> Result<(), MetaError> {
        let thread = self.thread.lock().take();
        thread.map_or(Ok(()), |thread| {
            thread.join().map_err(|panic| {
                let said = panic_text(panic.as_ref());
                MetaError::new(MetaErrorKind::Io, format!("the metadata thread panicked: {said}"))
            })
        })
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, MetaError>>) -> Request,
    ) -> Result<T, MetaError> {
        let closed = || MetaError::new(MetaErrorKind::Closed, "the metadata store is closed");
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }
}

impl Drop for RedbMeta {
    fn drop(&mut self) {
        // The thread ends when there is no sender any more: this one goes before the join.
        self.requests = mpsc::channel(1).0;
        if let Err(error) = self.join() {
            tracing::error!(%error, "metadata store dropped");
        }
    }
}

#[async_trait]
impl MetaStore for RedbMeta {
    async fn get(&self, key: &str) -> Result<Option<Bytes>, MetaError> {
        self.ask(|answer| Request::Get(key.to_owned(), answer)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MetaError> {
        self.ask(|answer| Request::List(prefix.to_owned(), answer)).await
    }

    async fn commit(&self, changes: Vec<MetaChange>) -> Result<(), MetaError> {
        self.ask(|answer| Request::Commit(changes, answer)).await
    }
}
