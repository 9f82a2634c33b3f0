//! Signatures as JSON Web Tokens (RFC 7519) under HMAC (RFC 7518 section 3.2).

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde_json::Value;

use super::{fresh, same};
use crate::domain::time::Timestamp;

/// The claims of a token that one of the secrets signed, under one of the algorithms that are allowed by name.
fn claims(secrets: &[&str], token: &str, allowed: &[&str]) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (head, payload) = signed.split_once('.')?;
    let json = |part: &str| serde_json::from_slice::<Value>(&BASE64URL_NOPAD.decode(part.as_bytes()).ok()?).ok();
    let head = json(head)?;
    let algorithm = allowed.iter().find(|name| Some(**name) == head["alg"].as_str())?;
    let algorithm = match *algorithm {
        "HS256" => hmac::HMAC_SHA256,
        "HS384" => hmac::HMAC_SHA384,
        "HS512" => hmac::HMAC_SHA512,
        _ => return None,
    };
    let given = BASE64URL_NOPAD.decode(signature.as_bytes()).ok()?;
    let proven = secrets.iter().filter(|secret| !secret.is_empty()).any(|secret| {
        let key = hmac::Key::new(algorithm, secret.as_bytes());
        hmac::verify(&key, signed.as_bytes(), &given).is_ok()
    });
    proven.then(|| json(payload))?
}

/// Whether a claim is the SHA-256 of `bytes` in hex.
fn is_hash_of(claim: &Value, bytes: &[u8]) -> bool {
    let hash = HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref());
    claim.as_str().is_some_and(|claim| same(claim.to_ascii_lowercase().as_bytes(), hash.as_bytes()))
}

/// Vonage's `Authorization: Bearer` of the Messages API: a token under HS256 whose `iat` is fresh and whose `payload_hash`
/// is that of the body.
///
/// Source: Vonage, "Webhooks", "Decoding signed webhooks"
/// (<https://developer.vonage.com/en/getting-started/concepts/webhooks>).
pub fn verify_vonage(secrets: &[&str], body: &[u8], header: &str, now: Timestamp) -> bool {
    let token = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let claims = token.and_then(|(_, token)| claims(secrets, token.trim(), &["HS256"]));
    claims.is_some_and(|claims| {
        claims["iat"].as_i64().is_some_and(|iat| fresh(&iat.to_string(), now))
            && is_hash_of(&claims["payload_hash"], body)
    })
}

