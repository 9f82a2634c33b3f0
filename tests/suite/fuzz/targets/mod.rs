//! What strangers may send: each target takes any bytes, and panics when a property does not hold of them.
//!
//! The ordinary suite runs each for a while (`fuzz.rs`), and `fuzz/` lets cargo-fuzz run them for as long as anybody likes.

mod admission;
mod hook;
mod manifest;
mod receipt;
mod records;
mod smpp;
mod smtp;

/// One target, with the inputs that runs begin with.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How often the ordinary suite runs it.
    pub runs: u32,
}

pub const ALL: &[Target] = &[
    Target { name: "admission_body", run: admission::body, seeds: admission::bodies, runs: 20_000 },
    Target { name: "idempotency_header", run: admission::header, seeds: admission::headers, runs: 20_000 },
    Target { name: "phone", run: admission::phone, seeds: admission::phones, runs: 3_000 },
    Target { name: "mailbox", run: admission::mailbox, seeds: admission::mailboxes, runs: 10_000 },
    Target { name: "message", run: admission::message, seeds: admission::messages, runs: 2_000 },
    Target { name: "manifest", run: manifest::manifest, seeds: manifest::manifests, runs: 500 },
    Target { name: "manifest_template", run: manifest::template, seeds: manifest::templates, runs: 5_000 },
    Target { name: "smtp_reply", run: smtp::reply, seeds: smtp::replies, runs: 20_000 },
    Target { name: "smpp_pdu", run: smpp::pdu, seeds: smpp::pdus, runs: 20_000 },
    Target { name: "receipt", run: receipt::receipt, seeds: receipt::receipts, runs: 3_000 },
    Target { name: "hook_body", run: hook::body, seeds: hook::bodies, runs: 5_000 },
    Target { name: "record", run: records::record, seeds: records::records, runs: 5_000 },
];

/// Runs the target of this name.
#[allow(dead_code, reason = "for the targets of cargo-fuzz")]
pub fn run(name: &str, data: &[u8]) {
    let target = ALL.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(data);
}

/// Stands in the secret places of every seed. It has digits, so that no refusal takes it for the name of a field.
const CANARY: &str = "C4N4RY";

/// Holds that what is said of an input does not repeat what is secret in it.
fn assert_quiet(said: impl std::fmt::Display) {
    let said = said.to_string();
    assert!(!said.contains(CANARY) && said.len() < 1000, "{said}");
}

fn seeds<const N: usize>(texts: [&str; N]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.replace("CANARY", CANARY).into_bytes()).collect()
}
