//! A link: one ordered stream of frames each way between two clusters, as its two halves.

use async_trait::async_trait;

use super::wire::Frame;
use crate::error::LinkError;

/// One connection for one tree in one direction of shipping. The halves may live in different tasks.
///
/// Dropping a half without closing it gives the link up: the far side sees an error or the end, on either half.
pub struct Link {
    /// Frames to the far side.
    pub sender: Box<dyn LinkSender>,
    /// Frames from the far side.
    pub receiver: Box<dyn LinkReceiver>,
    /// Where the far side is, for people.
    pub remote: String,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("remote", &self.remote).finish_non_exhaustive()
    }
}

/// The half of a link that sends.
#[async_trait]
pub trait LinkSender: Send {
    /// Hands a frame over, waiting while too many bytes are on their way: how a slow far side pushes back.
    ///
    /// `Ok` says that the frame will arrive unless the link breaks. If the future is dropped before it is ready, the
    /// frame was sent whole or not at all, and the sender can be used on.
    ///
    /// # Errors
    /// `Unreachable` when the link broke, `Closed` after [`close`](Self::close). Every later call fails too.
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError>;

    /// Ends this direction in order: the far side receives what was sent, then the end. The link may be dropped right
    /// afterwards, sender first; then the transport gives what was sent about a second to arrive. The other direction
    /// goes on until it is closed or dropped. May be repeated.
    async fn close(&mut self);
}

/// The half of a link that receives.
#[async_trait]
pub trait LinkReceiver: Send {
    /// The next frame, or `None` when the far side has ended the stream. The end alone does not say that the far side
    /// meant it: a session says `Goodbye` first.
    ///
    /// Dropping the future loses no frame. After `None` or an error every later call gives one of the two.
    ///
    /// # Errors
    /// `Unreachable` when the link broke; frames on their way may be lost. `Protocol` when the far side sent what is not
    /// a frame, or one above the limit.
    async fn receive(&mut self) -> Result<Option<Frame>, LinkError>;
}
