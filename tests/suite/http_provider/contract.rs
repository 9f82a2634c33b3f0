//! The contract with each shipped provider, as `tests/suite/providers/NAME.toml` has it: the bytes that leave, how each
//! documented answer is read, and what receipts say. A provider more is a file more. The example of `docs/PROVIDERS.md` is held
//! to the contract that stands there.
//!
//! In a contract `$REF` stands for the attempt's reference, `$KEY` for the dedupe key, and `$SIGNATURE` for a signature that
//! is computed here, by code that is not the product's.

use std::fs;
use std::path::PathBuf;

use sendonce::domain::ids::ProviderMessageId;
use sendonce::domain::outcome::LookupAnswer;
use sendonce::domain::receipt::{Part, Receipt};
use sendonce::provider::manifest::SHIPPED;
use sendonce::provider::{Inquiry, ReceiptError};
use serde::Deserialize;

use super::signer::{Signer, signed_by_aws};
use super::*;
use crate::support::http_oracle::Seen;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// What can be done after a lost answer.
    abilities: Vec<String>,
    /// What a configuration gives, but for the secrets of receipts.
    settings: BTreeMap<String, String>,
    send: Call,
    lookup: Option<Call>,
    receipts: Option<Receipts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// The provider's id, where a look-up needs it.
    message_id: Option<String>,
    /// Method and path, then the headers, then the body.
    request: String,
    answers: Vec<Answer>,
}

/// Status, perhaps a header, body, and what is made of it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Bare(u16, String, String),
    Headed(u16, String, String, String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Receipts {
    /// Path and query of our own URL.
    path: String,
    /// What comes, and what is read: attempt, id and status of each receipt.
    cases: Vec<(String, String)>,
}

impl Contract {
    pub fn of(name: &str) -> Self {
        let path = folder().join(format!("{name}.toml"));
        let text = match name == page::EXAMPLE.0 {
            true => page::contract(),
            false => fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
        };
        let text = text.replace("$REF", &reference(1)).replace("$KEY", KEY);
        toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn settings(&self) -> BTreeMap<String, SecretString> {
        self.settings.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str()))).collect()
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/suite/providers")
}

/// Every manifest that has a contract.
fn contracts() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.iter().copied().chain([page::EXAMPLE])
}

/// The provider, with the secrets of its receipts.
fn contracted(name: &str, base_url: &str, signer: &Signer) -> HttpProvider {
    let secrets = signer.settings();
    let more: Vec<(&str, &str)> = secrets.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    provider(name, base_url, &more)
}

/// Fails with every difference at once.
#[track_caller]
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A request as contracts write it, without what every request has.
fn written(seen: &Seen) -> String {
    let of_every = ["host", "content-length", "user-agent"];
    let mut headers: Vec<String> = seen
        .headers
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value))
        .filter(|(name, value)| !(of_every.contains(&name.as_str()) || name == "accept" && *value == "*/*"))
        .map(|(name, value)| format!("{name}: {value}\n"))
        .collect();
    headers.sort();
    let body = seen.text();
    let gap = if body.is_empty() { "" } else { "\n" };
    format!("{} {}\n{}{gap}{body}", seen.method, seen.path, headers.concat())
}

fn check_request(name: &str, what: &str, call: &Call, seen: &Seen, wrong: &mut Vec<String>) {
    let wanted = match call.request.contains("$SIGNATURE") {
        true => call.request.replace("$SIGNATURE", &signed_by_aws(seen)),
        false => call.request.clone(),
    };
    let got = written(seen);
    if got.trim_end() != wanted.trim_end() {
        wrong.push(format!("{name}: {what}\n--- wanted\n{wanted}\n--- got\n{got}"));
    }
}

