//! Where work waits, what the log says of it, and how a repeat is recognised without a write.

use std::time::Duration;

use sendonce::domain::audit::{Record, Source, What};
use sendonce::domain::ids::{EventId, IdempotencyKey, NotificationId, Tenant, Ticket};
use sendonce::domain::lifecycle::State;
use sendonce::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use sendonce::ledger::{Admission, Hold, Question, Repeat, Verdict};
use sendonce::provider::{Abilities, LookupRules};
use sendonce::store::rows::{LogFilter, UnknownFilter};
use sendonce::vault::Purpose;

use crate::support::bench::{
    Bench, START, accepted, actor, lost, message_id, not_sent, provider, refused, silent, tenant, with_lookup,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ticket() -> Ticket {
    Ticket::parse("OPS-1").expect("a ticket")
}

/// The last record of this kind.
async fn told(bench: &Bench, id: NotificationId, what: What) -> Record {
    let log = bench.status(id).await.log;
    let last = log.into_iter().map(|row| row.record).rfind(|record| record.what == what);
    last.unwrap_or_else(|| panic!("no record of {what}"))
}

#[tokio::test]
async fn what_waits_for_a_provider_that_fails_moves_to_the_next_of_its_route_and_else_waits_a_little() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, not_sent()).await;
    bench.clock.advance(secs(2));
    let reroute = async |name: &str| bench.ledger.reroute(&provider(name), 10).await.expect("a working store");
    assert_eq!(reroute("sms-a").await, 1);
    assert!(bench.claim("sms-a").await.is_empty());
    let work = bench.status(id).await.work.expect("it waits");
    assert_eq!((work.provider, work.tries_here), (provider("sms-b"), 0));
    assert_eq!(told(&bench, id, What::Rerouted).await.reason, Some(Reason::BreakerOpen));
    assert_eq!(reroute("sms-b").await, 1, "it is looked at, and there is no other");
    assert!(bench.claim("sms-b").await.is_empty(), "what stands behind it comes first");
    bench.clock.advance(secs(5));
    assert_eq!(bench.claim_one("sms-b").await.attempt, 2);
    assert_eq!(reroute("sms-b").await, 0);
}

#[tokio::test]
async fn what_waits_for_a_provider_that_is_gone_begins_its_route_anew() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    bench.routes.abilities.lock().expect("free").remove(&provider("sms-a"));
    bench.routes.open.lock().expect("free").push(provider("sms-a"));
    bench.ledger.reroute(&provider("sms-a"), 10).await.expect("a working store");
    assert_eq!(bench.claim_one("sms-b").await.attempt, 1);
}

#[tokio::test]
async fn a_queue_tells_when_its_first_is_due() {
    let bench = Bench::with(with_lookup()).await;
    let due = async |ask| bench.ledger.next_due(&provider("sms-a"), ask).await.expect("a working store");
    assert_eq!((due(false).await, due(true).await), (None, None));
    bench.admit("e1").await;
    assert_eq!((due(false).await, due(true).await), (Some(START), None));
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!((due(false).await, due(true).await), (None, None), "it is under way");
    bench.settle(&claimed, lost()).await;
    assert_eq!((due(false).await, due(true).await), (None, Some(START.plus(secs(1)))));
}

#[tokio::test]
async fn a_refused_repeat_is_recognised_by_its_key_first_and_by_nobody_elses() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let first = || bench.event("e1").repeat;
    let another = bench.index.hash(Purpose::Key, &[b"another"]);
    let mut fingerprint = first().fingerprint;
    fingerprint[5] ^= 1;
    let recognise = async |repeat| bench.ledger.recognise(&repeat).await.expect("a working store");
    assert!(matches!(recognise(first()).await, Some(Admission::Replayed(of)) if of.id == id));
    assert_eq!(recognise(Repeat { fingerprint, ..first() }).await, Some(Admission::KeyReused));
    let event_alone = Repeat { key: another, ..first() };
    assert!(matches!(recognise(event_alone).await, Some(Admission::EventTaken(of)) if of.id == id));
    assert_eq!(recognise(Repeat { key: another, event: another, ..first() }).await, None);
    let tenant = Tenant::parse("other").expect("a tenant");
    assert_eq!(recognise(Repeat { tenant, ..first() }).await, None);
}

#[tokio::test]
async fn the_log_tells_how_an_attempt_ended_where_and_under_which_id() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, accepted("M1")).await;
    let ended = told(&bench, id, What::AttemptEnded).await;
    assert_eq!((ended.outcome, ended.reason), (Some(OutcomeClass::Accepted), Some(Reason::Ok)));
    assert_eq!((ended.attempt, ended.provider), (Some(1), Some(provider("sms-a"))));
    assert_eq!((ended.message_id, ended.address), (Some(message_id("M1")), Some(claimed.leg.address)));
}

