//! What must hold when a life is over, read from the log and from the ledger of the provider alone.

use std::collections::BTreeMap;

use sendonce::domain::audit::Record;
use sendonce::domain::ids::NotificationId;
use sendonce::ledger::Ledger;
use sendonce::store::rows::LogFilter;

use super::life::Stage;

/// Every edge that the log may tell of, as the design has them: from, by what, to. `*` is every final state.
#[rustfmt::skip]
const EDGES: [(&str, &str, &[&str]); 22] = [
    ("accepted",         "attempt_begun", &["dispatching"]),
    ("accepted",         "expired",       &["expired"]),
    ("accepted",         "cancel_asked",  &["cancelled"]),
    ("accepted",         "newer_event",   &["superseded"]),
    ("accepted",         "restored",      &["dispatch_unknown"]),
    ("retry_wait",       "attempt_begun", &["dispatching"]),
    ("retry_wait",       "expired",       &["expired"]),
    ("retry_wait",       "cancel_asked",  &["cancelled"]),
    ("retry_wait",       "newer_event",   &["superseded"]),
    ("retry_wait",       "evidence",      &["dispatched"]),
    ("retry_wait",       "restored",      &["dispatch_unknown"]),
    ("dispatching",      "attempt_ended", &["dispatched", "retry_wait", "dispatch_unknown", "failed", "expired", "cancelled", "superseded"]),
    ("dispatching",      "cancel_asked",  &["dispatching"]),
    ("dispatching",      "newer_event",   &["dispatching"]),
    ("dispatching",      "evidence",      &["dispatched"]),
    ("dispatching",      "restored",      &["dispatch_unknown"]),
    ("dispatch_unknown", "evidence",      &["dispatched", "retry_wait", "dispatch_unknown", "failed", "expired", "cancelled", "superseded"]),
    ("dispatch_unknown", "cancel_asked",  &["dispatch_unknown"]),
    ("dispatch_unknown", "newer_event",   &["dispatch_unknown"]),
    ("dispatch_unknown", "expired",       &["expired"]),
    ("dispatch_unknown", "abandoned",     &["failed"]),
    ("dispatch_unknown", "restored",      &["dispatch_unknown"]),
];

const FINAL: [&str; 5] = ["dispatched", "failed", "expired", "cancelled", "superseded"];

fn is_edge(from: &str, by: &str, to: &str) -> bool {
    let probe = by.starts_with("probe_") && from == to && (from == "dispatch_unknown" || FINAL.contains(&from));
    let late = by == "evidence" && from == to && FINAL.contains(&from);
    probe || late || EDGES.iter().any(|(f, b, t)| (*f, *b) == (from, by) && t.contains(&to))
}

/// What the log says of one notification.
#[derive(Debug)]
pub struct Story {
    pub state: &'static str,
    pub sent: &'static str,
    begun: usize,
    resends_by_word: usize,
}

/// Reads a story, and holds that it is whole: one beginning, one end, no gap, no edge that the design does not have.
pub fn read(name: &str, records: &[Record]) -> Story {
    let accepted = records.iter().filter(|record| record.what.code() == "accepted").count();
    assert_eq!(accepted, 1, "{name}: one record of its admission");
    let mut story = Story { state: "", sent: "", begun: 0, resends_by_word: 0 };
    let mut ends = 0;
    for record in records {
        let what = record.what.code();
        story.sent = record.sent.map_or(story.sent, |sent| sent.code());
        story.begun += usize::from(["attempt_begun", "probe_begun"].contains(&what));
        let Some(to) = record.to.map(|to| to.code()) else { continue };
        if let Some(from) = record.from.map(|from| from.code()) {
            assert_eq!(story.state, from, "{name}: the log has a gap before {what}");
            assert!(is_edge(from, what, to), "{name}: {from} > {to} by {what}");
            ends += usize::from(FINAL.contains(&to) && !FINAL.contains(&from));
            let by_word = record.source.is_some_and(|source| source.code() == "operator");
            story.resends_by_word += usize::from(by_word && to == "retry_wait");
        } else {
            assert_eq!((what, to), ("accepted", "accepted"), "{name}");
        }
        story.state = to;
    }
    assert_eq!(ends, 1, "{name}: one final record, in {story:?}");
    assert!(FINAL.contains(&story.state), "{name}: {story:?}");
    story
}

pub async fn records(ledger: &Ledger, id: NotificationId) -> Vec<Record> {
    let filter = LogFilter { notification: Some(id), ..LogFilter::default() };
    let rows = ledger.log_page(&filter, 0, 1000).await.expect("a working store");
    rows.into_iter().map(|row| row.record).collect()
}

/// The four counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub acknowledged: usize,
    pub sent: usize,
    pub doubled: usize,
    pub lost: usize,
}

/// Counts, and holds the rest of the promise against the provider's own ledger.
pub async fn count(stage: &Stage) -> (Counts, BTreeMap<String, Story>) {
    let ledger = &stage.bench.ledger;
    let taken = stage.taken();
    let mut counts = Counts { acknowledged: stage.acknowledged.len(), sent: taken.len(), ..Counts::default() };
    let mut stories = BTreeMap::new();
    for (name, id) in &stage.acknowledged {
        let records = records(ledger, *id).await;
        if records.is_empty() {
            counts.lost += 1;
            continue;
        }
        let story = read(name, &records);
        let messages: Vec<_> = taken.iter().filter(|taken| taken.id == *id).collect();
        counts.doubled += messages.len().saturating_sub(1 + story.resends_by_word);
        match story.sent {
            // Or so people say.
            "no" if story.resends_by_word == 0 => {
                assert_eq!(messages.len(), 0, "{name}: certainly not sent, it says: {story:?}")
            }
            "yes" => assert!(!messages.is_empty(), "{name}: sent, it says: {story:?}"),
            _ => {}
        }
        assert!(messages.len() <= story.begun, "{name}: every send is on disk before it begins: {story:?}");
        let transit = stage.bench.policy.transit.sms;
        assert!(messages.iter().all(|taken| taken.at <= taken.expires_at.minus(transit)), "{name}: sent too late");
        stories.insert(name.clone(), story);
    }
    let of_nobody = taken.iter().filter(|taken| !stage.acknowledged.values().any(|id| *id == taken.id)).count();
    assert_eq!(of_nobody, 0, "sent, and never acknowledged");
    let left: Vec<_> = ledger.work_counts().await.expect("a working store").into_iter().map(|c| c.state).collect();
    assert_eq!(left, [], "no work is left, and nothing sealed");
    stage.bench.accounts_close().await;
    (counts, stories)
}
