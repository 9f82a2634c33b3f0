//! Headers that are read closely: the idempotency key, the media type, entity tags and tracing.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};

use super::ndjson;
use super::problem::{Code, Problem};
use crate::domain::ids::IdempotencyKey;

/// `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Tells an answer that repeats an earlier one.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Names a request in the log.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Trace context (W3C).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The idempotency key. The draft's form is a quoted string (RFC 9651 section 3.3.3); the bare form that many clients
/// send is the same key. The allowed characters need no escape, so none is read.
///
/// # Errors
/// `idempotency-key-missing`; `idempotency-key-malformed` for two header lines and for other characters.
pub fn idempotency_key(headers: &HeaderMap) -> Result<IdempotencyKey, Problem> {
    let malformed = |why: String| Problem::new(Code::KeyMalformed, why).at("Idempotency-Key");
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Err(Problem::new(Code::KeyMissing, "every event needs an Idempotency-Key").at("Idempotency-Key"));
    };
    if values.next().is_some() {
        return Err(malformed("stands there twice".to_owned()));
    }
    let text = value.to_str().map_err(|_| malformed("has a character outside visible ASCII".to_owned()))?;
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    IdempotencyKey::parse(bare).map_err(|e| malformed(e.to_string()))
}

/// Refuses a body that is not plain `application/json`.
///
/// # Errors
/// `unsupported-media-type`.
pub fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    only(headers, "application/json", "the body must be application/json without a content coding")
}

/// Refuses a body that is not plain `application/x-ndjson`.
///
/// # Errors
/// `unsupported-media-type`.
pub fn ndjson_only(headers: &HeaderMap) -> Result<(), Problem> {
    only(headers, ndjson::MEDIA_TYPE, "the body must be application/x-ndjson without a content coding")
}

fn only(headers: &HeaderMap, wanted: &str, refusal: &'static str) -> Result<(), Problem> {
    let media = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    let encoded = headers.get_all(CONTENT_ENCODING).iter().any(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    if essence.eq_ignore_ascii_case(wanted) && !encoded {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, refusal))
}

/// `If-None-Match` holds `tag`, by weak comparison (RFC 9110 section 13.1.2).
pub fn none_match(headers: &HeaderMap, tag: &str) -> bool {
    let same = |given: &str| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag;
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|given| same(given.trim()))
}

/// The caller's name for the request, if it is a plain one of at most 64 characters.
pub fn request_id(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(REQUEST_ID)?.to_str().ok()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    ((1..=64).contains(&text.len()) && text.bytes().all(plain)).then_some(text)
}

/// A `traceparent` of the form that W3C Trace Context section 3.2 gives version 00.
pub fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let parts: Vec<&str> = text.split('-').collect();
    let sizes: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    (sizes == [2, 32, 16, 2] && parts.iter().all(|part| hex(part))).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_bytes(value.as_bytes()).expect("a header value"));
        }
        headers
    }

    fn key(values: &[&str]) -> Result<String, Code> {
        idempotency_key(&headers(IDEMPOTENCY_KEY, values)).map(|key| key.to_string()).map_err(|e| e.code())
    }

    #[test]
    fn the_quoted_and_the_bare_form_are_the_same_key() {
        assert_eq!(key(&["\"8e03978e-40d5:1\""]), key(&["8e03978e-40d5:1"]));
        assert_eq!(key(&["a"]), Ok("a".to_owned()));
    }

    #[test]
    fn anything_but_one_plain_key_is_refused() {
        assert_eq!(key(&[]), Err(Code::KeyMissing));
        let long = "k".repeat(256);
        for values in [
            &[""][..],
            &["\"\""],
            &["a", "a"],
            &["\"a"],
            &["a\""],
            &["a b"],
            &["a,b"],
            &["\"a\";x=1"],
            &["é"],
            &[&long],
        ] {
            assert_eq!(key(values), Err(Code::KeyMalformed), "{values:?}");
        }
    }

    #[test]
    fn only_plain_json_is_taken() {
        assert!(json_only(&headers(CONTENT_TYPE, &["application/json"])).is_ok());
        assert!(json_only(&headers(CONTENT_TYPE, &["Application/JSON; charset=utf-8"])).is_ok());
        assert!(json_only(&headers(CONTENT_TYPE, &["text/plain"])).is_err());
        assert!(json_only(&HeaderMap::new()).is_err());
        let mut encoded = headers(CONTENT_TYPE, &["application/json"]);
        encoded.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(json_only(&encoded).is_err());
    }

    #[test]
    fn entity_tags_compare_weakly_and_in_lists() {
        for given in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(none_match(&headers(IF_NONE_MATCH, &[given]), "\"a\""), "{given}");
        }
        assert!(!none_match(&headers(IF_NONE_MATCH, &["\"b\""]), "\"a\""));
        assert!(!none_match(&HeaderMap::new(), "\"a\""));
    }

    #[test]
    fn names_for_the_log_are_taken_only_if_plain() {
        assert_eq!(request_id(&headers(REQUEST_ID, &["req-1"])), Some("req-1"));
        assert_eq!(request_id(&headers(REQUEST_ID, &["user@example.org"])), None);
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(traceparent(&headers(TRACEPARENT, &[good])), Some(good));
        assert_eq!(traceparent(&headers(TRACEPARENT, &[&good.to_uppercase()])), None);
        assert_eq!(traceparent(&headers(TRACEPARENT, &["00-secret"])), None);
    }
}
