//! [`CommitRunner`]: where committing happens. A thread that may block in production, a task in simulation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::random::Random;
use crate::tasks::{Tasks, Threads};

/// How long a committer that has nothing to do stays: a log that is written to now and then finds it awake, and an idle
/// one has no thread.
const STAY: Duration = Duration::from_millis(200);

/// Something with groups to commit.
pub(super) trait CommitJob: Send + Sync + 'static {
    /// Commits one after the other until nothing is pending. May block the thread.
    fn drive(&self, linger: bool);
}

/// Runs committers. Idle trees have none.
///
/// A caller may commit in its own thread, but never so many at once that no thread of the runtime would be left: a disk
/// that hangs must not stop the timers that give up on it.
#[derive(Clone, Debug)]
pub struct CommitRunner {
    tasks: Tasks,
    /// In simulation: how long a write takes at most.
    latency: Duration,
    random: Random,
    /// How many threads of callers may be lent at once, and how many are.
    lendable: usize,
    lent: Arc<AtomicUsize>,
    crew: Arc<Crew>,
}

/// A caller's thread, while it commits.
pub(super) struct Lent(Arc<AtomicUsize>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl CommitRunner {
    /// A runner on the threads of `tasks`. Call it within the runtime that the writers run on.
    pub fn new(tasks: Tasks) -> Self {
        let workers = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_workers());
        let lendable = workers.saturating_sub(1);
        Self { lendable, ..Self::simulated(tasks, Duration::ZERO, Random::from_seed(0)) }
    }

    /// A runner for simulation, in which a write takes up to `latency` of virtual time.
    pub fn simulated(tasks: Tasks, latency: Duration, random: Random) -> Self {
        Self { tasks, latency, random, lendable: 0, lent: Arc::default(), crew: Arc::default() }
    }

    /// As on a runtime with one worker more than so many.
    #[cfg(test)]
    pub(super) fn lending(self, threads: usize) -> Self {
        Self { lendable: threads, ..self }
    }

    /// Whether a caller's thread may be used at all.
    pub(super) fn lends_threads(&self) -> bool {
        self.lendable > 0 && self.tasks.threads() == Threads::Spawn
    }

    /// The caller's thread, if it may be used now.
    pub(super) fn lend_thread(&self) -> Option<Lent> {
        if !self.lends_threads() {
            return None;
        }
        let lent = Lent(self.lent.clone());
        let others = self.lent.fetch_add(1, Ordering::AcqRel);
        (others < self.lendable).then_some(lent)
    }

    /// Runs a job soon.
    pub(super) fn submit(&self, job: Arc<dyn CommitJob>) {
        match self.tasks.threads() {
            Threads::Spawn => {
                if !self.crew.push(job) {
                    self.send_for_committer();
                }
            }
            Threads::Inline => {
                let latency = self.latency.mul_f64(self.random.below(1_000) as f64 / 1_000.0);
                self.tasks.spawn("commit", async move {
                    tokio::time::sleep(latency).await;
                    job.drive(false);
                });
            }
        }
    }

    fn send_for_committer(&self) {
        let (tasks, crew, stop) = (self.tasks.clone(), self.crew.clone(), self.tasks.stop_token());
        self.tasks.spawn("commit", async move {
            let serving = crew.clone();
            let work = tasks.blocking(move || serving.serve());
            tokio::pin!(work);
            let ended = tokio::select! {
                biased;
                ended = &mut work => ended,
                () = stop.cancelled() => {
                    crew.close();
                    work.await
                }
            };
            if let Err(error) = ended {
                tracing::error!(%error, "a committer ended");
            }
        });
    }
}

/// Where jobs wait for committers, and committers for jobs.
#[derive(Default)]
struct Crew {
    waiting: Mutex<Waiting>,
    called: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Arc<dyn CommitJob>>,
    committers: usize,
    /// Nobody stays any more.
    closed: bool,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew").field("committers", &self.waiting.lock().committers).finish_non_exhaustive()
    }
}

