//! What a worker's word, a look-up and a probe prove, each about its own attempt, and what they do not.

use std::time::Duration;

use sendonce::domain::audit::{Source, What};
use sendonce::domain::delivery::Delivery;
use sendonce::domain::ids::Ticket;
use sendonce::domain::lifecycle::{Sent, State};
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::ledger::{Claimed, Question, Received, ResolveAnswer, SettleAnswer, Verdict};
use sendonce::provider::{Abilities, LookupRules};

use crate::support::bench::{
    Bench, START, accepted, actor, lost, message_id, not_sent, provider, refused, refused_account, silent, with_dedupe,
    with_lookup,
};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Every word of a worker but that it was taken.
fn other_words() -> [Outcome; 5] {
    [refused(), refused_account(), not_sent(), lost(), Outcome::never_began(Reason::Draining)]
}

/// Two attempts: the first was not sent, so it says, and the second is under way.
async fn second_attempt(bench: &Bench) -> (Claimed, Claimed) {
    bench.admit("e1").await;
    let first = bench.claim_one("sms-a").await;
    bench.settle(&first, not_sent()).await;
    bench.clock.advance(secs(2));
    (first, bench.claim_one("sms-a").await)
}

#[tokio::test]
async fn a_late_word_of_an_older_attempt_does_not_settle_the_newer_one() {
    for word in other_words() {
        let bench = Bench::with(silent()).await;
        let (first, second) = second_attempt(&bench).await;
        let answer = bench.ledger.settle(first.id, first.attempt, word.clone()).await;
        assert_eq!(answer, Ok(SettleAnswer::Late(State::Dispatching)), "{word:?}");
        let life = bench.status(first.id).await.work.expect("it is under way").life;
        assert_eq!((life.state, life.attempt, life.used), (State::Dispatching, 2, 2), "{word:?}");
        bench.clock.advance(secs(120));
        assert!(bench.claim("sms-a").await.is_empty() && bench.claim("sms-b").await.is_empty(), "{word:?}");
        assert_eq!(bench.settle(&second, accepted("M2")).await, State::Dispatched, "{word:?}");
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn an_older_attempt_that_was_taken_after_all_ends_the_life_and_is_told_as_a_contradiction() {
    let bench = Bench::with(silent()).await;
    let (first, second) = second_attempt(&bench).await;
    let answer = bench.ledger.settle(first.id, first.attempt, accepted("M1")).await;
    assert_eq!(answer, Ok(SettleAnswer::Late(State::Dispatched)));
    assert_eq!(bench.settle(&second, not_sent()).await, State::Dispatched, "nothing follows");
    assert!(bench.claim("sms-a").await.is_empty() && bench.claim("sms-b").await.is_empty());
    let story = bench.story(first.id).await;
    assert!(story.iter().any(|word| word.starts_with("evidence_contradicted")), "{story:?}");
    assert_eq!(bench.metrics.contradictions.get(), 1);
    bench.accounts_close().await;
}

#[tokio::test]
async fn what_is_stored_already_is_not_stored_again_and_what_is_new_is_never_taken_for_it() {
    for (first_word, second_word) in
        [(accepted("M1"), accepted("M2")), (Outcome::accepted(None), Outcome::accepted(None))]
    {
        let bench = Bench::with(silent()).await;
        let (first, second) = second_attempt(&bench).await;
        let settle = async |claimed: &Claimed, word: Outcome| {
            bench.ledger.settle(claimed.id, claimed.attempt, word).await.expect("a working store")
        };
        let (new, known) = (SettleAnswer::Late(State::Dispatched), SettleAnswer::Now(State::Dispatched));
        assert_eq!(settle(&first, Outcome::accepted(None)).await, new, "nobody knew of it");
        if first_word.message_id.is_some() {
            assert_eq!(settle(&first, first_word.clone()).await, new, "its id is new");
        }
        let told = bench.status(first.id).await.log.len();
        assert_eq!(settle(&first, first_word).await, known, "the same again");
        assert_eq!(bench.status(first.id).await.log.len(), told);
        assert_eq!(bench.metrics.contradictions.get(), 1, "it was sent while the second was under way");
        assert_eq!(settle(&second, second_word).await, new);
        assert_eq!(bench.metrics.contradictions.get(), 2, "and so was the second");
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn a_late_word_of_the_first_attempt_does_not_end_its_probe() {
    for word in other_words() {
        let bench = Bench::with(with_dedupe()).await;
        let (first, probe) = bench.probing().await;
        let answer = bench.ledger.settle(first.id, first.attempt, word.clone()).await;
        assert_eq!(answer, Ok(SettleAnswer::Late(State::DispatchUnknown)), "{word:?}");
        let life = bench.status(first.id).await.work.expect("it is unknown").life;
        assert_eq!((life.open, life.probing, life.used), (Some(1), true, 2), "{word:?}");
        assert!(bench.claim("sms-a").await.is_empty(), "{word:?}");
        assert_eq!(bench.settle(&probe, accepted("M1")).await, State::Dispatched, "{word:?}");
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn a_probe_that_was_not_taken_says_nothing_of_the_attempt_that_it_repeats() {
    for word in other_words() {
        let bench = Bench::with(with_dedupe()).await;
        let (first, probe) = bench.probing().await;
        assert_eq!(bench.settle(&probe, word.clone()).await, State::DispatchUnknown, "{word:?}");
        let life = bench.status(first.id).await.work.expect("it is unknown").life;
        assert_eq!((life.open, life.sent, life.probing), (Some(1), Sent::Unknown, false), "{word:?}");
        assert_eq!(life.used, if word == Outcome::never_began(Reason::Draining) { 1 } else { 2 }, "{word:?}");
        assert!(bench.claim("sms-a").await.is_empty() && bench.claim("sms-b").await.is_empty(), "{word:?}");
        let ticket = Ticket::parse("OPS-1").expect("a ticket");
        let verdict = bench.ledger.resolve(None, first.id, Verdict::Sent, ticket, actor()).await;
        assert_eq!(verdict, Ok(ResolveAnswer::Resolved(State::Dispatched)), "{word:?}");
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn a_miss_counts_from_the_moment_on_at_which_the_providers_lag_is_over() {
    let bench = Bench::with(with_lookup()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    let miss = async || bench.ledger.answer(id, claimed.attempt, LookupAnswer::NotFound).await;
    bench.clock.advance(secs(60) - Duration::from_micros(1));
    for _ in 0..5 {
        assert_eq!(miss().await, Ok(SettleAnswer::Now(State::DispatchUnknown)), "too early");
    }
    bench.clock.advance(Duration::from_micros(1));
    assert_eq!(miss().await, Ok(SettleAnswer::Now(State::DispatchUnknown)), "the first of two");
    assert_eq!(miss().await, Ok(SettleAnswer::Now(State::RetryWait)));
    assert_eq!(bench.claim_one("sms-a").await.attempt, 2);
}

#[tokio::test]
async fn a_probe_begins_from_the_moment_on_at_which_the_provider_knows_the_key() {
    let bench = Bench::with(with_dedupe()).await;
    bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    let ask = async || bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").len();
    bench.clock.advance(secs(5) - Duration::from_micros(1));
    assert_eq!(ask().await, 0);
    bench.clock.advance(Duration::from_micros(1));
    assert_eq!(ask().await, 1);
}

#[tokio::test]
async fn an_attempt_begins_only_while_what_commits_it_can_leave_in_time() {
    for (late, claims) in [(Duration::ZERO, 1), (Duration::from_micros(1), 0)] {
        let bench = Bench::with(silent()).await;
        let id = bench.admit("e1").await;
        // It lives for 600 s, and transit takes 10 s.
        bench.clock.advance(secs(590) + late);
        assert_eq!(bench.claim("sms-a").await.len(), claims);
        let state = if claims > 0 { State::Dispatching } else { State::Expired };
        assert_eq!(bench.state(id).await, state);
    }
}

/// How many questions are due at `sms-a`.
async fn questions(bench: &Bench) -> usize {
    bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").len()
}

#[tokio::test]
async fn a_look_up_is_made_with_the_attempts_account_only_and_only_while_the_provider_keeps_its_list() {
    let kept = secs(48 * 3600);
    for (account, wait, expected) in
        [(1, kept - Duration::from_micros(1), 1), (1, kept, 0), (9, kept - Duration::from_micros(1), 0)]
    {
        let bench = Bench::with(with_lookup()).await;
        bench.admit("e1").await;
        let claimed = bench.claim_one("sms-a").await;
        bench.settle(&claimed, lost()).await;
        let now = Abilities { account: [account; 16], ..with_lookup() };
        bench.routes.abilities.lock().expect("free").insert(provider("sms-a"), now.into());
        bench.clock.advance(wait);
        assert_eq!(questions(&bench).await, expected, "account {account}, after {wait:?}");
    }
}

#[tokio::test]
async fn where_a_miss_proves_nothing_no_number_of_them_resends_and_a_probe_follows_where_there_is_one() {
    let lookup = with_lookup().lookup.map(|rules| LookupRules { settle_after: secs(5), trust_miss: false, ..rules });
    for (dedupe, probes) in [(None, 0), (with_dedupe().dedupe, 1)] {
        let bench = Bench::with(Abilities { lookup, dedupe, ..with_dedupe() }).await;
        let id = bench.admit("e1").await;
        let claimed = bench.claim_one("sms-a").await;
        bench.settle(&claimed, lost()).await;
        for n in 1..=6 {
            bench.clock.advance(secs(60));
            match bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store").pop() {
                Some(Question::Lookup(asking)) => {
                    assert!(n <= 2 || probes == 0, "two misses are enough where a probe can follow");
                    bench.ledger.answer(id, asking.attempt, LookupAnswer::NotFound).await.expect("a working store");
                }
                Some(Question::Probe(_)) => {
                    assert_eq!((n, probes), (3, 1), "after both misses");
                    break;
                }
                None => panic!("nothing is asked at {n}"),
            }
            assert_eq!(bench.state(id).await, State::DispatchUnknown);
        }
        assert!(bench.claim("sms-a").await.is_empty());
    }
}

#[tokio::test]
async fn probes_count_as_attempts_and_end_with_the_last_of_them() {
    let bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    bench.settle(&probe, lost()).await;
    let mut probes = 1;
    for _ in 0..10 {
        bench.clock.advance(secs(30));
        for question in bench.ledger.ask(&provider("sms-a"), 10).await.expect("a working store") {
            let Question::Probe(probe) = question else { panic!("no look-ups here") };
            bench.settle(&probe, lost()).await;
            probes += 1;
        }
    }
    assert_eq!((1 + probes, bench.state(first.id).await), (bench.policy.max_attempts, State::DispatchUnknown));
}

#[tokio::test]
async fn a_probe_arrives_while_the_provider_knows_the_key_and_the_message_is_of_use_or_is_not_made() {
    // The window is an hour, less the time-out and the skew of clocks; a life of 600 s ends 10 s before in transit.
    for (life, last) in [(7200, 3600 - 10 - 5), (600, 600 - 10)] {
        for (late, expected) in [(Duration::ZERO, 1), (Duration::from_micros(1), 0)] {
            let bench = Bench::with(with_dedupe()).await;
            let mut event = bench.event("e1");
            event.expires_at = event.now.plus(secs(life));
            bench.admit_event(event).await;
            let claimed = bench.claim_one("sms-a").await;
            bench.settle(&claimed, lost()).await;
            bench.clock.advance(secs(last) + late);
            assert_eq!(questions(&bench).await, expected, "{life}, {late:?} after {last}");
        }
    }
}

fn receipt(id: &str, status: ReceiptStatus) -> Receipt {
    let message_id = Some(message_id(id));
    Receipt { provider: provider("sms-a"), reference: None, message_id, status, part: Part::WHOLE }
}

#[tokio::test]
async fn a_receipt_that_names_a_message_finds_it_however_early_it_comes() {
    let bench = Bench::with(Abilities { receipts: true, receipts_by_id: true, ..silent() }).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    let receive = async |of: &str, status| {
        let answers = bench.ledger.receive(vec![receipt(of, status)]).await.expect("a working store");
        let delivery = bench.status(id).await.notification.outcome.delivery;
        (answers[0], delivery.delivered, delivery.undelivered)
    };
    assert_eq!(receive("M1", ReceiptStatus::Delivered).await, (Received::Kept, 0, 0), "nobody knows whose it is");
    assert_eq!(bench.settle(&claimed, accepted("M1")).await, State::Dispatched);
    assert_eq!(bench.status(id).await.notification.outcome.delivery.delivered, 1, "it was kept for this");
    assert_eq!(receive("M1", ReceiptStatus::Delivered).await, (Received::Repeated(id), 1, 0));
    assert_eq!(receive("M1", ReceiptStatus::Progress).await, (Received::Repeated(id), 1, 0));
    assert_eq!(receive("M1", ReceiptStatus::Undelivered).await, (Received::Matched(id), 1, 1));
    assert_eq!(receive("M2", ReceiptStatus::Delivered).await, (Received::Kept, 1, 1));
    let log = bench.status(id).await.log.into_iter().map(|row| row.record);
    let receipts = log.filter(|record| record.what == What::Receipt);
    let told: Vec<_> = receipts.map(|record| (record.delivery, record.attempt)).collect();
    // Of a text message a part that was once delivered stays so.
    assert_eq!(told, [(Some(Delivery::Delivered), Some(1)); 2], "what is new is told");
    assert_eq!(bench.state(id).await, State::Dispatched);
}

#[tokio::test]
async fn a_receipt_that_names_an_attempt_is_evidence_for_that_one() {
    for (word, contradicted) in [(lost(), false), (not_sent(), true)] {
        let bench = Bench::with(Abilities { receipts: true, ..silent() }).await;
        let id = bench.admit("e1").await;
        let first = bench.claim_one("sms-a").await;
        bench.settle(&first, word).await;
        bench.clock.advance(secs(2));
        let second = bench.claim("sms-a").await;
        let came = Receipt { reference: Some(first.reference), ..receipt("M1", ReceiptStatus::Progress) };
        let receive = async || bench.ledger.receive(vec![came.clone()]).await.expect("a working store");
        assert_eq!(receive().await, [Received::Matched(id)]);
        assert_eq!(receive().await, [Received::Repeated(id)]);
        let outcome = bench.status(id).await.notification.outcome;
        let known = (outcome.state, outcome.sent, outcome.sent_attempt, outcome.message_id);
        assert_eq!(known, (State::Dispatched, Sent::Yes, Some(1), Some(message_id("M1"))));
        let log = bench.status(id).await.log.into_iter().map(|row| row.record);
        let attempts: Vec<_> = log.filter(|r| r.what == What::Evidence).map(|r| r.attempt).collect();
        assert_eq!(attempts, [Some(1)]);
        let told = bench.story(id).await.iter().any(|word| word.starts_with("evidence_contradicted"));
        assert_eq!((told, second.len()), (contradicted, usize::from(contradicted)), "beside the second attempt");
        bench.accounts_close().await;
    }
}

#[tokio::test]
async fn what_a_providers_list_shows_is_evidence_under_our_reference_and_nothing_without() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, lost()).await;
    let unnamed = receipt("M1", ReceiptStatus::Delivered);
    let named = Receipt { reference: Some(claimed.reference), ..unnamed.clone() };
    let shown = vec![unnamed, named.clone(), named];
    let became = bench.ledger.listed(shown).await;
    assert_eq!(became, Ok(vec![Received::Kept, Received::Matched(id), Received::Repeated(id)]));
    let outcome = bench.status(id).await.notification.outcome;
    assert_eq!((outcome.state, outcome.sent_attempt, outcome.delivery.delivered), (State::Dispatched, Some(1), 1));
    let log = bench.status(id).await.log.into_iter().map(|row| row.record);
    let told: Vec<_> =
        log.filter(|record| record.source == Some(Source::Statement)).map(|r| (r.what, r.reason)).collect();
    assert_eq!(told, [What::Evidence, What::Receipt].map(|what| (what, Some(Reason::Listed))));
}

#[tokio::test]
async fn a_probe_that_a_process_left_under_way_is_over_and_the_attempt_that_it_repeats_stays_open() {
    let mut bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    bench.restart().await;
    assert_eq!(bench.ledger.take_over().await, Ok(1));
    let life = bench.status(first.id).await.work.expect("it is unknown").life;
    assert_eq!((life.state, life.open, life.probing), (State::DispatchUnknown, Some(1), false));
    let last = bench.status(first.id).await.log.pop().expect("a record").record;
    assert_eq!(
        (last.what, last.attempt, last.reason),
        (What::ProbeEnded, Some(probe.attempt), Some(Reason::ProcessDied))
    );
    assert!(bench.claim("sms-a").await.is_empty());
    bench.clock.advance(secs(30));
    assert_eq!(questions(&bench).await, 1, "it is asked about again");
    assert_eq!(bench.ledger.take_over().await, Ok(0));
}

#[tokio::test]
async fn after_a_probe_that_was_made_the_providers_lag_counts_anew_and_after_one_that_never_began_it_does_not() {
    // A dedupe key is known after 5 s, and the second question comes after 2 s at the earliest.
    for (word, wait) in [(lost(), 5), (Outcome::never_began(Reason::Draining), 2)] {
        let bench = Bench::with(with_dedupe()).await;
        let (_, probe) = bench.probing().await;
        bench.settle(&probe, word.clone()).await;
        bench.clock.advance(secs(wait) - Duration::from_micros(1));
        assert_eq!(questions(&bench).await, 0, "{word:?}");
        bench.clock.advance(Duration::from_micros(1));
        assert_eq!(questions(&bench).await, 1, "{word:?}");
    }
}

#[tokio::test]
async fn a_probe_that_is_taken_after_its_attempt_was_found_to_be_sent_contradicts_nothing() {
    let bench = Bench::with(with_dedupe()).await;
    let (first, probe) = bench.probing().await;
    let ticket = Ticket::parse("OPS-1").expect("a ticket");
    bench.ledger.resolve(None, first.id, Verdict::Sent, ticket, actor()).await.expect("a working store");
    assert_eq!(bench.settle(&probe, accepted("M1")).await, State::Dispatched);
    assert_eq!(bench.metrics.contradictions.get(), 0);
    assert_eq!(bench.status(first.id).await.notification.outcome.sent_attempt, Some(1));
    bench.accounts_close().await;
}

#[tokio::test]
async fn what_is_asked_at_another_provider_or_for_another_address_is_asked_about_its_own_attempt_only() {
    // The next provider of the route, and the next address at the same one.
    for (word, next) in [(refused_account(), "sms-b"), (refused(), "sms-a")] {
        let bench = Bench::with(with_lookup()).await;
        bench.routes.abilities.lock().expect("free").insert(provider("sms-b"), with_lookup().into());
        bench.admit_event(bench.event_to("e1", &["+84901234567", "+84907654321"])).await;
        let first = bench.claim_one("sms-a").await;
        bench.settle(&first, word).await;
        bench.clock.advance(secs(5));
        let second = bench.claim_one(next).await;
        bench.settle(&second, lost()).await;
        bench.clock.advance(secs(2));
        match bench.ledger.ask(&provider(next), 10).await.expect("a working store").pop() {
            Some(Question::Lookup(asking)) => {
                assert_eq!((asking.attempt, asking.began_at), (2, START.plus(secs(5))), "at {next}");
            }
            other => panic!("a look-up is due: {other:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_receipt_became_has_a_stable_code_for_the_metrics() {
    let id = Bench::with(silent()).await.admit("e1").await;
    let codes = [Received::Matched(id), Received::Repeated(id), Received::Kept].map(Received::code);
    assert_eq!(codes, ["matched", "repeated", "kept"]);
}
