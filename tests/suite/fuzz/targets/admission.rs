//! What apps send.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderValue};
use sendonce::domain::address::{Address, MailAddress, PhoneNumber};
use sendonce::domain::content::Channel;
use sendonce::domain::event::{EventRequest, Expiry};
use sendonce::domain::ids::{IdempotencyKey, Kind};
use sendonce::http::headers::{IDEMPOTENCY_KEY, idempotency_key};
use sendonce::render::templates::Templates;
use serde_json::{Map, Value, json};

use super::{CANARY, assert_quiet, seeds};

pub fn bodies() -> Vec<Vec<u8>> {
    seeds([
        r#"{"event_id":"e-1","kind":"password_reset","to":{"sms":"+84CANARY"},"expires_in":600}"#,
        r#"{"event_id":"e-1","kind":"password_reset","to":[{"sms":"+84901234567"},{"email":"CANARY@example.org"}],
            "locale":"vi","data":{"code":"CANARY","link":"https://shop.example/r?t=CANARY"},"user":"CANARY",
            "expires_at":"2026-11-29T12:00:00+07:00","occurred_at":"2026-11-29T05:00:00.123456Z"}"#,
        r#"{"event_id":"e","kind":"k","to":[{"sms":"\u0043ANARY"}],"data":{"CANARY":"\ud83d\ude00"},"expires_in":1}"#,
        r#"{"event_id":"e","kind":"k","to":{"sms":"1"},"expires_at":"9999-12-31T23:59:60-23:59"}"#,
    ])
}

/// A body is refused without an echo of it, or it is an event that, written down again, is the same event.
pub fn body(data: &[u8]) {
    let event = match EventRequest::parse(data) {
        Ok(event) => event,
        Err(refusal) => {
            assert_quiet(&refusal);
            return assert_quiet(format!("{refusal:?}"));
        }
    };
    if !event.event_id.as_str().contains(CANARY) {
        assert_quiet(format!("{event:?}"));
    }
    let again = EventRequest::parse(written(&event).to_string().as_bytes()).expect("what was taken once");
    assert!(again == event && again.fingerprint_parts() == event.fingerprint_parts(), "it changed");
    // A reader that we did not write found the same in it.
    let plain: Value = serde_json::from_slice(data).expect("JSON");
    assert_eq!(plain["event_id"], event.event_id.as_str());
    let id = event.event_id.as_str().to_ascii_lowercase();
    for (name, value) in &event.data {
        assert_eq!(plain["data"][name], value.as_str());
        assert!(value.len() < 4 || !id.contains(&value.to_ascii_lowercase()), "a secret in the event's name");
    }
}

