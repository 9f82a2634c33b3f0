//! What an SMSC says.

use bytes::BytesMut;
use sendonce::provider::smpp::pdu::{BadLength, Frame};
use sendonce::provider::smpp::receipt::{Reading, read};

use super::seeds;

const TEXT: &str = "\0\x01\x0184901234567\0\x05\0Shop\0\x04\0\0\0\0\0\0\0\0\x16id:CANARY stat:DELIVRD";
const PARAMETERS: &str = "\0\x01\x018490\0\x05\0Shop\0\x04\0\0\0\0\0\0\0\0\0\0\x1e\0\x03abc\x04\x27\0\x01\x02";

pub fn pdus() -> Vec<Vec<u8>> {
    let head = |body: &str| {
        let length = u8::try_from(16 + body.len()).expect("a short PDU");
        [&[3, 0, 0, 0, length, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9][..], body.as_bytes()].concat()
    };
    let mut all = seeds([TEXT, PARAMETERS, "\x01\0\0\0\x10", "\x02\0\0\0\x0f"]);
    all.extend([head(TEXT), head(PARAMETERS), [head(PARAMETERS), head(TEXT)[1..].to_vec()].concat()]);
    all
}

/// All PDUs in what arrives `step` octets at a time, and how it ends.
fn frames(bytes: &[u8], step: usize) -> (Vec<Frame>, Option<BadLength>) {
    let (mut arrived, mut frames) = (BytesMut::new(), vec![]);
    for part in bytes.chunks(step) {
        arrived.extend_from_slice(part);
        loop {
            match Frame::take(&mut arrived) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(bad) => return (frames, Some(bad)),
            }
        }
    }
    (frames, None)
}

/// The same PDUs are read however their octets arrive, and what is read as a receipt names a message.
pub fn pdu(data: &[u8]) {
    let Some((&step, bytes)) = data.split_first() else { return };
    let (read_at_once, end) = frames(bytes, bytes.len().max(1));
    assert_eq!(frames(bytes, usize::from(step).max(1)), (read_at_once.clone(), end));
    let bodies = read_at_once.iter().map(|frame| &frame.body[..]).chain([data]);
    for body in bodies {
        if let Reading::Receipt { id, .. } = read(body) {
            assert!(!id.trim().is_empty(), "{body:?}");
        }
    }
}
