//! Signatures by HMAC-SHA-256 that have a form of their own.

use aws_lc_rs::hmac;
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};

use super::{TOLERANCE_SECONDS, fresh, fresh_within};
use crate::domain::time::Timestamp;

/// How long ago the time that Mailgun signed may lie: it repeats what was not taken for 8 hours.
const MAILGUN_PAST_SECONDS: i64 = 8 * 60 * 60 + TOLERANCE_SECONDS;

fn signed_by_one(secrets: &[&str], text: &[u8], given: &[u8]) -> bool {
    secrets.iter().filter(|secret| !secret.is_empty()).any(|secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        hmac::verify(&key, text, given).is_ok()
    })
}

/// A signature over the body alone, which many senders make. It proves no time: what is repeated must be known by its
/// content.
pub fn verify_body(secrets: &[&str], body: &[u8], given: &[u8]) -> bool {
    signed_by_one(secrets, body, given)
}

/// Sinch's `x-sinch-webhook-signature`: base64 of HMAC-SHA-256 over `BODY.NONCE.TIMESTAMP`.
///
/// Source: Sinch, "Webhooks" (<https://developers.sinch.com/docs/sms/api-reference/sms/tag/Webhooks/>).
pub fn verify_sinch(secrets: &[&str], body: &[u8], nonce: &str, timestamp: &str, header: &str, now: Timestamp) -> bool {
    let Ok(given) = BASE64.decode(header.as_bytes()) else { return false };
    let signed = [body, b".", nonce.as_bytes(), b".", timestamp.as_bytes()].concat();
    fresh(timestamp, now) && signed_by_one(secrets, &signed, &given)
}

/// Mailgun's `signature`, which stands in the body: hex of HMAC-SHA-256 over a time and a token. It vouches for neither the
/// rest of the body nor for the recipient, so nothing in such a receipt may be believed beyond what our own reference in it
/// proves.
///
/// Source: Mailgun, "Securing Webhooks"
/// (<https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks>).
pub fn verify_mailgun(secrets: &[&str], timestamp: &str, token: &str, signature: &str, now: Timestamp) -> bool {
    let Ok(given) = HEXLOWER_PERMISSIVE.decode(signature.as_bytes()) else { return false };
    let signed = [timestamp.as_bytes(), token.as_bytes()].concat();
    fresh_within(timestamp, now, MAILGUN_PAST_SECONDS) && signed_by_one(secrets, &signed, &given)
}

/// The `sig` of Vonage's SMS API: hex of HMAC-SHA-256 over `&NAME=VALUE` of all other fields, sorted by name, with `&` and
/// `=` in values turned into `_`. Of the methods that an account can choose only this one is taken.
///
/// Source: Vonage, "Signing messages" (<https://developer.vonage.com/en/getting-started/concepts/signing-messages>).
pub fn verify_vonage_sms(secrets: &[&str], form: &[(String, String)], now: Timestamp) -> bool {
    let value = |name: &str| form.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str());
    let Ok(given) = HEXLOWER_PERMISSIVE.decode(value("sig").as_bytes()) else { return false };
    let mut fields: Vec<_> = form.iter().filter(|(name, _)| name != "sig").collect();
    fields.sort();
    let text: String = fields.iter().map(|(n, v)| format!("&{n}={}", v.replace(['&', '='], "_"))).collect();
    fresh(value("timestamp"), now) && signed_by_one(secrets, text.as_bytes(), &given)
}