/// Every answer of `call`, and those that nobody documents.
fn answers(call: &Call, undocumented: &[(u16, &str, &str)]) -> Vec<(Reply, String, String)> {
    let reply = |status: u16, header: &str, body: &str| match header.split_once(": ") {
        Some((name, value)) => Reply::json(status, body).header(name, value),
        None => Reply::json(status, body),
    };
    let documented = call.answers.iter().map(|answer| match answer {
        Answer::Bare(status, body, told) => (reply(*status, "", body), format!("{status} {body}"), told.clone()),
        Answer::Headed(status, header, body, told) => {
            (reply(*status, header, body), format!("{status} {header} {body}"), told.clone())
        }
    });
    let others = undocumented.iter().map(|(s, b, told)| (reply(*s, "", b), format!("{s} {b}"), (*told).to_owned()));
    documented.chain(others).collect()
}

#[test]
fn every_shipped_provider_has_a_contract_and_every_contract_a_provider() {
    let mut found: Vec<String> = fs::read_dir(folder())
        .expect("the contracts")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut shipped: Vec<String> = SHIPPED.iter().map(|(name, _)| format!("{name}.toml")).collect();
    shipped.sort();
    assert_eq!(found, shipped);
}

#[tokio::test]
async fn each_provider_is_asked_in_exactly_the_bytes_of_its_contract() {
    let mut wrong = vec![];
    for (name, manifest) in contracts() {
        let contract = Contract::of(name);
        let oracle = HttpOracle::start().await;
        let provider = contracted(name, &oracle.url(), &Signer::of(manifest, &contract.settings));
        send(&provider).await;
        check_request(name, "send", &contract.send, &oracle.requests()[0], &mut wrong);
        if let Some(lookup) = &contract.lookup {
            provider.lookup(&question(&provider, lookup)).await;
            check_request(name, "look-up", lookup, &oracle.requests()[1], &mut wrong);
        }
    }
    assert_none(&wrong);
}

fn question(provider: &HttpProvider, lookup: &Call) -> Inquiry {
    let message_id = lookup.message_id.as_ref().map(|id| ProviderMessageId::parse(id).expect("an id"));
    Inquiry { message_id, to: Some(address(provider.channel())), ..inquiry() }
}

#[tokio::test]
async fn each_answer_to_a_send_is_read_as_its_contract_says() {
    let mut wrong = vec![];
    let undocumented = [
        (500, "", "unknown server_fault"),
        (503, "<html>", "unknown server_fault"),
        (408, "", "unknown server_fault"),
        (418, "{}", "unknown unclassified"),
        (404, "<html>", "unknown unclassified"),
        (302, "", "unknown redirected"),
        (307, "", "refused.account redirected"),
    ];
    for (name, manifest) in contracts() {
        let contract = Contract::of(name);
        let oracle = HttpOracle::start().await;
        let provider = contracted(name, &oracle.url(), &Signer::of(manifest, &contract.settings));
        let answers = answers(&contract.send, &undocumented);
        let asked = answers.len();
        for (reply, shown, wanted) in answers {
            oracle.play([reply]);
            let outcome = send(&provider).await;
            let id = outcome.message_id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            let got = format!("{}{id}", told(&outcome));
            if got != wanted {
                wrong.push(format!("{name}: {shown}\n    wanted {wanted}, got {got}"));
            }
        }
        assert_eq!(oracle.requests().len(), asked, "{name}: each is sent once");
    }
    assert_none(&wrong);
}

#[tokio::test]
async fn each_answer_to_a_look_up_is_read_as_its_contract_says() {
    let mut wrong = vec![];
    let undocumented = [
        (200, "", "unreadable"),
        (200, "<html>", "unreadable"),
        (200, "{}", "unreadable"),
        (401, "{}", "unreadable"),
        (404, "{}", "unreadable"),
        (429, "{}", "unreadable"),
        (500, "{}", "unreadable"),
    ];
    for (name, manifest) in contracts() {
        let contract = Contract::of(name);
        let Some(lookup) = &contract.lookup else { continue };
        let oracle = HttpOracle::start().await;
        let provider = contracted(name, &oracle.url(), &Signer::of(manifest, &contract.settings));
        for (reply, shown, wanted) in answers(lookup, &undocumented) {
            oracle.play([reply]);
            let got = match provider.lookup(&question(&provider, lookup)).await {
                LookupAnswer::Found { message_id, delivery } => {
                    let id = message_id.map_or("-".to_owned(), |id| id.to_string());
                    format!("found {id} {}", delivery.map_or("-", |status| status.code()))
                }
                LookupAnswer::NotFound => "not found".to_owned(),
                LookupAnswer::Unreadable => "unreadable".to_owned(),
            };
            if got != wanted {
                wrong.push(format!("{name}: {shown}\n    wanted {wanted}, got {got}"));
            }
        }
    }
    assert_none(&wrong);
}

