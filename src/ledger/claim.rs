//! Taking due work: to send it, to ask about it, or to move it to another provider.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::audit::{Actor, DaemonPart, What};
use crate::domain::ids::{NotificationId, ProviderName, Ticket};
use crate::domain::lifecycle::{Fact, Outlook, State};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;
use crate::store::rows::{Asked, Queue, WorkRow};
use crate::store::{StoreError, Transaction};

use super::book::{Book, Telling};
use super::command::{Asking, Claimed, Question};
use super::core::{Core, NextQuestion};
use super::settle::{ask_next, end_later};

const NOTHING_FOLLOWS: Outlook = Outlook { in_time: false, another_address: false, max_attempts: 0 };

/// Claims up to `limit` due rows of one provider. What is over or overtaken meanwhile ends here instead.
pub(super) async fn claim(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    provider: &ProviderName,
    limit: u32,
) -> Result<Vec<Claimed>, StoreError> {
    let due = tx.due(&Queue::Send(provider.clone()), book.now, limit).await?;
    // Admission marks them already; this catches what was admitted on another node at the same moment.
    let overtaken: BTreeSet<_> = due.iter().filter(|due| due.overtaken).map(|due| due.work.id).collect();
    due.into_iter().for_each(|due| book.adopt(due.work));
    Ok(claim_here(core, book, provider, limit, &overtaken))
}

/// Claims of what is in the book already.
pub(super) fn claim_here(
    core: &Core,
    book: &mut Book<'_>,
    provider: &ProviderName,
    limit: u32,
    overtaken: &BTreeSet<NotificationId>,
) -> Vec<Claimed> {
    let now = book.now;
    let mut claimed = vec![];
    for id in book.due(&Queue::Send(provider.clone()), limit) {
        let Some(work) = book.get(id).and_then(|entry| entry.work.as_ref()) else { continue };
        if overtaken.contains(&id) {
            end(book, id, Fact::NewerEvent, What::NewerEvent, Reason::NewerEvent);
        } else if !core.outlook(work, work.state.leg, now, false).in_time {
            end(book, id, Fact::TimeOver, What::Expired, Reason::Expired);
        } else {
            claimed.extend(begin(core, book, id));
        }
    }
    claimed
}

fn end(book: &mut Book<'_>, id: NotificationId, fact: Fact, what: What, reason: Reason) {
    let how = Telling::new(what, Actor::Daemon(DaemonPart::Worker)).because(reason);
    // Due work is waiting work, and waiting work has an edge for each of these facts.
    let _ended = book.apply(id, fact, NOTHING_FOLLOWS, how);
}

/// Records one attempt, before its first byte.
fn begin(core: &Core, book: &mut Book<'_>, id: NotificationId) -> Option<Claimed> {
    let now = book.now;
    // What a claim cannot be made of stays in the queue: once recorded, nobody would send or settle it.
    let work = book.get(id)?.work.as_ref().filter(|work| work.sealed_message.is_some())?;
    core.routes.abilities(&work.state.provider)?;
    let next = work.state.life.attempt.checked_add(1)?;
    let how = Telling::new(What::AttemptBegun, Actor::Daemon(DaemonPart::Worker)).of_attempt(next);
    book.apply(id, Fact::Claimed, NOTHING_FOLLOWS, how).ok()?;
    let entry = book.get(id)?;
    let life = entry.life();
    let asked = core.asked_for_attempt(entry.work.as_ref()?, &life, now);
    let owner = book.owner.clone();
    let state = book.change(id)?;
    state.asked = asked;
    state.owner = Some(owner);
    state.queue = None;
    core.claimed(book.get(id)?.work.as_ref()?, false)
}

/// Takes up to `limit` unknowns that are due to be asked about.
pub(super) async fn ask(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    provider: &ProviderName,
    limit: u32,
) -> Result<Vec<Question>, StoreError> {
    let queue = Queue::Ask(provider.clone());
    let due = tx.due(&queue, book.now, limit).await?;
    book.adopt_all(tx, due.into_iter().map(|due| due.work).collect()).await?;
    let mut questions = vec![];
    for id in book.due(&queue, limit) {
        expire(core, book, id);
        questions.extend(question(core, book, id));
    }
    Ok(questions)
}

