//! Random lives against a reference that knows one thing only: what was handed to workers, and what was learnt of it.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sendonce::clock::Clock as _;
use sendonce::domain::ids::{NotificationId, Ticket};
use sendonce::domain::lifecycle::State;
use sendonce::domain::outcome::{LookupAnswer, Outcome, Reason};
use sendonce::domain::receipt::{Part, Receipt, ReceiptStatus};
use sendonce::ledger::{Admission, CancelAnswer, Claimed, Question, ResolveAnswer, SettleAnswer, Verdict};
use sendonce::vault::Purpose;

use crate::support::bench::{
    Bench, accepted, actor, lost, not_sent, provider, refused, refused_account, silent, tenant, with_dedupe,
    with_lookup,
};

#[derive(Clone, Debug)]
enum Step {
    Admit { name: u8, user: u8, other_payload: bool },
    Claim(bool),
    Settle { which: usize, how: u8 },
    Ask { answer: u8 },
    Cancel(usize),
    Receipt(usize),
    Resolve { which: usize, verdict: u8 },
    Advance(u64),
    Sweep,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..12_u8, 0..5_u8, prop::bool::weighted(0.1))
            .prop_map(|(name, user, other_payload)| Step::Admit { name, user, other_payload }),
        5 => any::<bool>().prop_map(Step::Claim),
        6 => (any::<usize>(), 0..6_u8).prop_map(|(which, how)| Step::Settle { which, how }),
        4 => (0..3_u8).prop_map(|answer| Step::Ask { answer }),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Receipt),
        2 => (any::<usize>(), 0..3_u8).prop_map(|(which, verdict)| Step::Resolve { which, verdict }),
        4 => prop_oneof![1..40_u64, 60..90_u64, Just(400_u64)].prop_map(Step::Advance),
        1 => Just(Step::Sweep),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 20..60)
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    /// With a worker.
    Out,
    /// Ended, or its worker died, and nobody knows.
    Unknown,
    NotSent,
    Sent,
}

struct Handed {
    claimed: Claimed,
    fate: Fate,
    /// What its worker said last.
    said: Option<Outcome>,
}

#[derive(Default)]
struct Reference {
    handed: Vec<Handed>,
    /// Admitted, and whether no attempt may follow any more.
    stopped: BTreeMap<NotificationId, bool>,
    misses: BTreeMap<NotificationId, u32>,
}

impl Reference {
    fn stop(&mut self, id: NotificationId) {
        self.stopped.insert(id, true);
    }

    fn take(&mut self, bench: &Bench, claimed: Claimed) {
        let id = claimed.id;
        assert!(bench.clock.now() <= claimed.commit_by, "handed out too late");
        assert!(!self.stopped[&id], "handed out after it was sent or stopped");
        let mut earlier = self.handed.iter().filter(|h| h.claimed.id == id);
        assert!(earlier.all(|h| h.claimed.attempt < claimed.attempt), "an attempt's number was given twice");
        let mut earlier = self.handed.iter().filter(|h| h.claimed.id == id);
        if claimed.probe {
            assert!(earlier.all(|h| h.fate != Fate::Out), "a probe beside an attempt under way");
        } else {
            assert!(earlier.all(|h| h.fate == Fate::NotSent), "an attempt beside one that may have been sent");
        }
        self.handed.push(Handed { claimed, fate: Fate::Out, said: None });
    }

    /// Somebody found out that nothing of it was sent so far; what is with a worker may be yet.
    fn none_sent(&mut self, id: NotificationId) {
        for handed in self.handed.iter_mut().filter(|h| h.claimed.id == id && h.fate == Fate::Unknown) {
            handed.fate = Fate::NotSent;
        }
        // Of an attempt whose repeat is under way the verdict is about the attempt.
        let mut out = self.handed.iter().filter(|h| h.claimed.id == id && h.fate == Fate::Out);
        assert!(out.all(|h| h.claimed.probe));
    }
}

