//! One direction of a link in memory: frames on their way, each with the time at which it is due.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::network::{MemNetwork, SILENCE};
use crate::error::{LinkError, LinkErrorKind};
use crate::id::ClusterId;
use crate::random::Random;
use crate::transport::link::{LinkReceiver, LinkSender};
use crate::transport::wire::Frame;

/// How a direction ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// In order: what was sent arrives, then the end.
    Closed,
    /// The sending half was dropped: what was sent arrives, then an error.
    Abandoned,
    /// At once: what was on the way is lost.
    Broken(LinkError),
}

#[derive(Default)]
struct Flow {
    frames: VecDeque<(Instant, usize, Frame)>,
    bytes: usize,
    end: Option<End>,
}

pub(super) struct Pipe {
    pub(super) from: ClusterId,
    pub(super) to: ClusterId,
    window: usize,
    random: Random,
    flow: Mutex<Flow>,
    readable: Notify,
    writable: Notify,
}

impl Pipe {
    pub(super) fn new(from: ClusterId, to: ClusterId, window: usize, random: Random) -> Self {
        let (flow, readable, writable) = Default::default();
        Self { from, to, window, random, flow, readable, writable }
    }

    pub(super) fn joins(&self, a: &ClusterId, b: &ClusterId) -> bool {
        (&self.from, &self.to) == (a, b) || (&self.from, &self.to) == (b, a)
    }

    pub(super) fn touches(&self, cluster: &ClusterId) -> bool {
        &self.from == cluster || &self.to == cluster
    }

    pub(super) fn is_open(&self) -> bool {
        self.flow.lock().end.is_none()
    }

    pub(super) fn wake(&self) {
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Ends this direction. The first end counts, but a break also overtakes an orderly end that is still on its way.
    pub(super) fn end(&self, end: End) {
        {
            let mut flow = self.flow.lock();
            if matches!(end, End::Broken(_)) && !matches!(flow.end, Some(End::Broken(_))) {
                flow.frames.clear();
                flow.bytes = 0;
                flow.end = Some(end);
            } else if flow.end.is_none() {
                flow.end = Some(end);
            }
        }
        self.wake();
    }
}

/// When both ends give up on a link that a cut silenced, if one does.
fn silenced_at(network: &MemNetwork, pipe: &Pipe) -> Option<Instant> {
    let since = |from, to| network.wire(from, to).cut_since;
    let cut = [since(&pipe.from, &pipe.to), since(&pipe.to, &pipe.from)].into_iter().flatten().min();
    cut.map(|cut| cut + SILENCE)
}

/// What both halves of a link have: the network, their own direction, and the other one, which breaks with it.
struct Half {
    network: MemNetwork,
    pipe: Arc<Pipe>,
    other: Arc<Pipe>,
}

impl Half {
    fn break_both(&self, error: &LinkError) {
        self.pipe.end(End::Broken(error.clone()));
        self.other.end(End::Broken(error.clone()));
    }

    /// Breaks a direction that is still open, because one of its ends was dropped. One that was closed delivers its rest.
    fn abandon(&self, pipe: &Pipe) {
        if pipe.is_open() {
            let why =
                format!("the link between {} and {} was dropped without being closed", pipe.from, pipe.to);
            pipe.end(End::Broken(LinkError::new(LinkErrorKind::Unreachable, why)));
        }
    }

