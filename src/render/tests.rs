use std::fs;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::templates::{Mistake, RenderRefusal, Templates};
use crate::domain::content::{Channel, Content};
use crate::domain::ids::Kind;

const BOTH: [Channel; 2] = [Channel::Sms, Channel::Email];
const LINK: &str = "https://shop.example/r?t=a-b_c~d&x=%2F'\"<>&amp;=+#frag/;:@!$()*,[]";

fn kind() -> Kind {
    Kind::parse("password_reset").expect("a kind")
}

fn shipped() -> Templates {
    Templates::shipped().expect("the shipped templates are sound")
}

fn data(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn render(locale: Option<&str>, value: Value) -> Result<Content, RenderRefusal> {
    shipped().render(&kind(), locale, &data(value), &BOTH, 10, 8)
}

/// Undoes HTML escapes by their definition, knowing nothing of who made them.
fn unescaped(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let (name, after) = rest[at + 1..].split_once(';').expect("an escape ends");
        rest = after;
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            _ => {
                let hex = name.strip_prefix("#x").expect("a known escape");
                char::from_u32(u32::from_str_radix(hex, 16).expect("hex")).expect("a character")
            }
        });
    }
    out + rest
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).expect("the start is there") + start.len();
    &text[from..from + text[from..].find(end).expect("the end is there")]
}

#[test]
fn a_link_arrives_byte_for_byte_in_every_part() {
    for locale in ["en", "vi"] {
        let content = render(Some(locale), json!({ "link": LINK })).expect("renders");
        let mail = content.mail.as_ref().expect("a mail");
        assert!(content.sms.as_deref().expect("an sms").lines().any(|line| line == LINK));
        assert!(mail.text.lines().any(|line| line == LINK));
        assert_eq!(unescaped(between(&mail.html, "<a href=\"", "\"")), LINK);
        let (_, shown) = between(&mail.html, "<a ", "</a>").split_once('>').expect("the tag ends");
        assert_eq!(unescaped(shown), LINK);
        assert!(mail.html.contains("https://shop.example/r?t="), "gateways find a link without reading escapes");
        assert!(!mail.subject.contains("shop.example"));
    }
}

#[test]
fn a_message_says_all_it_was_given_and_how_long_it_holds() {
    for (locale, minutes) in [("en", "10 min"), ("vi", "10 phút")] {
        let given = json!({ "code": "493021", "link": "https://shop.example/r", "app": "Tiệm <Sách>" });
        let content = render(Some(locale), given).expect("renders");
        let mail = content.mail.as_ref().expect("a mail");
        let sms = content.sms.as_deref().expect("an sms");
        for text in [sms, &mail.text, &unescaped(between(&mail.html, "<body", "</body>"))] {
            for word in ["493021", "https://shop.example/r", "Tiệm <Sách>", minutes] {
                assert!(text.contains(word), "{locale}: {word}");
            }
        }
        assert!(mail.html.contains("Tiệm &lt;Sách&gt;"));
        assert!(!mail.subject.contains("493021"), "a subject shows on locked screens");
    }
}

#[test]
fn only_what_the_channels_need_is_rendered() {
    let given = data(json!({ "code": "493021" }));
    let sms = shipped().render(&kind(), None, &given, &[Channel::Sms], 10, 8).expect("renders");
    assert!(sms.sms.is_some() && sms.mail.is_none());
    let mail = shipped().render(&kind(), None, &given, &[Channel::Email], 10, 0).expect("renders");
    assert!(mail.sms.is_none() && mail.mail.is_some());
}

#[test]
fn the_nearest_locale_is_taken() {
    for (wanted, vietnamese) in [
        (None, false),
        (Some("en"), false),
        (Some("vi"), true),
        (Some("VI"), true),
        (Some("vi-VN"), true),
        (Some("vi_VN"), true),
        (Some("vi-Latn-VN"), true),
        (Some("de"), false),
        (Some("vie"), false),
        (Some("../vi"), false),
        (Some(""), false),
    ] {
        let content = render(wanted, json!({ "code": "1" })).expect("renders");
        assert_eq!(content.sms.as_deref().expect("an sms").contains("mã đặt lại"), vietnamese, "{wanted:?}");
    }
}

