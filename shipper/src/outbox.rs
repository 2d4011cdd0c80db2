//! [`Outbox`]: frames that are to leave, in order, over the sending half of a link.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use tidewire_core::error::LinkError;
use tidewire_core::transport::LinkSender;
use tidewire_core::transport::wire::Frame;

type Sending = Pin<Box<dyn Future<Output = (Box<dyn LinkSender>, Result<(), LinkError>)> + Send>>;

enum Sender {
    Idle(Box<dyn LinkSender>),
    /// A frame is on its way out. Kept over calls: a send that is dropped half way may or may not have happened.
    Busy(Sending),
    /// Between the two; also what a panic in a sender leaves behind.
    Gone,
}

/// Frames on their way out. Bounded by whoever fills it.
pub(crate) struct Outbox {
    sender: Sender,
    queue: VecDeque<Frame>,
}

impl Outbox {
    pub(crate) fn new(sender: Box<dyn LinkSender>) -> Self {
        Self { sender: Sender::Idle(sender), queue: VecDeque::new() }
    }

    /// Queues a frame behind those that wait.
    pub(crate) fn push(&mut self, frame: Frame) {
        self.queue.push_back(frame);
    }

    /// Whether every frame has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !matches!(self.sender, Sender::Busy(_))
    }

    /// Sends until every frame has left. Cancel-safe.
    ///
    /// # Errors
    /// When the link broke.
    pub(crate) async fn drive(&mut self) -> Result<(), LinkError> {
        loop {
            if let Sender::Busy(sending) = &mut self.sender {
                let (sender, sent) = sending.await;
                self.sender = Sender::Idle(sender);
                sent?;
            }
            let Some(frame) = self.queue.pop_front() else { return Ok(()) };
            match std::mem::replace(&mut self.sender, Sender::Gone) {
                Sender::Idle(mut sender) => {
                    self.sender = Sender::Busy(Box::pin(async move {
                        let sent = sender.send(frame).await;
                        (sender, sent)
                    }));
                }
                other => self.sender = other,
            }
        }
    }

    /// Sends what waits, then ends this direction.
    pub(crate) async fn close(&mut self) -> Result<(), LinkError> {
        self.drive().await?;
        if let Sender::Idle(sender) = &mut self.sender {
            sender.close().await;
        }
        Ok(())
    }
}
