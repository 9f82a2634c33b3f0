//! Commands that cross each other: whatever their order, nothing is sent twice, lost, or left lying.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sendonce::clock::ManualClock;
use sendonce::domain::ids::{NotificationId, Ticket};
use sendonce::domain::lifecycle::{Sent, State};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::ledger::{Admission, LimitCheck, LimitScope, Question, SettleAnswer, Verdict};
use sendonce::provider::Abilities;
use sendonce::store::Store;
use sendonce::store::sqlite::{SqliteOptions, SqliteStore};
use sendonce::vault::Purpose;
use tempfile::TempDir;

use crate::support::bench::{
    Bench, Opener, START, accepted, actor, lost, message_id, not_sent, provider, silent, tenant, with_dedupe,
    with_lookup,
};

use crate::support::faulty_store::{Fault, Faults, faulty};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ticket() -> Ticket {
    Ticket::parse("OPS-1").expect("a ticket")
}

async fn resolve(bench: &Bench, id: NotificationId, verdict: Verdict) {
    bench.ledger.resolve(Some(&tenant()), id, verdict, ticket(), actor()).await.expect("a working store");
}

#[tokio::test]
async fn nothing_is_sent_beside_a_probe_when_the_attempt_that_it_repeats_was_not_sent() {
    for (outcome, state, sent) in [
        (accepted("M1"), State::Dispatched, Sent::Yes),
        (not_sent(), State::RetryWait, Sent::No),
        (lost(), State::DispatchUnknown, Sent::Unknown),
    ] {
        let bench = Bench::with(with_dedupe()).await;
        let (first, probe) = bench.probing().await;
        resolve(&bench, first.id, Verdict::NotSent).await;
        assert!(bench.claim("sms-a").await.is_empty(), "the probe may be sent");
        assert_eq!(bench.settle(&probe, outcome).await, state);
        let status = bench.status(first.id).await;
        assert_eq!(status.work.map_or(status.notification.outcome.sent, |work| work.life.sent), sent);
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn a_late_answer_of_an_attempt_says_nothing_of_its_repeats() {
    let bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    bench.settle(&probe, lost()).await;
    assert_eq!(bench.settle(&first, not_sent()).await, State::DispatchUnknown, "the probe may have been sent");
    assert!(bench.claim("sms-a").await.is_empty());
}

#[tokio::test]
async fn a_probe_that_was_taken_after_an_operator_gave_up_is_told() {
    let bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    resolve(&bench, first.id, Verdict::Abandon).await;
    bench.settle(&probe, accepted("M1")).await;
    let status = bench.status(first.id).await;
    assert_eq!((status.notification.outcome.state, status.notification.outcome.sent), (State::Failed, Sent::Yes));
    assert!(status.work.is_none(), "nothing sealed is left");
}

#[tokio::test]
async fn a_probes_result_that_is_stored_twice_contradicts_nothing() {
    let bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    bench.settle(&probe, accepted("M1")).await;
    bench.settle(&probe, accepted("M1")).await;
    let story = bench.story(first.id).await;
    assert!(!story.iter().any(|word| word.starts_with("evidence_contradicted")), "{story:?}");
}

#[tokio::test]
async fn a_late_answer_still_tells_the_providers_id() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    resolve(&bench, claimed.id, Verdict::Sent).await;
    bench.settle(&claimed, accepted("M1")).await;
    assert_eq!(bench.status(claimed.id).await.notification.outcome.message_id, Some(message_id("M1")));
}

#[tokio::test]
async fn a_commit_that_puts_work_back_for_later_does_not_hand_it_out_again() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    // Both are handed over before either is taken, so that one commit has both.
    let (settled, claims) = tokio::join!(bench.ledger.settle(id, claimed.attempt, not_sent()), bench.claim("sms-a"));
    assert_eq!((settled, claims.len()), (Ok(SettleAnswer::Now(State::RetryWait)), 0));
}

