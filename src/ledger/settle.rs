//! The end of an attempt or a probe, on time or late, and the answer to a look-up.

use std::time::Duration;

use crate::domain::audit::{Actor, DaemonPart, Source, What};
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName};
use crate::domain::lifecycle::{Fact, Life, State};
use crate::domain::outcome::{LookupAnswer, Outcome, OutcomeClass, Reason};
use crate::domain::receipt::Part;
use crate::domain::time::Timestamp;
use crate::store::rows::{Queue, WorkRow};

use super::book::{Book, Telling};
use super::command::SettleAnswer;
use super::core::Core;

/// How long a message waits when our own keys or configuration keep it from being sent.
const FAULT_WAIT: Duration = Duration::from_secs(30);

/// How long a message waits after its worker came too late to begin: a machine that stalls is not helped by haste.
const UNBEGUN_WAIT: Duration = Duration::from_secs(1);

/// Where and when the next attempt would go.
struct NextTry {
    leg: u8,
    provider: ProviderName,
    at: Timestamp,
    tries_here: u8,
    another_address: bool,
}

/// Stores one outcome.
pub(super) fn settle(
    core: &Core,
    book: &mut Book<'_>,
    id: NotificationId,
    attempt: AttemptNumber,
    outcome: &Outcome,
) -> SettleAnswer {
    let Some(entry) = book.get(id) else { return SettleAnswer::Gone };
    let life = entry.life();
    match &entry.work {
        Some(work) if life.attempt == attempt && life.probing => {
            let work = work.clone();
            settle_probe(core, book, &work, outcome)
        }
        Some(work) if life.attempt == attempt && life.state == State::Dispatching => {
            let work = work.clone();
            settle_attempt(core, book, &work, outcome)
        }
        _ => late(core, book, id, &life, attempt, outcome),
    }
}

fn telling(what: What, attempt: AttemptNumber, outcome: &Outcome) -> Telling {
    Telling {
        outcome: Some(outcome.class),
        message_id: outcome.message_id.clone(),
        ..Telling::new(what, Actor::Daemon(DaemonPart::Worker)).of_attempt(attempt).because(outcome.reason)
    }
}

fn settle_attempt(core: &Core, book: &mut Book<'_>, work: &WorkRow, outcome: &Outcome) -> SettleAnswer {
    let fact = match outcome.class {
        OutcomeClass::Accepted => Fact::Accepted,
        OutcomeClass::RefusedMessage => Fact::RefusedMessage,
        OutcomeClass::RefusedAccount => Fact::RefusedAccount,
        OutcomeClass::NotSent => Fact::NotSent,
        OutcomeClass::NeverBegan => Fact::NeverBegan,
        OutcomeClass::Unknown => Fact::Lost,
    };
    let next = next_try(core, work, outcome, book.now);
    let mut outlook = core.outlook(work, next.leg, next.at, next.another_address);
    outlook.in_time &= outcome.reason != Reason::DeadlinePassed;
    let attempt = work.state.life.attempt;
    let how = telling(What::AttemptEnded, attempt, outcome);
    match book.apply(work.id, fact, outlook, how) {
        Ok(State::RetryWait) => {
            go_on(book, work.id, next);
            SettleAnswer::Now(State::RetryWait)
        }
        Ok(State::DispatchUnknown) => {
            lost(core, book, work.id, outcome.reason, Duration::ZERO);
            SettleAnswer::Now(State::DispatchUnknown)
        }
        Ok(state) => SettleAnswer::Now(state),
        Err(illegal) => SettleAnswer::Late(illegal.state),
    }
}

/// Where the next attempt goes after this outcome, should there be one.
fn next_try(core: &Core, work: &WorkRow, outcome: &Outcome, now: Timestamp) -> NextTry {
    let state = &work.state;
    let tries = state.tries_here.saturating_add(1);
    let here = |at, tries_here| NextTry {
        leg: state.leg,
        provider: state.provider.clone(),
        at,
        tries_here,
        another_address: false,
    };
    let elsewhere = || core.routing_key(work).and_then(|key| core.routes.after(&key, &state.provider));
    let at_next = |provider| NextTry { provider, ..here(now, 0) };
    let later = || here(now.plus(core.retry_delay(tries, outcome.retry_after)), tries);
    match outcome.class {
        OutcomeClass::RefusedMessage => {
            match core.routable_leg(work.id, &work.kind, &work.legs, usize::from(state.leg) + 1) {
                Some((leg, provider)) => NextTry { leg, provider, another_address: true, ..here(now, 0) },
                None => here(now, tries),
            }
        }
        OutcomeClass::RefusedAccount => elsewhere().map_or_else(later, at_next),
        OutcomeClass::NotSent => {
            let wait = later();
            let too_late = || !core.outlook(work, state.leg, wait.at, false).in_time;
            if tries >= core.policy.failover_after || core.routes.is_open(&state.provider) || too_late() {
                elsewhere().map_or(wait, at_next)
            } else {
                wait
            }
        }
        OutcomeClass::NeverBegan => {
            let wait = match outcome.reason {
                Reason::UnsealFailed | Reason::ProviderGone => FAULT_WAIT,
                Reason::Draining | Reason::NotHandedOut => Duration::ZERO,
                _ => UNBEGUN_WAIT,
            };
            here(now.plus(wait), state.tries_here)
        }
        OutcomeClass::Accepted | OutcomeClass::Unknown => later(),
    }
}

