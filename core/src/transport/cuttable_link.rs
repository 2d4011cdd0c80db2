//! The two halves of a link under the switches of a [`CuttableTransport`](super::CuttableTransport).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::cuttable::Faults;
use super::link::{Link, LinkReceiver, LinkSender};
use super::wire::{Frame, frame::Body};
use crate::error::{LinkError, LinkErrorKind};
use crate::id::ClusterId;

/// Bytes that a delay may hold back in one link; at the bound the inner link is not read, and pushes back.
const HELD_BYTES: usize = 16 * 1024 * 1024;

/// Knows the peer of a link, once it is known, and whether its link still stands.
#[derive(Clone)]
pub(super) struct Switch {
    faults: watch::Receiver<Faults>,
    /// The peer, and how often it had been cut when the link was opened.
    peer: Arc<OnceLock<(ClusterId, u64)>>,
}

impl Switch {
    pub(super) fn new(faults: watch::Receiver<Faults>) -> Self {
        Self { faults, peer: Arc::default() }
    }

    /// Names the peer. From here on its cuts break the link.
    pub(super) fn join(&self, peer: &ClusterId) -> Result<(), LinkError> {
        let cuts = self.faults.borrow().get(peer).map_or(0, |fault| fault.cuts);
        // The first name stands: a later Hello on the same link is the session's to refuse.
        let _ = self.peer.set((peer.clone(), cuts));
        self.check()
    }

    /// Fails if the peer is cut off, or was since the link was opened.
    fn check(&self) -> Result<(), LinkError> {
        let Some((peer, cuts)) = self.peer.get() else { return Ok(()) };
        match self.faults.borrow().get(peer) {
            Some(fault) if fault.cut || fault.cuts != *cuts => {
                Err(LinkError::new(LinkErrorKind::Unreachable, format!("the link with {peer} was cut")))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the link is broken. Cancel-safe.
    pub(super) async fn broken(&mut self) -> LinkError {
        loop {
            self.faults.borrow_and_update();
            if let Err(error) = self.check() {
                return error;
            }
            if self.faults.changed().await.is_err() {
                // The transport is gone, and with it the switches.
                std::future::pending::<()>().await;
            }
        }
    }

    fn due(&self) -> Instant {
        let delay = self.peer.get().and_then(|(peer, _)| Some(self.faults.borrow().get(peer)?.delay));
        Instant::now() + delay.unwrap_or_default()
    }
}

/// Puts a link under a switch.
pub(super) fn wrap(link: Link, switch: Switch) -> Link {
    let sender = SwitchedSender { inner: Ok(link.sender), switch: switch.clone() };
    let receiver = SwitchedReceiver {
        inner: Ok(link.receiver),
        switch,
        held: VecDeque::new(),
        held_bytes: 0,
        ended: false,
    };
    Link { sender: Box::new(sender), receiver: Box::new(receiver), remote: link.remote }
}

struct SwitchedSender {
    /// The inner half until the link is cut: dropping it tells the far side.
    inner: Result<Box<dyn LinkSender>, LinkError>,
    switch: Switch,
}

#[async_trait]
impl LinkSender for SwitchedSender {
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError> {
        let inner = self.inner.as_mut().map_err(|error| error.clone())?;
        let error = tokio::select! { biased;
            error = self.switch.broken() => error,
            sent = inner.send(frame) => return sent,
        };
        self.inner = Err(error.clone());
        Err(error)
    }

    async fn close(&mut self) {
        if let Ok(inner) = &mut self.inner {
            inner.close().await;
        }
    }
}

struct SwitchedReceiver {
    inner: Result<Box<dyn LinkReceiver>, LinkError>,
    switch: Switch,
    /// Frames that a delay holds back, each with the time at which it is due.
    held: VecDeque<(Instant, usize, Frame)>,
    held_bytes: usize,
    ended: bool,
}

impl SwitchedReceiver {
    fn hold(&mut self, frame: Frame) -> Result<(), LinkError> {
        if let Some(Body::Hello(hello)) = &frame.body
            && let Ok(peer) = ClusterId::new(&hello.cluster)
        {
            self.switch.join(&peer)?;
        }
        let due = self.held.back().map_or(self.switch.due(), |(last, ..)| self.switch.due().max(*last));
        let size = frame.encoded_len();
        self.held_bytes += size;
        self.held.push_back((due, size, frame));
        Ok(())
    }

    fn release(&mut self) -> Option<Frame> {
        let (due, ..) = self.held.front()?;
        if *due > Instant::now() {
            return None;
        }
        let (_, size, frame) = self.held.pop_front()?;
        self.held_bytes -= size;
        Some(frame)
    }

    async fn next(&mut self) -> Result<Option<Frame>, LinkError> {
        self.switch.check()?;
        loop {
            if let Some(frame) = self.release() {
                return Ok(Some(frame));
            }
            let due = self.held.front().map(|(due, ..)| *due);
            if due.is_none() && self.ended {
                return Ok(None);
            }
            let inner = self.inner.as_mut().map_err(|error| error.clone())?;
            let arrived = tokio::select! { biased;
                error = self.switch.broken() => return Err(error),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => continue,
                arrived = inner.receive(), if !self.ended && self.held_bytes < HELD_BYTES => arrived?,
            };
            match arrived {
                Some(frame) => self.hold(frame)?,
                None => self.ended = true,
            }
        }
    }
}

#[async_trait]
impl LinkReceiver for SwitchedReceiver {
    async fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        let received = self.next().await;
        if let Err(error) = &received {
            self.inner = Err(error.clone());
            self.held.clear();
        }
        received
    }
}