fn question(core: &Core, book: &mut Book<'_>, id: NotificationId) -> Option<Question> {
    let now = book.now;
    let entry = book.get(id)?;
    let work = entry.work.as_ref()?;
    match core.next_question(work, now) {
        NextQuestion::Lookup => {
            let asking = asking(core, work, entry.outcome.message_id.clone());
            let until = core.asking_until(&work.state.provider, now);
            let queue = work.state.queue.clone();
            let asked = book.change(id)?.asked.as_mut()?;
            asked.asks = asked.asks.saturating_add(1);
            book.place(id, queue, until);
            Some(Question::Lookup(asking?))
        }
        NextQuestion::Probe => probe(core, book, id),
        NextQuestion::ProbeAt(_) | NextQuestion::Nothing => {
            ask_next(core, book, id);
            None
        }
    }
}

fn asking(core: &Core, work: &WorkRow, message_id: Option<crate::domain::ids::ProviderMessageId>) -> Option<Asking> {
    let asked = work.state.asked.as_ref()?;
    let leg = work.legs.get(usize::from(work.state.leg))?;
    let needs_address = core.routes.abilities(&work.state.provider)?.lookup?.needs_address;
    let to = needs_address.then(|| super::admit::open_address(core, work)).flatten();
    Some(Asking {
        id: work.id,
        attempt: work.state.life.open?,
        provider: work.state.provider.clone(),
        reference: core.reference(work.id, asked.attempt),
        dedupe_key: core.index.dedupe_key(&work.tenant, &work.event_id, &work.state.provider, leg.address),
        message_id,
        began_at: asked.first_there_at,
        to,
    })
}

/// Records a repeat of the open attempt, before its first byte. It is pinned to what that attempt was.
fn probe(core: &Core, book: &mut Book<'_>, id: NotificationId) -> Option<Question> {
    let next = book.get(id)?.life().attempt.checked_add(1)?;
    let how = Telling::new(What::ProbeBegun, Actor::Daemon(DaemonPart::Reconciler))
        .of_attempt(next)
        .because(Reason::ProviderDedupes);
    book.apply(id, Fact::ProbeBegun, NOTHING_FOLLOWS, how).ok()?;
    let (now, owner) = (book.now, book.owner.clone());
    let state = book.change(id)?;
    state.owner = Some(owner);
    state.queue = None;
    state.due_at = now;
    let asked = state.asked.as_mut()?;
    asked.asks = asked.asks.saturating_add(1);
    core.claimed(book.get(id)?.work.as_ref()?, true).map(|claimed| Question::Probe(Box::new(claimed)))
}

/// Ends what waits or is unknown at its expiry. An unknown goes on being asked about, for the record.
pub(super) fn expire(core: &Core, book: &mut Book<'_>, id: NotificationId) {
    let now = book.now;
    let over = |e: &super::book::Entry| e.work.as_ref().is_some_and(|w| now >= w.expires_at);
    if !book.get(id).is_some_and(over) {
        return;
    }
    let how = Telling::new(What::Expired, Actor::Daemon(DaemonPart::Sweeper)).because(Reason::Expired);
    if book.apply(id, Fact::TimeOver, NOTHING_FOLLOWS, how) == Ok(State::Expired) {
        match book.get(id).map(|e| e.life()) {
            Some(life) if life.open.is_some() && !life.probing => ask_next(core, book, id),
            Some(life) if !life.probing => book.place(id, None, now),
            _ => {}
        }
    }
}

/// What no other provider takes now is left alone for so long, so that what stands behind it in the queue is looked at.
const PUT_BACK: Duration = Duration::from_secs(5);

