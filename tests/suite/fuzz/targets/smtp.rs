//! What mail servers say.

use futures_util::FutureExt as _;
use sendonce::provider::smtp::wire::{Fault, Wire};

use super::seeds;

pub fn replies() -> Vec<Vec<u8>> {
    seeds([
        "\x04250-mx.example.org\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n",
        "\x01550 5.1.1 CANARY@example.org: no such user\r\n250 forged\r\n",
        "\x00354\n",
        "\x02250 2.0.0 Ok: queued as 4F1A2B3C\r\n",
        "\x03250-one\r\n554 two\r\n",
        "\x03421 4.3.2 closing\r\n",
        "2",
    ])
}

/// The first reply in `bytes` by the letter of RFC 5321 section 4.2.1, and what stands behind it; `Err(true)` when it has
/// not ended, `Err(false)` when it is none.
fn by_the_letter(mut bytes: &[u8]) -> Result<(u16, &[u8]), bool> {
    let mut first: Option<&[u8]> = None;
    for _ in 0..128 {
        let end = bytes.iter().position(|b| *b == b'\n').ok_or(true)?;
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let code = line.get(..3).ok_or(false)?;
        if !(b'2'..=b'5').contains(&code[0]) || !code[1..].iter().all(u8::is_ascii_digit) {
            return Err(false);
        }
        if *first.get_or_insert(code) != code {
            return Err(false);
        }
        match line.get(3) {
            None | Some(b' ') => {
                return Ok((std::str::from_utf8(code).expect("digits").parse().expect("three of them"), rest));
            }
            Some(b'-') => bytes = rest,
            Some(_) => return Err(false),
        }
    }
    Err(false)
}

/// A reply is read as the standard has it, however its octets arrive, and never an octet behind it.
pub fn reply(data: &[u8]) {
    let Some((&step, bytes)) = data.split_first() else { return };
    // Lines that are longer than ours is are another matter: the limit is below.
    if bytes.split(|b| *b == b'\n').any(|line| line.len() > 4000) {
        return;
    }
    let expected = by_the_letter(bytes);
    for step in [usize::from(step) + 1, bytes.len() + 1] {
        let (near, mut far) = tokio::io::duplex(bytes.len() + 1);
        let mut wire = Wire::new(Box::new(near));
        let mut reading = Box::pin(async {
            let read = wire.reply().await;
            (read, wire)
        });
        let mut read = None;
        for part in bytes.chunks(step) {
            let written = tokio::io::AsyncWriteExt::write_all(&mut far, part).now_or_never();
            written.expect("there is room").expect("a pipe");
            if read.is_none() {
                read = reading.as_mut().now_or_never();
            }
        }
        drop(far);
        let (read, mut wire) = read.unwrap_or_else(|| reading.now_or_never().expect("an end"));
        match (read, expected) {
            (Ok(reply), Ok((code, rest))) => {
                assert_eq!(reply.code(), code);
                assert_eq!(format!("{reply:?}"), format!("Reply({code})"), "nothing of its text");
                assert!(reply.enhanced().is_none_or(|(subject, _)| bytes.contains(&b'.') && subject < u16::MAX));
                if let Some(id) = reply.queue_id() {
                    assert!(!id.is_empty() && !id.contains(char::is_whitespace));
                }
                let wanted = if rest.is_empty() { Fault::Lost } else { Fault::Garbled };
                assert_eq!(wire.silent(), Err(wanted), "what stands behind a reply is left there");
            }
            (Err(Fault::Lost), Err(true)) | (Err(Fault::Garbled), Err(false)) => {}
            (read, expected) => panic!("{read:?}, and by the letter {expected:?}"),
        }
    }
}
