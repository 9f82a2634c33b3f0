//! The ledger on a real SQLite file: what is stored once, what is sent when, and what an unknown needs.

use std::sync::Arc;
use std::time::Duration;

use sendonce::domain::lifecycle::{Sent, State};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::ledger::{
    Admission, CancelAnswer, Hold, LimitCheck, LimitScope, Question, ResolveAnswer, SettleAnswer, Verdict,
};
use sendonce::vault::Purpose;

use crate::support::bench::{
    Bench, accepted, actor, lost, not_sent, provider, refused, refused_account, silent, tenant, with_dedupe,
    with_lookup,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ticket() -> sendonce::domain::ids::Ticket {
    sendonce::domain::ids::Ticket::parse("OPS-1").expect("a ticket")
}

#[tokio::test]
async fn twenty_concurrent_posts_of_one_key_give_one_row_and_twenty_equal_answers() {
    let bench = Bench::with(silent()).await;
    let posts = (0..20).map(|_| {
        let (ledger, event) = (bench.ledger.clone(), bench.event("e1"));
        tokio::spawn(async move { ledger.admit(event).await })
    });
    let mut ids = vec![];
    for post in posts.collect::<Vec<_>>() {
        match post.await.expect("no panic").expect("a working store") {
            Admission::New(a) | Admission::Replayed(a) => ids.push(a),
            other => panic!("{other:?}"),
        }
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "all answers are the first one's");
    assert_eq!(bench.claim("sms-a").await.len(), 1);
    bench.accounts_close().await;
}

#[tokio::test]
async fn who_waits_for_work_gets_it_from_the_commit_that_brings_it() {
    let bench = Bench::with(silent()).await;
    let wish = bench.wish("sms-a", Hold::default()).await;
    let before = *bench.ledger.commits().borrow();
    let first = bench.admit("e1").await;
    let claims = wish.await.expect("no panic").expect("a working store");
    assert_eq!(claims.iter().map(|claimed| claimed.id).collect::<Vec<_>>(), [first]);
    assert_eq!(*bench.ledger.commits().borrow(), before + 1, "one commit stored it and the attempt");
    bench.admit("e2").await;
    assert_eq!(bench.claim("sms-a").await.len(), 1, "a wish is granted once");
    assert_eq!(bench.settle(&claims[0], accepted("m1")).await, State::Dispatched);
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_wish_that_was_taken_back_takes_nothing() {
    let bench = Bench::with(silent()).await;
    let name = provider("sms-a");
    let wish = bench.ledger.claim_next(&name, Arc::new(|| 1), Hold::default());
    assert!(tokio::time::timeout(Duration::from_millis(20), wish).await.is_err(), "nothing came");
    bench.admit("e1").await;
    assert_eq!(bench.claim_one("sms-a").await.attempt, 1);
}

#[tokio::test]
async fn nothing_is_taken_for_who_is_about_to_go_away() {
    let bench = Bench::with(silent()).await;
    let hold = Hold::default();
    let wish = bench.wish("sms-a", hold.clone()).await;
    let going = hold.lock().await;
    bench.admit("e1").await;
    drop(going);
    wish.abort();
    assert_eq!(bench.claim_one("sms-a").await.attempt, 1, "it is the first one");
}

#[tokio::test]
async fn a_key_with_another_payload_and_an_event_with_another_key_are_told_apart() {
    let bench = Bench::with(silent()).await;
    let first = bench.admit("e1").await;
    let mut other_payload = bench.event("e1");
    other_payload.repeat.fingerprint[5] ^= 1;
    assert_eq!(bench.ledger.admit(other_payload).await, Ok(Admission::KeyReused));
    let mut other_key = bench.event("e1");
    other_key.repeat.key = bench.index.hash(Purpose::Key, &[b"another"]);
    match bench.ledger.admit(other_key).await {
        Ok(Admission::EventTaken(of)) => assert_eq!(of.id, first),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_changes_nothing_that_was_handed_over() {
    let bench = Bench::with(silent()).await;
    for polls in 0..30 {
        let admit = bench.ledger.admit(bench.event(&format!("e{polls}")));
        let mut admit = Box::pin(admit);
        for _ in 0..=polls {
            if futures_util::poll!(&mut admit).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(admit);
    }
    for n in 0..30 {
        let again = bench.ledger.admit(bench.event(&format!("e{n}"))).await;
        assert!(matches!(again, Ok(Admission::Replayed(_))), "e{n} was handed over: {again:?}");
    }
    bench.accounts_close().await;
}

#[tokio::test]
async fn an_accepted_attempt_is_final_and_wipes_what_was_sealed() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!(bench.settle(&claimed, accepted("SM1")).await, State::Dispatched);
    let status = bench.status(id).await;
    assert!(status.work.is_none(), "nothing is left to do or to open");
    assert_eq!(status.notification.outcome.sent, Sent::Yes);
    assert_eq!(bench.story(id).await, ["accepted>accepted", "attempt_begun>dispatching", "attempt_ended>dispatched"]);
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_lost_answer_sends_nothing_again_until_evidence() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!(bench.settle(&claimed, lost()).await, State::DispatchUnknown);
    for _ in 0..20 {
        bench.clock.advance(secs(25));
        bench.ledger.sweep().await.expect("a working store");
        assert!(bench.claim("sms-a").await.is_empty() && bench.claim("sms-b").await.is_empty());
        assert!(bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").is_empty());
    }
    let verdict = bench.ledger.resolve(None, id, Verdict::NotSent, ticket(), actor()).await;
    assert_eq!(verdict, Ok(ResolveAnswer::Resolved(State::RetryWait)));
    assert_eq!(bench.claim_one("sms-a").await.attempt, 2);
}

#[tokio::test]
async fn an_unknown_expires_as_unknown_and_is_never_sent_afterwards() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(secs(601));
    bench.ledger.sweep().await.expect("a working store");
    let status = bench.status(id).await;
    assert_eq!((status.notification.outcome.state, status.notification.outcome.sent), (State::Expired, Sent::Unknown));
    assert!(status.work.is_none(), "no look-up can follow, so the address is gone too");
    let verdict = bench.ledger.resolve(None, id, Verdict::NotSent, ticket(), actor()).await;
    assert_eq!(verdict, Ok(ResolveAnswer::Resolved(State::Expired)), "for the record");
    assert_eq!(bench.status(id).await.notification.outcome.sent, Sent::No);
    assert!(bench.claim("sms-a").await.is_empty());
    bench.accounts_close().await;
}

#[tokio::test]
async fn look_ups_prove_not_sent_only_late_enough_and_often_enough() {
    let bench = Bench::with(with_lookup()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    let mut early = 0;
    let mut asked_at = vec![];
    for second in 1..200 {
        bench.clock.advance(secs(1));
        for question in bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store") {
            let Question::Lookup(asking) = question else { panic!("no dedupe here") };
            assert_eq!(asking.reference, claimed.reference, "it asks about the attempt that was lost");
            asked_at.push(second);
            early += u32::from(second < 60);
            bench.ledger.answer(id, asking.attempt, LookupAnswer::NotFound).await.expect("a working store");
        }
        if bench.state(id).await == State::RetryWait {
            break;
        }
    }
    let late = asked_at.iter().filter(|s| **s >= 60).count();
    assert!(early >= 2, "a hit would have counted at once: asked at {asked_at:?}");
    assert_eq!(late, 2, "two misses after the indexing lag are needed: asked at {asked_at:?}");
    assert_eq!(bench.state(id).await, State::RetryWait);
}

#[tokio::test]
async fn a_look_up_that_finds_it_settles_it_and_one_that_cannot_be_read_counts_for_nothing() {
    let bench = Bench::with(with_lookup()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    for _ in 0..6 {
        bench.clock.advance(secs(61));
        for question in bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store") {
            assert!(matches!(question, Question::Lookup(_)));
            bench.ledger.answer(id, 1, LookupAnswer::Unreadable).await.expect("a working store");
        }
        assert_eq!(bench.state(id).await, State::DispatchUnknown);
    }
    let found = LookupAnswer::Found { message_id: None, delivery: None };
    assert_eq!(bench.ledger.answer(id, 1, found).await, Ok(SettleAnswer::Now(State::Dispatched)));
    bench.accounts_close().await;
}

#[tokio::test]
async fn look_ups_go_on_after_the_expiry_for_the_record() {
    let bench = Bench::with(with_lookup()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(secs(601));
    bench.ledger.sweep().await.expect("a working store");
    assert_eq!(bench.state(id).await, State::Expired);
    bench.clock.advance(secs(120));
    let questions = bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store");
    assert_eq!(questions.len(), 1, "it is still asked about");
    let found = LookupAnswer::Found { message_id: None, delivery: None };
    assert_eq!(bench.ledger.answer(id, 1, found).await, Ok(SettleAnswer::Now(State::Expired)));
    let status = bench.status(id).await;
    assert_eq!((status.notification.outcome.state, status.notification.outcome.sent), (State::Expired, Sent::Yes));
    assert!(status.work.is_none());
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_provider_that_dedupes_is_given_the_same_request_again() {
    let bench = Bench::with(with_dedupe()).await;
    let id = bench.admit("e1").await;
    let first = bench.claim_one("sms-a").await;
    bench.settle(&first, lost()).await;
    assert!(bench.ledger.ask(&provider("sms-a"), 10).await.expect("works").is_empty(), "not before it settled");
    bench.clock.advance(secs(6));
    let mut questions = bench.ledger.ask(&provider("sms-a"), 10).await.expect("works");
    let Some(Question::Probe(probe)) = questions.pop() else { panic!("a probe is due") };
    assert_eq!((probe.attempt, probe.probe), (2, true));
    assert_eq!((&probe.reference, &probe.dedupe_key), (&first.reference, &first.dedupe_key));
    assert_eq!(probe.sealed_message, first.sealed_message);
    assert_eq!(bench.settle(&probe, refused()).await, State::DispatchUnknown, "it says nothing of the first");
    bench.clock.advance(secs(30));
    let Some(Question::Probe(probe)) = bench.ledger.ask(&provider("sms-a"), 10).await.expect("works").pop() else {
        panic!("another probe is due")
    };
    assert_eq!(bench.settle(&probe, accepted("M1")).await, State::Dispatched);
    bench.accounts_close().await;
    assert_eq!(bench.story(id).await.iter().filter(|s| s.starts_with("probe")).count(), 4);
}

#[tokio::test]
async fn a_changed_provider_or_a_mark_or_an_answered_fault_allows_no_probe() {
    let cases: [(&str, Outcome); 3] =
        [("rev", lost()), ("mark", lost()), ("answered", Outcome::unknown(Reason::ServerFault))];
    for (case, outcome) in cases {
        let bench = Bench::with(with_dedupe()).await;
        let id = bench.admit("e1").await;
        let claimed = bench.claim_one("sms-a").await;
        bench.settle(&claimed, outcome).await;
        match case {
            "rev" => {
                let changed = sendonce::provider::Abilities { rev: [9; 16], ..with_dedupe() };
                bench.routes.abilities.lock().expect("free").insert(provider("sms-a"), changed.into());
            }
            "mark" => {
                let answer = bench.ledger.cancel(&tenant(), id, actor()).await;
                assert_eq!(answer, Ok(CancelAnswer::Marked(State::DispatchUnknown)));
            }
            _ => {}
        }
        for _ in 0..10 {
            bench.clock.advance(secs(30));
            assert!(bench.ledger.ask(&provider("sms-a"), 10).await.expect("works").is_empty(), "{case}");
        }
    }
}

#[tokio::test]
async fn what_a_dead_process_left_under_way_is_unknown_at_the_next_start() {
    let mut bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.restart().await;
    assert_eq!(bench.ledger.take_over().await, Ok(1));
    assert_eq!(bench.state(id).await, State::DispatchUnknown);
    assert!(bench.claim("sms-a").await.is_empty());
    let late = bench.ledger.settle(id, claimed.attempt, accepted("SM1")).await;
    assert_eq!(late, Ok(SettleAnswer::Late(State::Dispatched)), "the true result is kept as evidence");
    bench.accounts_close().await;
}

#[tokio::test]
async fn retries_wait_longer_and_longer_and_then_the_next_provider_is_tried() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let first = bench.claim_one("sms-a").await;
    assert_eq!(bench.settle(&first, not_sent()).await, State::RetryWait);
    assert!(bench.claim("sms-a").await.is_empty(), "not at once");
    bench.clock.advance(secs(2));
    let second = bench.claim_one("sms-a").await;
    bench.settle(&second, not_sent()).await;
    assert!(bench.claim("sms-a").await.is_empty());
    assert_eq!(bench.claim_one("sms-b").await.attempt, 3, "failover after two proofs of not sent");
}

#[tokio::test]
async fn a_wait_beyond_the_expiry_takes_the_next_provider_at_once() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    let busy = Outcome { retry_after: Some(secs(86_400)), ..Outcome::not_sent(Reason::RateLimited) };
    assert_eq!(bench.settle(&claimed, busy).await, State::RetryWait);
    assert_eq!(bench.claim_one("sms-b").await.attempt, 2);
}

#[tokio::test]
async fn a_retry_that_would_come_too_late_ends_it_now() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    bench.clock.advance(secs(580));
    let claimed = bench.claim_one("sms-a").await;
    let busy = Outcome { retry_after: Some(secs(60)), ..Outcome::not_sent(Reason::TemporarilyRefused) };
    bench.routes.open.lock().expect("no panic").push(provider("sms-b"));
    assert_eq!(bench.settle(&claimed, busy).await, State::Expired);
    assert_eq!(bench.status(id).await.notification.outcome.sent, Sent::No);
    bench.accounts_close().await;
}

#[tokio::test]
async fn what_is_too_late_at_the_claim_is_expired_and_not_sent() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    bench.clock.advance(secs(591));
    assert!(bench.claim("sms-a").await.is_empty(), "less than the transit margin is left");
    assert_eq!(bench.state(id).await, State::Expired);
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_refused_address_goes_on_to_the_next_one_and_the_last_fails() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit_event(bench.event_to("e1", &["+84901234567", "user@example.org"])).await;
    let sms = bench.claim_one("sms-a").await;
    assert_eq!(bench.settle(&sms, refused()).await, State::RetryWait);
    let mail = bench.claim_one("mail").await;
    let opened = bench.ledger.open(&mail).expect("it opens");
    assert_eq!(opened.to.canonical(), "user@example.org");
    assert_eq!(bench.settle(&mail, refused()).await, State::Failed);
    assert_eq!(bench.status(id).await.notification.outcome.sent, Sent::No);
    bench.accounts_close().await;
}

#[tokio::test]
async fn an_account_fault_uses_no_attempt_and_takes_the_next_provider() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let first = bench.claim_one("sms-a").await;
    assert_eq!(bench.settle(&first, refused_account()).await, State::RetryWait);
    let second = bench.claim_one("sms-b").await;
    assert_eq!(bench.settle(&second, refused_account()).await, State::RetryWait);
    for _ in 0..8 {
        bench.clock.advance(secs(60));
        let again = bench.claim_one("sms-b").await;
        assert_eq!(bench.settle(&again, refused_account()).await, State::RetryWait, "it waits for our account");
    }
}

#[tokio::test]
async fn a_newer_event_supersedes_what_has_not_left_and_marks_what_may_have() {
    let bench = Bench::with(silent()).await;
    let of_one_user = |name: &str| {
        let mut event = bench.event(name);
        event.user = bench.index.hash(Purpose::User, &[b"user-1"]);
        event
    };
    let first = bench.admit_event(of_one_user("e1")).await;
    bench.clock.advance(secs(1));
    let second = bench.admit_event(of_one_user("e2")).await;
    assert_eq!(bench.state(first).await, State::Superseded);
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!(claimed.id, second);
    bench.clock.advance(secs(1));
    let third = bench.admit_event(of_one_user("e3")).await;
    assert_eq!(bench.state(second).await, State::Dispatching, "what has left cannot be recalled");
    assert_eq!(bench.settle(&claimed, not_sent()).await, State::Superseded, "no further attempt");
    assert_eq!(bench.claim_one("sms-a").await.id, third);
    let mut late = of_one_user("e0");
    late.occurred_at = Some(crate::support::bench::START);
    let late = bench.admit_event(late).await;
    assert_eq!(bench.state(late).await, State::Superseded, "it happened before the live one");
    bench.accounts_close().await;
}

#[tokio::test]
async fn cancel_says_whether_it_came_in_time() {
    let bench = Bench::with(silent()).await;
    let cancel = |id| bench.ledger.cancel(tenant_ref(), id, actor());
    let waiting = bench.admit("e1").await;
    assert_eq!(cancel(waiting).await, Ok(CancelAnswer::Cancelled));
    assert_eq!(cancel(waiting).await, Ok(CancelAnswer::AlreadyFinal(State::Cancelled)));
    let under_way = bench.admit("e2").await;
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!(cancel(under_way).await, Ok(CancelAnswer::Marked(State::Dispatching)));
    assert_eq!(bench.settle(&claimed, not_sent()).await, State::Cancelled);
    let strangers = sendonce::domain::ids::Tenant::parse("other").expect("a tenant");
    let answer = bench.ledger.cancel(&strangers, under_way, actor()).await;
    assert_eq!(answer, Ok(CancelAnswer::NotFound));
    bench.accounts_close().await;
}

fn tenant_ref() -> &'static sendonce::domain::ids::Tenant {
    static TENANT: std::sync::OnceLock<sendonce::domain::ids::Tenant> = std::sync::OnceLock::new();
    TENANT.get_or_init(tenant)
}

