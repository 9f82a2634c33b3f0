//! What one commit takes along, and what becomes of a batch of commands that the store does not take.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sendonce::domain::lifecycle::{Sent, State};
use sendonce::domain::outcome::LookupAnswer;
use sendonce::ledger::{Admission, Hold, LedgerError, SettleAnswer};
use sendonce::store::StoreError;
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::support::bench::{Bench, accepted, lost, message_id, provider, silent, with_lookup};
use crate::support::faulty_store::{Fault, Faults, faulty_sqlite};

async fn faulty() -> (Bench, Arc<Faults>) {
    let faults = Arc::<Faults>::default();
    (Bench::on(TempDir::new().expect("a folder"), faulty_sqlite(&faults), silent()).await, faults)
}

#[tokio::test]
async fn of_a_batch_with_a_row_that_cannot_be_read_only_the_command_at_fault_fails() {
    let bench = Bench::with(silent()).await;
    for n in 0..4 {
        bench.admit(&format!("e{n}")).await;
    }
    let claims = bench.claim("sms-a").await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(bench.path());
    let mut other = sqlx::SqliteConnection::connect_with(&options).await.expect("connects");
    let spoil = sqlx::query("UPDATE work SET provider = '!' WHERE id = ?").bind(&claims[1].id.as_bytes()[..]);
    spoil.execute(&mut other).await.expect("runs");
    let before = *bench.ledger.commits().borrow();
    // All are handed over before the first is taken.
    let settling = claims.iter().map(|claimed| bench.ledger.settle(claimed.id, claimed.attempt, accepted("M1")));
    let answers = join_all(settling).await;
    assert!(matches!(answers[1], Err(LedgerError::Store(StoreError::Corrupt { .. }))), "{answers:?}");
    for n in [0, 2, 3] {
        assert_eq!(answers[n], Ok(SettleAnswer::Now(State::Dispatched)), "{n}");
    }
    assert_eq!(*bench.ledger.commits().borrow(), before + 2, "the first of the first half, and the second half");
    assert!(bench.ledger.writable(), "that is no fault of the store's");
}

#[tokio::test]
async fn a_store_that_cannot_be_written_is_told_to_be_so_until_something_is_written_again() {
    let (bench, faults) = faulty().await;
    faults.plan(1, Fault::Fails(StoreError::Unavailable));
    let refused = bench.ledger.admit(bench.event("e1")).await;
    assert_eq!(refused, Err(LedgerError::Store(StoreError::Unavailable)));
    assert!(!bench.ledger.writable());
    assert!(bench.claim("sms-a").await.is_empty());
    assert!(!bench.ledger.writable(), "a commit of nothing says nothing");
    bench.ledger.sweep().await.expect("a working store");
    assert!(bench.ledger.writable(), "its deletes do");
    faults.plan(1, Fault::Fails(StoreError::Unavailable));
    bench.ledger.admit(bench.event("e1")).await.expect_err("it fails");
    bench.admit("e1").await;
    assert!(bench.ledger.writable());
}

#[tokio::test]
async fn a_batch_that_stood_in_anothers_way_is_run_again() {
    for n in 1.. {
        let (bench, faults) = faulty().await;
        faults.plan(n, Fault::Fails(StoreError::Conflict));
        let answer = bench.ledger.admit(bench.event("e1")).await;
        assert!(matches!(answer, Ok(Admission::New(_))), "at call {n}: {answer:?}");
        assert_eq!(bench.claim("sms-a").await.len(), 1, "at call {n}");
        if faults.met() == Some("commit") {
            return;
        }
        assert!(faults.met().is_some(), "a commit is among the calls");
    }
}

#[tokio::test]
async fn a_batch_that_is_always_in_anothers_way_is_given_up_after_its_fifth_rerun() {
    let (bench, faults) = faulty().await;
    faults.last(StoreError::Conflict);
    let answer = bench.ledger.admit(bench.event("e1")).await;
    assert_eq!(answer, Err(LedgerError::Store(StoreError::Conflict)));
    assert_eq!(faults.calls(), 6, "a transaction is begun, and five times again");
    faults.lift();
    bench.admit("e1").await;
}

#[tokio::test]
async fn a_batch_that_is_refused_with_what_waited_for_it_is_run_without() {
    let mut met = false;
    for n in 1..10 {
        let (bench, faults) = faulty().await;
        let wish = bench.wish("sms-a", Hold::default()).await;
        faults.plan(n, Fault::Fails(StoreError::Refused("told to")));
        let answer = bench.ledger.admit(bench.event("e1")).await;
        if faults.met() == Some("write") {
            met = true;
            assert!(matches!(answer, Ok(Admission::New(_))), "{answer:?}");
            assert_eq!(bench.claim_one("sms-a").await.attempt, 1, "it was not taken");
            bench.admit("e2").await;
            assert_eq!(wish.await.expect("no panic").map(|claims| claims.len()), Ok(1), "the wish stands");
        }
    }
    assert!(met, "a write is among the calls");
}

#[tokio::test]
async fn a_commit_takes_what_comes_while_it_is_about_to_begin_and_never_more_than_a_batch() {
    for (batch, commits) in [(3, 1), (2, 2)] {
        let mut bench = Bench::with(silent()).await;
        bench.policy.batch = batch;
        bench.restart().await;
        let before = *bench.ledger.commits().borrow();
        let admit = |name: &str| {
            let (ledger, event) = (bench.ledger.clone(), bench.event(name));
            async move { ledger.admit(event).await }
        };
        // The first is handed over, and wakes the committer, before there is a second.
        let (first, others) = tokio::join!(admit("e1"), async {
            let later = [tokio::spawn(admit("e2")), tokio::spawn(admit("e3"))];
            join_all(later).await
        });
        first.expect("a working store");
        others.into_iter().for_each(|other| drop(other.expect("no panic").expect("a working store")));
        assert_eq!(*bench.ledger.commits().borrow(), before + commits, "batches of {batch}");
    }
}

#[tokio::test]
async fn what_a_commit_has_found_out_is_not_lost_when_it_goes_on_to_ask_about_the_same() {
    let bench = Bench::with(with_lookup()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(Duration::from_secs(600));
    bench.ledger.sweep().await.expect("a working store");
    assert_eq!(bench.state(id).await, State::Expired);
    bench.clock.advance(Duration::from_secs(60));
    let before = *bench.ledger.commits().borrow();
    let found = LookupAnswer::Found { message_id: Some(message_id("M1")), delivery: None };
    let name = provider("sms-a");
    let (answered, asked) = tokio::join!(bench.ledger.answer(id, 1, found), bench.ledger.ask(&name, 10));
    assert_eq!(answered, Ok(SettleAnswer::Now(State::Expired)));
    assert_eq!(asked.map(|questions| questions.len()), Ok(0), "there is nothing left to ask");
    assert_eq!(*bench.ledger.commits().borrow(), before + 1, "both in one");
    let outcome = bench.status(id).await.notification.outcome;
    assert_eq!((outcome.sent, outcome.message_id), (Sent::Yes, Some(message_id("M1"))));
}
