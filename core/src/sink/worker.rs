//! [`Worker`]: a pump at work. Reads, hands over, listens to the sink, and waits between runs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::contract::{Sink, SinkContext};
use super::dead_letter::DeadLetter;
use super::fault::Fault;
use super::isolation::{Isolation, Refused};
use super::pump::{OnPoison, Pump, PumpSettings};
use super::pump_handle::{PumpState, PumpStatus};
use super::taken::Taken;
use crate::feed::{Batch, Cursor, FeedError, FeedReader};
use crate::id::Lsn;
use crate::latest::Follower;
use crate::tasks::{Tasks, panic_text};

enum Event {
    Stop,
    Durable(Cursor),
    Batch(Batch),
    Idle,
}

/// What comes after a failed run.
enum Next {
    /// Another one, at once.
    Again,
    /// Another one, after a wait that the fault decides.
    Wait(Fault),
}

/// A pump at work.
pub(super) struct Worker {
    pub(super) pump: Pump,
    tasks: Tasks,
    backoff: Backoff,
    isolation: Option<Isolation>,
    /// What was told since the run began, or since the destination was reached.
    news: Follower<Option<Instant>>,
    /// Where everything that was handed over ends.
    written: Lsn,
    stop: CancellationToken,
    wake: Arc<Notify>,
    status: watch::Sender<PumpStatus>,
}

impl Worker {
    pub(super) fn new(
        pump: Pump,
        tasks: Tasks,
        backoff: Backoff,
        stop: CancellationToken,
        wake: Arc<Notify>,
        status: watch::Sender<PumpStatus>,
    ) -> Self {
        let news = pump.news.follow();
        Self { pump, tasks, backoff, isolation: None, news, written: Lsn::ZERO, stop, wake, status }
    }

    /// Drives a sink until the pump is stopped, through as many runs as it takes.
    pub(super) async fn drive(&mut self, sink: &mut dyn Sink) {
        loop {
            let started = Instant::now();
            self.news = self.pump.news.follow();
            let run = AssertUnwindSafe(self.run(sink)).catch_unwind().await;
            let run = run.unwrap_or_else(|panic| Err(Fault::Panicked(panic_text(panic.as_ref()))));
            self.status.send_modify(|status| (status.buffered, status.waiting_since) = (0, None));
            self.close(sink).await;
            let Err(fault) = run else { break };
            let next = match fault.record().is_some() {
                true => self.isolate(fault).await,
                false => Next::Wait(fault),
            };
            if let Next::Wait(fault) = next {
                self.backoff.reset_after(started.elapsed());
                if !self.pause(&fault).await {
                    break;
                }
            } else if self.stop.is_cancelled() {
                break;
            }
        }
        self.set_state(PumpState::Stopped);
    }

