//! The four counts, and what the log must look like. Written from the documents alone: nothing here knows the code that
//! it judges.

use std::collections::BTreeMap;

use serde_json::Value;

use super::vendor::Vendor;
use crate::support::daemon::Daemon;

const FINAL: [&str; 5] = ["dispatched", "failed", "expired", "cancelled", "superseded"];

/// What an app was promised.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The id in the 202.
    pub id: String,
    pub to: String,
}

/// What came of all promises.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered with 202.
    pub acknowledged: usize,
    /// Of those, sent as the provider has it.
    pub sent: usize,
    /// Addresses of events that were sent more than once.
    pub twice: Vec<String>,
    /// Events that are not there, or have no end.
    pub lost: Vec<String>,
}

/// Holds the daemon's word against the providers' account, once everything has come to its end. Every address belongs to
/// one event. Nobody has given a wrong verdict here, so that nothing may have been sent twice.
pub async fn reckon(daemon: &Daemon, vendor: &Vendor, promises: &BTreeMap<String, Promise>) -> Counts {
    let copies = vendor.copies();
    let mut counts = Counts { acknowledged: promises.len(), ..Counts::default() };
    counts.twice = copies.iter().filter(|(_, n)| **n > 1).map(|(to, _)| to.clone()).collect();
    let records = daemon.audit("").await;
    let histories = histories(&records);
    for (event, promise) in promises {
        let status = daemon.get(&format!("/v1/notifications/{}", promise.id)).await.json();
        let state = status["state"].as_str().unwrap_or_default();
        if status["event_id"] != **event || !FINAL.contains(&state) {
            counts.lost.push(format!("{event}: {status}"));
            continue;
        }
        let sent = copies.get(&promise.to).copied().unwrap_or(0);
        counts.sent += usize::from(sent > 0);
        let said = status["sent"].as_str().unwrap_or_default();
        assert_eq!(said, if sent > 0 { "yes" } else { "no" }, "{event} was taken {sent} times: {status}");
        assert!(state != "dispatched" || sent == 1, "{event} was taken {sent} times: {status}");
        let history = histories.get(promise.id.as_str()).unwrap_or_else(|| panic!("no records of {event}"));
        check(history, state).unwrap_or_else(|fault| panic!("{event}: {fault}: {history:?}"));
    }
    let none_lost = counts.lost.is_empty();
    let known: usize = promises.values().filter(|p| histories.contains_key(p.id.as_str())).count();
    assert_eq!(histories.len(), known, "records of what no client was told of");
    assert_eq!(vendor.mismatches(), 0, "a repeat under the same key has the same bytes");
    let account = daemon.get("/v1/audit/account").await.json();
    assert_eq!(account["closes"], true, "{account}");
    for (sum, wanted) in [("notifications", promises.len()), ("final_records", promises.len()), ("sent", counts.sent)] {
        assert!(!none_lost || account["counts"][sum] == wanted, "{sum}, where it should be {wanted}: {account}");
    }
    counts
}

/// An operator settles what waits for one, or everything of which nobody knows, by what the providers have.
pub async fn decide(daemon: &Daemon, vendor: &Vendor, promises: &BTreeMap<String, Promise>, all: bool) {
    let page = daemon.get("/v1/unknown?limit=500").await.json();
    let copies = vendor.copies();
    let items = page["items"].as_array().expect("a list").iter();
    for item in items.filter(|item| item["waiting_for"] == "operator" || (all && item["waiting_for"] == "lookup")) {
        let to = &promises[item["event_id"].as_str().expect("a name")].to;
        let verdict = if copies.contains_key(to) { "sent" } else { "not_sent" };
        let answer = daemon.resolve(item["id"].as_str().expect("an id"), verdict, "OPS-1").await;
        // Somebody else may have found out meanwhile.
        assert!([200, 409].contains(&answer.status), "{answer:?}");
    }
}

