//! Just enough HTTP/1.1 for a peer on loopback that is ours: keep-alive, one message at a time, bodies with a length. It
//! shares the machine with what it measures, so it copies and parses as little as it can.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::now;

/// The longest message that is read, in bytes.
const LONGEST: usize = 1024 * 1024;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One keep-alive connection.
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    head: usize,
}

impl Wire {
    /// Connects to a port of this machine.
    pub async fn connect(port: u16) -> io::Result<Self> {
        Self::over(TcpStream::connect(("127.0.0.1", port)).await?)
    }

    /// Speaks over a connection that is there.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096), head: 0 })
    }

    /// Sends a request and reads the answer's status; its headers and body stay until the next one.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.write(request).await?;
        let read = tokio::time::timeout(PATIENCE, self.read()).await;
        read.map_err(|_| io::ErrorKind::TimedOut)??.ok_or(io::ErrorKind::UnexpectedEof)?;
        // "HTTP/1.1 202"
        let status = self.buffer.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
        status.and_then(|code| code.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Writes a whole message.
    pub async fn write(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message).await
    }

    /// Reads the next message, and says when its first byte was there; `None` when the peer hung up before it.
    pub async fn read(&mut self) -> io::Result<Option<Duration>> {
        self.buffer.clear();
        let (mut first, mut whole) = (None, None);
        while whole.is_none_or(|whole| self.buffer.len() < whole) {
            if self.buffer.len() > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match self.stream.read_buf(&mut self.buffer).await? {
                0 if first.is_none() => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
            first.get_or_insert_with(now);
            if whole.is_none()
                && let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n")
            {
                self.head = end + 4;
                whole = Some(self.head + self.length()?);
            }
        }
        Ok(first)
    }

    /// The value of a header of the message that was read last.
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(self.buffer.get(..self.head)?).ok()?;
        let fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The body of the message that was read last.
    pub fn body(&self) -> &[u8] {
        self.buffer.get(self.head..).unwrap_or_default()
    }

    fn length(&self) -> io::Result<usize> {
        // RFC 9110 section 15.4.5: a 304 has no content, whatever length it tells of.
        if self.buffer.starts_with(b"HTTP/1.1 304") {
            return Ok(0);
        }
        match self.header("content-length").map(str::parse) {
            Some(Ok(length)) if length <= LONGEST => Ok(length),
            None if self.header("transfer-encoding").is_none() => Ok(0),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answers(parts: &'static [&'static [u8]]) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let mut peer = Wire::over(listener.accept().await.expect("a client").0).expect("a socket");
            for part in parts {
                assert!(peer.read().await.expect("a request").is_some());
                peer.write(part).await.expect("written");
            }
        });
        Wire::connect(port).await.expect("connected")
    }

    #[tokio::test]
    async fn answers_are_read_one_after_the_other_with_their_bodies() {
        let parts: &[&[u8]] = &[
            b"HTTP/1.1 202 Accepted\r\nContent-Length: 4\r\nETag: \"x\"\r\n\r\nbody",
            b"HTTP/1.1 304 Not Modified\r\ncontent-length: 99\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ];
        let mut wire = answers(parts).await;
        assert_eq!(wire.exchange(b"GET / HTTP/1.1\r\n\r\n").await.expect("read"), 202);
        assert_eq!((wire.body(), wire.header("etag")), (&b"body"[..], Some("\"x\"")));
        assert_eq!(wire.exchange(b"GET / HTTP/1.1\r\n\r\n").await.expect("read"), 304);
        let unknown = wire.exchange(b"GET / HTTP/1.1\r\n\r\n").await.expect_err("no length");
        assert_eq!(unknown.kind(), io::ErrorKind::InvalidData);
    }
}
