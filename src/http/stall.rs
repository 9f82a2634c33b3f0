//! A connection whose reader must not stand still: without this, one that asks for an export and then takes nothing keeps
//! its connection, and what was read for it, for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Ends a write that has made no progress for a time.
pub(super) struct Stall<S> {
    stream: S,
    limit: Duration,
    /// Since when nothing was taken.
    still: Option<Pin<Box<Sleep>>>,
}

impl<S> Stall<S> {
    /// Lets `stream` stand still for `limit` at most.
    pub(super) const fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, still: None }
    }

    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.still = None;
            return written;
        }
        let limit = self.limit;
        ready!(self.still.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_reader_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (ours, mut reader) = duplex(10);
        let mut stream = Stall::new(ours, Duration::from_secs(1));
        let slow = async {
            for _ in 0..5 {
                sleep(Duration::from_millis(300)).await;
                reader.read_exact(&mut [0; 10]).await.expect("a pipe");
            }
            reader
        };
        let (written, _reader) = tokio::join!(stream.write_all(&[7; 60]), slow);
        written.expect("each piece was taken in time");
        let given_up = stream.write_all(b"more").await.expect_err("nobody reads");
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
    }
}
