//! [`Output`]: a file that lines are appended to, or standard output. All of it blocks, so it runs where blocking work
//! runs; a lock keeps a call that was given up on apart from the next one.

use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidewire_core::disk::{Disk, DiskFile, OpenMode};
use tidewire_core::error::{SinkError, SinkErrorKind};
use tidewire_core::tasks::Tasks;

/// The torn end of a file is looked for in pieces of this many bytes.
const PIECE: usize = 64 * 1024;

struct Open {
    file: Arc<dyn DiskFile>,
    end: u64,
}

enum Target {
    Stdout,
    File { disk: Arc<dyn Disk>, path: PathBuf, open: Mutex<Option<Open>> },
}

/// Where lines go. Cheap to clone.
#[derive(Clone)]
pub(super) struct Output(Arc<Target>);

impl Output {
    pub(super) fn stdout() -> Self {
        Self(Arc::new(Target::Stdout))
    }

    pub(super) fn file(disk: Arc<dyn Disk>, path: PathBuf) -> Self {
        Self(Arc::new(Target::File { disk, path, open: Mutex::default() }))
    }

    /// Opens the file, or creates it, and cuts off a line that a crash left unfinished.
    pub(super) async fn open(&self, tasks: &Tasks) -> Result<(), SinkError> {
        self.run(tasks, Target::open).await
    }

    /// Appends whole lines.
    pub(super) async fn append(&self, tasks: &Tasks, lines: Vec<u8>) -> Result<(), SinkError> {
        self.run(tasks, move |target| target.append(&lines)).await
    }

    /// Makes durable what was appended.
    pub(super) async fn sync(&self, tasks: &Tasks) -> Result<(), SinkError> {
        self.run(tasks, Target::sync).await
    }

    async fn run(
        &self,
        tasks: &Tasks,
        work: impl FnOnce(&Target) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SinkError> {
        let target = self.0.clone();
        let done = tasks.blocking(move || work(&target)).await;
        let failed = |cause: &dyn std::fmt::Display| {
            let said = format!("{} cannot be written: {cause}; check space and rights", self.0.name());
            SinkError::new(SinkErrorKind::Destination, said)
        };
        done.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}

impl Target {
    fn name(&self) -> String {
        match self {
            Self::Stdout => "standard output".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    fn open(&self) -> io::Result<()> {
        let Self::File { disk, path, open } = self else { return Ok(()) };
        let mut open = open.lock();
        let file = if disk.exists(path)? {
            disk.open(path, OpenMode::Write)?
        } else {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            disk.create_dir_all(dir)?;
            let file = disk.open(path, OpenMode::CreateNew)?;
            disk.sync_dir(dir)?;
            file
        };
        let end = end_of_lines(file.as_ref())?;
        file.set_len(end)?;
        *open = Some(Open { file, end });
        Ok(())
    }

    fn append(&self, lines: &[u8]) -> io::Result<()> {
        let Self::File { open, .. } = self else { return io::stdout().lock().write_all(lines) };
        let mut open = open.lock();
        let Open { file, end } = open.as_mut().ok_or(io::ErrorKind::NotFound)?;
        file.write_all_at(&mut [IoSlice::new(lines)], *end)?;
        *end += lines.len() as u64;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Self::File { open, .. } = self else { return io::stdout().lock().flush() };
        let open = open.lock();
        open.as_ref().map_or(Ok(()), |open| open.file.sync_data())
    }
}

/// Where the last whole line of a file ends.
fn end_of_lines(file: &dyn DiskFile) -> io::Result<u64> {
    let mut end = file.len()?;
    let mut piece = vec![0; PIECE];
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        let length = usize::try_from(end - start).expect("a piece is small");
        let read = file.read_at(&mut piece[..length], start)?;
        if let Some(at) = piece[..read].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}
