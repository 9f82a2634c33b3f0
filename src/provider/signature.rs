//! Proofs of a receipt's origin: pure functions over raw bytes. Each takes several secrets, so that one can be rotated,
//! and compares in constant time.

pub mod jwt;
pub mod keyed;
pub mod sns;
pub mod standard;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac, signature};
use data_encoding::{BASE64, HEXLOWER};
use http::HeaderMap;

use crate::domain::time::Timestamp;

pub use standard::{verify_standard, verify_standard_headers};

/// How far a signed time may be from now, either way, in seconds. Telnyx and Standard Webhooks name the same.
pub const TOLERANCE_SECONDS: i64 = 300;

fn same(a: &[u8], b: &[u8]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

/// Whether a signed time, in seconds since 1970, is near enough to `now`.
fn fresh(timestamp: &str, now: Timestamp) -> bool {
    fresh_within(timestamp, now, TOLERANCE_SECONDS)
}

/// The same for a time that may lie `past` seconds back.
fn fresh_within(timestamp: &str, now: Timestamp, past: i64) -> bool {
    let now = now.micros() / 1_000_000;
    timestamp.parse::<i64>().is_ok_and(|t| (now.saturating_sub(past)..=now + TOLERANCE_SECONDS).contains(&t))
}

/// Twilio's `X-Twilio-Signature`: base64 of HMAC-SHA-1, under the account's token, over the full URL and each form field
/// sorted by name, name and value joined; values of a repeated name are sorted and each counts once. The URL is tried
/// with and without its default port. A URL with `bodySHA256` is signed alone and vouches for the body. `settings` is
/// `X-Twilio-Webhooks-Signature-Settings`, which may name HMAC-SHA-256 under a shared key, and no other algorithm.
///
/// Source: Twilio, "Webhooks security" (<https://www.twilio.com/docs/usage/webhooks/webhooks-security>); the settings,
/// Twilio's library for Node, `lib/webhooks/webhooks.js`.
pub fn verify_twilio(
    secrets: &[&str],
    url: &str,
    form: &[(String, String)],
    body: &[u8],
    header: &str,
    settings: Option<&str>,
) -> bool {
    let Ok(given) = BASE64.decode(header.as_bytes()) else { return false };
    let named =
        |settings: &str| settings.split(',').find_map(|pair| pair.trim().strip_prefix("algorithm=").map(str::to_owned));
    let algorithm = match settings.map(named) {
        None => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Some(Some(name)) if name == "HMAC_SHA256" => hmac::HMAC_SHA256,
        Some(_) => return false,
    };
    let mut fields: Vec<&(String, String)> = form.iter().collect();
    fields.sort();
    fields.dedup();
    let body_hash = url.split_once("bodySHA256=").map(|(_, rest)| rest.split('&').next().unwrap_or(rest));
    if let Some(wanted) = body_hash {
        let hash = HEXLOWER.encode(digest::digest(&digest::SHA256, body).as_ref());
        if !same(hash.as_bytes(), wanted.as_bytes()) {
            return false;
        }
        fields.clear();
    }
    let tail: String = fields.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    let urls = port_variants(url);
    secrets.iter().any(|secret| {
        let key = hmac::Key::new(algorithm, secret.as_bytes());
        urls.iter().any(|url| hmac::verify(&key, format!("{url}{tail}").as_bytes(), &given).is_ok())
    })
}

/// `url` as it is, and with its default port added or taken away.
fn port_variants(url: &str) -> Vec<String> {
    let mut urls = vec![url.to_owned()];
    for (scheme, port) in [("https://", ":443"), ("http://", ":80")] {
        if let Some(rest) = url.strip_prefix(scheme) {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            match host.strip_suffix(port) {
                Some(bare) => urls.push(format!("{scheme}{bare}{path}")),
                None => urls.push(format!("{scheme}{host}{port}{path}")),
            }
        }
    }
    urls
}

/// Telnyx's `telnyx-signature-ed25519`: base64 of an Ed25519 signature over `TIMESTAMP|BODY`, where the time is that of
/// `telnyx-timestamp`. The keys are base64 too.
///
/// Source: Telnyx, "Webhook fundamentals" (<https://developers.telnyx.com/development/api-fundamentals/webhooks/receiving-webhooks>).
pub fn verify_telnyx(keys: &[&str], timestamp: &str, body: &[u8], header: &str, now: Timestamp) -> bool {
    let Ok(given) = BASE64.decode(header.as_bytes()) else { return false };
    let signed = [timestamp.as_bytes(), b"|", body].concat();
    fresh(timestamp, now)
        && keys.iter().any(|key| {
            BASE64.decode(key.as_bytes()).is_ok_and(|key| {
                signature::UnparsedPublicKey::new(&signature::ED25519, key).verify(&signed, &given).is_ok()
            })
        })
}

/// SendGrid's `X-Twilio-Email-Event-Webhook-Signature`: base64 of an ECDSA signature (P-256, SHA-256, ASN.1) over the time
/// of `X-Twilio-Email-Event-Webhook-Timestamp` and the body. The keys are base64 of a SubjectPublicKeyInfo (RFC 5280
/// section 4.1.2.7).
///
/// Source: SendGrid, "Getting Started with the Event Webhook Security Features"
/// (<https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features>).
pub fn verify_sendgrid(keys: &[&str], timestamp: &str, body: &[u8], header: &str, now: Timestamp) -> bool {
    let Ok(given) = BASE64.decode(header.as_bytes()) else { return false };
    let signed = [timestamp.as_bytes(), body].concat();
    fresh(timestamp, now)
        && keys.iter().any(|key| {
            BASE64.decode(key.as_bytes()).is_ok_and(|key| {
                let key = signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, key);
                key.verify(&signed, &given).is_ok()
            })
        })
}

