//! The two halves of a link over gRPC, the same on the dialling and the accepting side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use prost::Message;
use tidewire_core::error::{LinkError, LinkErrorKind};
use tidewire_core::tasks::Tasks;
use tidewire_core::transport::wire::Frame;
use tidewire_core::transport::{Link, LinkReceiver, LinkSender};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::config::CLOSE_GRACE;
use super::connections::Seat;
use super::error::from_status;
use super::strangers::Presence;

/// Frames that wait in this process for the stream to take them.
const WAITING_FRAMES: usize = 1;

/// The near end of a path for frames into a request or a response.
pub(super) struct Out<T> {
    frames: mpsc::Sender<T>,
    /// Makes a frame an item of the request or response.
    wrap: fn(Frame) -> T,
}

impl<T> Out<T> {
    /// A path, and its far end.
    pub(super) fn new(wrap: fn(Frame) -> T) -> (Self, ReceiverStream<T>) {
        let (frames, far_end) = mpsc::channel(WAITING_FRAMES);
        (Self { frames, wrap }, ReceiverStream::new(far_end))
    }

    /// Ends the stream with an item that is not a frame.
    pub(super) async fn end_with(self, last: T) {
        // The stream may be gone already, and with it whoever would read this.
        let _ = self.frames.send(last).await;
    }
}

/// Which side of the link this is.
pub(super) enum Side {
    /// Owns what lingers after a link was closed and dropped; and the link's place on a connection.
    Dialling(Tasks, Seat),
    /// The connection has a link while this lives.
    Accepting(#[expect(dead_code, reason = "held for what its drop does")] Presence),
}

/// What both halves know of their link.
struct Ends {
    remote: String,
    side: Side,
    /// The sender was closed in order, and what it sent may still be on its way.
    closed: AtomicBool,
}

/// Puts the halves together. `first` is a frame that was read ahead.
pub(super) fn link<T: Send + 'static>(
    remote: String,
    out: Out<T>,
    frames: Streaming<Frame>,
    first: Option<Frame>,
    message_bytes: usize,
    side: Side,
) -> Link {
    let ends = Arc::new(Ends { remote: remote.clone(), side, closed: AtomicBool::new(false) });
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
        self.ends.closed.store(true, Ordering::Relaxed);
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
            Ok(Some(frame)) => {
                if let Side::Dialling(_, seat) = &self.ends.side {
                    seat.heard();
                }
                Ok(Some(frame))
            }
            Ok(None) => {
                self.frames = None;
                Ok(None)
            }
            Err(status) => {
                self.frames = None;
                if let Side::Dialling(_, seat) = &self.ends.side {
                    seat.broke();
                }
                let error = from_status(&self.ends.remote, &status);
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl Drop for GrpcReceiver {
    /// Dropping the answers resets a dialled stream, and a reset overtakes frames that HTTP/2 has not written yet. After an
    /// orderly close they get a moment first. (On the accepting side a reset waits for them by itself.)
    fn drop(&mut self) {
        let Some(mut frames) = self.frames.take() else { return };
        if let Side::Dialling(tasks, _) = &self.ends.side
            && self.ends.closed.load(Ordering::Relaxed)
            && Handle::try_current().is_ok()
        {
            let ends = self.ends.clone();
            tasks.spawn("grpc linger", async move {
                // Keeps the place, and with it the connection.
                let _ends = ends;
                let rest = async { while let Ok(Some(_)) = frames.message().await {} };
                // At the bound the stream is reset; the far side did not read.
                let _ = timeout(CLOSE_GRACE, rest).await;
            });
        }
    }
}
