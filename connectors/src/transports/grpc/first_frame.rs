//! The body of a request whose first message must be short.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tonic::Status;

use super::config::HELLO_BYTES;

/// A gRPC message starts with one byte of flags and four of length.
const PREFIX: usize = 5;

/// Passes a body through, and ends it with an error if the first message states a length above [`HELLO_BYTES`]: before
/// anything is reserved for it.
pub(super) struct FirstFrameLimit {
    body: tonic::body::Body,
    prefix: [u8; PREFIX],
    seen: usize,
}

impl FirstFrameLimit {
    pub(super) fn new(body: tonic::body::Body) -> Self {
        Self { body, prefix: [0; PREFIX], seen: 0 }
    }

    fn look(&mut self, data: &[u8]) -> Result<(), Status> {
        let wanted = data.len().min(PREFIX - self.seen);
        self.prefix[self.seen..self.seen + wanted].copy_from_slice(&data[..wanted]);
        self.seen += wanted;
        let [_, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length);
        if self.seen == PREFIX && length as usize > HELLO_BYTES {
            let message =
                format!("the first frame has {length} bytes; it must be a Hello, at most {HELLO_BYTES}");
            return Err(Status::out_of_range(message));
        }
        Ok(())
    }
}

impl Body for FirstFrameLimit {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && self.seen < PREFIX
            && let Err(status) = self.look(data)
        {
            return Poll::Ready(Some(Err(status)));
        }
        Poll::Ready(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_read_however_the_prefix_is_cut() {
        for cut in 0..PREFIX {
            let stated = |length: usize| {
                let mut body = FirstFrameLimit::new(tonic::body::Body::empty());
                let mut prefix = vec![0];
                prefix.extend(u32::try_from(length).unwrap().to_be_bytes());
                body.look(&prefix[..cut]).and_then(|()| body.look(&prefix[cut..]))
            };
            assert!(stated(HELLO_BYTES).is_ok());
            assert!(stated(HELLO_BYTES + 1).is_err());
        }
    }
}
