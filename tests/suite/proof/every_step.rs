//! A fault at every call: of the store, before or after it took effect, and of the line to a provider.

use std::sync::Arc;

use sendonce::store::StoreError;

use super::life::Stage;
use super::size;
use super::verdict::{Counts, count};
use crate::support::bench::Opener;
use crate::support::faulty_provider::{Calls, Mishap};
use crate::support::faulty_store::{Fault, Faults, faulty_postgres, faulty_sqlite};
use crate::support::postgres::Database;

/// How a call that reads or writes can go wrong, and then how a commit can besides.
const OF_CALLS: [Fault; 3] =
    [Fault::Fails(StoreError::Unavailable), Fault::Fails(StoreError::Conflict), Fault::Ends { done: false }];
const OF_COMMITS: [Fault; 3] =
    [Fault::Ambiguous { done: true }, Fault::Ambiguous { done: false }, Fault::Ends { done: true }];

/// One life. Says how its events ended, and which call went wrong.
async fn live(open: Opener, faults: Arc<Faults>, calls: Calls, prefix: &str) -> (Option<&'static str>, bool) {
    let calls = Arc::new(calls);
    let mut stage = Stage::set(open, faults, &calls, prefix).await;
    stage.live().await;
    let met = (stage.faults.met(), calls.met());
    stage.drain().await;
    let (counts, stories) = count(&stage).await;
    // A node that is left behind would keep house for the next life.
    stage.bench.ledger.close().await;
    let Counts { doubled, lost, sent, acknowledged } = counts;
    assert_eq!((doubled, lost), (0, 0), "{stories:#?}");
    assert!(sent >= 10 && acknowledged == 20, "the life was lived: {sent} of {acknowledged} sent");
    met
}

/// Says where the life was that failed.
struct At<'a>(&'a str, u64, String);

impl Drop for At<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {}, at call {}: {}", self.0, self.1, self.2);
        }
    }
}

/// Lives until no call is left that could go wrong, with a fault at every `every`-th call: of one kind in turn, or of all
/// where `SENDONCE_PROOF_KINDS=1`; and at a commit of every kind that commits have of their own. Says how many lives.
async fn at_every_call_of_the_store(store: &str, open: impl Fn(&Arc<Faults>) -> Opener, every: u64) -> u64 {
    let (mut lives, mut n) = (0, 1);
    let all_kinds = size("SENDONCE_PROOF_KINDS", 0) > 0;
    loop {
        let turn = usize::try_from(n / every).expect("few") % OF_CALLS.len();
        let mut kinds = if all_kinds { OF_CALLS.to_vec() } else { vec![OF_CALLS[turn]] };
        while let Some(fault) = kinds.pop() {
            let faults = Arc::<Faults>::default();
            let _at = At(store, n, format!("{fault:?}"));
            faults.plan(n, fault);
            lives += 1;
            let met = live(open(&faults), faults, Calls::default(), &format!("l{lives}.")).await.0;
            match met {
                None => return lives,
                Some("commit") if OF_CALLS.contains(&fault) && kinds.is_empty() => kinds.extend(OF_COMMITS),
                Some(_) => {}
            }
        }
        n += every;
    }
}

#[tokio::test]
async fn no_call_of_a_file_that_fails_loses_or_doubles_a_message() {
    let every = size("SENDONCE_PROOF_EVERY_SQLITE", 7);
    let lives = at_every_call_of_the_store("SQLite", faulty_sqlite, every).await;
    assert!(lives * every > 200, "{lives}");
}

#[tokio::test]
async fn no_call_of_a_server_that_fails_loses_or_doubles_a_message() {
    let every = size("SENDONCE_PROOF_EVERY_POSTGRES", 61);
    let database = Arc::new(Database::fresh().await);
    let open = |faults: &Arc<Faults>| faulty_postgres(database.clone(), faults);
    let lives = at_every_call_of_the_store("PostgreSQL", open, every).await;
    assert!(lives * every > 200, "{lives}");
}

#[tokio::test]
async fn no_request_or_answer_that_is_lost_or_late_or_doubled_loses_or_doubles_a_message() {
    let all_kinds = size("SENDONCE_PROOF_KINDS", 0) > 0;
    for n in 1.. {
        let turn = usize::try_from(n).expect("few") % Mishap::ALL.len();
        let kinds = if all_kinds { &Mishap::ALL[..] } else { &Mishap::ALL[turn..=turn] };
        for mishap in kinds {
            let _at = At("the line", n, format!("{mishap:?}"));
            let (calls, faults) = (Calls::default(), Arc::<Faults>::default());
            calls.plan(n, *mishap);
            if !live(faulty_sqlite(&faults), faults, calls, "l.").await.1 {
                assert!(n > 20, "{n}");
                return;
            }
        }
    }
}

#[tokio::test]
async fn the_life_without_a_fault_comes_to_the_ends_that_it_is_told_for() {
    let faults = Arc::<Faults>::default();
    let mut stage = Stage::set(faulty_sqlite(&faults), faults, &Arc::default(), "l.").await;
    stage.live().await;
    stage.drain().await;
    let (counts, stories) = count(&stage).await;
    let ends: Vec<_> = stories.iter().map(|(name, story)| (name.as_str(), story.state, story.sent)).collect();
    assert_eq!(ends, ENDS);
    assert_eq!(counts, Counts { acknowledged: 20, sent: 16, doubled: 0, lost: 0 }, "one twice, by an operator's word");
}

const ENDS: [(&str, &str, &str); 20] = [
    ("abandoned", "failed", "yes"),
    ("bad-number", "dispatched", "yes"),
    ("cancelled", "cancelled", "no"),
    ("cancelled-late", "cancelled", "no"),
    ("expired", "expired", "no"),
    ("expired-unknown", "expired", "yes"),
    ("failover", "dispatched", "yes"),
    ("found", "dispatched", "yes"),
    ("late", "dispatched", "yes"),
    ("missed", "dispatched", "yes"),
    ("newest", "dispatched", "yes"),
    ("no-credit", "dispatched", "yes"),
    ("operator-not-sent", "dispatched", "yes"),
    ("operator-sent", "dispatched", "yes"),
    ("operator-wrong", "dispatched", "yes"),
    ("overtaken", "superseded", "no"),
    ("overtaken-late", "superseded", "no"),
    ("plain", "dispatched", "yes"),
    ("restarted", "dispatched", "yes"),
    ("twice", "dispatched", "yes"),
];
