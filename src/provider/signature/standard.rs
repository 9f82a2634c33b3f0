//! Standard Webhooks, both ways: receipts are verified by it, and callbacks signed.
//!
//! Source: Standard Webhooks specification, "Signature scheme" (<https://www.standardwebhooks.com>).

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::BASE64;

use super::fresh;
use crate::domain::time::Timestamp;

/// How many octets a secret may have.
const KEY_OCTETS: std::ops::RangeInclusive<usize> = 24..=64;

/// What is signed: `ID.TIMESTAMP.BODY`.
fn text(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

/// A secret, as a key.
#[derive(Clone)]
pub struct StandardKey(hmac::Key);

/// The text is no secret of Standard Webhooks. It does not hold the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be `whsec_` and base64 of 24 to 64 random octets")]
pub struct NotAKey;

impl StandardKey {
    /// Reads `whsec_` and base64 of 24 to 64 octets.
    ///
    /// # Errors
    /// [`NotAKey`] for any other text.
    pub fn parse(secret: &str) -> Result<Self, NotAKey> {
        let octets = BASE64.decode(secret.strip_prefix("whsec_").ok_or(NotAKey)?.as_bytes()).map_err(|_| NotAKey)?;
        if KEY_OCTETS.contains(&octets.len()) { Ok(Self::of(&octets)) } else { Err(NotAKey) }
    }

    fn of(octets: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, octets))
    }

    /// One signature of a list: `v1,` and base64 of HMAC-SHA-256. `timestamp` is in seconds since 1970.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let tag = hmac::sign(&self.0, &text(id, &timestamp.to_string(), body));
        format!("v1,{}", BASE64.encode(tag.as_ref()))
    }
}

impl fmt::Debug for StandardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandardKey")
    }
}

/// Verifies a list of `v1,` and base64 of HMAC-SHA-256 over `ID.TIMESTAMP.BODY`; the secret is `whsec_` and base64. One
/// signature that fits is enough. A secret without a key in it proves nothing.
pub fn verify_standard(secrets: &[&str], id: &str, timestamp: &str, body: &[u8], header: &str, now: Timestamp) -> bool {
    let signed = text(id, timestamp, body);
    let given: Vec<Vec<u8>> = header
        .split(' ')
        .filter_map(|signature| BASE64.decode(signature.strip_prefix("v1,")?.as_bytes()).ok())
        .collect();
    fresh(timestamp, now)
        && secrets.iter().any(|secret| {
            let secret = BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret).as_bytes());
            secret.is_ok_and(|secret| {
                let key = StandardKey::of(&secret);
                !secret.is_empty() && given.iter().any(|tag| hmac::verify(&key.0, &signed, tag).is_ok())
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_is_signed_as_published() {
        let key = StandardKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signed = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_that_is_no_key_or_too_short_or_too_long_does_not_sign() {
        let of = |octets: usize| format!("whsec_{}", BASE64.encode(&vec![7; octets]));
        for good in [24, 64] {
            assert!(StandardKey::parse(&of(good)).is_ok(), "{good}");
        }
        let bad = [of(23), of(65), "whsec_".to_owned(), String::new(), of(24).replace("whsec_", ""), of(24) + "!"];
        for bad in bad {
            assert_eq!(StandardKey::parse(&bad).err(), Some(NotAKey), "{bad}");
        }
    }
}
