//! Where work waits, what the log says of it, and how a repeat is recognised without a write.

use std::time::Duration;

use sendonce::domain::audit::{Record, Source, What};
use sendonce::domain::ids::{NotificationId, Tenant, Ticket};
use sendonce::domain::outcome::{LookupAnswer, OutcomeClass, Reason};
use sendonce::ledger::{Admission, Repeat, Verdict};
use sendonce::vault::Purpose;

use crate::support::bench::{Bench, START, accepted, actor, lost, message_id, not_sent, provider, silent, with_lookup};

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