/// Puts work back into the queue of its next provider.
fn go_on(book: &mut Book<'_>, id: NotificationId, next: NextTry) {
    let Some(work) = book.change(id) else { return };
    if work.provider != next.provider || work.leg != next.leg {
        work.asked = None;
    }
    work.leg = next.leg;
    work.provider = next.provider.clone();
    work.tries_here = next.tries_here;
    work.owner = None;
    book.place(id, Some(Queue::Send(next.provider)), next.at);
}

/// An attempt has become unknown: remember why, and that it ends within `ends_in`, and queue the first question.
pub(super) fn lost(core: &Core, book: &mut Book<'_>, id: NotificationId, cause: Reason, ends_in: Duration) {
    let now = book.now;
    let Some(state) = book.change(id) else { return };
    state.owner = None;
    state.due_at = now;
    if let Some(asked) = &mut state.asked {
        asked.cause = Some(cause);
    }
    end_later(book, id, ends_in);
    ask_next(core, book, id);
}

/// The attempt or probe that is asked about ends within `ends_in`: before that no miss of it counts.
pub(super) fn end_later(book: &mut Book<'_>, id: NotificationId, ends_in: Duration) {
    let end = book.now.plus(ends_in);
    if let Some(asked) = book.change(id).and_then(|state| state.asked.as_mut()) {
        asked.ended_at = Some(end);
    }
}

/// Queues the next question about an unknown, or leaves it to receipts and operators.
pub(super) fn ask_next(core: &Core, book: &mut Book<'_>, id: NotificationId) {
    let now = book.now;
    let Some(work) = book.get(id).and_then(|e| e.work.as_ref()) else { return };
    let asks = work.state.asked.as_ref().map_or(0, |asked| asked.asks);
    let (queue, due_at) = match work.state.life.probing {
        true => (None, now),
        false => core.question_place(work, now, asks.saturating_add(1)),
    };
    book.place(id, queue, due_at);
}

fn settle_probe(core: &Core, book: &mut Book<'_>, work: &WorkRow, outcome: &Outcome) -> SettleAnswer {
    let life = &work.state.life;
    let outlook = core.outlook(work, work.state.leg, book.now, false);
    let how = telling(What::ProbeEnded, life.attempt, outcome);
    let fact = match outcome.class {
        OutcomeClass::NeverBegan => Fact::ProbeNeverBegan,
        _ => Fact::ProbeEnded,
    };
    let ended = book.apply(work.id, fact, outlook, how);
    probe_over(book, work.id, outcome.class != OutcomeClass::NeverBegan);
    let fact = match (outcome.class, life.open) {
        (OutcomeClass::Accepted, Some(open)) => Fact::EvidenceSent(open),
        // Given up meanwhile, but sent after all.
        (OutcomeClass::Accepted, None) if life.sent_attempt.is_none() => Fact::EvidenceSent(life.attempt),
        // What it repeats was found not to have been sent meanwhile, so that only its own fate was open.
        (
            OutcomeClass::NotSent
            | OutcomeClass::RefusedAccount
            | OutcomeClass::RefusedMessage
            | OutcomeClass::NeverBegan,
            Some(open),
        ) if open == life.attempt => Fact::EvidenceNotSent(open),
        _ => {
            ask_next(core, book, work.id);
            return ended.map_or_else(|illegal| SettleAnswer::Late(illegal.state), SettleAnswer::Now);
        }
    };
    let about = life.open.unwrap_or(life.attempt);
    evidence(core, book, work.id, fact, telling(What::Evidence, about, outcome).by_source(Source::Dedupe))
}

/// A probe is over. Where it may have been sent, look-ups count only from now on.
pub(super) fn probe_over(book: &mut Book<'_>, id: NotificationId, began: bool) {
    let now = book.now;
    let Some(state) = book.change(id) else { return };
    state.owner = None;
    if let Some(asked) = state.asked.as_mut().filter(|_| began) {
        asked.ended_at = Some(now);
        asked.misses = 0;
    }
}