#[tokio::test]
async fn the_log_tells_what_was_found_out_and_who_said_so() {
    let mut bench = Bench::with(with_lookup()).await;
    let left = bench.admit("left").await;
    let found = bench.admit("found").await;
    assert_eq!(bench.claim("sms-a").await.len(), 2);
    bench.restart().await;
    assert_eq!(bench.ledger.take_over().await, Ok(2));
    let ended = told(&bench, left, What::AttemptEnded).await;
    assert_eq!((ended.outcome, ended.reason), (Some(OutcomeClass::Unknown), Some(Reason::ProcessDied)));

    let answer = LookupAnswer::Found { message_id: Some(message_id("M1")), delivery: None };
    bench.ledger.answer(found, 1, answer).await.expect("a working store");
    let evidence = told(&bench, found, What::Evidence).await;
    assert_eq!((evidence.source, evidence.message_id), (Some(Source::Lookup), Some(message_id("M1"))));
    assert_eq!(bench.status(found).await.notification.outcome.message_id, Some(message_id("M1")));

    bench.ledger.resolve(None, left, Verdict::NotSent, ticket(), actor()).await.expect("a working store");
    let evidence = told(&bench, left, What::Evidence).await;
    assert_eq!((evidence.source, evidence.ticket, evidence.actor), (Some(Source::Operator), Some(ticket()), actor()));

    bench.ledger.recover(&ticket()).await.expect("a working store");
    let restored = told(&bench, left, What::Restored).await;
    assert_eq!((restored.ticket, restored.attempt), (Some(ticket()), Some(2)), "the lost copy may have made a second");
}

#[tokio::test]
async fn a_record_that_stands_for_itself_gets_the_time_of_its_commit() {
    let bench = Bench::with(silent()).await;
    bench.clock.advance(secs(5));
    bench.ledger.record(Record::new(START, tenant(), What::Exported, actor())).await.expect("a working store");
    let log = bench.ledger.log_page(&LogFilter::default(), 0, 10).await.expect("a working store");
    let told: Vec<_> = log.into_iter().map(|row| (row.record.what, row.record.at, row.record.actor)).collect();
    assert_eq!(told, [(What::Exported, START.plus(secs(5)), actor())]);
}

#[tokio::test]
async fn the_bell_of_a_queue_rings_when_work_comes() {
    let bench = Bench::with(with_lookup()).await;
    let rings = async |ask| {
        let bell = bench.ledger.wakes(&provider("sms-a"), ask);
        tokio::time::timeout(secs(5), bell.notified()).await.is_ok()
    };
    bench.admit("e1").await;
    assert!(rings(false).await, "it is to be sent");
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    assert!(rings(true).await, "it is to be asked about");
}

#[tokio::test]
async fn a_look_up_that_needs_the_address_is_given_the_one_that_was_tried() {
    let lookup = with_lookup().lookup.map(|rules| LookupRules { needs_address: true, ..rules });
    for (abilities, expected) in
        [(Abilities { lookup, ..silent() }, Some("user@example.org".to_owned())), (with_lookup(), None)]
    {
        let bench = Bench::with(silent()).await;
        bench.routes.abilities.lock().expect("free").insert(provider("mail"), abilities.into());
        bench.admit_event(bench.event_to("e1", &["+84901234567", "user@example.org"])).await;
        let sms = bench.claim_one("sms-a").await;
        bench.settle(&sms, refused()).await;
        let mail = bench.claim_one("mail").await;
        bench.settle(&mail, lost()).await;
        bench.clock.advance(secs(2));
        let Some(Question::Lookup(asking)) = bench.ledger.ask(&provider("mail"), 10).await.expect("works").pop() else {
            panic!("a look-up is due")
        };
        assert_eq!((asking.attempt, asking.reference), (2, mail.reference));
        assert_eq!((asking.dedupe_key, asking.began_at), (mail.dedupe_key, START));
        assert_eq!(asking.to.map(|to| to.canonical()), expected);
    }
}