#[test]
fn data_that_does_not_fit_is_refused_by_name_and_never_by_value() {
    let name = |n: &str| n.to_owned();
    for (given, refusal) in [
        (json!({}), RenderRefusal::NoneOf(vec![name("code"), name("link")])),
        (json!({ "code": "" }), RenderRefusal::NoneOf(vec![name("code"), name("link")])),
        (json!({ "code": "1", "token": "s3cret" }), RenderRefusal::UnknownVariable(Some(name("token")))),
        (json!({ "code": "1", "s3cret-value": "x" }), RenderRefusal::UnknownVariable(None)),
        (json!({ "code": "1", "expires_minutes": "9" }), RenderRefusal::UnknownVariable(Some(name("expires_minutes")))),
        (json!({ "code": 493021 }), RenderRefusal::NotAString(name("code"))),
        (json!({ "code": null }), RenderRefusal::NotAString(name("code"))),
        (json!({ "code": "1".repeat(33) }), RenderRefusal::TooLong { name: name("code"), max: 32 }),
        (json!({ "code": "s3cret value" }), RenderRefusal::BadCode(name("code"))),
        (json!({ "code": "s3\ncret" }), RenderRefusal::ControlCharacter(name("code"))),
        (json!({ "code": "1", "app": "Shop\r\nBcc: x@y" }), RenderRefusal::ControlCharacter(name("app"))),
        (json!({ "code": "1", "app": "Shop\u{2028}x" }), RenderRefusal::ControlCharacter(name("app"))),
        (json!({ "code": "1", "app": "x".repeat(41) }), RenderRefusal::TooLong { name: name("app"), max: 40 }),
        (json!({ "link": "javascript:alert('s3cret')" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "//shop.example/s3cret" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "https:///s3cret" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "https://" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "x https://shop.example" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "https://shop.example/a b" }), RenderRefusal::BadLink(name("link"))),
        (json!({ "link": "https://shop.example/ế" }), RenderRefusal::BadLink(name("link"))),
    ] {
        let refused = render(None, given.clone()).expect_err("does not fit");
        assert_eq!(refused, refusal, "{given}");
        assert!(!format!("{refused} {refused:?}").contains("s3"), "{refused}");
    }
    let unknown = Kind::parse("welcome").expect("a kind");
    assert_eq!(
        shipped().render(&unknown, None, &Map::new(), &BOTH, 10, 8).expect_err("unknown"),
        RenderRefusal::UnknownKind
    );
}

#[test]
fn an_sms_of_too_many_parts_is_refused() {
    let given = data(json!({ "link": format!("https://shop.example/{}", "x".repeat(300)) }));
    let refused = shipped().render(&kind(), None, &given, &BOTH, 10, 2).expect_err("too long");
    assert_eq!(refused, RenderRefusal::TooManySmsParts { parts: 3, max: 2 });
    assert!(shipped().render(&kind(), None, &given, &BOTH, 10, 3).is_ok());
}

#[test]
fn a_code_takes_one_sms_in_english_and_two_in_vietnamese() {
    for (locale, max) in [("en", 1), ("vi", 2)] {
        let given = data(json!({ "code": "493021" }));
        assert!(shipped().render(&kind(), Some(locale), &given, &BOTH, 10, max).is_ok(), "{locale}");
    }
}

#[test]
fn a_kind_tells_its_bounds() {
    let templates = shipped();
    let rules = templates.kind(&kind()).expect("known");
    assert_eq!(rules.max_expires_in(), Duration::from_secs(86_400));
    assert_eq!(rules.default_locale(), "en");
    assert_eq!(templates.kinds().collect::<Vec<_>>(), [&kind()]);
    assert!(templates.kind(&Kind::parse("welcome").expect("a kind")).is_none());
}

