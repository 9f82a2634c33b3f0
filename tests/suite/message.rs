//! A message from its data to the bytes on the wire, read back by decoders that share nothing with what made them.

use data_encoding::BASE64;
use proptest::prelude::*;
use sendonce::domain::address::MailAddress;
use sendonce::domain::content::{Channel, Mail};
use sendonce::domain::ids::Kind;
use sendonce::domain::time::Timestamp;
use sendonce::provider::mime::{MailEnvelope, MimeError, mime};
use sendonce::render::templates::Templates;
use serde_json::json;

const LINK: &str = "https://shop.example/reset/confirm?token=eyJhbGciOi.JIUzI1NiJ9=abc-DEF_123~xyz&next=%2Faccount%3Ftab%3Dsecurity==&lang=vi#top=";

fn address(text: &str) -> MailAddress {
    MailAddress::parse(text).expect("an address")
}

fn rendered(locale: &str, app: &str) -> Mail {
    rendered_link(locale, app, LINK)
}

fn rendered_link(locale: &str, app: &str, link: &str) -> Mail {
    let kind = Kind::parse("password_reset").expect("a kind");
    let data = json!({ "code": "493021", "link": link, "app": app });
    let data = data.as_object().expect("an object");
    let templates = Templates::shipped().expect("sound");
    let content = templates.render(&kind, Some(locale), data, &[Channel::Email], 10, 1).expect("renders");
    content.mail.clone().expect("a mail")
}

fn built(mail: &Mail, to: &MailAddress) -> Vec<u8> {
    let from = address("no-reply@shop.example");
    let envelope = MailEnvelope {
        from_name: Some("Tiệm Sách"),
        from: &from,
        to,
        message_id: "ntf_0198c7f4-0000-7000-8000-00000000000a.3@shop.example",
        date: Timestamp::parse_rfc3339("2026-11-29T14:00:00.9Z").expect("a time"),
    };
    mime(mail, &envelope).expect("builds")
}

struct Part {
    headers: Vec<(String, String)>,
    body: String,
}

impl Part {
    fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = &found.next().unwrap_or_else(|| panic!("no {name}")).1;
        assert!(found.next().is_none(), "{name} stands twice");
        value
    }
}

fn parsed(message: &str) -> Part {
    let (head, body) = message.split_once("\r\n\r\n").expect("headers end");
    let unfolded = head.replace("\r\n ", " ").replace("\r\n\t", " ");
    let headers = unfolded
        .split("\r\n")
        .map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())).expect("a header"))
        .collect();
    Part { headers, body: body.to_owned() }
}

fn parts(whole: &Part) -> Vec<Part> {
    let kind = whole.header("Content-Type");
    assert!(kind.starts_with("multipart/alternative"), "{kind}");
    let boundary = kind.split_once("boundary=\"").expect("a boundary").1.split('"').next().expect("quoted");
    assert!(boundary.len() <= 70);
    let (inner, _) = whole.body.split_once(&format!("--{boundary}--")).expect("the last boundary");
    inner.split(&format!("--{boundary}\r\n")).skip(1).map(parsed).collect()
}

