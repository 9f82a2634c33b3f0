//! The promise, held against the real daemon as a process of its own and a provider on a real socket that counts what it
//! was sent.

mod admission;
mod lanes;
mod postgres;
mod receipts;
mod shutdown;
mod store_faults;
mod unknowns;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::daemon::{Daemon, PATIENCE, Plan, Strategy};
use crate::support::http_oracle::{HttpOracle, Reply, Seen};

/// A provider that takes everything.
pub fn taken(_: &Seen) -> Reply {
    Reply::json(201, json!({ "id": "m1" }))
}

/// A daemon with one HTTP provider, `probe`.
async fn daemon(oracle: &HttpOracle, strategies: &[Strategy]) -> Daemon {
    Daemon::start(Plan::new().http("probe", &oracle.url(), strategies).sms(&["probe"])).await
}

/// An oracle with a script.
pub async fn oracle(script: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> HttpOracle {
    let oracle = HttpOracle::start().await;
    oracle.script(script);
    oracle
}

/// How many messages the provider was sent: look-ups do not count.
pub fn sends(oracle: &HttpOracle) -> usize {
    oracle.requests().iter().filter(|seen| seen.method == "POST").count()
}

/// The number of attempts that a status tells of.
pub fn attempts(status: &Value) -> usize {
    status["attempts"].as_array().map_or(0, Vec::len)
}

/// The codes of `field` in records.
fn codes(records: &[Value], field: &str) -> Vec<String> {
    records.iter().map(|r| r[field].as_str().unwrap_or_default().to_owned()).collect()
}

/// Every send hangs at a closed gate, and is answered with 201 once it opens.
async fn gated() -> (HttpOracle, watch::Sender<bool>) {
    let gate = watch::Sender::new(false);
    let subscriber = gate.clone();
    (oracle(move |seen| taken(seen).gated(&subscriber)).await, gate)
}

/// A daemon whose one provider is given twenty seconds to answer.
async fn patient(oracle: &HttpOracle, strategies: &[Strategy], dispatch: &str) -> Daemon {
    let plan = Plan::new().http_with("probe", &oracle.url(), strategies, "timeout = \"20s\"");
    Daemon::start(plan.sms(&["probe"]).section("dispatch", dispatch)).await
}