#[tokio::test]
async fn a_limit_turns_events_away_without_a_row_and_survives_a_restart() {
    let mut bench = Bench::with(silent()).await;
    let limited = |bench: &Bench, name: &str| {
        let mut event = bench.event(name);
        let key = bench.index.hash(Purpose::RecipientLimit, &[b"one"]);
        event.limits = vec![LimitCheck { scope: LimitScope::Recipient, key, burst: 2, per: secs(60) }];
        event
    };
    bench.admit_event(limited(&bench, "e1")).await;
    bench.admit_event(limited(&bench, "e2")).await;
    bench.restart().await;
    let third = bench.ledger.admit(limited(&bench, "e3")).await;
    assert_eq!(third, Ok(Admission::Limited { scope: LimitScope::Recipient, retry_after: secs(30) }));
    let again = bench.ledger.admit(limited(&bench, "e1")).await;
    assert!(matches!(again, Ok(Admission::Replayed(_))), "a repeat is recognised before a limit");
    bench.clock.advance(secs(30));
    bench.admit_event(limited(&bench, "e3")).await;
    bench.accounts_close().await;
}

#[tokio::test]
async fn a_store_restored_from_an_older_copy_is_held_until_its_work_is_released_as_unknown() {
    let mut bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    bench.ledger.close().await;
    let copy = std::fs::read(bench.path()).expect("the file");
    bench.start_again().await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, accepted("SM1")).await;
    bench.ledger.close().await;
    std::fs::write(bench.path(), copy).expect("the restore");
    bench.start_again().await;
    assert!(bench.ledger.is_held());
    assert!(bench.ledger.claim(&provider("sms-a"), 10).await.is_err(), "nothing is sent while it is held");
    assert!(bench.ledger.admit(bench.event("e2")).await.is_err());
    assert_eq!(bench.ledger.recover(&ticket()).await, Ok(1));
    assert_eq!(bench.state(id).await, State::DispatchUnknown);
    assert!(bench.claim("sms-a").await.is_empty(), "what the lost history may have sent is not sent again");
    bench.admit("e2").await;
}

#[tokio::test]
async fn a_late_repeat_is_known_for_as_long_as_keys_are_retained_and_too_old_to_be_sent_afterwards() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, accepted("SM1")).await;
    bench.clock.advance(secs(29 * 24 * 3600));
    bench.ledger.sweep().await.expect("works");
    match bench.ledger.admit(bench.event("e1")).await {
        Ok(Admission::Replayed(first)) => assert_eq!(first.id, id),
        other => panic!("{other:?}"),
    }
    bench.clock.advance(secs(2 * 24 * 3600));
    bench.ledger.sweep().await.expect("works");
    assert!(bench.ledger.status(&tenant(), id).await.expect("works").is_none(), "retention has let it go");
}
