//! The tasks of one cluster: named, owned, joined, and their panics surface.
//!
//! Nothing else spawns. Work that blocks goes through [`Tasks::blocking`], which a simulation runs in place.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind};

/// Where blocking work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// On threads of their own: production.
    Spawn,
    /// In the caller's task, one after the other: simulation.
    Inline,
}

struct Inner {
    stop: CancellationToken,
    running: Mutex<JoinSet<()>>,
    panics: Mutex<Vec<String>>,
    threads: Threads,
}

/// A set of tasks with one stop signal. Cheap to clone.
#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("running", &self.0.running.lock().len()).finish()
    }
}

impl Tasks {
    /// An empty set.
    pub fn new(threads: Threads) -> Self {
        Self(Arc::new(Inner {
            stop: CancellationToken::new(),
            running: Mutex::new(JoinSet::new()),
            panics: Mutex::new(Vec::new()),
            threads,
        }))
    }

    /// Where blocking work runs.
    pub fn threads(&self) -> Threads {
        self.0.threads
    }

    /// The stop signal. A child token stops one part alone.
    pub fn stop_token(&self) -> CancellationToken {
        self.0.stop.clone()
    }

    /// Starts a task. It ends by itself or when it sees the stop signal. A panic is logged and kept in
    /// [`panics`](Self::panics); it ends this task only.
    pub fn spawn(&self, name: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let name = name.into();
        let inner = Arc::downgrade(&self.0);
        let mut running = self.0.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let said = panic_text(panic.as_ref());
                tracing::error!(task = name, panic = said, "task panicked");
                if let Some(inner) = inner.upgrade() {
                    inner.panics.lock().push(format!("{name}: {said}"));
                }
            }
        });
    }

    /// Runs work that blocks, on a thread for such work, or in place under [`Threads::Inline`].
    ///
    /// # Errors
    /// `Unavailable` when the work panicked or the runtime is going down. Dropping the future does not stop the work.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        match self.0.threads {
            Threads::Inline => Ok(work()),
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that hands work to blocking threads"
            )]
            Threads::Spawn => tokio::task::spawn_blocking(work).await.map_err(|error| {
                Error::new(ErrorKind::Unavailable, "background work did not finish").with_source(error)
            }),
        }
    }

    /// Begins work that blocks, and answers at once: for those who go on meanwhile. Under [`Threads::Inline`] it is done
    /// when this returns.
    pub fn begin_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Begun<T> {
        match self.0.threads {
            Threads::Inline => Begun(Progress::Done(Some(work()))),
            #[expect(
                clippy::disallowed_methods,
                reason = "the one place that hands work to blocking threads"
            )]
            Threads::Spawn => Begun(Progress::Running(tokio::task::spawn_blocking(work))),
        }
    }

    /// What panicked so far, as `name: message`.
    pub fn panics(&self) -> Vec<String> {
        self.0.panics.lock().clone()
    }

    /// Signals every task to stop, without waiting.
    pub fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Signals every task to stop and waits until all have ended.
    pub async fn join(&self) {
        self.stop();
        loop {
            let mut running = std::mem::take(&mut *self.0.running.lock());
            if running.is_empty() {
                return;
            }
            while running.join_next().await.is_some() {}
        }
    }

    /// Drops every task where it stands, as a crash would.
    pub fn abort(&self) {
        self.stop();
        self.0.running.lock().abort_all();
    }

    /// Drops every task where it stands and waits until all are gone.
    pub async fn abort_and_join(&self) {
        self.abort();
        self.join().await;
    }
}

enum Progress<T> {
    Done(Option<T>),
    Running(JoinHandle<T>),
}

/// Work that has begun; as a future, its result. Dropping it does not stop the work.
pub struct Begun<T>(Progress<T>);

impl<T> std::fmt::Debug for Begun<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Begun")
    }
}

impl<T> Unpin for Begun<T> {}

impl<T> Future for Begun<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let lost = || Error::new(ErrorKind::Unavailable, "background work did not finish");
        match &mut self.0 {
            Progress::Done(done) => Poll::Ready(done.take().ok_or_else(lost)),
            Progress::Running(handle) => {
                Pin::new(handle).poll(context).map_err(|error| lost().with_source(error))
            }
        }
    }
}

/// The message of a panic, as far as it has one.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_its_own_task_and_surfaces_with_the_name() {
        let tasks = Tasks::new(Threads::Inline);
        let stop = tasks.stop_token();
        tasks.spawn("steady", async move { stop.cancelled().await });
        tasks.spawn("shaky", async { panic!("broken on purpose") });
        tasks.join().await;
        assert_eq!(tasks.panics(), ["shaky: broken on purpose"]);
    }

    #[tokio::test]
    async fn join_waits_for_tasks_that_other_tasks_start() {
        let tasks = Tasks::new(Threads::Inline);
        let done = Arc::new(Mutex::new(false));
        let (inner, flag) = (tasks.clone(), done.clone());
        tasks.spawn("outer", async move {
            inner.clone().spawn("inner", async move {
                tokio::task::yield_now().await;
                *flag.lock() = true;
            });
        });
        tasks.join().await;
        assert!(*done.lock());
    }
}
