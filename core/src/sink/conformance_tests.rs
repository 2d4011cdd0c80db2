//! The suite on the sink in memory, and on sinks that break the contract on purpose: each fails, by the claim that it
//! breaks.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;

use super::conformance::{Held, SinkRig, conformance};
use super::contract::{Sink, SinkContext};
use super::faulty_sink::SinkFaults;
use super::mem_sink::{MemDestination, MemSink};
use crate::error::SinkError;
use crate::feed::{Batch, Cursor};
use crate::tasks::panic_text;

/// One way to break the contract.
#[derive(Clone, Copy, Debug)]
enum Breach {
    /// Answers with what was taken over, before the destination has it.
    AnswersEarly,
    /// Answers with more than was taken over.
    ClaimsMore,
    /// Answers again and again.
    RepeatsItself,
    /// Says at a sync that all is durable, and keeps the last change for later.
    SyncsHalf,
    /// Forgets what it was about to flush when the wait for it is dropped.
    LosesWhenDropped,
    /// Takes a batch without records for nothing.
    IgnoresProgress,
    /// Turns batches round.
    Reorders,
    /// Leaves deletes out.
    SkipsDeletes,
    /// Goes on in its memory when it is resumed, not where it is told.
    RemembersTheFirstRun,
}

struct Broken(MemSink, Breach);

#[async_trait]
impl Sink for Broken {
    async fn resume(&mut self, ctx: &SinkContext) -> Result<Option<Cursor>, SinkError> {
        let written = self.0.run.as_ref().map(|run| run.written);
        let answer = self.0.resume(ctx).await;
        if let (Breach::RemembersTheFirstRun, Some(written)) = (self.1, written) {
            self.0.run().written = written;
        }
        answer
    }

    async fn write(&mut self, batch: Batch) -> Result<(), SinkError> {
        if matches!(self.1, Breach::IgnoresProgress) && batch.records() == 0 {
            return Ok(());
        }
        let before = self.0.flushing.len();
        let written = self.0.run().written;
        self.0.write(batch).await?;
        match self.1 {
            Breach::Reorders => self.0.flushing[before..].reverse(),
            Breach::SkipsDeletes => self.0.flushing.retain(|change| !change.value.is_empty()),
            Breach::RemembersTheFirstRun => {
                let run = self.0.run();
                run.written.lsn = run.written.lsn.max(written.lsn);
            }
            _ => {}
        }
        Ok(())
    }

    async fn durable(&mut self) -> Result<Cursor, SinkError> {
        match self.1 {
            Breach::AnswersEarly => {
                let run = self.0.run();
                if run.durable == run.written {
                    std::future::pending::<()>().await;
                }
                run.durable = run.written;
                Ok(run.durable)
            }
            Breach::ClaimsMore => {
                let mut cursor = self.0.durable().await?;
                cursor.lsn = cursor.lsn.next();
                Ok(cursor)
            }
            Breach::RepeatsItself => self.0.sync().await,
            Breach::LosesWhenDropped => {
                let flushing = std::mem::take(&mut self.0.flushing);
                let cursor = self.0.durable().await;
                self.0.destination.add(flushing);
                cursor
            }
            _ => self.0.durable().await,
        }
    }

    async fn sync(&mut self) -> Result<Cursor, SinkError> {
        let kept = match self.1 {
            Breach::SyncsHalf => self.0.flushing.pop(),
            _ => None,
        };
        let cursor = self.0.sync().await;
        self.0.flushing.extend(kept);
        cursor
    }

    async fn close(&mut self) -> Result<(), SinkError> {
        self.0.close().await
    }
}

struct Rig(MemDestination, Option<Breach>);

#[async_trait]
impl SinkRig for Rig {
    async fn sink(&self) -> Box<dyn Sink> {
        match self.1 {
            Some(breach) => Box::new(Broken(self.0.sink(), breach)),
            None => Box::new(SinkFaults::new().wrap(self.0.sink())),
        }
    }

    async fn held(&self) -> Vec<Held> {
        self.0.held()
    }
}

async fn run(breach: Option<Breach>) {
    conformance(async || Box::new(Rig(MemDestination::new(), breach)) as Box<dyn SinkRig>).await;
}

#[tokio::test(start_paused = true)]
async fn the_sink_in_memory_keeps_the_contract_also_inside_the_wrapper_for_faults() {
    run(None).await;
}

async fn fails(breach: Breach, claim: &str) {
    let outcome = AssertUnwindSafe(tokio::time::timeout(Duration::from_hours(1), run(Some(breach))))
        .catch_unwind()
        .await;
    let panic = outcome.expect_err("a broken sink passes the suite");
    let said = panic_text(panic.as_ref());
    assert!(said.contains(claim), "{breach:?} fails by another claim: {said}");
}

#[tokio::test(start_paused = true)]
async fn f36_a_sink_that_answers_before_the_destination_has_it_fails() {
    fails(Breach::AnswersEarly, "an answer is never ahead of the destination").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_claims_more_than_it_was_given_fails() {
    fails(Breach::ClaimsMore, "an answer is never ahead of the destination").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_repeats_its_answers_fails() {
    fails(Breach::RepeatsItself, "what was answered once is not answered again").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_whose_sync_leaves_something_behind_fails() {
    fails(Breach::SyncsHalf, "a sync makes everything durable").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_loses_something_when_a_wait_is_dropped_fails() {
    fails(Breach::LosesWhenDropped, "a wait that is dropped loses nothing").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_ignores_progress_without_records_fails() {
    fails(Breach::IgnoresProgress, "progress without records moves the cursor").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_reorders_the_changes_of_a_key_fails() {
    fails(Breach::Reorders, "the changes of a key keep their order").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_leaves_deletes_out_fails() {
    fails(Breach::SkipsDeletes, "is below").await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_goes_on_in_its_own_memory_fails() {
    fails(Breach::RemembersTheFirstRun, "a second run claims nothing of the first").await;
}
