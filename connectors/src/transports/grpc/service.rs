//! The service behind the port: takes requests, waits for the `Hello`, and hands links to the listener.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_core::tasks::Tasks;
use tidewire_core::transport::Link;
use tidewire_core::transport::wire::{Frame, REPLICATE, frame::Body as FrameBody};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codec::{EncodeBody, SingleMessageCompressionOverride, Streaming};
use tonic::codegen::Service;
use tonic::codegen::http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use tonic::{Code, Status};

use super::codec::FrameCodec;
use super::config::HELLO_DEADLINE;
use super::first_frame::FirstFrameLimit;
use super::halves::{Out, Side, link};
use super::strangers::Visitor;

/// Answers every request of every connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Replication {
    /// Owns the streams that have not said `Hello`.
    pub(super) tasks: Tasks,
    /// Where links go; the listener's other end.
    pub(super) accepted: mpsc::Sender<Link>,
    pub(super) message_bytes: usize,
}

impl Replication {
    fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let visitor = request.extensions().get::<Arc<Visitor>>().cloned();
        let visitor = visitor.ok_or_else(|| Status::internal("a connection without its visitor"))?;
        if request.uri().path() != REPLICATE {
            visitor.turned_away("not a method of this service");
            return Err(Status::unimplemented(format!("there is only {REPLICATE}")));
        }
        if !visitor.may_say_hello() {
            return Err(Status::resource_exhausted(
                "another stream of this connection has not said Hello yet",
            ));
        }
        let body = FirstFrameLimit::new(request.into_body());
        let frames = Streaming::new_request(FrameCodec, body, None, Some(self.message_bytes));
        let (out, answers) = Out::new(Ok);
        let (service, stop) = (self.clone(), self.tasks.stop_token());
        self.tasks.spawn("grpc hello", async move {
            stop.run_until_cancelled_owned(service.meet(visitor, frames, out)).await;
        });
        let single = SingleMessageCompressionOverride::default();
        let body = EncodeBody::new_server(FrameCodec, answers, None, single, Some(self.message_bytes));
        let mut response = Response::new(Body::new(body));
        response.headers_mut().insert(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
        Ok(response)
    }

    /// Makes a link of a stream that says `Hello` in time; ends any other with a status that says why.
    async fn meet(
        self,
        visitor: Arc<Visitor>,
        mut frames: Streaming<Frame>,
        out: Out<Result<Frame, Status>>,
    ) {
        let status = match timeout(HELLO_DEADLINE, frames.message()).await {
            Ok(Ok(Some(frame))) if matches!(frame.body, Some(FrameBody::Hello(_))) => {
                let presence = visitor.said_hello();
                let remote = visitor.remote.to_string();
                let link =
                    link(remote, out, frames, Some(frame), self.message_bytes, Side::Accepting(presence));
                if timeout(HELLO_DEADLINE, self.accepted.send(link)).await.is_err() {
                    tracing::warn!(remote = %visitor.remote, "link dropped: too many wait to be accepted");
                }
                return;
            }
            Ok(Ok(Some(_))) => Status::invalid_argument("the first frame must be a Hello"),
            Ok(Ok(None)) => Status::invalid_argument("the stream ended before its Hello"),
            Ok(Err(status)) => Status::new(status.code(), status.message()),
            Err(_) => Status::new(Code::DeadlineExceeded, format!("no Hello in {HELLO_DEADLINE:?}")),
        };
        visitor.turned_away(status.message());
        out.end_with(Err(status)).await;
    }
}

impl Service<Request<Body>> for Replication {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let content = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
        let grpc = content.is_some_and(|content| content.starts_with(b"application/grpc"));
        if !grpc || request.method() != Method::POST {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return ready(Ok(response));
        }
        ready(Ok(self.answer(request).unwrap_or_else(|status| status.into_http())))
    }
}