/// Plivo's `X-Plivo-Signature-V3`: a list with base64 of HMAC-SHA-256 over the URL, its query sorted, the form's fields
/// sorted, and the nonce of `X-Plivo-Signature-V3-Nonce`. `query` and `form` are decoded; `url` is without its query.
///
/// Version 2 is not taken: it covers neither the query, where our reference stands, nor the form.
///
/// Source: Plivo, "Signature validation" (<https://www.plivo.com/docs/messaging/concepts/signature-validation>).
pub fn verify_plivo(
    tokens: &[&str],
    url: &str,
    query: &[(String, String)],
    form: &[(String, String)],
    nonce: &str,
    header: &str,
) -> bool {
    let sorted = |pairs: &[(String, String)], link: &str| {
        let mut texts: Vec<_> = pairs.iter().collect();
        texts.sort();
        texts.iter().map(|(name, value)| format!("{name}{link}{value}")).collect::<Vec<_>>()
    };
    let mut text = url.to_owned();
    if !query.is_empty() || !form.is_empty() {
        text = format!("{text}?{}", sorted(query, "=").join("&"));
    }
    if !query.is_empty() && !form.is_empty() {
        text.push('.');
    }
    text.push_str(&sorted(form, "").concat());
    text = format!("{text}.{nonce}");
    let mut given = header.split(',').filter_map(|one| BASE64.decode(one.trim().as_bytes()).ok());
    given.any(|given| signed_by_one(tokens, text.as_bytes(), &given))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The signatures were made with Python's hmac module, Plivo's with the library that the vendor publishes.
    const NOW: i64 = 1_700_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_sinch_signature_is_bound_to_body_nonce_and_time() {
        let header = "bxT2Wbt4lvBHR5T9Sy05XO02Rj9319lC3COcHt70/9U=";
        let verify =
            |secrets: &[&str], body: &[u8], nonce, time, now| verify_sinch(secrets, body, nonce, time, header, at(now));
        for now in [NOW - 300, NOW, NOW + 300] {
            assert!(verify(&["new", "s3cret"], b"{}", "n1", "1700000000", now), "{now}");
        }
        for now in [NOW - 301, NOW + 301] {
            assert!(!verify(&["s3cret"], b"{}", "n1", "1700000000", now), "{now}");
        }
        assert!(!verify(&["s3cre"], b"{}", "n1", "1700000000", NOW));
        assert!(!verify(&["s3cret"], b"{ }", "n1", "1700000000", NOW));
        assert!(!verify(&["s3cret"], b"{}", "n2", "1700000000", NOW));
        assert!(!verify(&["s3cret"], b"{}", "n1", "1700000001", NOW));
        assert!(!verify(&[], b"{}", "n1", "1700000000", NOW));
    }

    #[test]
    fn a_mailgun_signature_holds_as_long_as_mailgun_repeats_itself() {
        let signature = "63d7bc1defbc77a4e17a8306d03b1c79c1c1bef306cccf8bf3aa0d7281ddec8e";
        let verify = |secrets: &[&str], time, token, now| verify_mailgun(secrets, time, token, signature, at(now));
        for now in [NOW - 300, NOW, NOW + MAILGUN_PAST_SECONDS] {
            assert!(verify(&["new", "key-1"], "1700000000", "t0k3n", now), "{now}");
        }
        for now in [NOW - 301, NOW + MAILGUN_PAST_SECONDS + 1] {
            assert!(!verify(&["key-1"], "1700000000", "t0k3n", now), "{now}");
        }
        assert!(!verify(&["key-1"], "1700000001", "t0k3n", NOW));
        assert!(!verify(&["key-1"], "1700000000", "t0k3m", NOW));
        assert!(!verify(&["key-2"], "1700000000", "t0k3n", NOW));
        assert!(!verify_mailgun(&["key-1"], "1700000000", "t0k3n", "", at(NOW)));
    }

    #[test]
    fn a_vonage_signature_covers_every_field_but_itself() {
        let sig = "e929945b0bc30bfb98f0adf00b1ee282839549dac0cacca31dff5be7233143a2";
        let fields = [("timestamp", "1700000000"), ("status", "delivered"), ("client-ref", "a&b=c"), ("nonce", "n")];
        let verify = |secrets: &[&str], fields: &[(&str, &str)], sig: &str, now| {
            verify_vonage_sms(secrets, &pairs(&[fields, &[("sig", sig)]].concat()), at(now))
        };
        assert!(verify(&["new", "s3cret"], &fields, sig, NOW));
        assert!(verify(&["s3cret"], &fields, &sig.to_uppercase(), NOW));
        for now in [NOW - 301, NOW + 301] {
            assert!(!verify(&["s3cret"], &fields, sig, now), "{now}");
        }
        let mut changed = fields;
        changed[1].1 = "failed";
        assert!(!verify(&["s3cret"], &changed, sig, NOW));
        assert!(!verify(&["s3cret"], &[fields.as_slice(), &[("more", "1")]].concat(), sig, NOW));
        assert!(!verify(&["s3cret"], &fields, "", NOW));
        assert!(!verify_vonage_sms(&["s3cret"], &pairs(&fields), at(NOW)));
    }

    #[test]
    fn a_plivo_signature_covers_url_query_form_and_nonce() {
        let url = "https://hooks.shop.example/v1/receipts/plivo";
        let (query, form) = (pairs(&[("ref", "abc")]), pairs(&[("To", "12025550143"), ("Status", "delivered")]));
        let verify = |tokens: &[&str], query: &[_], form: &[_], nonce, header: &str| {
            verify_plivo(tokens, url, query, form, nonce, header)
        };
        let header = "GLf67JxQee1+gGczr5J/g//5sBhmopUIHOA9O/3NFHg=";
        assert!(verify(&["new", "t0k3n"], &query, &form, "n1", header));
        assert!(verify(&["t0k3n"], &query, &form, "n1", &format!("AAAA,{header}")));
        assert!(verify(&["t0k3n"], &[], &form, "n1", "/NWwgR+vVEQFsSYiyykCJWUKJQFK6n280mXEWp9yshs="));
        assert!(verify(&["t0k3n"], &query, &[], "n1", "IX8EfRRkzg/ew127ccZcPkG2D5vsb7UJzAl03BTdKzo="));
        assert!(!verify(&["t0k3"], &query, &form, "n1", header));
        assert!(!verify(&["t0k3n"], &pairs(&[("ref", "abd")]), &form, "n1", header));
        assert!(!verify(&["t0k3n"], &query, &form[..1], "n1", header));
        assert!(!verify(&["t0k3n"], &query, &form, "n2", header));
        assert!(!verify(&["t0k3n"], &query, &form, "n1", ""));
    }

    #[test]
    fn an_empty_secret_proves_nothing() {
        let empty = hmac::Key::new(hmac::HMAC_SHA256, b"");
        let forged = BASE64.encode(hmac::sign(&empty, b"{}.n.1700000000").as_ref());
        assert!(!verify_sinch(&[""], b"{}", "n", "1700000000", &forged, at(NOW)));
    }
}
