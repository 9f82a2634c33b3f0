//! Providers that a manifest describes, over real sockets.

mod answers;
mod contract;
mod faults;
mod live;
mod manifests;
mod page;
mod receipts;
mod requests;
mod signer;
mod sns;
mod table;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use sendonce::clock::ManualClock;
use sendonce::domain::address::{Address, MailAddress, PhoneNumber};
use sendonce::domain::content::{Channel, Content, Mail};
use sendonce::domain::ids::{NotificationId, ProviderName};
use sendonce::domain::outcome::{Outcome, OutcomeClass, Reason};
use sendonce::domain::time::Timestamp;
use sendonce::provider::gate::Gate;
use sendonce::provider::http_provider::{HttpProvider, HttpTimeouts, SettingMistake};
use sendonce::provider::manifest::{Manifest, shipped};
use sendonce::provider::{Dispatch, Inquiry, Provider as _};
use sendonce::vault::IndexKey;

use crate::support::http_oracle::{HttpOracle, Reply};
use contract::Contract;

const PUBLIC: &str = "https://hooks.shop.example";
const KEY: &str = "0123456789abcdef0123456789abcdef";
const ID: NotificationId = NotificationId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
/// Long enough for a busy machine: for answers that do come.
const PATIENT: HttpTimeouts = HttpTimeouts { connect: Duration::from_secs(10), total: Duration::from_secs(20) };
/// For answers that never come.
const HASTY: HttpTimeouts = HttpTimeouts { connect: Duration::from_millis(500), total: Duration::from_millis(800) };

fn index() -> Arc<IndexKey> {
    Arc::new(IndexKey::parse("i AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key"))
}

fn reference(attempt: u8) -> String {
    index().reference(ID, attempt).to_string()
}

fn build(
    manifest: Manifest,
    settings: BTreeMap<String, SecretString>,
    timeouts: HttpTimeouts,
    public_url: Option<&str>,
) -> Result<HttpProvider, Vec<SettingMistake>> {
    let name = ProviderName::parse(manifest.name()).expect("a name");
    HttpProvider::build(name, Arc::new(manifest), settings, timeouts, index(), public_url.map(str::to_owned))
}

fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, SecretString> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect()
}

/// A shipped provider at `base_url`, with more settings.
fn provider(name: &str, base_url: &str, more: &[(&str, &str)]) -> HttpProvider {
    timed(name, base_url, more, PATIENT)
}

/// A shipped provider that does not wait long.
fn hasty(name: &str, base_url: &str) -> HttpProvider {
    timed(name, base_url, &[], HASTY)
}

fn timed(name: &str, base_url: &str, more: &[(&str, &str)], timeouts: HttpTimeouts) -> HttpProvider {
    let example = (name == page::EXAMPLE.0).then(|| Manifest::parse("pigeon.toml", page::EXAMPLE.1));
    let manifest = example.or_else(|| shipped(name)).expect("shipped").expect("without mistakes");
    let mut settings = Contract::of(name).settings();
    settings.extend(secret(more));
    settings.insert("base_url".to_owned(), base_url.into());
    build(manifest, settings, timeouts, Some(PUBLIC)).expect("good settings")
}

/// A provider of a manifest of the test's own.
fn custom(text: &str, base_url: &str, more: &[(&str, &str)]) -> HttpProvider {
    let manifest = Manifest::parse("custom.toml", text).expect("without mistakes");
    let mut settings = secret(more);
    settings.insert("base_url".to_owned(), base_url.into());
    build(manifest, settings, PATIENT, None).expect("good settings")
}

fn address(channel: Channel) -> Address {
    match channel {
        Channel::Sms => Address::Sms(PhoneNumber::parse("+12025550143").expect("a number")),
        Channel::Email => Address::Email(MailAddress::parse("user@example.org").expect("an address")),
    }
}

fn dispatch(channel: Channel) -> Dispatch {
    let mail = Mail { subject: "Reset & go".into(), text: "Code 493021".into(), html: "<b>493021</b>".into() };
    Dispatch {
        id: ID,
        to: address(channel),
        content: Content { sms: Some("Code 493021 & more: é".into()), mail: Some(mail) },
        reference: reference(1),
        dedupe_key: KEY.into(),
        admitted_at: NOW,
        expires_at: NOW.plus(Duration::from_secs(630)),
    }
}

/// A gate that lets everything through, ten minutes before the end.
fn gate() -> Gate {
    Gate::new(ManualClock::at(NOW), Duration::from_secs(60), NOW.plus(Duration::from_secs(600)))
}

fn inquiry() -> Inquiry {
    Inquiry {
        id: ID,
        reference: reference(1),
        dedupe_key: KEY.into(),
        to: None,
        message_id: None,
        began_at: NOW,
        now: NOW.plus(Duration::from_secs(300)),
    }
}

async fn send(provider: &HttpProvider) -> Outcome {
    provider.send(&dispatch(provider.channel()), &gate()).await
}

/// Class and reason in one line, as tables compare them.
fn told(outcome: &Outcome) -> String {
    format!("{} {}", outcome.class, outcome.reason)
}