#[tokio::test]
async fn repeats_in_one_commit_of_what_a_limit_turns_away_share_its_answer_and_nobody_elses() {
    let bench = Bench::with(silent()).await;
    let limited = |name: &str, minutes: u64| {
        let mut event = bench.event(name);
        let key = bench.index.hash(Purpose::RecipientLimit, &[&[u8::try_from(minutes).expect("few")]]);
        event.limits = vec![LimitCheck { scope: LimitScope::Recipient, key, burst: 1, per: secs(60 * minutes) }];
        event
    };
    bench.admit_event(limited("e1", 1)).await;
    bench.admit_event(limited("e2", 2)).await;
    let mut other_key = limited("e4", 2);
    other_key.repeat.key = bench.index.hash(Purpose::Key, &[b"another"]);
    let posts = [limited("e3", 1), limited("e4", 2), limited("e4", 2), other_key, bench.event("e1")];
    let answers = join_all(posts.map(|event| bench.ledger.admit(event))).await;
    let away = |minutes: u64| Ok(Admission::Limited { scope: LimitScope::Recipient, retry_after: secs(60 * minutes) });
    assert_eq!(answers[..4], [away(1), away(2), away(2), away(2)]);
    assert!(matches!(answers[4], Ok(Admission::Replayed(_))), "{:?}", answers[4]);
    bench.accounts_close().await;
}

#[tokio::test]
async fn what_a_newer_event_has_marked_or_what_is_over_is_not_told_of_a_still_newer_one() {
    let bench = Bench::with(with_lookup()).await;
    let of_one_user = |name: &str| {
        let mut event = bench.event(name);
        event.user = bench.index.hash(Purpose::User, &[b"user-1"]);
        event
    };
    let first = bench.admit_event(of_one_user("e1")).await;
    let claimed = bench.claim_one("sms-a").await;
    for newer in ["e2", "e3"] {
        bench.clock.advance(secs(1));
        bench.admit_event(of_one_user(newer)).await;
    }
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(secs(601));
    bench.ledger.sweep().await.expect("works");
    let expired_at = bench.status(first).await.notification.outcome.finished_at;
    bench.admit_event(of_one_user("e4")).await;
    let story = bench.story(first).await;
    assert_eq!(story.iter().filter(|word| word.starts_with("newer_event")).count(), 1, "{story:?}");

    bench.clock.advance(secs(60));
    let found = LookupAnswer::Found { message_id: None, delivery: None };
    bench.ledger.answer(first, claimed.attempt, found).await.expect("works");
    let outcome = bench.status(first).await.notification.outcome;
    assert_eq!((outcome.state, outcome.sent, outcome.finished_at), (State::Expired, Sent::Yes, expired_at));
}

#[tokio::test]
async fn a_claim_that_its_caller_did_not_wait_for_is_not_under_way_for_ever() {
    let bench = Bench::with(with_dedupe()).await;
    let id = bench.admit("e1").await;
    let name = provider("sms-a");
    let mut claim = Box::pin(bench.ledger.claim(&name, 10));
    assert!(futures_util::poll!(&mut claim).is_pending());
    drop(claim);
    bench.admit("e2").await;
    bench.ledger.sweep().await.expect("works");
    let again = bench.claim("sms-a").await;
    let mine: Vec<_> = again.iter().filter(|claimed| claimed.id == id).map(|claimed| claimed.attempt).collect();
    assert_eq!(mine, [2], "the first attempt never began");
    bench.settle(again.iter().find(|c| c.id == id).expect("it is there"), lost()).await;

    bench.clock.advance(secs(6));
    let mut ask = Box::pin(bench.ledger.ask(&name, 10));
    assert!(futures_util::poll!(&mut ask).is_pending());
    drop(ask);
    // The next commit says that it never began, and the dropped question may share one with what comes first.
    bench.admit("e3").await;
    bench.ledger.sweep().await.expect("works");
    bench.clock.advance(secs(6));
    let questions = bench.ledger.ask(&name, 10).await.expect("works");
    assert!(matches!(&questions[..], [Question::Probe(probe)] if probe.attempt == 4), "{questions:?}");
}

