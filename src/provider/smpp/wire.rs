//! One connection: whole PDUs in, whole PDUs out.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::pdu::Frame;
use crate::provider::net::Io;

/// How long a PDU may take to leave. One is so short that only an SMSC that has stopped to read needs any time.
pub(super) const WRITE: Duration = Duration::from_secs(2);

/// Why no PDU was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection ended.
    Lost,
    /// What came is no PDU, or came where it cannot.
    Garbled,
}

/// Why a PDU was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    /// Not one octet of it was taken from us.
    Untouched,
    /// Some or all of it may have left.
    Begun,
}

/// Whoever meets a fault drops it.
pub(super) struct Wire {
    stream: Box<dyn Io>,
    arrived: BytesMut,
}

impl Wire {
    pub(super) fn new(stream: Box<dyn Io>) -> Self {
        Self { stream, arrived: BytesMut::new() }
    }

    /// The next PDU. What has arrived of it stays when this is dropped.
    pub(super) async fn next(&mut self) -> Result<Frame, Fault> {
        loop {
            if let Some(frame) = Frame::take(&mut self.arrived).map_err(|_| Fault::Garbled)? {
                return Ok(frame);
            }
            match self.stream.read_buf(&mut self.arrived).await {
                Ok(0) | Err(_) => return Err(Fault::Lost),
                Ok(_) => {}
            }
        }
    }

    /// Writes a whole PDU within [`WRITE`].
    pub(super) async fn write(&mut self, pdu: &[u8]) -> Result<(), Unwritten> {
        let mut rest = pdu;
        let writing = async {
            while !rest.is_empty() {
                match self.stream.write(rest).await? {
                    0 => return Err(std::io::ErrorKind::WriteZero.into()),
                    taken => rest = rest.get(taken..).unwrap_or_default(),
                }
            }
            self.stream.flush().await
        };
        match timeout(WRITE, writing).await {
            Ok(Ok(())) => Ok(()),
            _ if rest.len() == pdu.len() => Err(Unwritten::Untouched),
            _ => Err(Unwritten::Begun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pdu_that_did_not_begin_to_leave_is_told_from_one_that_did() {
        let (client, server) = tokio::io::duplex(8);
        let mut wire = Wire::new(Box::new(client));
        drop(server);
        assert_eq!(wire.write(&[1; 16]).await, Err(Unwritten::Untouched));

        let (client, server) = tokio::io::duplex(8);
        let mut wire = Wire::new(Box::new(client));
        assert_eq!(wire.write(&[1; 16]).await, Err(Unwritten::Begun), "nobody reads the second half");
        assert_eq!(wire.write(&[1; 16]).await, Err(Unwritten::Untouched));
        drop(server);
    }
}