fn written(event: &EventRequest) -> Value {
    let to = event.to.iter().map(|to| json!({ to.channel.code(): to.text.as_str() }));
    let data: Map<String, Value> = event.data.iter().map(|(name, v)| (name.clone(), v.as_str().into())).collect();
    let mut body =
        json!({ "event_id": event.event_id, "kind": event.kind, "to": to.collect::<Vec<_>>(), "data": data });
    let expiry = match event.expiry {
        Expiry::At(time) => ("expires_at", json!(time)),
        Expiry::In(seconds) => ("expires_in", json!(seconds)),
    };
    body[expiry.0] = expiry.1;
    for (name, value) in [
        ("locale", event.locale.as_ref().map(|locale| json!(locale))),
        ("user", event.user.as_ref().map(|user| json!(user.as_str()))),
        ("occurred_at", event.occurred_at.map(|at| json!(at))),
    ] {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    body
}

pub fn headers() -> Vec<Vec<u8>> {
    seeds(["CANARY", "\"CANARY\"", "\"a\"b\"", "\"", "8e03978e-40d5:1._", "a b", "\u{e9}"])
}

/// A header's value is one key in one of its two forms, or it is refused without an echo of it.
pub fn header(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let read = |values: &[&HeaderValue]| {
        let pairs = values.iter().map(|value| (IDEMPOTENCY_KEY, (*value).clone()));
        idempotency_key(&pairs.collect::<HeaderMap>())
    };
    // The grammar once more, by its letter.
    let text = data.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(data);
    let is_key = |b: &u8| b.is_ascii_alphanumeric() || b"._:-".contains(b);
    let wanted = (1..=IdempotencyKey::MAX).contains(&text.len()) && text.iter().all(is_key);
    match read(&[&value]) {
        Ok(key) => {
            assert!(wanted && key.as_str().as_bytes() == text, "{data:?}");
            let quoted = HeaderValue::from_str(&format!("\"{key}\"")).expect("visible ASCII");
            assert!(read(&[&quoted]) == Ok(key), "the quoted form is another key");
            assert!(read(&[&value, &quoted]).is_err(), "two keys were taken");
        }
        Err(problem) => {
            assert!(!wanted, "{data:?}");
            assert_quiet(serde_json::to_string(&problem.body()).expect("JSON"));
        }
    }
}

pub fn phones() -> Vec<Vec<u8>> {
    seeds([
        "+84901234567",
        "+4407911123456",
        "+12025550143",
        "+870773111632",
        "+2904123",
        "+390669821234",
        "+540291512345",
    ])
}

/// A number that is taken reads back, and so does its canonical form, which is its own.
pub fn phone(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(phone) = PhoneNumber::parse(text) else { return };
    assert_eq!(phone.e164(), text);
    stored(Address::Sms(phone.clone()));
    let canonical = PhoneNumber::parse(&phone.canonical()).expect("the canonical form is a number");
    assert_eq!(canonical.canonical(), canonical.e164(), "of {text}");
    assert_eq!(canonical.country(), phone.country(), "of {text}");
    assert!(!phone.mask().contains(&text[text.len() - 4..]), "{}", phone.mask());
}

pub fn mailboxes() -> Vec<Vec<u8>> {
    seeds([
        "CANARY@example.org",
        "\"CANARY a@b\\\"c\"@B\u{fc}cher.example",
        "nguy\u{1ec5}n@v\u{ed}-d\u{1ee5}.vn",
        "a.b+c@xn--bcher-kva.example",
        "root@localhost",
        "f\u{2022}@NS",
        "x@fa\u{df}.de",
    ])
}

/// A mailbox that is taken reads back in each of its forms, and no form breaks out of a line or a command.
pub fn mailbox(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mail = match MailAddress::parse(text) {
        Ok(mail) => mail,
        Err(refusal) => return assert_quiet(refusal),
    };
    stored(Address::Email(mail.clone()));
    for form in [mail.as_str(), &mail.envelope(), &mail.canonical()] {
        assert_eq!(MailAddress::parse(form).as_ref(), Ok(&mail), "{form}");
        assert!(form.len() <= MailAddress::MAX && !form.contains(char::is_control), "{form:?}");
    }
    assert!(mail.domain_ascii().bytes().all(|b| b.is_ascii_graphic() && !b"<>\"@".contains(&b)));
    let local = mail.local();
    // The dots that hide the rest may stand in an address as well.
    let told = local.chars().count() < 2 || local.contains('\u{2022}');
    assert!(told || !mail.mask().starts_with(local), "{}", mail.mask());
    if !mail.domain_ascii().contains(&CANARY.to_ascii_lowercase()) {
        assert_quiet(format!("{mail:?}"));
    }
}

/// It survives the store.
fn stored(address: Address) {
    let text = serde_json::to_string(&address).expect("JSON");
    assert_eq!(serde_json::from_str::<Address>(&text).expect("its own form"), address);
    assert_eq!(format!("{address:?}"), address.mask());
}

pub fn messages() -> Vec<Vec<u8>> {
    seeds([
        "493021\0https://shop.example/r?t=CANARY&x=1\0Shop",
        "CANARY<b>\0\0A & B <script>",
        "\0https://shop.example/'\"><img src=x>\0\u{202e}",
        "a\r\nBcc: x@example.org\0\0",
    ])
}

/// Data that is taken reaches the message as text: never as markup, and never as a header of its own.
pub fn message(data: &[u8]) {
    static TEMPLATES: OnceLock<Templates> = OnceLock::new();
    let Ok(text) = std::str::from_utf8(data) else { return };
    let templates = TEMPLATES.get_or_init(|| Templates::shipped().expect("sound"));
    let kind = Kind::parse("password_reset").expect("a kind");
    let values = ["code", "link", "app"].into_iter().zip(text.split('\0')).filter(|(_, value)| !value.is_empty());
    let values: Map<String, Value> = values.map(|(name, value)| (name.to_owned(), value.into())).collect();
    for locale in ["en", "vi"] {
        let channels = [Channel::Sms, Channel::Email];
        let content = match templates.render(&kind, Some(locale), &values, &channels, 10, 4) {
            Ok(content) => content,
            Err(refusal) => return assert_quiet(refusal),
        };
        let mail = content.mail.as_ref().expect("a mail");
        assert!(!mail.subject.contains(char::is_control), "{:?}", mail.subject);
        let texts = || values.values().filter_map(Value::as_str);
        // The template has markup of its own, and no canary.
        for value in texts().filter(|value| value.contains(CANARY) && value.contains(['<', '>', '"', '\''])) {
            assert!(!mail.html.contains(value), "{value} is markup in the mail");
        }
        let sms = content.sms.as_deref().expect("a text message");
        for value in texts() {
            assert!(!sms.contains(['\0', '\u{1b}']) && (sms.contains(value) || mail.text.contains(value)), "{value:?}");
        }
    }
}
