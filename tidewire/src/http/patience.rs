//! [`Patient`]: a connection that gives up on a client that does not take its answers.
//!
//! Whoever reads a byte a second would else hold a connection, a stream and a chunk of lines for as long as it likes. While
//! a client takes nothing the clock runs; it begins anew with every [`SHARE`] that was taken, and stops when nothing waits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that a client has to take within the time that it is given.
const SHARE: usize = 64 * 1024;

/// A connection with an end to its patience.
pub(super) struct Patient<S> {
    stream: S,
    time: Duration,
    /// Runs while something waits to be taken.
    waiting: Option<Pin<Box<Sleep>>>,
    /// Bytes that were taken since it runs.
    taken: usize,
}

impl<S> Patient<S> {
    /// A client of the stream has so long for each share of an answer.
    pub(super) fn new(stream: S, time: Duration) -> Self {
        Self { stream, time, waiting: None, taken: 0 }
    }

    /// Takes over what became of a write of so many bytes.
    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.taken += bytes;
            if *bytes >= offered || self.taken >= SHARE {
                (self.waiting, self.taken) = (None, 0);
            }
        }
        if written.is_pending() {
            let time = self.time;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(time)));
            ready!(waiting.as_mut().poll(cx));
            let said = "the client does not take its answer";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, said)));
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.watch(cx, buf.len(), written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.watch(cx, bufs.iter().map(|buf| buf.len()).sum(), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, timeout};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    /// Writes without an end to a client that takes `bytes` every `pause`, for ten minutes. Answers when that ended.
    async fn write_to(bytes: usize, pause: Duration) -> Option<Duration> {
        let (here, mut there) = duplex(4 * 1024);
        let begun = Instant::now();
        let client = async {
            let mut taken = vec![0; bytes];
            loop {
                tokio::time::sleep(pause).await;
                there.read_exact(&mut taken).await.expect("there is more");
            }
        };
        let server = async {
            let mut stream = Patient::new(here, TIME);
            while stream.write_all(&[7; 16 * 1024]).await.is_ok() {}
        };
        let ended = async {
            tokio::select! { biased; () = client => {}, () = server => {} }
        };
        timeout(Duration::from_secs(600), ended).await.ok().map(|()| begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_byte_a_second_is_given_up_on_and_one_that_is_slow_is_not() {
        let trickle = write_to(1, Duration::from_secs(1)).await.expect("given up on");
        assert!(trickle >= TIME && trickle < TIME * 2, "{trickle:?}");
        let stopped = write_to(1, Duration::from_secs(10_000)).await.expect("given up on");
        assert!(stopped >= TIME && stopped < TIME * 2, "{stopped:?}");
        assert_eq!(write_to(4 * 1024, Duration::from_secs(1)).await, None, "4 KiB a second are enough");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_on_which_nothing_waits_may_be_quiet_for_ever() {
        let (here, mut there) = duplex(4 * 1024);
        let mut stream = Patient::new(here, TIME);
        for _ in 0..5 {
            stream.write_all(b"a line").await.expect("taken");
            tokio::time::sleep(TIME * 10).await;
            there.read_exact(&mut [0; 6]).await.expect("a line");
        }
    }
}
