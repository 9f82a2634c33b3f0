//! An app that is told, on a real socket: it checks every signature itself, with nothing of the product, and counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use data_encoding::BASE64;
use serde_json::Value;

use super::daemon::wait;
use super::http_oracle::{HttpOracle, Reply, Seen};

/// The app's secret, and an older one.
pub const SECRET: &str = "whsec_Q0FOQVJZIHNlY3JldCBvZiBjYWxsYmFja3MgNDIh";
pub const OLD_SECRET: &str = "whsec_Q0FOQVJZIG9sZGVyIHNlY3JldCBvZiBob29rcyAh";

/// A callback whose signatures are good.
#[derive(Clone, Debug)]
pub struct Told {
    pub id: String,
    /// Without `notification.`.
    pub change: String,
    pub notification: String,
    pub event_id: String,
    pub body: Value,
}

/// The app.
pub struct Hook {
    pub oracle: HttpOracle,
}

impl Hook {
    /// Takes everything.
    pub async fn start() -> Self {
        let oracle = HttpOracle::start().await;
        oracle.script(|_| Reply::status(204));
        Self { oracle }
    }

    /// The section of a configuration that tells it, with more lines.
    pub fn section(&self, more: &str) -> String {
        self.section_at(&format!("{}/hooks/sendonce", self.oracle.url()), more)
    }

    /// The same with another URL.
    pub fn section_at(&self, url: &str, more: &str) -> String {
        format!(
            "[callback.app]\ntenant = \"shop\"\nurl = \"{url}\"\nsecret_file = \"hook.secret\"\nallow_private = true\n\
             retry = {{ first = \"50ms\", factor = 1.0, cap = \"50ms\" }}\n{more}\n"
        )
    }

    /// What has come so far, in order, repeats and what was not taken included.
    pub fn told(&self) -> Vec<Told> {
        self.oracle.requests().iter().map(|seen| read(seen, &[SECRET])).collect()
    }

    /// Waits until `n` different callbacks have come, and gives all.
    pub async fn wait_for(&self, n: usize) -> Vec<Told> {
        wait(&format!("{n} callbacks"), async || ids(&self.told()).len() >= n).await;
        self.told()
    }
}

/// The different callbacks among these.
pub fn ids(told: &[Told]) -> BTreeSet<String> {
    told.iter().map(|told| told.id.clone()).collect()
}

/// The changes of each event in the order in which they first came.
pub fn by_event(told: &[Told]) -> BTreeMap<String, Vec<String>> {
    let (mut seen, mut by_event) = (BTreeSet::new(), BTreeMap::<String, Vec<String>>::new());
    for told in told.iter().filter(|told| seen.insert(told.id.clone())) {
        by_event.entry(told.event_id.clone()).or_default().push(told.change.clone());
    }
    by_event
}

/// Reads a request, which must be signed under each of these secrets, in this order, and under no other.
pub fn read(seen: &Seen, secrets: &[&str]) -> Told {
    let header = |name: &str| seen.header(name).unwrap_or_else(|| panic!("{name} in {seen:?}")).to_owned();
    assert_eq!((seen.method.as_str(), header("content-type").as_str()), ("POST", "application/json"));
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    assert!(timestamp.parse::<u64>().expect("seconds").abs_diff(now) < 300, "{timestamp} at {now}");
    assert!(!id.contains('.'), "{id}");
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &seen.body].concat();
    let wanted: Vec<String> = secrets
        .iter()
        .map(|secret| {
            let key = BASE64.decode(secret.trim_start_matches("whsec_").as_bytes()).expect("base64");
            let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
            format!("v1,{}", BASE64.encode(hmac::sign(&key, &signed).as_ref()))
        })
        .collect();
    assert_eq!(header("webhook-signature").split(' ').collect::<Vec<_>>(), wanted);
    let body = seen.json();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("a text in {body}")).to_owned();
    let kind = text(&body["type"]);
    Told {
        id,
        change: kind.strip_prefix("notification.").unwrap_or_else(|| panic!("{kind}")).to_owned(),
        notification: text(&body["data"]["id"]),
        event_id: text(&body["data"]["event_id"]),
        body,
    }
}