#[test]
fn the_shipped_files_also_load_from_their_directory() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/templates");
    let loaded = Templates::load(&dir).expect("sound");
    let given = data(json!({ "code": "493021", "link": LINK, "app": "Shop" }));
    for locale in ["en", "vi"] {
        let [a, b] = [&loaded, &shipped()].map(|t| t.render(&kind(), Some(locale), &given, &BOTH, 10, 8));
        assert_eq!(a.expect("renders"), b.expect("renders"));
    }
}

/// A sound kind on disk, for tests to break.
fn written(dir: &Path, changes: &[(&str, Option<&str>)]) -> Result<Templates, Vec<String>> {
    let rules = "max_expires_in = 60\ndefault_locale = 'en'\none_of = ['code', 'link']\n\
                 [variables]\ncode = { type = 'code', required = false }\nlink = { type = 'link', required = false }\n\
                 name = { type = 'text' }\n";
    let body = "{{ name }} {{ code }} {{ link }}\n";
    let sound = [
        ("k/kind.toml", rules),
        ("k/en/sms.txt", body),
        ("k/en/mail.subject.txt", "Hello {{ name }}\n"),
        ("k/en/mail.txt", body),
        ("k/en/mail.html", body),
    ];
    let write = |file: &str, text: &str| {
        let path = dir.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    sound.iter().for_each(|(file, text)| write(file, text));
    for (file, text) in changes {
        match text {
            Some(text) => write(file, text),
            None => fs::remove_file(dir.join(file)).expect("removed"),
        }
    }
    Templates::load(dir).map_err(|mistakes| {
        mistakes.iter().map(|m| m.to_string().replace(&format!("{}/", dir.display()), "")).collect()
    })
}

#[test]
fn templates_of_a_directory_are_taken_with_hidden_files_passed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let templates = written(dir.path(), &[("k/.git/x", Some("")), (".hidden", Some(""))]).expect("sound");
    let given = data(json!({ "name": "Ann", "code": "1" }));
    let content = templates.render(&Kind::parse("k").expect("a kind"), None, &given, &BOTH, 1, 1).expect("renders");
    assert_eq!(content.sms.as_deref(), Some("Ann 1 "));
    assert_eq!(content.mail.as_ref().expect("a mail").subject, "Hello Ann");
}

#[test]
fn each_mistake_is_told_with_its_file() {
    let cases: [(&str, Option<&str>, &str); 17] = [
        ("k/en/sms.txt", None, "k/en/sms.txt: is missing"),
        ("k/en/sms.txt", Some("{{ code }}{{ link }}{{ nmae }}"), "k/en/sms.txt: uses `nmae`"),
        ("k/en/sms.txt", Some("{{ code }}"), "k/en/sms.txt: does not show `link`"),
        ("k/en/sms.txt", Some("{{ code"), "k/en/sms.txt: does not parse: line 1"),
        ("k/en/sms.txt", Some("{{ code|nosuch }}{{ link }}"), "k/en/sms.txt: does not render: line 1"),
        ("k/en/sms.txt", Some("{{ code.x.y }}{{ link }}"), "k/en/sms.txt: does not render: line 1"),
        ("k/en/mail.subject.txt", Some("{{ name }}\nBcc: a@b\n"), "k/en/mail.subject.txt: has a line break"),
        ("k/en/mail.subject.txt", Some("{{ name }}\rX"), "k/en/mail.subject.txt: has a line break"),
        ("k/en/mail.html", Some("{% autoescape false %}{{ name }}{{ code }}{{ link }}{% endautoescape %}"), "shows `"),
        ("k/en/mail.htm", Some(""), "k/en/mail.htm: is not expected here"),
        ("k/notes.txt", Some(""), "k/notes.txt: is not expected here"),
        ("k/english/sms.txt", Some(""), "k/english: is no locale"),
        ("K!/x", Some(""), "K!/x: is not expected here"),
        ("k/kind.toml", None, "k/kind.toml: is missing"),
        ("k/kind.toml", Some("max_expires = 1"), "k/kind.toml: does not read"),
        ("k/kind.toml", Some("max_expires_in = 0\ndefault_locale = 'vi'"), "default_locale is `vi`"),
        ("k/de/sms.txt", Some("{{ code }}{{ link }}"), "k/de/mail.html: is missing"),
    ];
    for (file, text, told) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        let mistakes = written(dir.path(), &[(file, text)]).expect_err(told);
        assert!(mistakes.iter().any(|m| m.contains(told)), "{told}: {mistakes:?}");
    }
}