async fn take_step(bench: &mut Bench, known: &mut Reference, step: Step) {
    match step {
        Step::Admit { name, user, other_payload } => admit(bench, known, name, user, other_payload).await,
        Step::Claim(first) => {
            for claimed in bench.claim(if first { "sms-a" } else { "sms-b" }).await {
                known.take(bench, claimed);
            }
        }
        Step::Settle { which, how } => settle(bench, known, which, how).await,
        Step::Ask { answer } => ask(bench, known, answer).await,
        Step::Cancel(which) => {
            let Some(id) = pick(known, which) else { return };
            let answer = bench.ledger.cancel(&tenant(), id, actor()).await.expect("works");
            if matches!(answer, CancelAnswer::Cancelled | CancelAnswer::Marked(_)) {
                known.stopped.insert(id, true);
            }
        }
        Step::Receipt(which) => {
            if known.handed.is_empty() {
                return;
            }
            let place = which % known.handed.len();
            let handed = &mut known.handed[place];
            if handed.fate == Fate::NotSent {
                return;
            }
            handed.fate = Fate::Sent;
            let receipt = Receipt {
                provider: handed.claimed.provider.clone(),
                reference: Some(handed.claimed.reference),
                message_id: None,
                status: ReceiptStatus::Delivered,
                part: Part::WHOLE,
            };
            known.stopped.insert(handed.claimed.id, true);
            bench.ledger.receive(vec![receipt]).await.expect("works");
        }
        Step::Resolve { which, verdict } => {
            let Some(id) = pick(known, which) else { return };
            let verdict = [Verdict::Sent, Verdict::NotSent, Verdict::Abandon][usize::from(verdict)];
            let ticket = Ticket::parse("OPS-1").expect("a ticket");
            let answer = bench.ledger.resolve(None, id, verdict, ticket, actor()).await.expect("works");
            match (answer, verdict) {
                (ResolveAnswer::Resolved(_), Verdict::NotSent) => known.none_sent(id),
                (ResolveAnswer::Resolved(_), _) => known.stop(id),
                _ => {}
            }
        }
        Step::Advance(seconds) => bench.clock.advance(Duration::from_secs(seconds)),
        Step::Sweep => {
            bench.ledger.sweep().await.expect("works");
        }
        Step::Restart => {
            bench.restart().await;
            bench.ledger.take_over().await.expect("works");
            for handed in known.handed.iter_mut().filter(|h| h.fate == Fate::Out) {
                handed.fate = Fate::Unknown;
            }
        }
    }
}

fn pick(known: &Reference, which: usize) -> Option<NotificationId> {
    let count = known.stopped.len();
    (count > 0).then(|| known.stopped.keys().nth(which % count).copied())?
}

async fn admit(bench: &Bench, known: &mut Reference, name: u8, user: u8, other_payload: bool) {
    let mut event = bench.event_to(&format!("e{name}"), &["+84901234567", "u@example.org"]);
    event.user = bench.index.hash(Purpose::User, &[&[user]]);
    if other_payload {
        event.repeat.fingerprint[1] ^= 1;
    }
    match bench.ledger.admit(event).await.expect("works") {
        Admission::New(accepted) => assert_eq!(known.stopped.insert(accepted.id, false), None),
        Admission::Replayed(first) | Admission::EventTaken(first) => assert!(known.stopped.contains_key(&first.id)),
        Admission::KeyReused => {}
        other => panic!("{other:?}"),
    }
}

/// A worker speaks: the first time, again because the answer was lost, or late.
async fn settle(bench: &Bench, known: &mut Reference, which: usize, how: u8) {
    if known.handed.is_empty() {
        return;
    }
    let place = which % known.handed.len();
    let handed = &mut known.handed[place];
    let (id, attempt) = (handed.claimed.id, handed.claimed.attempt);
    let never = Outcome::never_began(Reason::StartedTooLate);
    let drawn = [accepted(&format!("{id}.{attempt}")), lost(), not_sent(), refused(), refused_account(), never];
    let outcome = match &handed.said {
        Some(said) if said.class != lost().class => said.clone(),
        _ if handed.fate == Fate::Sent => drawn[0].clone(),
        _ if handed.fate == Fate::NotSent => return,
        _ => drawn[usize::from(how)].clone(),
    };
    handed.said = Some(outcome.clone());
    let class = outcome.class;
    bench.ledger.settle(id, attempt, outcome).await.expect("works");
    if class == drawn[0].class {
        handed.fate = Fate::Sent;
        known.stopped.insert(id, true);
    } else if class == lost().class {
        handed.fate = Fate::Unknown;
    } else {
        handed.fate = Fate::NotSent;
    }
}