/// RFC 2045 section 6.7, straight from its rules.
fn quoted_printable(text: &str) -> String {
    let mut out = Vec::new();
    let joined = text.replace("=\r\n", "");
    let mut bytes = joined.bytes();
    while let Some(b) = bytes.next() {
        assert!(b.is_ascii(), "an 8-bit octet in quoted-printable");
        if b == b'=' {
            let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
            let digits = str::from_utf8(&digits).expect("ASCII");
            out.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).expect("UTF-8")
}

/// RFC 2047 encoded words in base64; blanks between two of them fall away.
fn encoded_words(text: &str) -> String {
    let joined = text.replace("?= =?", "?==?");
    let mut out = String::new();
    let mut rest = joined.as_str();
    while let Some(at) = rest.to_ascii_lowercase().find("=?utf-8?b?") {
        out.push_str(&rest[..at]);
        let (word, after) = rest[at + 10..].split_once("?=").expect("the word ends");
        out.push_str(&String::from_utf8(BASE64.decode(word.as_bytes()).expect("base64")).expect("UTF-8"));
        rest = after;
    }
    out + rest
}

#[test]
fn the_link_and_every_letter_survive_the_wire() {
    for locale in ["en", "vi"] {
        let mail = rendered(locale, "Tiệm Sách");
        let whole = parsed(&String::from_utf8(built(&mail, &address("user@example.org"))).expect("ASCII"));
        assert_eq!(encoded_words(whole.header("Subject")), mail.subject);
        let parts = parts(&whole);
        assert_eq!(parts.len(), 2);
        for (part, kind, text) in [(&parts[0], "text/plain", &mail.text), (&parts[1], "text/html", &mail.html)] {
            assert_eq!(part.header("Content-Type"), format!("{kind}; charset=utf-8"));
            assert_eq!(part.header("Content-Transfer-Encoding"), "quoted-printable");
            assert_eq!(quoted_printable(&part.body).replace("\r\n", "\n").trim_end(), text.trim_end());
        }
        assert!(quoted_printable(&parts[0].body).contains(LINK));
        let html = quoted_printable(&parts[1].body).replace("&amp;", "&");
        assert!(html.contains(&format!("<a href=\"{LINK}\">{LINK}</a>")));
    }
}

#[test]
fn the_same_message_is_the_same_to_the_byte_within_the_limits_of_a_line() {
    let mail = rendered("vi", &"ế".repeat(40));
    let to = address("user@example.org");
    let bytes = built(&mail, &to);
    assert_eq!(bytes, built(&mail.clone(), &to.clone()));
    assert!(bytes.is_ascii());
    let text = String::from_utf8(bytes).expect("ASCII");
    assert!(text.split("\r\n").all(|line| line.len() <= 78 && !line.contains(['\r', '\n'])));
}

#[test]
fn the_headers_say_who_when_and_that_no_person_wrote_it() {
    let text = String::from_utf8(built(&rendered("en", "Shop"), &address("u@bücher.example"))).expect("ASCII");
    let whole = parsed(&text);
    assert_eq!(whole.header("Date"), "Sun, 29 Nov 2026 14:00:00 +0000");
    assert_eq!(whole.header("Message-ID"), "<ntf_0198c7f4-0000-7000-8000-00000000000a.3@shop.example>");
    assert_eq!(whole.header("Auto-Submitted"), "auto-generated");
    assert_eq!(whole.header("MIME-Version"), "1.0");
    assert_eq!(whole.header("To"), "u@xn--bcher-kva.example");
    assert_eq!(encoded_words(whole.header("From")), "Tiệm Sách <no-reply@shop.example>");
    assert!(whole.headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("bcc")));
}

#[test]
fn odd_mailboxes_reach_the_header_as_they_are() {
    let mail = rendered("en", "Shop");
    for (to, header) in [
        ("\"john doe\"@example.org", "\"john doe\"@example.org"),
        ("\"a@b\"@example.org", "\"a@b\"@example.org"),
        ("root@localhost", "root@localhost"),
        ("nguyễn@ví-dụ.vn", "nguyễn@ví-dụ.vn"),
    ] {
        let text = String::from_utf8(built(&mail, &address(to))).expect("UTF-8");
        assert_eq!(parsed(&text).header("To"), header);
    }
}

#[test]
fn no_header_can_be_forged() {
    let (from, to) = (address("no-reply@shop.example"), address("user@example.org"));
    let sound = MailEnvelope {
        from_name: None,
        from: &from,
        to: &to,
        message_id: "ntf_1@shop.example",
        date: Timestamp::from_micros(i64::MAX),
    };
    let mail = rendered("en", "Shop");
    assert!(mime(&mail, &sound).is_ok());
    for id in ["", "ntf_1", "a@b@c", "@shop.example", "ntf 1@shop.example", "a\r\nBcc: x@y.z", "<a@b>", "é@b"] {
        assert_eq!(mime(&mail, &MailEnvelope { message_id: id, ..sound }), Err(MimeError::MessageId), "{id:?}");
    }
    let forged = MailEnvelope { from_name: Some("Shop\r\nBcc: x@example.org"), ..sound };
    assert_eq!(mime(&mail, &forged), Err(MimeError::Header));
    let mut mail = mail.clone();
    mail.subject.push_str("\r\nBcc: x@example.org");
    assert_eq!(mime(&mail, &sound), Err(MimeError::Header));
}

/// The five characters that have a meaning in HTML; `&` last, so that nothing is read twice.
fn unescaped(html: &str) -> String {
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#x27;", "'"), ("&amp;", "&")];
    escapes.iter().fold(html.to_owned(), |text, (escape, c)| text.replace(escape, c))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_link_of_visible_ascii_arrives_byte_for_byte(tail in "[!-~]{0,300}", vietnamese: bool) {
        let link = format!("https://shop.example/{tail}");
        let mail = rendered_link(if vietnamese { "vi" } else { "en" }, "Shop", &link);
        let whole = parsed(&String::from_utf8(built(&mail, &address("user@example.org"))).expect("ASCII"));
        let parts = parts(&whole);
        let text = quoted_printable(&parts[0].body);
        prop_assert!(text.split("\r\n").any(|line| line == link));
        let html = quoted_printable(&parts[1].body);
        let (_, from_href) = html.split_once("<a href=\"").expect("a link");
        let (href, from_tag) = from_href.split_once('"').expect("quoted");
        let (shown, _) = from_tag.split_once("</a>").expect("the link ends");
        prop_assert_eq!(unescaped(href), link.clone());
        prop_assert_eq!(unescaped(shown.strip_prefix('>').expect("the tag ends")), link);
    }
}
