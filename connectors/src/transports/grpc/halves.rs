//! The two halves of a link over gRPC, the same on the dialling and the accepting side.

use async_trait::async_trait;
use prost::Message;
use std::sync::Arc;
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::transport::wire::Frame;
use tidewire_core::transport::{Link, LinkReceiver, LinkSender};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::error::from_status;
use super::strangers::Presence;

/// Frames that wait in this process for the stream to take them.
pub(super) const WAITING_FRAMES: usize = 1;

/// Makes a frame an item of the outgoing stream: of a request or of a response.
pub(super) type Wrap<T> = fn(Frame) -> T;

/// What both halves know of their link.
struct Ends {
    remote: String,
    /// On the accepting side: the connection has a link while a half lives.
    _presence: Option<Presence>,
}

/// Puts the halves together. `first` is a frame that was read ahead.
pub(super) fn link<T: Send + 'static>(
    remote: String,
    out: (mpsc::Sender<T>, Wrap<T>),
    frames: Streaming<Frame>,
    first: Option<Frame>,
    message_bytes: usize,
    presence: Option<Presence>,
) -> Link {
    let ends = Arc::new(Ends { remote: remote.clone(), _presence: presence });
    let (out, wrap) = out;
    let sender = GrpcSender { out: Some(out), wrap, message_bytes, ends: ends.clone() };
    let receiver = GrpcReceiver { frames: Some(frames), first, failed: None, ends };
    Link { sender: Box::new(sender), receiver: Box::new(receiver), remote }
}

struct GrpcSender<T> {
    /// None once closed.
    out: Option<mpsc::Sender<T>>,
    wrap: Wrap<T>,
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
        match out.reserve().await {
            Ok(place) => place.send((self.wrap)(frame)),
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
        self.out = None;
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
