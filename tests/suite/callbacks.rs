//! What an app is told, held against an app that checks signatures itself and counts.

mod changes;
mod faults;
mod nodes;
mod telling;

use serde_json::json;

use crate::promise::{oracle, taken};
use crate::support::daemon::{Daemon, Place, Plan, Strategy, event, phone, wait};
use crate::support::hook::{Hook, OLD_SECRET, SECRET, Told, by_event, ids, read};
use crate::support::http_oracle::{HttpOracle, Reply, Seen, post};

/// A plan with a provider that takes everything, and the app.
fn plan(provider: &HttpOracle, hook: &Hook, more: &str) -> Plan {
    plain_plan(provider).file("hook.secret", &format!("{SECRET}\n")).toml(&hook.section(more))
}

fn plain_plan(provider: &HttpOracle) -> Plan {
    Plan::new().http("probe", &provider.url(), &[Strategy::Receipts]).sms(&["probe"])
}

/// Posts the receipt that an event was delivered, by the reference of its attempt.
async fn deliver(daemon: &Daemon, provider: &HttpOracle, event_id: &str, status: &str) {
    let number = phone(event_id);
    let seen = provider.requests().into_iter().rev().find(|seen| seen.json()["to"] == json!(number));
    let reference = seen.expect("a send").json()["ref"].clone();
    assert_eq!(post(&daemon.receipt("probe", &json!({ "ref": reference, "status": status }))).await, 200);
}

/// Waits until nothing is left to be told: everything that had happened when this was called was taken.
async fn settled(daemon: &Daemon, hook: &Hook) {
    let barrier = format!("barrier-{}", hook.oracle.requests().len());
    daemon.accept(&event(&barrier)).await;
    let came = || hook.told().iter().any(|told| told.event_id == barrier);
    wait("the barrier is told", async || came()).await;
    wait("nothing is pending", async || {
        daemon.metrics().await.contains("sendonce_callbacks_pending{target=\"app\"} 0")
    })
    .await;
}

fn of<'a>(told: &'a [Told], event_id: &str) -> Vec<&'a Told> {
    told.iter().filter(|told| told.event_id == event_id).collect()
}