/// The records of each notification, in order.
fn histories(records: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut histories: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let mut last = 0;
    for record in records {
        let pos = record["pos"].as_i64().expect("a position");
        assert!(pos > last, "the export is in order: {record}");
        last = pos;
        if let Some(id) = record["notification"].as_str() {
            histories.entry(id).or_default().push(record);
        }
    }
    histories
}

/// The edges of the table in `docs/ARCHITECTURE.md`.
fn is_edge(from: &str, to: &str) -> bool {
    let ends = ["expired", "cancelled", "superseded", "dispatched", "dispatch_unknown"];
    match from {
        "accepted" | "retry_wait" => to == "dispatching" || ends.contains(&to),
        "dispatching" | "dispatch_unknown" => to == "retry_wait" || to == "failed" || ends.contains(&to),
        _ => false,
    }
}

/// Says what is wrong with the history of one notification that now is in `state`.
fn check(history: &[&Value], state: &str) -> Result<(), String> {
    let field = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
    let mut at = String::new();
    let (mut accepted, mut ends) = (0, 0);
    let mut open: Vec<u64> = vec![];
    for record in history {
        let (what, from, to) = (field(record, "what"), field(record, "from"), field(record, "to"));
        accepted += usize::from(what == "accepted");
        if what == "accepted" && !at.is_empty() {
            return Err("it was accepted again".to_owned());
        }
        if what == "evidence_contradicted" {
            return Err("evidence contradicts".to_owned());
        }
        if to.is_empty() {
            continue;
        }
        if what != "accepted" && from != at {
            return Err(format!("from {from} where it was {at}"));
        }
        if what != "accepted" && from != to && !is_edge(&from, &to) {
            return Err(format!("no edge leads from {from} to {to}"));
        }
        ends += usize::from(FINAL.contains(&to.as_str()) && from != to);
        let attempt = record["attempt"].as_u64().unwrap_or(0);
        match what.as_str() {
            "attempt_begun" if !open.is_empty() => return Err(format!("attempt {attempt} beside {open:?}")),
            "attempt_begun" => open.push(attempt),
            _ if to == "retry_wait" || FINAL.contains(&to.as_str()) => open.clear(),
            _ => {}
        }
        at = to;
    }
    match (accepted, ends) {
        (1, 1) if at == state => Ok(()),
        _ => Err(format!("{accepted} accepted records, {ends} final ones, at {at}")),
    }
}

#[test]
fn a_history_with_a_gap_a_forbidden_edge_or_a_second_end_is_told() {
    let record = |what: &str, from: Option<&str>, to: &str, attempt: u64| serde_json::json!({ "what": what, "from": from, "to": to, "attempt": attempt });
    let accepted = record("accepted", None, "accepted", 0);
    let begun = record("attempt_begun", Some("accepted"), "dispatching", 1);
    let lost = record("attempt_ended", Some("dispatching"), "dispatch_unknown", 1);
    let found = record("evidence", Some("dispatch_unknown"), "dispatched", 1);
    let again = record("attempt_begun", Some("dispatch_unknown"), "dispatching", 2);
    let after = record("attempt_begun", Some("dispatched"), "dispatching", 2);
    assert_eq!(check(&[&accepted, &begun, &lost, &found], "dispatched"), Ok(()));
    for (wrong, state) in [
        (vec![&begun, &lost, &found], "dispatched"),
        (vec![&accepted, &begun, &found], "dispatched"),
        (vec![&accepted, &begun, &lost, &again], "dispatching"),
        (vec![&accepted, &begun, &lost, &found, &after], "dispatching"),
        (vec![&accepted, &begun, &lost, &found], "failed"),
        (vec![&accepted, &accepted, &begun, &lost, &found], "dispatched"),
        (vec![&accepted, &begun, &lost], "dispatch_unknown"),
    ] {
        assert!(check(&wrong, state).is_err(), "{wrong:?}");
    }
}