    /// Breaks the link if a cut has silenced it for too long; otherwise says when that would be.
    fn check_silence(&self) -> Option<Instant> {
        let deadline = silenced_at(&self.network, &self.pipe)?;
        if deadline <= Instant::now() {
            let why =
                format!("nothing heard between {} and {} for {SILENCE:?}", self.pipe.from, self.pipe.to);
            self.break_both(&LinkError::new(LinkErrorKind::Unreachable, why));
            return None;
        }
        Some(deadline)
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(super) struct PipeSender(Half);

impl PipeSender {
    pub(super) fn new(network: MemNetwork, pipe: Arc<Pipe>, other: Arc<Pipe>) -> Self {
        Self(Half { network, pipe, other })
    }

    /// Puts the frame on its way, or gives it back if there is no room.
    fn offer(&self, frame: Frame) -> Result<Option<Frame>, LinkError> {
        let pipe = &*self.0.pipe;
        let wire = self.0.network.wire(&pipe.from, &pipe.to);
        let size = frame.encoded_len();
        {
            let mut flow = pipe.flow.lock();
            match &flow.end {
                Some(End::Broken(error)) => return Err(error.clone()),
                Some(_) => {
                    return Err(LinkError::new(LinkErrorKind::Closed, "this side has closed the link"));
                }
                None => {}
            }
            if flow.bytes > 0 && flow.bytes + size > pipe.window {
                return Ok(Some(frame));
            }
            if !pipe.random.chance(wire.break_chance) {
                let due = Instant::now() + wire.draw_delay(&pipe.random);
                let due = flow.frames.back().map_or(due, |(last, ..)| due.max(*last));
                let overtakes = pipe.random.chance(wire.reorder_chance);
                let place = flow.frames.len().saturating_sub(usize::from(overtakes));
                let copies = 1 + usize::from(pipe.random.chance(wire.repeat_chance));
                for _ in 0..copies {
                    flow.frames.insert(place, (due, size, frame.clone()));
                    flow.bytes += size;
                }
                pipe.readable.notify_one();
                return Ok(None);
            }
        }
        self.0.break_both(&LinkError::new(LinkErrorKind::Unreachable, "the connection was reset"));
        Ok(None)
    }
}

#[async_trait]
impl LinkSender for PipeSender {
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError> {
        let mut frame = frame;
        loop {
            let deadline = self.0.check_silence();
            match self.offer(frame)? {
                None => return Ok(()),
                Some(back) => frame = back,
            }
            tokio::select! { biased;
                () = self.0.pipe.writable.notified() => {}
                () = until(deadline) => {}
            }
        }
    }

    async fn close(&mut self) {
        self.0.pipe.end(End::Closed);
    }
}

impl Drop for PipeSender {
    fn drop(&mut self) {
        if self.0.pipe.is_open() {
            self.0.pipe.end(End::Abandoned);
            self.0.abandon(&self.0.other);
        }
    }
}

pub(super) struct PipeReceiver(Half);

impl PipeReceiver {
    pub(super) fn new(network: MemNetwork, pipe: Arc<Pipe>, other: Arc<Pipe>) -> Self {
        Self(Half { network, pipe, other })
    }

    /// A frame that has arrived, or the end, or the time at which to look again.
    fn poll(&self) -> Result<Result<Option<Frame>, Option<Instant>>, LinkError> {
        let pipe = &*self.0.pipe;
        let cut = self.0.network.wire(&pipe.from, &pipe.to).cut_since.is_some();
        let mut flow = pipe.flow.lock();
        if let Some(End::Broken(error)) = &flow.end {
            return Err(error.clone());
        }
        let due = flow.frames.front().map(|(due, ..)| *due);
        match (due, &flow.end) {
            _ if cut => Ok(Err(None)),
            (Some(due), _) if due > Instant::now() => Ok(Err(Some(due))),
            (None, Some(End::Abandoned)) => {
                let why = format!("{} went away without closing the link", pipe.from);
                Err(LinkError::new(LinkErrorKind::Unreachable, why))
            }
            (None, Some(_)) => Ok(Ok(None)),
            (None, None) => Ok(Err(None)),
            (Some(_), _) => {
                let (_, size, frame) = flow.frames.pop_front().expect("a frame is due, so there is one");
                flow.bytes -= size;
                pipe.writable.notify_one();
                Ok(Ok(Some(frame)))
            }
        }
    }
}

#[async_trait]
impl LinkReceiver for PipeReceiver {
    async fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        loop {
            let silence = self.0.check_silence();
            let due = match self.poll()? {
                Ok(frame) => return Ok(frame),
                Err(due) => due,
            };
            let look_again = [due, silence].into_iter().flatten().min();
            tokio::select! { biased;
                () = self.0.pipe.readable.notified() => {}
                () = until(look_again) => {}
            }
        }
    }
}

impl Drop for PipeReceiver {
    fn drop(&mut self) {
        self.0.abandon(&self.0.pipe);
        self.0.abandon(&self.0.other);
    }
}
