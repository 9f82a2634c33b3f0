//! What providers send us, and what others send in their name.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use data_encoding::BASE64;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sendonce::domain::ids::ProviderName;
use sendonce::domain::time::Timestamp;
use sendonce::provider::http_provider::{HttpProvider, HttpTimeouts};
use sendonce::provider::manifest::shipped;
use sendonce::provider::{Provider as _, ReceiptError, ReceiptRequest};
use sendonce::vault::IndexKey;

use super::{assert_quiet, seeds};

const NOW: i64 = 1_800_000_000;
const PUBLIC: &str = "https://hooks.shop.example";
const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=";

pub fn receipts() -> Vec<Vec<u8>> {
    seeds([
        "\x00\x00\x07\x01MessageStatus=delivered&MessageSid=SM1&To=%2B12025550143",
        "\x01\x00\x07\x01{\"data\":{\"payload\":{\"id\":\"t1\",\"to\":[{\"status\":\"delivered\"}]}}}",
        "\x02\x00\x07\x01{\"type\":\"email.delivered\",\"data\":{\"email_id\":\"r1\"}}",
        "\x03\x00\x07\x01{\"RecordType\":\"Delivery\",\"MessageID\":\"p1\",\"Metadata\":{\"ref\":\"CANARY\"}}",
        "\x04\x00\x07\x01{\"results\":[{\"messageId\":\"m1\",\"status\":{\"groupId\":3,\"id\":5}}]}",
    ])
}

fn pair() -> &'static Ed25519KeyPair {
    static PAIR: OnceLock<Ed25519KeyPair> = OnceLock::new();
    PAIR.get_or_init(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key pair"))
}

/// The shipped providers, one for each way to prove an origin.
fn providers() -> &'static [HttpProvider; 5] {
    static PROVIDERS: OnceLock<[HttpProvider; 5]> = OnceLock::new();
    PROVIDERS.get_or_init(|| {
        let index = Arc::new(IndexKey::parse("i AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key"));
        let key = BASE64.encode(pair().public_key().as_ref());
        let webhook = format!("whsec_{SECRET}");
        let own: [(&str, &[(&str, &str)]); 5] = [
            ("twilio", &[("auth_token", SECRET)]),
            ("telnyx", &[("public_key", &key)]),
            ("resend", &[("webhook_secret", &webhook)]),
            ("postmark", &[("receipt_user", "hook"), ("receipt_password", SECRET)]),
            ("infobip", &[("receipt_secret", SECRET)]),
        ];
        own.map(|(name, own)| {
            let manifest = shipped(name).expect("shipped").expect("without mistakes");
            let required = manifest.settings().iter().filter(|(_, setting)| setting.required);
            let mut settings: BTreeMap<_, _> = required.map(|(name, _)| (name.clone(), "x".into())).collect();
            settings.insert("base_url".to_owned(), "https://provider.example".into());
            settings.extend(own.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
            let timeouts = HttpTimeouts { connect: Duration::from_secs(1), total: Duration::from_secs(2) };
            let name = ProviderName::parse(name).expect("a name");
            let built =
                HttpProvider::build(name, Arc::new(manifest), settings, timeouts, index.clone(), Some(PUBLIC.into()));
            built.expect("good settings")
        })
    })
}

