//! What becomes of a batch of commands that the store does not take.

use std::sync::Arc;

use futures_util::future::join_all;
use sendonce::domain::lifecycle::State;
use sendonce::ledger::{Admission, Hold, LedgerError, SettleAnswer};
use sendonce::store::StoreError;
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::support::bench::{Bench, accepted, provider, silent};
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
async fn a_batch_that_is_refused_with_what_waited_for_it_is_run_without() {
    let mut met = false;
    for n in 1..10 {
        let (bench, faults) = faulty().await;
        let (ledger, name) = (bench.ledger.clone(), provider("sms-a"));
        let wish = tokio::spawn(async move { ledger.claim_next(&name, Arc::new(|| 1), Hold::default()).await });
        // The first poll hands the wish over, and the committer takes commands in their order.
        tokio::task::yield_now().await;
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