#[test]
fn mistakes_in_many_files_are_told_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let rules = "max_expires_in = 0\ndefault_locale = 'en'\none_of = ['phone', 'name']\n\
                 [variables]\nname = { type = 'text' }\nunused = { type = 'text' }\n\
                 expires_minutes = { type = 'text' }\nBad = { type = 'text' }\n";
    let changes = [("k/kind.toml", Some(rules)), ("k/en/mail.html", None)];
    let mistakes = written(dir.path(), &changes).expect_err("unsound");
    for told in [
        "max_expires_in must be",
        "one_of names `phone`",
        "one_of names `name`",
        "`expires_minutes` cannot name",
        "`Bad` cannot name",
        "declares `unused`",
        "k/en/mail.html: is missing",
        "k/en/mail.txt: uses `code`",
    ] {
        assert!(mistakes.iter().any(|m| m.contains(told)), "{told}: {mistakes:?}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_a_mistake() {
    let mistakes = Templates::load(Path::new("/nonexistent/templates")).expect_err("not there");
    assert_eq!(mistakes.len(), 1);
    assert!(matches!(mistakes[0].mistake, Mistake::Unreadable(_)));
}

/// Costs far more than any message needs.
fn endless() -> String {
    let list = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let nested = |inner: String| format!("{{% for x in {list} %}}{inner}{{% endfor %}}");
    (0..5).fold("x".to_owned(), |inner, _| nested(inner))
}

#[test]
fn a_template_that_works_without_end_is_a_mistake() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = format!("{{{{ code }}}}{{{{ link }}}}{}", endless());
    let mistakes = written(dir.path(), &[("k/en/sms.txt", Some(&text))]).expect_err("too much");
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    assert!(mistakes[0].contains("engine ran out of fuel"), "{mistakes:?}");
}

#[test]
fn a_template_that_fails_only_later_refuses_the_message() {
    for (late, refusal) in
        [(endless(), RenderRefusal::TooMuchFuel), ("{{ code.secret.x }}".to_owned(), RenderRefusal::Broken)]
    {
        let dir = tempfile::tempdir().expect("a directory");
        let text = format!("{{{{ code }}}}{{{{ link }}}}{{% if expires_minutes > 99 %}}{late}{{% endif %}}");
        let templates = written(dir.path(), &[("k/en/sms.txt", Some(&text))]).expect("sound with sample data");
        let kind = Kind::parse("k").expect("a kind");
        let given = data(json!({ "name": "Ann", "code": "1" }));
        assert!(templates.render(&kind, None, &given, &BOTH, 99, 1).is_ok());
        assert_eq!(templates.render(&kind, None, &given, &BOTH, 100, 1), Err(refusal));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn no_text_breaks_out_of_the_html(app in "[^\\p{C}]{1,40}", code in "[!-~]{1,32}") {
        let rendered = render(Some("en"), json!({ "app": app, "code": code }));
        if app.contains(['\u{2028}', '\u{2029}']) {
            prop_assert_eq!(rendered, Err(RenderRefusal::ControlCharacter("app".to_owned())));
            return Ok(());
        }
        let content = rendered.expect("renders");
        let mail = content.mail.as_ref().expect("a mail");
        let shown = between(&mail.html, "letter-spacing:4px\">", "</p>");
        prop_assert_eq!(unescaped(shown), code);
        let plain = render(Some("en"), json!({ "app": "x", "code": "1" })).expect("renders");
        let tags = plain.mail.as_ref().expect("a mail").html.matches('<').count();
        prop_assert_eq!(mail.html.matches('<').count(), tags);
    }
}
