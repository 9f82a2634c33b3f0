use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn good() -> Value {
    json!({
        "event_id": "reset-8c1f0e", "kind": "password_reset",
        "to": [{"sms": "+84901234567"}, {"email": "user@example.org"}],
        "locale": "vi", "data": {"code": "493021", "link": "https://shop.example/r?t=x"},
        "user": "user-1841", "expires_in": 600, "occurred_at": "2026-11-29T12:00:00Z",
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = good();
    body[field] = value;
    body
}

fn without(field: &str) -> Value {
    let mut body = good();
    body.as_object_mut().expect("an object").remove(field);
    body
}

fn parse(body: &Value) -> Result<EventRequest, BadRequest> {
    EventRequest::parse(body.to_string().as_bytes())
}

fn parts(text: &str) -> Vec<Zeroizing<Vec<u8>>> {
    EventRequest::parse(text.as_bytes()).expect("a request").fingerprint_parts()
}

#[test]
fn a_request_is_read_whole() {
    let request = parse(&good()).expect("a request");
    assert_eq!(request.event_id.as_str(), "reset-8c1f0e");
    assert_eq!(request.to.iter().map(|a| a.channel).collect::<Vec<_>>(), [Channel::Sms, Channel::Email]);
    assert_eq!(request.data["code"].as_str(), "493021");
    assert_eq!(request.expiry, Expiry::In(600));
    let one = parse(&with("to", json!({"sms": "+84901234567"}))).expect("one address without a list");
    assert_eq!(one.to.len(), 1);
}

#[test]
fn what_is_wrong_is_told_by_field_and_never_by_value() {
    let long = "x".repeat(MAX_DATA_VALUE + 1);
    let many: serde_json::Map<String, Value> = (0..=MAX_DATA).map(|i| (format!("m{i}"), json!("v"))).collect();
    let table = [
        (without("event_id"), "event_id"),
        (with("event_id", json!("user@example.org")), "event_id"),
        (with("event_id", json!(7)), "event_id"),
        (without("kind"), "kind"),
        (without("to"), "to"),
        (with("to", json!([])), "to"),
        (with("to", json!(vec![json!({"sms": "+84901234567"}); 9])), "to"),
        (with("to", json!([{"sms": "+84901234567", "email": "user@example.org"}])), "to[0]"),
        (with("to", json!([{"sms": "+84901234567"}, {"fax": "493021"}])), "to[1]"),
        (with("to", json!([{"sms": 84_901_234_567_u64}])), "to[0].sms"),
        (with("to", json!({"sms": ""})), "to.sms"),
        (with("to", json!({"email": "x".repeat(MAX_ADDRESS + 1)})), "to.email"),
        (with("locale", json!("493021")), "locale"),
        (with("data", json!({"code": 493_021})), "a member of data"),
        (with("data", json!({"code": {"493021": "x"}})), "a member of data"),
        (with("data", json!({"code": long})), "a member of data"),
        (with("data", Value::Object(many)), "data"),
        (with("user", json!("")), "user"),
        (with("user", json!("u".repeat(257))), "user"),
        (with("expires_at", json!("2026-11-29T14:00:00Z")), "expires_in"),
        (without("expires_in"), "expires_at"),
        (with("expires_in", json!(0)), "expires_in"),
        (with("expires_in", json!(-1)), "expires_in"),
        (with("expires_in", json!(600.0)), "expires_in"),
        (with("expires_in", json!("600")), "expires_in"),
        (with("expires_in", Value::Null), "expires_in"),
        (with("occurred_at", json!("yesterday")), "occurred_at"),
        (with("colour", json!("493021")), "colour"),
        (with("+84901234567", json!("x")), "an unknown member"),
    ];
    for (body, field) in table {
        let refusal = parse(&body).expect_err(field);
        assert_eq!(refusal.field.as_deref(), Some(field), "{body}");
        let told = refusal.to_string();
        assert!(!["493021", "84901234567", "example", "xxxx"].iter().any(|secret| told.contains(secret)), "{told}");
    }
    assert_eq!(parse(&json!([])).expect_err("a list").field, None);
}

#[test]
fn a_value_may_be_as_long_as_its_limit() {
    let full: serde_json::Map<String, Value> = (0..MAX_DATA).map(|i| (format!("m{i}"), json!("v"))).collect();
    for body in [
        with("to", json!({"email": "x".repeat(MAX_ADDRESS)})),
        with("to", json!(vec![json!({"sms": "+84901234567"}); MAX_ADDRESSES])),
        with("data", Value::Object(full)),
        with("data", json!({"code": "x".repeat(MAX_DATA_VALUE)})),
        // Counted in characters.
        with("user", json!("ễ".repeat(MAX_USER))),
    ] {
        assert!(parse(&body).is_ok(), "{body}");
    }
}

#[test]
fn what_is_too_much_is_told_as_such_and_not_as_of_another_type() {
    let nine = vec![json!({"sms": "+84901234567"}); MAX_ADDRESSES + 1];
    for (body, told) in [
        (with("to", json!(nine)), "must name 1 to 8 addresses"),
        (with("data", json!({"code": "x".repeat(MAX_DATA_VALUE + 1)})), "is longer than"),
    ] {
        let what = parse(&body).expect_err(told).what;
        assert!(what.starts_with(told), "{what}");
    }
}

#[test]
fn a_language_tag_is_one_by_its_outer_form() {
    for good in ["en", "pt-BR", "zh-Hant-TW", "sl-rozaj-1994", "de-x-1", "abcdefgh-12345678"] {
        assert!(is_locale(good), "{good}");
    }
    let long = ["abcdefgh"; 4].join("-");
    assert!(is_locale(&long) && !is_locale(&format!("{long}-x")), "35 characters at most");
    for bad in ["", "e", "e1", "abcdefghi", "en-", "en-123456789", "en-a_b", "en_US", "en US"] {
        assert!(!is_locale(bad), "{bad}");
    }
}

#[test]
fn a_fault_of_the_form_is_told_by_its_field_where_it_has_one() {
    for (text, field) in [
        (r#"{"to":[{"sms":"1","sms":"1"}]}"#, Some("to[0].sms")),
        (r#"{"user":"a\u0000"}"#, Some("user")),
        (r#""\u0000""#, None),
        ("{", None),
    ] {
        let refusal = EventRequest::parse(text.as_bytes()).expect_err(text);
        assert_eq!(refusal.field.as_deref(), field, "{text}");
        assert!(refusal.to_string().starts_with(field.unwrap_or("the body")), "{refusal}");
    }
}

#[test]
fn names_that_hold_a_secret_are_refused() {
    for id in ["reset-493021", "reset-84901234567", "x:84901234567:1"] {
        assert_eq!(parse(&with("event_id", json!(id))).expect_err(id).field.as_deref(), Some("event_id"));
    }
    let request = parse(&good()).expect("a request");
    let check = |key: &str| request.check_key(&IdempotencyKey::parse(key).expect("a key"));
    assert!(check("4930").is_ok() && check("k-1").is_ok());
    assert_eq!(check("k-493021").expect_err("holds the code").field.as_deref(), Some("Idempotency-Key"));
    let short = parse(&with("data", json!({"code": "12"}))).expect("a request");
    assert!(short.check_key(&IdempotencyKey::parse("k-12").expect("a key")).is_ok());
}

#[test]
fn the_spelling_of_the_json_does_not_change_the_fingerprint() {
    let plain = r#"{"event_id":"e1","kind":"k","to":{"sms":"+84901234567"},"data":{"a":"1","b":"2"},"expires_in":600}"#;
    let other = "{ \"expires_in\" : 600, \"data\":{\"b\":\"2\",\n\"a\":\"\\u0031\"},
        \"to\":[{\"sms\":\"\\u002b84901234567\"}], \"kind\":\"k\", \"event_id\":\"e1\" }";
    assert!(parts(plain) == parts(other));
}

#[test]
fn every_value_changes_the_fingerprint() {
    let first = parts(&good().to_string());
    let changed = [
        with("event_id", json!("reset-2")),
        with("kind", json!("password_changed")),
        with("to", json!([{"email": "user@example.org"}, {"sms": "+84901234567"}])),
        with("to", json!([{"sms": "+84901234567"}])),
        with("locale", json!("en")),
        without("locale"),
        with("data", json!({"code": "493022", "link": "https://shop.example/r?t=x"})),
        with("data", json!({"code": "493021"})),
        without("user"),
        with("expires_in", json!(601)),
        without("occurred_at"),
    ];
    for body in changed {
        assert!(parts(&body.to_string()) != first, "{body}");
    }
}

proptest! {
    #[test]
    fn members_of_data_cannot_be_moved_across_their_borders(
        a in proptest::collection::btree_map("[a-c]{0,3}", "[a-c]{0,3}", 0..4),
        b in proptest::collection::btree_map("[a-c]{0,3}", "[a-c]{0,3}", 0..4),
    ) {
        let body = |data: &std::collections::BTreeMap<String, String>| with("data", json!(data)).to_string();
        prop_assert_eq!(parts(&body(&a)) == parts(&body(&b)), a == b);
    }

    #[test]
    fn no_body_makes_it_panic_or_is_echoed(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = EventRequest::parse(&bytes);
    }
}