/// A header that stands there once.
pub fn one_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// A secret that a header holds as it is. An empty secret proves nothing.
pub fn verify_secret(secrets: &[&str], given: &str) -> bool {
    secrets.iter().any(|secret| !secret.is_empty() && same(secret.as_bytes(), given.as_bytes()))
}

/// HTTP Basic authorisation (RFC 7617 section 2).
pub fn verify_basic(user: &str, passwords: &[&str], header: &str) -> bool {
    let encoded = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
    let Some(Ok(given)) = encoded.map(|(_, encoded)| BASE64.decode(encoded.trim().as_bytes())) else { return false };
    passwords.iter().any(|password| same(&given, format!("{user}:{password}").as_bytes()))
}

/// A secret that the URL holds, as the last segment of its path or as the query's `key`. An empty secret proves nothing.
pub fn verify_secret_path(secrets: &[&str], path: &str, key: Option<&str>) -> bool {
    let segment = path.rsplit('/').next().unwrap_or_default();
    secrets.iter().filter(|s| !s.is_empty()).any(|secret| {
        same(secret.as_bytes(), segment.as_bytes()) || key.is_some_and(|key| same(secret.as_bytes(), key.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    const URL: &str = "https://mycompany.com/myapp.php?foo=1&bar=2";
    const TWILIO: &str = "RSOYDt4T1cUTdK1PDd93/VVr8B8=";

    fn form() -> Vec<(String, String)> {
        [
            ("To", "+18005551212"),
            ("CallSid", "CA1234567890ABCDE"),
            ("Caller", "+14158675309"),
            ("Digits", "1234"),
            ("From", "+14158675309"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    #[test]
    fn twilios_published_example_verifies_and_a_changed_one_does_not() {
        assert!(verify_twilio(&["other", "12345"], URL, &form(), b"", TWILIO, None));
        let with_port = URL.replace(".com/", ".com:443/");
        assert!(verify_twilio(&["12345"], &with_port, &form(), b"", TWILIO, None));
        assert!(!verify_twilio(&["12346"], URL, &form(), b"", TWILIO, None));
        assert!(!verify_twilio(&["12345"], &URL.replace("bar=2", "bar=3"), &form(), b"", TWILIO, None));
        let mut changed = form();
        changed[3].1 = "1235".to_owned();
        assert!(!verify_twilio(&["12345"], URL, &changed, b"", TWILIO, None));
        for header in ["", "!", "RSOYDt4T1cUTdK1PDd93"] {
            assert!(!verify_twilio(&["12345"], URL, &form(), b"", header, None), "{header}");
        }
    }

    #[test]
    fn twilios_other_algorithm_is_good_where_the_settings_name_it_and_no_other_is() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"shared");
        let header = BASE64.encode(hmac::sign(&key, URL.as_bytes()).as_ref());
        let verify = |settings| verify_twilio(&["12345", "shared"], URL, &[], b"", &header, settings);
        assert!(verify(Some("key=k1,algorithm=HMAC_SHA256")));
        for settings in [None, Some(""), Some("key=k1"), Some("key=k1,algorithm=HMAC_SHA1"), Some("algorithm=NONE")] {
            assert!(!verify(settings), "{settings:?}");
        }
    }

    #[test]
    fn each_value_of_a_repeated_field_counts_once() {
        let fields =
            [("Sid", "CA123"), ("SidAccount", "AC123"), ("Digits", "5678"), ("Digits", "1234"), ("Digits", "1234")];
        let form: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert!(verify_twilio(&["12345"], URL, &form, b"", "IK+Dwps556ElfBT0I3Rgjkr1wJU=", None));
    }

    #[test]
    fn a_body_that_twilio_vouches_for_in_the_url_must_be_that_one() {
        let hash = HEXLOWER.encode(digest::digest(&digest::SHA256, b"{}").as_ref());
        let url = format!("https://example.org/x?bodySHA256={hash}");
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"t");
        let header = BASE64.encode(hmac::sign(&key, url.as_bytes()).as_ref());
        assert!(verify_twilio(&["t"], &url, &[], b"{}", &header, None));
        assert!(!verify_twilio(&["t"], &url, &[], b"{ }", &header, None));
    }

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const STANDARD: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_published_standard_webhook_verifies_within_five_minutes_only() {
        let verify =
            |secret: &str, body, header: &str, now| verify_standard(&[secret], ID, "1614265330", body, header, at(now));
        for now in [1_614_265_330, 1_614_265_030, 1_614_265_630] {
            assert!(verify(SECRET, BODY, STANDARD, now), "{now}");
        }
        for now in [1_614_265_029, 1_614_265_631, 0] {
            assert!(!verify(SECRET, BODY, STANDARD, now), "{now}");
        }
        for list in [format!("v1a,AAAA v1,AAAA {STANDARD}"), format!("{STANDARD}, v1,AAAA")] {
            assert!(verify(SECRET, BODY, &list, 1_614_265_330), "{list}");
        }
        assert!(verify(&format!("v1,{SECRET}"), BODY, STANDARD, 1_614_265_330));
        assert!(!verify(SECRET, b"{}", STANDARD, 1_614_265_330));
        assert!(!verify("whsec_AAAA", BODY, STANDARD, 1_614_265_330));
        assert!(!verify(SECRET, BODY, &STANDARD.replace("v1,", "v2,"), 1_614_265_330));
        assert!(!verify_standard(&[SECRET], ID, "soon", BODY, STANDARD, at(1_614_265_330)));
    }

    #[test]
    fn a_telnyx_receipt_is_bound_to_its_time_and_body() {
        let pair = Ed25519KeyPair::generate().expect("a key pair");
        let key = BASE64.encode(pair.public_key().as_ref());
        let header = BASE64.encode(pair.sign(b"1000|{}").as_ref());
        let verify = |keys: &[&str], time: &str, body: &[u8], now| verify_telnyx(keys, time, body, &header, at(now));
        assert!(verify(&["bad", &key], "1000", b"{}", 1299));
        assert!(!verify(&[&key], "1000", b"{}", 1301));
        assert!(!verify(&[&key], "1001", b"{}", 1000));
        assert!(!verify(&[&key], "1000", b"{ }", 1000));
        assert!(!verify(&[], "1000", b"{}", 1000));
    }

    // The example of SendGrid's own libraries (github.com/sendgrid/sendgrid-nodejs, packages/eventwebhook, tests).
    const SENDGRID_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    const SENDGRID: &str =
        "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=";
    const SENDGRID_BODY: &str = concat!(
        r#"[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]"#,
        "\r\n"
    );

    #[test]
    fn sendgrids_published_example_verifies_and_a_changed_one_does_not() {
        let verify = |key: &str, time: &str, body: &str, now| {
            verify_sendgrid(&["bad", key], time, body.as_bytes(), SENDGRID, at(now))
        };
        let time = 1_600_112_502;
        assert!(verify(SENDGRID_KEY, "1600112502", SENDGRID_BODY, time));
        for now in [time - 301, time + 301] {
            assert!(!verify(SENDGRID_KEY, "1600112502", SENDGRID_BODY, now), "{now}");
        }
        assert!(!verify(SENDGRID_KEY, "1600112503", SENDGRID_BODY, time));
        assert!(!verify(SENDGRID_KEY, "1600112502", &SENDGRID_BODY.replace("dropped", "delivered"), time));
        assert!(!verify(&SENDGRID_KEY.replace("83T4O", "83T4P"), "1600112502", SENDGRID_BODY, time));
    }

    #[test]
    fn a_password_or_path_must_be_the_whole_secret() {
        let header = format!("Basic {}", BASE64.encode(b"hook:s3cret"));
        assert!(verify_basic("hook", &["old", "s3cret"], &header));
        assert!(!verify_basic("hook", &["s3cre"], &header));
        assert!(!verify_basic("hook", &["s3cret"], &header.replace("Basic", "Bearer")));
        assert!(verify_secret_path(&["s3cret"], "/v1/receipts/x/s3cret", None));
        assert!(verify_secret_path(&["s3cret"], "/v1/receipts/x", Some("s3cret")));
        assert!(!verify_secret_path(&["s3cret", ""], "/v1/receipts/x/", Some("")));
    }

    #[test]
    fn a_webhook_secret_without_a_key_in_it_proves_nothing() {
        let empty = hmac::Key::new(hmac::HMAC_SHA256, b"");
        let forged = format!("v1,{}", BASE64.encode(hmac::sign(&empty, b"id.1000.{}").as_ref()));
        let now = Timestamp::from_micros(1_000_000_000);
        assert!(!verify_standard(&["whsec_", ""], "id", "1000", b"{}", &forged, now));
    }
}