impl Crew {
    /// Leaves a job. False: no committer waits for it, one has to be sent for.
    fn push(&self, job: Arc<dyn CommitJob>) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.jobs.push_back(job);
        let taken = waiting.jobs.len() <= waiting.committers;
        drop(waiting);
        if taken {
            self.called.notify_one();
        }
        taken
    }

    /// Does jobs until there has been none for a while.
    fn serve(&self) {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                drop(waiting);
                job.drive(true);
                drop(job);
                waiting = self.waiting.lock();
            } else if waiting.closed {
                return;
            } else {
                waiting.committers += 1;
                let late = self.called.wait_for(&mut waiting, STAY).timed_out();
                waiting.committers -= 1;
                if late && waiting.jobs.is_empty() {
                    return;
                }
            }
        }
    }

    /// Sends home whoever waits.
    fn close(&self) {
        self.waiting.lock().closed = true;
        self.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread::ThreadId;

    use super::*;

    /// Says which thread did it.
    struct Job(SyncSender<ThreadId>);

    impl CommitJob for Job {
        fn drive(&self, linger: bool) {
            assert!(linger, "whoever has a thread of its own may wait on it");
            self.0.send(std::thread::current().id()).expect("the test waits");
        }
    }

    fn job() -> (Arc<Job>, Receiver<ThreadId>) {
        let (done, does) = sync_channel(1);
        (Arc::new(Job(done)), does)
    }

    #[expect(clippy::disallowed_methods, reason = "the test joins it")]
    fn committer(crew: &Arc<Crew>) -> std::thread::JoinHandle<()> {
        let crew = crew.clone();
        std::thread::spawn(move || crew.serve())
    }

    /// Until so many wait for jobs.
    fn waits(crew: &Crew, committers: usize) {
        while crew.waiting.lock().committers != committers {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_committer_is_sent_for_where_more_jobs_wait_than_committers() {
        let crew = Crew::default();
        assert!(!crew.push(job().0), "nobody is there");
        crew.waiting.lock().jobs.clear();
        crew.waiting.lock().committers = 2;
        assert!(crew.push(job().0) && crew.push(job().0), "each has one");
        assert!(!crew.push(job().0), "two cannot do three");
    }

    #[test]
    fn a_committer_that_has_nothing_to_do_stays_for_a_moment_and_takes_the_next_job() {
        let crew = Arc::new(Crew::default());
        let (first, did) = job();
        assert!(!crew.push(first));
        let serving = committer(&crew);
        let thread = did.recv_timeout(STAY * 50).expect("done");
        waits(&crew, 1);
        let (second, did) = job();
        assert!(crew.push(second), "it stays");
        assert_eq!(did.recv_timeout(STAY * 50), Ok(thread));
        serving.join().expect("ends when there has been nothing to do");
        assert_eq!(crew.waiting.lock().committers, 0, "nobody counts on it any more");
        assert!(!crew.push(job().0));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the committer is a thread that waits in real time")]
    fn a_job_that_comes_as_a_committer_is_about_to_leave_is_done() {
        let crew = Arc::new(Crew::default());
        let serving = committer(&crew);
        waits(&crew, 1);
        let (last, did) = job();
        let mut waiting = crew.waiting.lock();
        // It has waited long enough, and finds that others are at the jobs.
        std::thread::sleep(STAY * 2);
        waiting.jobs.push_back(last);
        drop(waiting);
        did.recv_timeout(STAY * 50).expect("whoever left it counted on the committer");
        serving.join().expect("ends");
    }

    #[test]
    fn whoever_waits_for_jobs_goes_home_when_the_crew_is_closed() {
        let crew = Arc::new(Crew::default());
        let serving = committer(&crew);
        waits(&crew, 1);
        let (left, did) = job();
        assert!(crew.push(left));
        crew.close();
        serving.join().expect("ends");
        assert!(did.try_recv().is_ok(), "what was left is done first");
    }
}