/// The parts of a request that prove where it comes from, and the body.
#[derive(Clone)]
struct Signed {
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// What Twilio signs of a form: its decoded fields, sorted, each once; `None` when it is no form.
fn twilio_tail(body: &[u8]) -> Option<String> {
    let mut url = reqwest::Url::parse("form:/").ok()?;
    url.set_query(Some(std::str::from_utf8(body).ok()?));
    let mut fields: Vec<(String, String)> = url.query_pairs().map(|(n, v)| (n.into_owned(), v.into_owned())).collect();
    fields.sort();
    fields.dedup();
    Some(fields.into_iter().flat_map(|(name, value)| [name, value]).collect())
}

/// The request as its provider would send it.
fn signed(scheme: usize, body: &[u8]) -> Option<Signed> {
    let mac = |algorithm, key: &[u8], parts: &[&[u8]]| {
        BASE64.encode(hmac::sign(&hmac::Key::new(algorithm, key), &parts.concat()).as_ref())
    };
    let time = NOW.to_string();
    let path = |name: &str| format!("/v1/receipts/{name}?ref=abc");
    let (path, headers) = match scheme {
        0 => {
            let (path, tail) = (path("twilio"), twilio_tail(body)?);
            let signed: [&[u8]; 3] = [PUBLIC.as_bytes(), path.as_bytes(), tail.as_bytes()];
            let tag = mac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes(), &signed);
            (path, vec![("x-twilio-signature", tag)])
        }
        1 => {
            let tag = BASE64.encode(pair().sign(&[time.as_bytes(), b"|", body].concat()).as_ref());
            (path("telnyx"), vec![("telnyx-signature-ed25519", tag), ("telnyx-timestamp", time)])
        }
        2 => {
            let key = BASE64.decode(SECRET.as_bytes()).expect("base64");
            let tag = mac(hmac::HMAC_SHA256, &key, &[b"msg_1.", time.as_bytes(), b".", body]);
            let tag = format!("v1,{tag}");
            (path("resend"), vec![("svix-signature", tag), ("svix-timestamp", time), ("svix-id", "msg_1".to_owned())])
        }
        3 => {
            let tag = BASE64.encode(format!("hook:{SECRET}").as_bytes());
            (path("postmark"), vec![("authorization", format!("Basic {tag}"))])
        }
        _ => (format!("/v1/receipts/infobip?key={}", SECRET.replace('=', "%3D")), vec![]),
    };
    Some(Signed { path, headers, body: body.to_vec() })
}

fn taken(scheme: usize, signed: &Signed) -> bool {
    let header = |(name, value): &(&'static str, String)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
    };
    // What is no header is refused before.
    let Some(headers) = signed.headers.iter().map(header).collect::<Option<HeaderMap>>() else { return false };
    let (path_and_query, body) = (signed.path.clone(), signed.body.clone().into());
    let request = ReceiptRequest { path_and_query, method: Method::POST, headers, body };
    assert_quiet(format!("{request:?}"));
    let receipts = providers()[scheme].receipts(&request, Timestamp::from_micros(NOW * 1_000_000));
    match receipts.now_or_never().expect("none of them fetches anything") {
        Ok(receipts) => {
            assert!(receipts.iter().all(|r| r.reference.is_none()), "a reference that we never gave");
            true
        }
        Err(error) => {
            assert_quiet(error);
            error == ReceiptError::Unreadable
        }
    }
}

/// What a provider signed is taken for its own, and with one octet changed, wherever it is, it is not.
///
/// The input: which scheme, where the change is (two octets), what it is, and the body.
pub fn receipt(data: &[u8]) {
    let Some((&[scheme, at, at_low, change], body)) = data.split_first_chunk::<4>() else { return };
    let scheme = usize::from(scheme) % providers().len();
    let Some(good) = signed(scheme, body) else { return };
    assert!(taken(scheme, &good), "a true receipt was refused");

    let at = usize::from(u16::from_be_bytes([at, at_low]));
    let mut forged = good.clone();
    let places = good.headers.len() + 2;
    let place = at % places;
    let changed = match place {
        0 => flip(&mut forged.body, at / places, change),
        1 => false,
        header => {
            let (_, value) = &mut forged.headers[header - 2];
            // The scheme's name is the same in any case.
            let from = if value.starts_with("Basic ") { 6 } else { 0 };
            let mut bytes = value.split_off(from).into_bytes();
            let changed = flip(&mut bytes, at / places, change);
            value.push_str(&String::from_utf8_lossy(&bytes));
            changed
        }
    };
    // Nothing but a secret proves the last two, so that their bodies may be anything.
    let proves_body = scheme < 3 && !(scheme == 0 && twilio_tail(&forged.body) == twilio_tail(&good.body));
    if changed && (place > 1 || proves_body) {
        assert!(!taken(scheme, &forged), "a forged receipt was taken");
    }
    let mut elsewhere = good;
    elsewhere.path = elsewhere.path.replace("ref=abc", "ref=abd").replace("key=c", "key=d");
    assert!(matches!(scheme, 1..=3) || !taken(scheme, &elsewhere), "another URL was taken");
}

/// Changes one octet; `false` when that changes nothing.
fn flip(bytes: &mut [u8], at: usize, change: u8) -> bool {
    let len = bytes.len();
    match bytes.get_mut(at % len.max(1)) {
        Some(byte) if change != 0 => {
            *byte ^= change;
            true
        }
        _ => false,
    }
}