    async fn close(&self, sink: &mut dyn Sink) {
        let consumer = &self.pump.name;
        match AssertUnwindSafe(timeout(self.pump.settings.stop_budget, sink.close())).catch_unwind().await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(consumer, %error, "sink not closed in order"),
            Ok(Err(_)) => tracing::warn!(consumer, "sink not closed in time"),
            Err(_) => tracing::error!(consumer, "sink panicked while it was closed"),
        }
    }

    /// Waits after a failed run; false when the pump is stopped meanwhile.
    async fn pause(&mut self, fault: &Fault) -> bool {
        let passing = fault.is_passing();
        let wait = self.backoff.failed(&self.pump.random);
        let wait = if passing { Some(wait) } else { self.pump.settings.halted_retry };
        let (failures, error) = (self.backoff.failures(), fault.text());
        if self.backoff.complains(Instant::now()) {
            tracing::warn!(consumer = self.pump.name, failures, error, retry_in = ?wait, "not delivering");
        }
        let state = if passing { PumpState::BackingOff } else { PumpState::Halted };
        self.status.send_modify(|status| {
            (status.state, status.failures, status.error) = (state, failures, Some(error));
        });
        let waited = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { biased;
            () = self.stop.cancelled() => false,
            () = self.wake.notified() => true,
            () = self.news.changed(), if passing => true,
            () = waited => true,
        }
    }

    /// A record is to blame: looks for it in smaller pieces, and parks it when it is found, if that is the policy.
    async fn isolate(&mut self, fault: Fault) -> Next {
        let Some(error) = fault.record().cloned() else { return Next::Wait(fault) };
        let durable = self.durable();
        let Some(isolation) = &mut self.isolation else {
            let records = self.written.since(durable.lsn);
            if records == 0 {
                return Next::Wait(fault);
            }
            tracing::info!(consumer = self.pump.name, records, %error, "looking for a record that is not taken");
            self.isolation = Some(Isolation::new(self.written, records));
            return Next::Again;
        };
        match isolation.refused() {
            Refused::Nothing => Next::Wait(fault),
            Refused::Narrowed => Next::Again,
            Refused::Found(lsn) => match self.found(Cursor { lsn, ..durable }, error).await {
                Ok(()) => Next::Again,
                Err(fault) => Next::Wait(fault),
            },
        }
    }

    /// The record that is not taken is this one.
    async fn found(&mut self, at: Cursor, error: crate::error::SinkError) -> Result<(), Fault> {
        let batch = self.pump.log.feed(at).next().await?;
        let changes = self.pump.log.decode(&batch.slice(at.lsn, at.lsn.next()), at.lsn);
        let change = changes.first();
        let dot = change
            .and_then(|change| change.dot)
            .map(|dot| format!("{}/{}/{}", self.pump.log.origin_name(dot.origin), dot.partition, dot.offset));
        let parking = self.pump.settings.on_poison == OnPoison::DeadLetter;
        let named = change.and_then(|change| Some((change, change.dot?)));
        let (true, Some((change, identity)), Some((letters, wall))) = (parking, named, &self.pump.letters)
        else {
            return Err(Fault::Poison { lsn: at.lsn, dot, error });
        };
        let letter = DeadLetter::new(at, (change, identity), error.to_string(), wall.now_millis());
        letters.park(&letter).await.map_err(Fault::Parking)?;
        tracing::warn!(consumer = self.pump.name, lsn = %at.lsn, dot, %error, "record parked");
        if let Some(isolation) = &mut self.isolation {
            isolation.passed(at.lsn);
        }
        Ok(())
    }

    /// Up to where everything is durable: the next run starts here unless the sink knows better.
    fn durable(&self) -> Cursor {
        let beginning = Cursor { incarnation: self.pump.log.identity().incarnation, lsn: Lsn::ZERO };
        let durable = self.pump.checkpoint.unwrap_or(beginning);
        self.pump.letters.as_ref().map_or(durable, |(letters, _)| letters.past_parked(durable))
    }

    /// One run; ready when the pump is stopped.
    async fn run(&mut self, sink: &mut dyn Sink) -> Result<(), Fault> {
        let log = self.pump.log.clone();
        let checkpoint = self.durable();
        if self.pump.checkpoint.is_some_and(|before| before != checkpoint) {
            self.report(checkpoint, true); // what was parked since is passed over
        }
        if self.pump.settings.dormant && !self.owes_rows() && !self.awake(checkpoint).await? {
            return Ok(());
        }
        self.set_state(PumpState::Resuming);
        self.status.send_modify(|status| status.waiting_since = Some(Instant::now()));
        let context = SinkContext {
            log: log.clone(),
            changes: log.clone(),
            checkpoint,
            tasks: self.tasks.clone(),
            random: self.pump.random.clone(),
        };
        let answered = tokio::select! { biased;
            () = self.stop.cancelled() => return Ok(()),
            answered = sink.resume(&context) => answered?,
        };
        // What the sink itself told by then is none to it.
        self.news = self.pump.news.follow();
        let from = answered.unwrap_or(checkpoint);
        if answered.is_some() {
            let progress = self.pump.checkpoint.is_none_or(|before| before.lsn < from.lsn);
            self.report(from, progress);
        }
        self.set_state(PumpState::Running);
        self.status.send_modify(|status| status.waiting_since = None);
        self.written = from.lsn;
        let mut from = from;
        loop {
            // A reading that was begun before the look at the seeds ends with the next one.
            let reader = self.pump.log.feed(from);
            if !self.owes_rows() {
                return self.feed(sink, reader, None).await;
            }
            let Some(after) = self.fill(sink, from).await? else { return Ok(()) };
            from = after;
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Shows what was handed over and waits for an answer.
    pub(super) fn owe(&self, bytes: u64) {
        let since = (bytes > 0).then(Instant::now);
        self.status.send_modify(|status| {
            status.buffered = bytes;
            status.waiting_since = since.and(status.waiting_since).or(since);
        });
    }

    /// Has everything made durable; None when the pump is stopped meanwhile.
    pub(super) async fn synced(&self, sink: &mut dyn Sink) -> Result<Option<Cursor>, Fault> {
        tokio::select! { biased;
            () = self.stop.cancelled() => Ok(None),
            cursor = sink.sync() => Ok(Some(cursor?)),
        }
    }

    /// Waits until the log has something behind a position; false when the pump is stopped meanwhile.
    async fn awake(&self, from: Cursor) -> Result<bool, Fault> {
        if self.pump.log.end() == from {
            self.set_state(PumpState::CaughtUp);
        }
        let mut reader = self.pump.log.feed(from);
        tokio::select! { biased;
            () = self.stop.cancelled() => Ok(false),
            batch = reader.next() => Ok(batch.map(|_| true)?),
        }
    }

    /// Hands over what is read: until the pump is stopped, or up to a position, and then everything is durable.
    pub(super) async fn feed(
        &mut self,
        sink: &mut dyn Sink,
        mut reader: Box<dyn FeedReader>,
        until: Option<Lsn>,
    ) -> Result<(), Fault> {
        let PumpSettings { window_bytes, idle_first, idle_most, .. } = self.pump.settings;
        let mut taken = Taken::new(reader.cursor(), window_bytes);
        let mut pace = idle_first;
        let mut idle_at = Instant::now() + pace;
        loop {
            let event = tokio::select! { biased;
                () = self.stop.cancelled() => Event::Stop,
                cursor = sink.durable() => Event::Durable(cursor?),
                batch = reader.next(), if taken.has_room() => Event::Batch(batch?),
                () = sleep_until(idle_at) => Event::Idle,
            };
            match event {
                Event::Stop => return self.finish(sink, &mut taken).await,
                Event::Durable(cursor) => self.advance(&mut taken, cursor)?,
                Event::Batch(batch) => {
                    self.set_state(PumpState::Running);
                    let batch = until.map_or_else(|| batch.clone(), |until| batch.slice(Lsn::ZERO, until));
                    let ends = until.is_some_and(|until| batch.end().lsn >= until);
                    if !self.take_over(sink, batch, &mut taken).await? {
                        return Ok(());
                    }
                    if ends {
                        let cursor = self.synced(sink).await?;
                        return cursor.map_or(Ok(()), |cursor| self.advance(&mut taken, cursor));
                    }
                    pace = idle_first;
                    idle_at = Instant::now() + pace;
                }
                Event::Idle => {
                    if let Some(batch) = self.idle(reader.as_mut()).await? {
                        self.set_state(PumpState::CaughtUp);
                        if !self.write(sink, batch).await? {
                            return Ok(());
                        }
                        pace = (pace * 2).min(idle_most);
                    }
                    idle_at = Instant::now() + pace;
                }
            }
        }
    }

    async fn idle(&self, reader: &mut dyn FeedReader) -> Result<Option<Batch>, Fault> {
        match reader.idle().await {
            Err(FeedError::Failed(error)) => {
                // No promise can be made now, but what is in the log can still be handed over.
                tracing::debug!(consumer = self.pump.name, %error, "no progress without records");
                Ok(None)
            }
            other => Ok(other?),
        }
    }

    /// Hands a batch over, without what is parked, and in pieces where a record is looked for. False when that was given
    /// up because the pump stops.
    async fn take_over(
        &mut self,
        sink: &mut dyn Sink,
        batch: Batch,
        taken: &mut Taken,
    ) -> Result<bool, Fault> {
        let end = batch.end();
        let parts = match &self.pump.letters {
            Some((letters, _)) => letters.without_parked(batch),
            None => vec![batch],
        };
        for part in parts {
            let mut at = part.start().lsn;
            while let Some(isolation) =
                self.isolation.as_mut().filter(|search| at < search.until().min(part.end().lsn))
            {
                let piece = isolation.piece(&part, at);
                isolation.offer(&piece);
                at = piece.end().lsn;
                if !self.hand_over(sink, piece, taken).await? {
                    return Ok(false);
                }
                let cursor = sink.sync().await?;
                self.advance(taken, cursor)?;
                self.isolation.as_mut().into_iter().for_each(Isolation::taken);
            }
            self.isolation.take_if(|isolation| at >= isolation.until());
            let rest = part.slice(at, part.end().lsn);
            if rest.start().lsn < rest.end().lsn && !self.hand_over(sink, rest, taken).await? {
                return Ok(false);
            }
        }
        taken.take(end, 0, None);
        self.written = end.lsn;
        // What is parked at the end needs no answer of the sink.
        let durable = taken.durable();
        self.advance(taken, durable)?;
        Ok(true)
    }

    async fn hand_over(
        &mut self,
        sink: &mut dyn Sink,
        part: Batch,
        taken: &mut Taken,
    ) -> Result<bool, Fault> {
        let (end, bytes, millis) = (part.end(), part.bytes(), part.first_millis());
        self.written = end.lsn;
        self.status.send_modify(|status| {
            status.buffered = taken.bytes() + bytes;
            status.waiting_since.get_or_insert_with(Instant::now);
        });
        if !self.write(sink, part).await? {
            return Ok(false);
        }
        taken.take(end, bytes, millis);
        self.status.send_modify(|status| status.oldest_ms = taken.oldest_ms());
        Ok(true)
    }

    /// Writes; false when that was given up because the pump stops.
    pub(super) async fn write(&self, sink: &mut dyn Sink, batch: Batch) -> Result<bool, Fault> {
        let mut write = sink.write(batch);
        tokio::select! { biased;
            () = self.stop.cancelled() => {}
            written = &mut write => return Ok(written.map(|()| true)?),
        }
        match timeout(self.pump.settings.stop_budget, write).await {
            Ok(written) => Ok(written.map(|()| true)?),
            Err(_) => Ok(false),
        }
    }

    /// The end of a run by a stop: what was taken over becomes durable if that goes quickly.
    async fn finish(&mut self, sink: &mut dyn Sink, taken: &mut Taken) -> Result<(), Fault> {
        match timeout(self.pump.settings.stop_budget, sink.sync()).await {
            Ok(Ok(cursor)) => self.advance(taken, cursor)?,
            Ok(Err(error)) => {
                tracing::info!(consumer = self.pump.name, %error, "sink not synced at the stop")
            }
            Err(_) => {
                tracing::info!(consumer = self.pump.name, "sink not synced within the budget of the stop")
            }
        }
        Ok(())
    }

    fn advance(&mut self, taken: &mut Taken, cursor: Cursor) -> Result<(), Fault> {
        let mut moved = taken.advance(cursor).ok_or(Fault::Claim(cursor))?;
        if let Some((letters, _)) = &self.pump.letters {
            moved |= taken.advance(letters.past_parked(taken.durable())).unwrap_or_default();
        }
        if moved {
            self.report(taken.durable(), true);
            let waiting = (!taken.is_empty()).then(Instant::now);
            self.status.send_modify(|status| {
                (status.buffered, status.oldest_ms, status.waiting_since) =
                    (taken.bytes(), taken.oldest_ms(), waiting);
            });
        }
        Ok(())
    }

    fn report(&mut self, cursor: Cursor, progress: bool) {
        self.pump.checkpoint = Some(cursor);
        (self.pump.on_durable)(cursor);
        if progress && self.backoff.failures() > 0 {
            tracing::info!(consumer = self.pump.name, failures = self.backoff.failures(), "delivering again");
            self.backoff.reset();
        }
        let failures = self.backoff.failures();
        self.status.send_modify(|status| {
            (status.durable, status.failures) = (Some(cursor), failures);
            if progress {
                status.error = None;
            }
        });
    }

    fn set_state(&self, state: PumpState) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.state, state) != state);
    }
}
