//! [`RedbWorker`]: the thread that owns the redb file.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, Table, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::contract::MetaChange;
use crate::disk::{Disk, RealDisk};
use crate::error::{MetaError, MetaErrorKind};

const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// Memory for pages of the file; all of it fits a few times over.
const CACHE_BYTES: usize = 4 * 1024 * 1024;
/// Most requests that are served together, so that the first does not wait for ever longer rounds.
const MAX_ROUND: usize = 64;

/// Opens the file, at the start and after each failure.
pub(super) type Opener = Box<dyn FnMut() -> Result<Database, MetaError> + Send>;

type Answer<T> = oneshot::Sender<Result<T, MetaError>>;

/// What is asked of the thread.
pub(super) enum Request {
    Get(String, Answer<Option<Bytes>>),
    List(String, Answer<Vec<(String, Bytes)>>),
    Commit(Vec<MetaChange>, Answer<()>),
    /// Dropped when the file is closed.
    Close(oneshot::Sender<()>),
}

/// The owner of the file. A database that failed is given up, because redb refuses to go on with it.
pub(super) struct RedbWorker {
    database: Option<Database>,
    open: Opener,
    inbox: mpsc::Receiver<Request>,
}

impl RedbWorker {
    pub(super) fn new(database: Database, open: Opener, inbox: mpsc::Receiver<Request>) -> Self {
        Self { database: Some(database), open, inbox }
    }

    /// Serves until it is told to close or nobody can ask any more.
    pub(super) fn run(mut self) {
        let mut closing = Vec::new();
        while let Some(first) = self.inbox.blocking_recv() {
            let mut round = vec![first];
            while round.len() < MAX_ROUND
                && let Ok(next) = self.inbox.try_recv()
            {
                round.push(next);
            }
            let mut commits = Vec::new();
            for request in round {
                // Reads of this round began before its transactions returned, so they need not see them. An answer
                // that nobody waits for any more is dropped.
                match request {
                    Request::Get(key, answer) => drop(answer.send(self.attempt(|db| get(db, &key)))),
                    Request::List(prefix, answer) => drop(answer.send(self.attempt(|db| list(db, &prefix)))),
                    Request::Commit(changes, answer) => commits.push((changes, answer)),
                    Request::Close(done) => {
                        self.inbox.close();
                        closing.push(done);
                    }
                }
            }
            self.commit(commits);
        }
        drop(self);
        drop(closing);
    }

    fn commit(&mut self, commits: Vec<(Vec<MetaChange>, Answer<()>)>) {
        if commits.is_empty() {
            return;
        }
        let (changes, answers): (Vec<_>, Vec<_>) = commits.into_iter().unzip();
        match self.attempt(|db| transact(db, &changes)) {
            Ok(outcomes) => {
                for (outcome, answer) in outcomes.into_iter().zip(answers) {
                    let _ = answer.send(outcome);
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }

    /// Runs an operation on the open file; after a failure the next one opens it anew.
    fn attempt<T>(&mut self, run: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, MetaError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => (self.open)()?,
        };
        match run(&database) {
            Ok(done) => {
                self.database = Some(database);
                Ok(done)
            }
            Err(error) => {
                let error = failed("the metadata file failed", error);
                tracing::warn!(%error, "metadata failed");
                Err(error)
            }
        }
    }
}

/// Opens a file, or creates it. redb cannot open what it was killed in the middle of creating, so a new file gets its
/// name when it is complete.
pub(super) fn open_file(path: &Path) -> Result<Database, MetaError> {
    let disk_failed = |error| MetaError::new(MetaErrorKind::Io, "cannot open metadata").with_source(error);
    let text = || format!("cannot open metadata {}", path.display());
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    if !RealDisk.exists(path).map_err(disk_failed)? {
        let mut name = OsString::from(path);
        name.push(".new");
        let incomplete = Path::new(&name);
        if RealDisk.exists(incomplete).map_err(disk_failed)? {
            RealDisk.remove(incomplete).map_err(disk_failed)?;
        }
        let database = builder.create(incomplete).map_err(|error| failed(text(), error))?;
        create_table(&database).map_err(|error| failed(text(), error))?;
        drop(database);
        RealDisk.rename(incomplete, path).map_err(disk_failed)?;
        RealDisk.sync_dir(path.parent().unwrap_or(Path::new(""))).map_err(disk_failed)?;
    }
    builder.open(path).map_err(|error| advise(failed(text(), error)))
}

/// A file that is there and cannot be read is not made anew: what it knew is not known anywhere else.
fn advise(error: MetaError) -> MetaError {
    match error.kind() {
        MetaErrorKind::Corrupt => MetaError::new(
            MetaErrorKind::Corrupt,
            "the metadata is damaged; put the data directory back whole from a copy",
        )
        .with_source(error),
        _ => error,
    }
}

/// Makes a new file ready for requests.
pub(super) fn create_table(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(ENTRIES)?;
    Ok(transaction.commit()?)
}

fn get(database: &Database, key: &str) -> Result<Option<Bytes>, redb::Error> {
    let table = database.begin_read()?.open_table(ENTRIES)?;
    Ok(table.get(key)?.map(|value| Bytes::copy_from_slice(value.value())))
}

fn list(database: &Database, prefix: &str) -> Result<Vec<(String, Bytes)>, redb::Error> {
    let table = database.begin_read()?.open_table(ENTRIES)?;
    let mut found = Vec::new();
    for entry in table.range(prefix..)? {
        let (key, value) = entry?;
        if !key.value().starts_with(prefix) {
            break;
        }
        found.push((key.value().to_owned(), Bytes::copy_from_slice(value.value())));
    }
    Ok(found)
}

/// Several transactions, one after the other, in one of redb's. Those whose expectations fail leave nothing.
fn transact(
    database: &Database,
    commits: &[Vec<MetaChange>],
) -> Result<Vec<Result<(), MetaError>>, redb::Error> {
    let transaction = database.begin_write()?;
    let outcomes = {
        let mut table = transaction.open_table(ENTRIES)?;
        commits.iter().map(|changes| apply(&mut table, changes)).collect::<Result<Vec<_>, _>>()?
    };
    if outcomes.iter().any(Result::is_ok) {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(outcomes)
}

fn apply(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    changes: &[MetaChange],
) -> Result<Result<(), MetaError>, redb::Error> {
    for change in changes {
        if let MetaChange::Expect { key, value } = change {
            let found = table.get(key.as_str())?;
            if found.as_ref().map(|found| found.value()) != value.as_deref() {
                return Ok(Err(MetaError::new(MetaErrorKind::Conflict, format!("{key} has changed"))));
            }
        }
    }
    for change in changes {
        match change {
            MetaChange::Put { key, value } => drop(table.insert(key.as_str(), value.as_ref())?),
            MetaChange::Delete { key } => drop(table.remove(key.as_str())?),
            MetaChange::Expect { .. } => {}
        }
    }
    Ok(Ok(()))
}

fn failed(context: impl Into<String>, error: impl Into<redb::Error>) -> MetaError {
    let error = error.into();
    let kind = match &error {
        redb::Error::Corrupted(_) => MetaErrorKind::Corrupt,
        redb::Error::Io(io) if io.kind() == ErrorKind::InvalidData => MetaErrorKind::Corrupt,
        _ => MetaErrorKind::Io,
    };
    MetaError::new(kind, context).with_source(error)
}
