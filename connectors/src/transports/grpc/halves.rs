//! The two halves of a link over gRPC, the same on the dialling and the accepting side.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures::Stream;
use prost::Message;
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::transport::wire::Frame;
use tidewire_core::transport::{Link, LinkReceiver, LinkSender};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;

use super::config::CLOSE_GRACE;
use super::error::from_status;
use super::strangers::Presence;

/// Frames that wait in this process for the stream to take them.
const WAITING_FRAMES: usize = 1;

/// Frames on their way into a request or a response.
pub(super) struct Outgoing<T> {
    frames: mpsc::Receiver<T>,
    _taken: DropGuard,
}

impl<T> Stream for Outgoing<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.frames.poll_recv(context)
    }
}

/// The near end of an [`Outgoing`].
pub(super) struct Out<T> {
    frames: mpsc::Sender<T>,
    /// Cancelled when HTTP/2 has taken every frame and the end.
    taken: CancellationToken,
    /// Makes a frame an item of the request or response.
    wrap: fn(Frame) -> T,
}

impl<T> Out<T> {
    /// Ends the stream with an item that is not a frame.
    pub(super) async fn end_with(self, last: T) {
        // The stream may be gone already, and with it whoever would read this.
        let _ = self.frames.send(last).await;
    }
}

/// A path for frames into a request or a response.
pub(super) fn outgoing<T>(wrap: fn(Frame) -> T) -> (Out<T>, Outgoing<T>) {
    let (sender, frames) = mpsc::channel(WAITING_FRAMES);
    let taken = CancellationToken::new();
    (Out { frames: sender, taken: taken.clone(), wrap }, Outgoing { frames, _taken: taken.drop_guard() })
}

/// What both halves know of their link.
struct Ends {
    remote: String,
    /// On the accepting side: the connection has a link while a half lives.
    _presence: Option<Presence>,
}

/// Puts the halves together. `first` is a frame that was read ahead.
pub(super) fn link<T: Send + 'static>(
    remote: String,
    out: Out<T>,
    frames: Streaming<Frame>,
    first: Option<Frame>,
    message_bytes: usize,
    presence: Option<Presence>,
) -> Link {
    let ends = Arc::new(Ends { remote: remote.clone(), _presence: presence });
    let sender = GrpcSender { out: Some(out), message_bytes, ends: ends.clone() };
    let receiver = GrpcReceiver { frames: Some(frames), first, failed: None, ends };
    Link { sender: Box::new(sender), receiver: Box::new(receiver), remote }
}

struct GrpcSender<T> {
    /// None once closed.
    out: Option<Out<T>>,
    message_bytes: usize,
    ends: Arc<Ends>,
}

#[async_trait]
impl<T: Send + 'static> LinkSender for GrpcSender<T> {
    async fn send(&mut self, frame: Frame) -> Result<(), LinkError> {
        let remote = &self.ends.remote;
        let Some(out) = &self.out else {
            return Err(LinkError::new(
                LinkErrorKind::Closed,
                format!("{remote}: this side has closed the link"),
            ));
        };
        let (size, most) = (frame.encoded_len(), self.message_bytes);
        if size > most {
            let message = format!("{remote}: a frame of {size} bytes is above the limit of {most}");
            return Err(LinkError::new(LinkErrorKind::Protocol, message));
        }
        // Waits for a place first, so that a dropped future has sent nothing.
        match out.frames.reserve().await {
            Ok(place) => place.send((out.wrap)(frame)),
            Err(_) => {
                return Err(LinkError::new(
                    LinkErrorKind::Unreachable,
                    format!("{remote}: the link is broken"),
                ));
            }
        }
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(Out { frames, taken, .. }) = self.out.take() {
            drop(frames);
            // A link that is dropped resets its stream, which would overtake what HTTP/2 has not taken yet. If the far
            // side does not read, that is all that can be done for it.
            let _ = timeout(CLOSE_GRACE, taken.cancelled()).await;
        }
    }
}

struct GrpcReceiver {
    /// None once the stream has ended or failed.
    frames: Option<Streaming<Frame>>,
    first: Option<Frame>,
    failed: Option<LinkError>,
    ends: Arc<Ends>,
}

#[async_trait]
impl LinkReceiver for GrpcReceiver {
    async fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let Some(frames) = &mut self.frames else {
            return self.failed.clone().map_or(Ok(None), Err);
        };
        match frames.message().await {
            Ok(Some(frame)) => Ok(Some(frame)),
            Ok(None) => {
                self.frames = None;
                Ok(None)
            }
            Err(status) => {
                self.frames = None;
                let error = from_status(&self.ends.remote, &status);
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}