async fn ask(bench: &Bench, known: &mut Reference, answer: u8) {
    for question in bench.ledger.ask(&provider("sms-a"), 10).await.expect("works") {
        let asking = match question {
            Question::Probe(claimed) => {
                known.take(bench, *claimed);
                continue;
            }
            Question::Lookup(asking) => asking,
        };
        let id = asking.id;
        let answer = match answer {
            0 => LookupAnswer::Found { message_id: None, delivery: None },
            1 => LookupAnswer::NotFound,
            _ => LookupAnswer::Unreadable,
        };
        let settled = bench.ledger.answer(id, asking.attempt, answer.clone()).await.expect("works");
        match answer {
            LookupAnswer::Found { .. } => known.stop(id),
            LookupAnswer::NotFound => {
                let misses = known.misses.entry(id).or_default();
                *misses += 1;
                let state = bench.state(id).await;
                if state != State::DispatchUnknown && matches!(settled, SettleAnswer::Now(_)) && *misses >= 2 {
                    known.misses.remove(&id);
                    known.none_sent(id);
                }
            }
            LookupAnswer::Unreadable => {}
        }
    }
}

/// Lets every worker come to its end and every deadline pass.
async fn drain(bench: &Bench, known: &mut Reference) {
    for handed in known.handed.iter().filter(|h| h.fate == Fate::Out) {
        bench.ledger.settle(handed.claimed.id, handed.claimed.attempt, lost()).await.expect("works");
    }
    for _ in 0..12 {
        bench.clock.advance(Duration::from_secs(5 * 3600));
        bench.ledger.sweep().await.expect("works");
        for name in ["sms-a", "sms-b", "mail"] {
            assert!(bench.claim(name).await.is_empty(), "nothing is sent after its expiry");
        }
        ask(bench, known, 2).await;
    }
    let left: Vec<_> =
        bench.ledger.work_counts().await.expect("works").into_iter().map(|c| (c.state, c.count)).collect();
    assert_eq!(left, [], "no work is left, and nothing sealed");
    bench.accounts_close().await;
    let counts = bench.ledger.account_counts(None).await.expect("works");
    assert_eq!(counts.notifications, known.stopped.len() as u64);
    for id in known.stopped.keys() {
        let mut before = None;
        for row in bench.status(*id).await.log {
            if let (Some(from), Some(to)) = (row.record.from, row.record.to) {
                assert_eq!(before, Some(from), "the log has no gap");
                assert!(from == to || may_follow(from, to), "{from} > {to}");
            }
            before = row.record.to.or(before);
        }
        assert!(before.is_some_and(State::is_final));
    }
}

fn may_follow(from: State, to: State) -> bool {
    use State::{Accepted, DispatchUnknown, Dispatching, RetryWait};
    match from {
        Accepted | RetryWait => to == Dispatching || (to.is_final() && to != State::Failed),
        Dispatching => to == RetryWait || to == DispatchUnknown || to.is_final(),
        DispatchUnknown => to == RetryWait || to.is_final(),
        _ => false,
    }
}

#[test]
fn no_sequence_of_commands_sends_twice_or_too_late_or_leaves_anything_behind() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let config = Config { cases: 16, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    // The generator begins at a fixed seed, and a failure prints the shortest sequence that shows it.
    let lives = runner.run(&(0..3_usize, steps()), |(abilities, steps)| {
        runtime.block_on(async {
            let mut bench = Bench::with([silent, with_lookup, with_dedupe][abilities]()).await;
            let mut known = Reference::default();
            for step in steps {
                take_step(&mut bench, &mut known, step).await;
            }
            drain(&bench, &mut known).await;
        });
        Ok(())
    });
    lives.unwrap_or_else(|failure| panic!("{failure}"));
}
