//! An accepted TCP connection that ends when it is told to, or when it stays without a link for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use super::strangers::Visitor;

/// The task of a connection lives as long as its socket works: failing the socket ends the task.
pub(super) struct Socket {
    stream: TcpStream,
    visitor: Arc<Visitor>,
    killed: Pin<Box<WaitForCancellationFutureOwned>>,
    check: Pin<Box<Sleep>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, visitor: Arc<Visitor>) -> Self {
        let killed = Box::pin(visitor.kill.clone().cancelled_owned());
        let check = Box::pin(sleep_until(visitor.deadline().unwrap_or_else(Instant::now)));
        Self { stream, visitor, killed, check }
    }

    /// Fails once the connection is over. Called on every read and write, so that either wakes for it.
    fn alive(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let over = |why| Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
        if self.killed.as_mut().poll(context).is_ready() {
            return over("the listener closed the connection");
        }
        while self.check.as_mut().poll(context).is_ready() {
            match self.visitor.deadline() {
                Some(deadline) => self.check.as_mut().reset(deadline),
                None => return over("no Hello in time"),
            }
        }
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.visitor.gone();
    }
}

impl Connected for Socket {
    type ConnectInfo = Arc<Visitor>;

    fn connect_info(&self) -> Arc<Visitor> {
        self.visitor.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.alive(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