#[tokio::test]
async fn a_question_that_was_handed_out_comes_again_only_when_its_answer_cannot_come_any_more() {
    let bench = Bench::with(with_lookup()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    bench.clock.advance(secs(1));
    let ask = async || bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").len();
    assert_eq!(ask().await, 1);
    // The provider's time-out and half a minute.
    bench.clock.advance(secs(40) - Duration::from_micros(1));
    assert_eq!(ask().await, 0);
    bench.clock.advance(Duration::from_micros(1));
    assert_eq!(ask().await, 1);
}

#[tokio::test]
async fn an_unknown_is_asked_about_again_when_its_provider_is_configured_again() {
    let bench = Bench::with(with_lookup()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    let ask = async || bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").len();
    let gone = bench.routes.abilities.lock().expect("free").remove(&provider("sms-a")).expect("it was there");
    bench.clock.advance(secs(60));
    assert_eq!(ask().await, 0);
    bench.routes.abilities.lock().expect("free").insert(provider("sms-a"), gone);
    bench.clock.advance(secs(60));
    assert_eq!(ask().await, 1);
}

#[tokio::test]
async fn after_a_restore_the_provider_is_asked_about_all_the_time_since_the_admission() {
    let bench = Bench::with(with_lookup()).await;
    bench.admit("e1").await;
    bench.clock.advance(secs(30));
    bench.ledger.recover(&ticket()).await.expect("a working store");
    bench.clock.advance(secs(2));
    let Some(Question::Lookup(asking)) = bench.ledger.ask(&provider("sms-a"), 10).await.expect("works").pop() else {
        panic!("a look-up is due")
    };
    assert_eq!((asking.attempt, asking.began_at), (1, START));
}

#[tokio::test]
async fn what_was_never_tried_names_no_provider() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    bench.ledger.cancel(&tenant(), id, actor()).await.expect("a working store");
    let outcome = bench.status(id).await.notification.outcome;
    assert_eq!((outcome.provider, outcome.channel), (None, None));
}

#[tokio::test]
async fn a_notification_is_found_by_its_id_its_event_or_its_key_and_by_its_own_tenant_only() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let (event, key) = (EventId::parse("e1").expect("an event"), IdempotencyKey::parse("e1").expect("a key"));
    for (tenant, expected) in [(tenant(), Some(id)), (Tenant::parse("other").expect("a tenant"), None)] {
        let ledger = &bench.ledger;
        let found = [
            ledger.status(&tenant, id).await,
            ledger.status_by_event(&tenant, &event).await,
            ledger.status_by_key(&tenant, &key).await,
        ];
        assert_eq!(found.map(|row| row.expect("a working store").map(|row| row.notification.id)), [expected; 3]);
    }
}

#[tokio::test]
async fn a_ledger_tells_how_far_it_has_come_what_is_left_and_that_it_runs() {
    let bench = Bench::with(silent()).await;
    let before = bench.ledger.last_position().await.expect("a working store");
    bench.clock.advance(secs(5));
    bench.admit("e1").await;
    assert_eq!(bench.ledger.last_position().await, Ok(before + 1));
    assert_eq!(bench.ledger.last_time().await, Ok(START.plus(secs(5))));
    assert_eq!(bench.ledger.now().await, Ok(START.plus(secs(5))));
    let counts = bench.ledger.work_counts().await.expect("a working store");
    let told: Vec<_> = counts.into_iter().map(|of| (of.provider, of.state, of.count, of.oldest_due)).collect();
    assert_eq!(told, [(provider("sms-a"), State::Accepted, 1, START.plus(secs(5)))]);
    assert_eq!(bench.ledger.queue_depth(), (0, bench.policy.queue));
    assert!(bench.ledger.is_alive());
    assert!(!bench.ledger.leads(), "until the first sweep nobody knows");
    assert_eq!(bench.ledger.sweep().await, Ok(false), "no more is over than one sweep takes");
    assert!(bench.ledger.leads() && bench.ledger.holds_lease(), "it is alone");
    bench.ledger.close().await;
    assert!(!bench.ledger.is_alive());
}

#[tokio::test]
async fn who_is_served_in_a_commit_keeps_no_other_queue_from_being_woken() {
    let bench = Bench::with(silent()).await;
    let wish = bench.wish("sms-a", Hold::default()).await;
    let before = *bench.ledger.commits().borrow();
    let mail = bench.event_to("e2", &["user@example.org"]);
    tokio::join!(bench.admit("e1"), bench.admit_event(mail));
    assert_eq!(*bench.ledger.commits().borrow(), before + 1, "both in one");
    assert_eq!(wish.await.expect("no panic").map(|claims| claims.len()), Ok(1));
    let bell = bench.ledger.wakes(&provider("mail"), false);
    tokio::time::timeout(secs(5), bell.notified()).await.expect("the mail is to be sent");
}

#[tokio::test]
async fn what_never_began_waits_as_long_as_its_reason_is_likely_to_last() {
    for (reason, wait) in [
        (Reason::UnsealFailed, 30),
        (Reason::ProviderGone, 30),
        (Reason::StartedTooLate, 1),
        (Reason::Draining, 0),
        (Reason::NotHandedOut, 0),
    ] {
        let bench = Bench::with(silent()).await;
        let id = bench.admit("e1").await;
        let claimed = bench.claim_one("sms-a").await;
        assert_eq!(bench.settle(&claimed, Outcome::never_began(reason)).await, State::RetryWait);
        let work = bench.status(id).await.work.expect("it waits");
        assert_eq!((work.due_at, work.life.used), (START.plus(secs(wait)), 0), "{reason}");
    }
}

#[tokio::test]
async fn an_unknown_is_among_the_unknowns_until_it_is_known() {
    let bench = Bench::with(silent()).await;
    let filter = UnknownFilter { limit: 10, ..UnknownFilter::default() };
    let unknowns = async || {
        let rows = bench.ledger.unknowns(&filter).await.expect("a working store");
        rows.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    assert_eq!(unknowns().await, []);
    bench.settle(&claimed, lost()).await;
    assert_eq!(unknowns().await, [id]);
    bench.ledger.resolve(None, id, Verdict::Sent, ticket(), actor()).await.expect("a working store");
    assert_eq!(unknowns().await, []);
}
