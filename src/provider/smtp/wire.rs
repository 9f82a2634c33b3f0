//! The connection: lines out, replies in, and never a byte more than was asked for.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::reply::{Line, Reply};
use crate::provider::net::Io;

/// RFC 5321 section 4.5.3.1.5 allows 512 octets a line; servers are known to write more.
const MAX_LINE: usize = 4 * 1024;
const MAX_LINES: usize = 128;

/// Why no reply was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ended.
    Lost,
    /// The stage's time is up.
    Stalled,
    /// What came is no SMTP reply, or came before it was due.
    Garbled,
}

/// One stage under its deadline. The connection of a stage that did not end in time is dropped by whoever sees the fault.
pub(super) async fn within<T>(limit: Duration, stage: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    timeout(limit, stage).await.unwrap_or(Err(Fault::Stalled))
}

/// One connection. Whoever meets a [`Fault`] drops it.
pub struct Wire {
    stream: Box<dyn Io>,
    unread: Vec<u8>,
}

impl Wire {
    /// A connection of which nothing is read yet.
    pub fn new(stream: Box<dyn Io>) -> Self {
        Self { stream, unread: vec![] }
    }

    /// The bare stream, for the TLS handshake.
    ///
    /// # Errors
    /// [`Fault::Garbled`] when bytes are waiting that came before the handshake: keeping them would let anybody on the
    /// path put words into the server's mouth (RFC 3207 section 6).
    pub(super) fn into_stream(mut self) -> Result<Box<dyn Io>, Fault> {
        match self.silent() {
            Err(Fault::Garbled) => Err(Fault::Garbled),
            // A server that has hung up is the handshake's to notice.
            Ok(()) | Err(_) => Ok(self.stream),
        }
    }

    /// Nothing may be waiting to be read when we speak: every reply belongs to the command before it.
    ///
    /// # Errors
    /// [`Fault::Garbled`] when something is waiting, [`Fault::Lost`] when the server has hung up.
    pub fn silent(&mut self) -> Result<(), Fault> {
        if !self.unread.is_empty() {
            return Err(Fault::Garbled);
        }
        match self.stream.read_buf(&mut self.unread).now_or_never() {
            None => Ok(()),
            Some(Ok(0) | Err(_)) => Err(Fault::Lost),
            Some(Ok(_)) => Err(Fault::Garbled),
        }
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// [`Fault::Lost`]; how much of it has left is then not known.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(bytes).await.map_err(|_| Fault::Lost)?;
        self.stream.flush().await.map_err(|_| Fault::Lost)
    }

    /// Reads one complete reply.
    ///
    /// # Errors
    /// [`Fault::Lost`] or [`Fault::Garbled`].
    pub async fn reply(&mut self) -> Result<Reply, Fault> {
        let (mut lines, mut code) = (vec![], None);
        while lines.len() < MAX_LINES {
            let line = self.read_line().await?;
            match Reply::take_line(&mut lines, &mut code, &line) {
                Line::More => {}
                Line::Last(reply) => return Ok(reply),
                Line::Garbled => return Err(Fault::Garbled),
            }
        }
        Err(Fault::Garbled)
    }

    async fn read_line(&mut self) -> Result<Vec<u8>, Fault> {
        loop {
            let end = self.unread.iter().position(|&b| b == b'\n');
            // The same for every way in which the octets arrive.
            if end.unwrap_or(self.unread.len()) > MAX_LINE {
                return Err(Fault::Garbled);
            }
            if let Some(end) = end {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                line.pop();
                line.pop_if(|b| *b == b'\r');
                return Ok(line);
            }
            match self.stream.read_buf(&mut self.unread).await {
                Ok(0) | Err(_) => return Err(Fault::Lost),
                Ok(_) => {}
            }
        }
    }
}

/// The message as it goes over the wire, without the final dot: lines end in CRLF and never hold a bare CR or LF
/// (RFC 5321 section 2.3.8), and a leading dot is doubled (section 4.5.2).
pub(super) fn dot_stuffed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 32 + 2);
    let mut rest = message;
    while !rest.is_empty() {
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(rest.len());
        let (line, tail) = rest.split_at(end);
        if line.first() == Some(&b'.') {
            out.push(b'.');
        }
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
        rest = tail.strip_prefix(b"\r\n").or_else(|| tail.get(1..)).unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_the_message_can_end_it() {
        for (message, wire) in [
            (&b"a\r\n.\r\nb"[..], &b"a\r\n..\r\nb\r\n"[..]),
            (b".\r\n", b"..\r\n"),
            (b"a\n.\nb\n", b"a\r\n..\r\nb\r\n"),
            (b"a\r.\rb\r\n", b"a\r\n..\r\nb\r\n"),
            (b"a\r\n\r\nb", b"a\r\n\r\nb\r\n"),
            (b"", b""),
        ] {
            assert_eq!(dot_stuffed(message), wire, "{message:?}");
        }
    }

    #[tokio::test]
    async fn a_reply_that_came_before_its_command_is_noticed() {
        let (mut server, client) = tokio::io::duplex(256);
        let mut wire = Wire::new(Box::new(client));
        assert_eq!(wire.silent(), Ok(()));
        server.write_all(b"220 go on\r\n250 forged\r\n").await.expect("a pipe");
        let reply = wire.reply().await.expect("the first reply");
        assert_eq!(reply.code(), 220);
        assert_eq!(wire.silent(), Err(Fault::Garbled));
        assert_eq!(wire.into_stream().map(drop), Err(Fault::Garbled));
    }

    #[tokio::test]
    async fn half_a_reply_is_none() {
        for half in ["2", "250", "250 ok", "250-ok\r\n", "250-ok\r\n250 "] {
            let (mut server, client) = tokio::io::duplex(256);
            server.write_all(half.as_bytes()).await.expect("a pipe");
            drop(server);
            let reply = Wire::new(Box::new(client)).reply().await;
            assert_eq!(reply.map(|r| r.code()), Err(Fault::Lost), "{half:?}");
        }
    }
}