fn written_receipt(receipt: &Receipt) -> String {
    let attempt = receipt.reference.as_ref().map_or("-".to_owned(), |r| {
        assert_eq!(r.id, ID);
        r.attempt.to_string()
    });
    let id = receipt.message_id.as_ref().map_or("-".to_owned(), ToString::to_string);
    let part = match receipt.part {
        Part::WHOLE => String::new(),
        part => format!(" {}/{}", part.index, part.of),
    };
    format!("{attempt} {id} {}{part}", receipt.status.code())
}

#[tokio::test]
async fn each_receipt_is_read_as_its_contract_says_and_no_forged_one_is() {
    let mut wrong = vec![];
    for (name, manifest) in contracts() {
        let contract = Contract::of(name);
        let Some(receipts) = &contract.receipts else { continue };
        let signer = Signer::of(manifest, &contract.settings);
        let sns = signer.sns().await;
        let mut settings = signer.settings();
        if manifest.contains("signature = \"sns\"") {
            settings.push(("sns_url".to_owned(), sns.url()));
        }
        let more: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let provider = provider(name, "http://127.0.0.1:9", &more);
        for (content, wanted) in &receipts.cases {
            let read = provider.receipts(&signer.sign(0, &receipts.path, content, NOW), NOW).await;
            let got = match &read {
                Ok(all) => all.iter().map(written_receipt).collect::<Vec<_>>().join("; "),
                Err(e) => e.to_string(),
            };
            if got != *wanted {
                wrong.push(format!("{name}: {content}\n    wanted {wanted}, got {got}"));
            }
        }
        let (content, _) = &receipts.cases[0];
        if signer.secrets() > 1 {
            let old = provider.receipts(&signer.sign(1, &receipts.path, content, NOW), NOW).await;
            assert!(old.is_ok(), "{name}: the secret before is still good");
        }
        for (what, forged) in signer.forgeries(&receipts.path, content) {
            let read = provider.receipts(&forged, NOW).await;
            if read != Err(ReceiptError::NotAuthentic) {
                wrong.push(format!("{name}: {what} was read: {read:?}"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn what_may_be_done_after_a_lost_answer_is_told_for_each_provider() {
    for (name, manifest) in contracts() {
        let contract = Contract::of(name);
        let provider = contracted(name, "http://127.0.0.1:9", &Signer::of(manifest, &contract.settings));
        let abilities = provider.abilities();
        let all = [
            ("look-up", abilities.lookup.is_some()),
            ("needs address", abilities.lookup.is_some_and(|l| l.needs_address)),
            ("a miss proves", abilities.lookup.is_some_and(|l| l.trust_miss)),
            ("dedupe", abilities.dedupe.is_some()),
            ("identical body", abilities.identical_body),
            ("receipts", abilities.receipts),
            ("receipts by id", abilities.receipts_by_id),
        ];
        let told: Vec<&str> = all.into_iter().filter(|(_, has)| *has).map(|(word, _)| word).collect();
        assert_eq!(told, contract.abilities, "{name}");
        assert_eq!(contract.lookup.is_some(), abilities.lookup.is_some(), "{name}");
        assert_eq!(contract.receipts.is_some(), abilities.receipts, "{name}");
        assert_eq!(abilities.send_timeout, PATIENT.total);
        let shown = format!("{provider:?}");
        assert!(contract.settings.values().filter(|value| value.len() > 3).all(|value| !shown.contains(value)));
    }
}
