//! Standard Webhooks, both ways: receipts are verified by it, and callbacks signed.
//!
//! Source: Standard Webhooks specification, "Signature scheme" (<https://www.standardwebhooks.com>).

use std::fmt;

use aws_lc_rs::hmac;
use data_encoding::BASE64;
use http::HeaderMap;
use zeroize::Zeroizing;

use super::{fresh, one_header};
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
        let octets = BASE64.decode(secret.strip_prefix("whsec_").ok_or(NotAKey)?.as_bytes()).map(Zeroizing::new);
        let octets = octets.ok().filter(|octets| KEY_OCTETS.contains(&octets.len())).ok_or(NotAKey)?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &octets)))
    }

    /// Reads a secret as its sender shows it: base64, of whatever length, after `whsec_`, before which Supabase also
    /// writes `v1,`. `None` when there is no key in it.
    pub fn of_sender(secret: &str) -> Option<Self> {
        let secret = secret.strip_prefix("v1,").unwrap_or(secret);
        let octets =
            BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret).as_bytes()).map(Zeroizing::new).ok()?;
        (!octets.is_empty()).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, &octets)))
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

/// Verifies a request whose id, time and signatures stand in the headers `webhook-id`, `webhook-timestamp` and
/// `webhook-signature`, or in those that begin with `svix-` instead.
pub fn verify_standard_headers(secrets: &[&str], headers: &HeaderMap, body: &[u8], now: Timestamp) -> bool {
    let told = ["webhook", "svix"].into_iter().find_map(|prefix| {
        let part = |name: &str| one_header(headers, &format!("{prefix}-{name}"));
        Some([part("id")?, part("timestamp")?, part("signature")?])
    });
    told.is_some_and(|[id, time, given]| verify_standard(secrets, id, time, body, given, now))
}

/// Verifies a list of `v1,` and base64 of HMAC-SHA-256 over `ID.TIMESTAMP.BODY`. One signature that fits is enough.
/// Supabase Auth parts its signatures by a comma beside the space. A secret without a key in it proves nothing.
pub fn verify_standard(secrets: &[&str], id: &str, timestamp: &str, body: &[u8], header: &str, now: Timestamp) -> bool {
    let signed = text(id, timestamp, body);
    let given: Vec<Vec<u8>> = header
        .split(' ')
        .filter_map(|signature| BASE64.decode(signature.strip_prefix("v1,")?.trim_end_matches(',').as_bytes()).ok())
        .collect();
    fresh(timestamp, now)
        && secrets
            .iter()
            .filter_map(|secret| StandardKey::of_sender(secret))
            .any(|key| given.iter().any(|tag| hmac::verify(&key.0, &signed, tag).is_ok()))
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
