//! Evidence from outside: receipts, and what people say.

use std::collections::{BTreeSet, HashMap};

use crate::domain::audit::{Actor, Source, What};
use crate::domain::ids::{NotificationId, ProviderMessageId, ProviderName, Tenant, Ticket};
use crate::domain::lifecycle::{Fact, Outlook, State};
use crate::domain::outcome::Reason;
use crate::domain::receipt::Receipt;
use crate::store::{StoreError, Transaction};

use super::book::{Book, Telling};
use super::command::{CancelAnswer, Received, ResolveAnswer, Verdict};
use super::core::Core;
use super::settle::evidence;

/// Receipts' owners by (provider, the provider's id).
pub(super) type Owners = HashMap<(ProviderName, ProviderMessageId), NotificationId>;

/// Whose a receipt is: by reference, else by the provider's id.
pub(super) fn owner_of(receipt: &Receipt, owners: &Owners) -> Option<NotificationId> {
    let by_message = || owners.get(&(receipt.provider.clone(), receipt.message_id.clone()?)).copied();
    receipt.reference.map(|r| r.id).or_else(by_message)
}

/// Finds whose a batch of receipts is, and loads those rows: by reference, else by the provider's id.
pub(super) async fn owners(
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    receipts: &[&Receipt],
) -> Result<Owners, StoreError> {
    let mut ids: BTreeSet<NotificationId> = receipts.iter().filter_map(|r| r.reference.map(|r| r.id)).collect();
    let unreferenced = receipts.iter().filter(|r| r.reference.is_none());
    let messages: BTreeSet<_> =
        unreferenced.filter_map(|r| Some((r.provider.clone(), r.message_id.clone()?))).collect();
    let messages: Vec<_> = messages.into_iter().collect();
    let found = if messages.is_empty() { vec![] } else { tx.by_receipt_key(&messages).await? };
    ids.extend(found.iter().map(|(_, _, id)| *id));
    book.load(tx, &ids).await?;
    Ok(found.into_iter().map(|(provider, message, id)| ((provider, message), id)).collect())
}

/// Takes one receipt; its owner's rows are loaded. `Kept` means that the caller must keep it.
pub(super) fn receive(core: &Core, book: &mut Book<'_>, receipt: &Receipt, owners: &Owners) -> Received {
    match owner_of(receipt, owners) {
        Some(id) => hear(core, book, id, receipt, (Source::Receipt, Reason::ReceiptCame)),
        None => Received::Kept,
    }
}

/// Takes what the provider's own list says of one message. It counts only under our reference; `Kept`: it bears none, or the
/// notification is forgotten.
pub(super) fn listed(core: &Core, book: &mut Book<'_>, message: &Receipt) -> Received {
    match message.reference {
        Some(reference) => hear(core, book, reference.id, message, (Source::Statement, Reason::Listed)),
        None => Received::Kept,
    }
}

/// A provider's word that one of the attempts was sent, and on its delivery.
fn hear(
    core: &Core,
    book: &mut Book<'_>,
    id: NotificationId,
    receipt: &Receipt,
    (source, reason): (Source, Reason),
) -> Received {
    let Some(entry) = book.get(id) else { return Received::Kept };
    let attempt = receipt.reference.map_or(0, |r| r.attempt);
    let life = entry.life();
    let how = |what| Telling {
        attempt: Some(attempt).filter(|n| *n > 0).or(life.open).or(life.sent_attempt),
        message_id: receipt.message_id.clone(),
        ..Telling::new(what, Actor::Provider(receipt.provider.clone())).because(reason).by_source(source)
    };
    let known = life.sent_attempt.is_some_and(|sent| attempt == 0 || attempt == sent);
    if !known {
        evidence(core, book, id, Fact::EvidenceSent(attempt), how(What::Evidence));
    }
    let changed = book.deliver(id, receipt.status, receipt.part, how(What::Receipt));
    if known && !changed { Received::Repeated(id) } else { Received::Matched(id) }
}

/// The app takes a notification back.
pub(super) fn cancel(
    core: &Core,
    book: &mut Book<'_>,
    tenant: &Tenant,
    id: NotificationId,
    actor: &Actor,
) -> CancelAnswer {
    let Some(entry) = book.get(id).filter(|e| e.tenant == *tenant) else { return CancelAnswer::NotFound };
    let life = entry.life();
    let Some(work) = entry.work.as_ref().filter(|_| !life.state.is_final()) else {
        return CancelAnswer::AlreadyFinal(life.state);
    };
    if life.marks.cancel {
        return CancelAnswer::Marked(life.state);
    }
    let outlook = core.outlook(work, work.state.leg, book.now, false);
    let how = Telling::new(What::CancelAsked, actor.clone()).because(Reason::CancelledByApp);
    match book.apply(id, Fact::CancelAsked, outlook, how) {
        Ok(State::Cancelled) => CancelAnswer::Cancelled,
        Ok(state) => CancelAnswer::Marked(state),
        Err(illegal) => CancelAnswer::AlreadyFinal(illegal.state),
    }
}

/// An operator settles an unknown.
pub(super) fn resolve(
    core: &Core,
    book: &mut Book<'_>,
    tenant: Option<&Tenant>,
    id: NotificationId,
    verdict: Verdict,
    ticket: &Ticket,
    actor: &Actor,
) -> ResolveAnswer {
    let Some(entry) = book.get(id).filter(|e| tenant.is_none_or(|t| e.tenant == *t)) else {
        return ResolveAnswer::NotFound;
    };
    let life = entry.life();
    let Some(open) = life.open else { return ResolveAnswer::NothingOpen(life.state) };
    let (fact, what, reason) = match verdict {
        Verdict::Sent => (Fact::EvidenceSent(open), What::Evidence, Reason::OperatorSent),
        Verdict::NotSent => (Fact::EvidenceNotSent(open), What::Evidence, Reason::OperatorNotSent),
        Verdict::Abandon => (Fact::Abandoned, What::Abandoned, Reason::OperatorAbandoned),
    };
    let how = Telling {
        ticket: Some(ticket.clone()),
        ..Telling::new(what, actor.clone()).because(reason).of_attempt(open).by_source(Source::Operator)
    };
    let answer = match verdict {
        Verdict::Abandon => {
            let outlook = Outlook { in_time: false, another_address: false, max_attempts: 0 };
            book.apply(id, fact, outlook, how).map_err(|illegal| illegal.state)
        }
        Verdict::Sent | Verdict::NotSent => match evidence(core, book, id, fact, how) {
            super::command::SettleAnswer::Now(state) => Ok(state),
            _ => Err(life.state),
        },
    };
    match answer {
        Ok(state) => ResolveAnswer::Resolved(state),
        Err(state) => ResolveAnswer::NothingOpen(state),
    }
}