#[tokio::test]
async fn a_miss_proves_nothing_about_what_a_lost_history_may_have_sent() {
    let bench = Bench::with(with_lookup()).await;
    bench.admit("waiting").await;
    bench.ledger.recover(&ticket()).await.expect("works");
    for _ in 0..5 {
        bench.clock.advance(secs(90));
        for question in bench.ledger.ask(&provider("sms-a"), 10).await.expect("works") {
            let Question::Lookup(asking) = question else { panic!("no probe") };
            bench.ledger.answer(asking.id, asking.attempt, LookupAnswer::NotFound).await.expect("works");
        }
        assert!(bench.claim("sms-a").await.is_empty());
    }
    let anyway = Abilities {
        dedupe: with_dedupe()
            .dedupe
            .map(|rules| sendonce::provider::DedupeRules { covers: sendonce::provider::DedupeCovers::Any, ..rules }),
        ..silent()
    };
    let bench = Bench::with(anyway).await;
    bench.admit("waiting").await;
    bench.ledger.recover(&ticket()).await.expect("works");
    bench.clock.advance(secs(60));
    assert!(bench.ledger.ask(&provider("sms-a"), 10).await.expect("works").is_empty());
}

#[tokio::test]
async fn attempts_that_count_for_nothing_end_before_their_numbers_do_and_starve_nobody() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    for _ in 0..255 {
        let claimed = bench.claim_one("sms-a").await;
        bench.ledger.settle(claimed.id, claimed.attempt, Outcome::never_began(Reason::Draining)).await.expect("works");
    }
    assert_eq!(bench.state(id).await, State::Failed);
    let next = bench.admit("e2").await;
    assert_eq!(bench.ledger.claim(&provider("sms-a"), 1).await.expect("works")[0].id, next);
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_worker_that_came_too_late_is_not_tried_again_at_once() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, Outcome::never_began(Reason::StartedTooLate)).await;
    assert!(bench.claim("sms-a").await.is_empty());
    bench.clock.advance(secs(1));
    assert_eq!(bench.claim_one("sms-a").await.attempt, 2);
}

#[tokio::test]
async fn nothing_sealed_stays_behind_a_provider_that_is_gone() {
    let bench = Bench::with(with_lookup()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(secs(601));
    bench.ledger.sweep().await.expect("works");
    assert!(bench.status(claimed.id).await.work.is_some(), "it is asked about, for the record");
    bench.routes.abilities.lock().expect("free").remove(&provider("sms-a"));
    bench.clock.advance(secs(601));
    bench.ledger.sweep().await.expect("works");
    let status = bench.status(claimed.id).await;
    assert!(status.work.is_none());
    assert_eq!(status.notification.outcome.state, State::Expired);
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_claim_for_a_provider_that_is_gone_records_nothing() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    bench.routes.abilities.lock().expect("free").remove(&provider("sms-a"));
    assert!(bench.claim("sms-a").await.is_empty());
    assert_eq!(bench.state(id).await, State::Accepted);
}

/// Two ledgers, each its own boot, over one file; the first one's store fails as `faults` says.
async fn two_nodes(faults: &Arc<Faults>) -> (Bench, Bench) {
    let folder = || TempDir::new().expect("a folder");
    let dir = folder();
    let clock = ManualClock::at(START);
    let store = SqliteStore::open(&dir.path().join("shared.db"), clock, SqliteOptions::default()).await;
    let store: Arc<dyn Store> = Arc::new(store.expect("a store"));
    let shared: Opener = Arc::new(move |_, _| {
        let store = store.clone();
        Box::pin(async move { store })
    });
    let one = Bench::on(dir, faulty(shared.clone(), faults), silent()).await;
    let mut two = Bench::on(folder(), shared, silent()).await;
    two.start_again().await;
    (one, two)
}

#[tokio::test]
async fn an_attempt_that_another_node_has_begun_is_not_ended_by_one_whose_claim_was_lost() {
    const COMMIT_OF_A_CLAIM: u64 = 4;
    for done in [false, true] {
        let faults = Arc::default();
        let (one, two) = two_nodes(&faults).await;
        let id = one.admit("e1").await;
        faults.plan(COMMIT_OF_A_CLAIM, Fault::Ambiguous { done });
        let lost = one.ledger.claim(&provider("sms-a"), 9).await;
        assert_eq!((lost.is_err(), faults.met()), (true, Some("commit")), "{lost:?}");
        let claims = two.claim("sms-a").await;
        assert_eq!(
            claims.iter().map(|claimed| claimed.attempt).collect::<Vec<_>>(),
            if done { vec![] } else { vec![1] }
        );
        one.admit("e2").await;
        let expected = if done { State::RetryWait } else { State::Dispatching };
        assert_eq!(two.state(id).await, expected, "an attempt is its claim's, and a claim that was lost is over");
        one.accounts_close().await;
    }
}