/// Moves due work to the next provider of its route; says how many rows it looked at.
pub(super) async fn reroute(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    provider: &ProviderName,
    limit: u32,
) -> Result<u32, StoreError> {
    let (now, queue) = (book.now, Queue::Send(provider.clone()));
    tx.due(&queue, now, limit).await?.into_iter().for_each(|due| book.adopt(due.work));
    let ids = book.due(&queue, limit);
    for &id in &ids {
        let Some(work) = book.get(id).and_then(|entry| entry.work.as_ref()) else { continue };
        let next = core.routing_key(work).and_then(|key| match core.routes.abilities(provider) {
            Some(_) => core.routes.after(&key, provider),
            None => core.routes.first(&key),
        });
        let Some(next) = next.filter(|next| next != provider) else {
            book.put_back(id, now.plus(PUT_BACK));
            continue;
        };
        if let Some(state) = book.change(id) {
            state.provider = next.clone();
            state.tries_here = 0;
            state.asked = None;
        }
        book.place(id, Some(Queue::Send(next)), now);
        let how = Telling::new(What::Rerouted, Actor::Daemon(DaemonPart::Worker)).because(Reason::BreakerOpen);
        book.tell_entry(id, how, None);
    }
    Ok(u32::try_from(ids.len()).unwrap_or(u32::MAX))
}

/// What a boot that is over left under way: nobody knows how it ended.
pub(super) fn strand(core: &Core, book: &mut Book<'_>, id: NotificationId, owner: &str) -> bool {
    let Some(entry) = book.get(id) else { return false };
    let Some(work) = entry.work.as_ref().filter(|w| w.state.owner.as_ref().is_some_and(|o| o.boot == owner)) else {
        return false;
    };
    // What is only cut off or paused may still begin, and then runs into its time-outs.
    let timeout = core.routes.abilities(&work.state.provider).map_or(Duration::ZERO, |a| a.send_timeout);
    let ends_in = core.policy.begins_after_loss.map_or(Duration::ZERO, |begins_in| begins_in.saturating_add(timeout));
    let life = work.state.life;
    let (fact, what) = match (life.state, life.probing) {
        (State::Dispatching, _) => (Fact::Lost, What::AttemptEnded),
        (_, true) => (Fact::ProbeEnded, What::ProbeEnded),
        _ => return false,
    };
    let outcome = crate::domain::outcome::Outcome::unknown(Reason::ProcessDied);
    let how = Telling {
        outcome: Some(outcome.class),
        ..Telling::new(what, Actor::Daemon(DaemonPart::Sweeper)).of_attempt(life.attempt).because(outcome.reason)
    };
    if book.apply(id, fact, NOTHING_FOLLOWS, how).is_err() {
        return false;
    }
    if life.probing {
        super::settle::probe_over(book, id, true);
        end_later(book, id, ends_in);
        ask_next(core, book, id);
    } else {
        super::settle::lost(core, book, id, Reason::ProcessDied, ends_in);
    }
    true
}

/// After a restore from a copy, whatever was live may have been sent since: it becomes unknown, and waits for evidence
/// under the number of the attempt that the lost copy may have made.
pub(super) fn restore(core: &Core, book: &mut Book<'_>, id: NotificationId, ticket: &Ticket) -> bool {
    let now: Timestamp = book.now;
    let Some(life) = book.get(id).map(|e| e.life()) else { return false };
    let attempt = if life.state.is_waiting() { life.attempt.saturating_add(1) } else { life.attempt };
    let how = Telling {
        ticket: Some(ticket.clone()),
        ..Telling::new(What::Restored, Actor::Daemon(DaemonPart::Recovery))
            .of_attempt(attempt)
            .because(Reason::Restored)
    };
    if book.apply(id, Fact::Restored, NOTHING_FOLLOWS, how).is_err() {
        return false;
    }
    let Some(entry) = book.get(id) else { return false };
    let after = entry.life();
    let work = entry.work.as_ref();
    let asked = work.and_then(|work| {
        // The lost part of the history may have been there as early as this.
        Some(Asked { first_there_at: work.created_at, ..core.asked_for_attempt(work, &after, now)? })
    });
    if life.state != State::DispatchUnknown
        && let Some(state) = book.change(id)
    {
        state.asked = asked;
    }
    super::settle::lost(core, book, id, Reason::Restored, Duration::ZERO);
    true
}