/// MessageBird's `MessageBird-Signature-JWT`: a token of the issuer MessageBird within `nbf` and `exp`, whose `url_hash` is
/// that of the whole URL and whose `payload_hash` that of the body; without a body there is none.
///
/// Source: MessageBird, "Verifying HTTP Requests" (<https://developers.messagebird.com/api/#verifying-http-requests>).
pub fn verify_messagebird(secrets: &[&str], url: &str, body: &[u8], header: &str, now: Timestamp) -> bool {
    let seconds = now.micros() / 1_000_000;
    // The vendor's libraries allow clocks to differ by one second.
    let in_time = |claims: &Value| {
        let time = |name: &str| claims[name].as_i64();
        time("nbf").zip(time("exp")).is_some_and(|(from, until)| from <= seconds + 1 && seconds - 1 < until)
    };
    claims(secrets, header, &["HS256", "HS384", "HS512"]).is_some_and(|claims| {
        let payload = &claims["payload_hash"];
        claims["iss"] == "MessageBird"
            && in_time(&claims)
            && is_hash_of(&claims["url_hash"], url.as_bytes())
            && if body.is_empty() { payload.is_null() } else { is_hash_of(payload, body) }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn token(algorithm: hmac::Algorithm, name: &str, secret: &[u8], claims: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(&json!({ "alg": name, "typ": "JWT" })), part(claims));
        let tag = hmac::sign(&hmac::Key::new(algorithm, secret), signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(tag.as_ref()))
    }

    fn hash(bytes: &[u8]) -> String {
        HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
    }

    /// The example of RFC 7515, appendix A.1.
    #[test]
    fn the_published_token_is_read_with_its_key_only() {
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let key = BASE64URL_NOPAD.decode(key.as_bytes()).expect("the key of the RFC");
        let (signed, signature) = token.rsplit_once('.').expect("a token");
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
        assert_eq!(BASE64URL_NOPAD.encode(tag.as_ref()), signature);
        assert_eq!(claims(&["another key"], token, &["HS256"]), None);
        assert_eq!(claims(&[], token, &["HS256"]), None);
    }

    #[test]
    fn a_vonage_token_vouches_for_a_body_for_five_minutes() {
        let body = br#"{"status":"delivered"}"#;
        let good = json!({ "iat": NOW, "payload_hash": hash(body), "api_key": "abcd1234" });
        let verify = |secrets: &[&str], claims: &Value, body: &[u8], now| {
            let header = format!("Bearer {}", token(hmac::HMAC_SHA256, "HS256", b"s3cret", claims));
            verify_vonage(secrets, body, &header, at(now))
        };
        for now in [NOW - 300, NOW, NOW + 300] {
            assert!(verify(&["new", "s3cret"], &good, body, now), "{now}");
        }
        for now in [NOW - 301, NOW + 301] {
            assert!(!verify(&["s3cret"], &good, body, now), "{now}");
        }
        assert!(!verify(&["other"], &good, body, NOW));
        assert!(!verify(&["s3cret"], &good, b"{}", NOW));
        assert!(!verify(&["s3cret"], &json!({ "iat": NOW }), body, NOW));
        assert!(!verify(&["s3cret"], &json!({ "payload_hash": hash(body) }), body, NOW));
    }

    #[test]
    fn a_token_names_no_algorithm_but_the_ones_that_are_allowed() {
        let claims = json!({ "iat": NOW, "payload_hash": hash(b"") });
        for (algorithm, name) in
            [(hmac::HMAC_SHA256, "none"), (hmac::HMAC_SHA512, "HS512"), (hmac::HMAC_SHA256, "hs256")]
        {
            let header = format!("Bearer {}", token(algorithm, name, b"s", &claims));
            assert!(!verify_vonage(&["s"], b"", &header, at(NOW)), "{name}");
        }
        let unsigned = token(hmac::HMAC_SHA256, "HS256", b"", &claims);
        assert!(!verify_vonage(&[""], b"", &format!("Bearer {unsigned}"), at(NOW)));
        for header in ["", "Bearer", "Bearer a.b", "Basic a.b.c", &format!("Bearer {unsigned}x")] {
            assert!(!verify_vonage(&["s"], b"", header, at(NOW)), "{header}");
        }
    }

    #[test]
    fn a_messagebird_token_vouches_for_url_and_body_while_it_lasts() {
        let url = "https://hooks.shop.example/v1/receipts/messagebird?ref=abc&status=delivered";
        let good =
            json!({ "iss": "MessageBird", "nbf": NOW, "exp": NOW + 60, "jti": "j", "url_hash": hash(url.as_bytes()) });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            claims
        };
        let verify = |secrets: &[&str], claims: &Value, url: &str, body: &[u8], now| {
            verify_messagebird(secrets, url, body, &token(hmac::HMAC_SHA512, "HS512", b"s3cret", claims), at(now))
        };
        for now in [NOW - 1, NOW, NOW + 60] {
            assert!(verify(&["new", "s3cret"], &good, url, b"", now), "{now}");
        }
        for now in [NOW - 2, NOW + 61] {
            assert!(!verify(&["s3cret"], &good, url, b"", now), "{now}");
        }
        assert!(!verify(&["other"], &good, url, b"", NOW));
        assert!(!verify(&["s3cret"], &good, &url.replace("delivered", "expired"), b"", NOW));
        assert!(!verify(&["s3cret"], &good, url, b"{}", NOW));
        let for_body = with("payload_hash", json!(hash(b"{}")));
        assert!(verify(&["s3cret"], &for_body, url, b"{}", NOW));
        assert!(!verify(&["s3cret"], &for_body, url, b"", NOW));
        assert!(!verify(&["s3cret"], &with("iss", json!("Bird")), url, b"", NOW));
        assert!(!verify(&["s3cret"], &with("exp", Value::Null), url, b"", NOW));
    }
}
