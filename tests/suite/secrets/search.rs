//! What was written or said, and the search for a secret in it in every form in which it may stand there.

use std::collections::BTreeSet;

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};
use serde_json::json;

/// All that the daemon and its store wrote or said, by where. Octets are kept as characters of the same number, so that a
/// search for text finds exactly the octets that it stands for.
#[derive(Default)]
pub struct Said(Vec<(String, String)>);

fn characters(octets: &[u8]) -> String {
    octets.iter().map(|octet| char::from(*octet)).collect()
}

/// A secret, and all its forms.
pub struct Secret {
    name: &'static str,
    forms: Vec<(&'static str, String)>,
}

impl Secret {
    /// One that is text.
    pub fn text(name: &'static str, secret: &str) -> Self {
        let mut forms = forms(secret.as_bytes());
        let units = |to: fn(u16) -> [u8; 2]| -> Vec<u8> { secret.encode_utf16().flat_map(to).collect() };
        let escaped: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let written = json!(secret).to_string();
        let written = written.trim_matches('"');
        let ascii = written.chars().map(|c| match c {
            c if c.is_ascii() => c.to_string(),
            c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        });
        forms.extend([
            ("JSON in ASCII", ascii.collect()),
            ("JSON", characters(written.as_bytes())),
            ("JSON with its slashes escaped", characters(written.replace('/', "\\/").as_bytes())),
            ("JSON, all of it escaped", escaped),
            ("UTF-16LE", characters(&units(u16::to_le_bytes))),
            ("UTF-16BE", characters(&units(u16::to_be_bytes))),
        ]);
        Self::of(name, forms)
    }

    /// One that is random octets, and the text that stands for them in its file.
    pub fn key(name: &'static str, text: &str) -> Self {
        let octets = BASE64.decode(text.as_bytes()).expect("base64");
        Self::of(name, [forms(text.as_bytes()), forms(&octets)].concat())
    }

    fn of(name: &'static str, mut forms: Vec<(&'static str, String)>) -> Self {
        let mut known = BTreeSet::new();
        forms.retain(|(_, form)| known.insert(form.clone()));
        Self { name, forms }
    }
}

/// The forms that any octets have.
fn forms(secret: &[u8]) -> Vec<(&'static str, String)> {
    let percent = |plain: fn(u8) -> bool, upper: bool| -> String {
        let one = |b: &u8| match (plain(*b), upper) {
            (true, _) => char::from(*b).to_string(),
            (false, true) => format!("%{b:02X}"),
            (false, false) => format!("%{b:02x}"),
        };
        secret.iter().map(one).collect()
    };
    let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let mut forms = vec![
        ("plain", characters(secret)),
        ("percent", percent(unreserved, true)),
        ("percent", percent(unreserved, false)),
        ("form", percent(unreserved, true).replace("%20", "+")),
        ("all percent", percent(|_| false, true)),
        ("all percent", percent(|_| false, false)),
        ("hex", HEXLOWER.encode(secret)),
        ("hex", HEXUPPER.encode(secret)),
    ];
    // In base64 a text looks different at each of three offsets; its first and last characters mix with its neighbours.
    for offset in 0..3 {
        let shifted = [&b"\0\0"[..offset], secret].concat();
        let whole = shifted.len() / 3 * 3;
        let first = if offset == 0 { 0 } else { 4 };
        forms.push(("base64", BASE64.encode(&shifted[..whole])[first..].to_owned()));
        forms.push(("base64url", BASE64URL.encode(&shifted[..whole])[first..].to_owned()));
    }
    forms
}

impl Said {
    pub fn heard(&mut self, place: impl Into<String>, octets: &[u8]) {
        self.0.push((place.into(), characters(octets)));
    }

    /// The same for much, of which octets outside ASCII are not kept.
    pub fn heard_much(&mut self, place: impl Into<String>, octets: &[u8]) {
        self.0.push((place.into(), String::from_utf8_lossy(octets).into_owned()));
    }

    /// Whether a place that begins so holds this.
    pub fn holds(&self, place: &str, part: &str) -> bool {
        self.0.iter().any(|(at, text)| at.starts_with(place) && text.contains(part))
    }

    /// Where the secret stands, and how.
    pub fn hits(&self, secret: &Secret) -> Vec<String> {
        let held = |text: &str| secret.forms.iter().find(|(_, form)| text.contains(form.as_str())).map(|(how, _)| *how);
        let hit = |(place, text): &(String, String)| Some(format!("{} ({}) in {place}", secret.name, held(text)?));
        self.0.iter().filter_map(hit).collect()
    }
}

#[test]
fn the_search_finds_a_secret_in_every_form_and_between_any_neighbours() {
    for text in ["CANARYcode48151623", "CANARY-link_~token%2Bend", "CANARY/api+key=42", super::PASSWORD] {
        let (secret, other) = (Secret::text("it", text), Secret::text("another", "CANARYother99"));
        for before in ["", "a", "bc", "def"] {
            let whole = format!("{before}{text}{before}");
            let utf16 = |to: fn(u16) -> [u8; 2]| whole.encode_utf16().flat_map(to).collect::<Vec<u8>>();
            let percent: String = whole.bytes().map(|b| format!("%{b:02x}")).collect();
            let escaped: String = whole.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            for written in [
                whole.clone().into_bytes(),
                BASE64.encode(whole.as_bytes()).into_bytes(),
                BASE64URL.encode(whole.as_bytes()).into_bytes(),
                HEXLOWER.encode(whole.as_bytes()).into_bytes(),
                json!(whole).to_string().into_bytes(),
                percent.into_bytes(),
                escaped.into_bytes(),
                utf16(u16::to_le_bytes),
                utf16(u16::to_be_bytes),
            ] {
                let mut said = Said::default();
                said.heard("here", &[b"\xff\0".as_slice(), &written, b"\xfe\0"].concat());
                assert_eq!(said.hits(&secret).len(), 1, "{text}: {}", String::from_utf8_lossy(&written));
                assert!(said.hits(&other).is_empty());
            }
        }
    }
    let key = Secret::key("a key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    let octets: Vec<u8> = (0..32).collect();
    for written in [octets.clone(), HEXLOWER.encode(&octets).into_bytes(), BASE64.encode(&octets).into_bytes()] {
        let mut said = Said::default();
        said.heard("here", &written);
        assert_eq!(said.hits(&key).len(), 1, "{written:?}");
    }
}