/// The outcome of an attempt that is not the caller's any more is evidence, whatever has become of the notification.
fn late(
    core: &Core,
    book: &mut Book<'_>,
    id: NotificationId,
    life: &Life,
    attempt: AttemptNumber,
    outcome: &Outcome,
) -> SettleAnswer {
    let fact = match outcome.class {
        OutcomeClass::Unknown => return SettleAnswer::Late(life.state),
        OutcomeClass::Accepted => Fact::EvidenceSent(attempt),
        // It has been repeated since, and of that this answer says nothing.
        _ if life.open == Some(attempt) && life.attempt > attempt => return SettleAnswer::Late(life.state),
        _ => Fact::EvidenceNotSent(attempt),
    };
    // The result of the same message, stored before: the write was repeated because its first answer was lost.
    let stored = book.get(id).and_then(|entry| entry.outcome.message_id.as_ref());
    let same_attempt = life.sent_attempt == Some(attempt) && (stored.is_some() || outcome.message_id.is_none());
    let same_message = life.sent_attempt.is_some() && stored.is_some() && stored == outcome.message_id.as_ref();
    if fact == Fact::EvidenceSent(attempt) && (same_attempt || same_message) {
        return SettleAnswer::Now(life.state);
    }
    let how = telling(What::Evidence, attempt, outcome).by_source(Source::LateAnswer);
    match evidence(core, book, id, fact, how) {
        SettleAnswer::Now(state) | SettleAnswer::Late(state) => SettleAnswer::Late(state),
        SettleAnswer::Gone => SettleAnswer::Gone,
    }
}

/// Lets evidence speak, and places what follows.
pub(super) fn evidence(core: &Core, book: &mut Book<'_>, id: NotificationId, fact: Fact, how: Telling) -> SettleAnswer {
    let now = book.now;
    let Some(entry) = book.get(id) else { return SettleAnswer::Gone };
    let (life, provider, leg) = match &entry.work {
        Some(work) => (entry.life(), Some(work.state.provider.clone()), work.state.leg),
        None => (entry.life(), None, 0),
    };
    let outlook = entry.work.as_ref().map_or(
        crate::domain::lifecycle::Outlook { in_time: false, another_address: false, max_attempts: 0 },
        |work| core.outlook(work, leg, now, false),
    );
    match book.apply(id, fact, outlook, how) {
        Ok(State::RetryWait) => {
            if let Some(provider) = provider {
                go_on(book, id, NextTry { leg, provider, at: now, tries_here: 0, another_address: false });
            }
            SettleAnswer::Now(State::RetryWait)
        }
        Ok(state) => {
            if state.is_final() && !life.probing {
                book.place(id, None, now);
            }
            SettleAnswer::Now(state)
        }
        Err(illegal) => SettleAnswer::Late(illegal.state),
    }
}

/// Stores what a look-up found.
pub(super) fn answer(
    core: &Core,
    book: &mut Book<'_>,
    id: NotificationId,
    attempt: AttemptNumber,
    answer: &LookupAnswer,
) -> SettleAnswer {
    let Some(entry) = book.get(id) else { return SettleAnswer::Gone };
    let life = entry.life();
    let Some(work) = entry.work.clone().filter(|_| life.open == Some(attempt)) else {
        return SettleAnswer::Late(life.state);
    };
    let how = |what, reason| {
        Telling::new(what, Actor::Daemon(DaemonPart::Reconciler))
            .of_attempt(attempt)
            .because(reason)
            .by_source(Source::Lookup)
    };
    match answer {
        LookupAnswer::Found { message_id, delivery } => {
            let telling = Telling { message_id: message_id.clone(), ..how(What::Evidence, Reason::LookupFound) };
            let settled = evidence(core, book, id, Fact::EvidenceSent(attempt), telling);
            if let Some(status) = delivery {
                book.deliver(id, *status, Part::WHOLE, how(What::Receipt, Reason::LookupFound));
            }
            settled
        }
        LookupAnswer::NotFound => missed(core, book, &work, attempt, &how),
        LookupAnswer::Unreadable => {
            book.tell_entry(id, how(What::LookedUp, Reason::LookupUnreadable), None);
            ask_next(core, book, id);
            SettleAnswer::Now(life.state)
        }
    }
}

/// A miss counts only once the provider's indexing lag is over, and proves something only where that lag is known.
fn missed(
    core: &Core,
    book: &mut Book<'_>,
    work: &WorkRow,
    attempt: AttemptNumber,
    how: &dyn Fn(What, Reason) -> Telling,
) -> SettleAnswer {
    let now = book.now;
    let rules = core.routes.abilities(&work.state.provider).and_then(|a| a.lookup);
    let settled_at = |after| work.state.asked.as_ref().and_then(|a| a.ended_at).map(|end| end.plus(after));
    let counts = rules.is_some_and(|r| settled_at(r.settle_after).is_some_and(|at| now >= at));
    let mut misses = 0;
    if counts && let Some(asked) = book.change(work.id).and_then(|state| state.asked.as_mut()) {
        asked.misses = asked.misses.saturating_add(1);
        misses = asked.misses;
    }
    // The part of the history that a restored store has lost may hold other attempts, so a miss of this one proves nothing.
    let restored = work.state.asked.as_ref().is_some_and(|asked| asked.cause == Some(Reason::Restored));
    if !restored && rules.is_some_and(|r| r.trust_miss && misses >= r.misses_needed) {
        let telling = how(What::Evidence, Reason::LookupMissed);
        return evidence(core, book, work.id, Fact::EvidenceNotSent(attempt), telling);
    }
    book.tell_entry(work.id, how(What::LookedUp, Reason::LookupMissed), None);
    ask_next(core, book, work.id);
    SettleAnswer::Now(work.state.life.state)
}
