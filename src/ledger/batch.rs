//! What one batch of commands does in its transaction.

use std::collections::BTreeSet;

use crate::domain::audit::{Actor, Record};
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName, Tenant, Ticket};
use crate::domain::outcome::{LookupAnswer, Outcome};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::{StoreError, Transaction};

use super::admit::{Prepared, admit};
use super::book::Book;
use super::claim::{ask, claim, expire, reroute, restore, strand};
use super::command::{
    Admission, CancelAnswer, Claimed, Hold, Question, Received, ResolveAnswer, Room, SettleAnswer, Verdict,
};
use super::committer::Command;
use super::core::Core;
use super::receive::{cancel, listed, owners, receive, resolve};
use super::settle::{answer, settle};

/// How many rows one housekeeping step deletes at most.
const FORGET_LIMIT: u32 = 500;

/// What is asked of the committer.
pub(super) enum Work {
    Admit(Box<Prepared>),
    Claim(ProviderName, Room),
    /// The same, of the next commit that puts something into the provider's queue.
    Await(ProviderName, Room, Hold),
    Ask(ProviderName, u32),
    Reroute(ProviderName, u32),
    Settle(NotificationId, AttemptNumber, Outcome),
    Answer(NotificationId, AttemptNumber, LookupAnswer),
    Receive(Vec<Receipt>),
    /// Messages of a provider's own list, each with our reference.
    Listed(Vec<Receipt>),
    Cancel(Tenant, NotificationId, Actor),
    Resolve(Option<Tenant>, NotificationId, Verdict, Ticket, Actor),
    Expire(Vec<NotificationId>),
    /// Work, each with the boot that left it.
    Strand(Vec<(NotificationId, String)>),
    Restore(Vec<NotificationId>, Ticket),
    Tell(Box<Record>),
    /// Deletes what retention allows: notifications admitted before, and small tables' leftovers.
    Forget {
        keys_before: Timestamp,
        receipts_before: Timestamp,
    },
}

/// What the committer answers, a variant for each kind of work that has one.
pub(super) enum Reply {
    Admitted(Admission),
    Claimed(Vec<Claimed>),
    Asked(Vec<Question>),
    Counted(u64),
    Settled(SettleAnswer),
    Received(Vec<Received>),
    Cancelled(CancelAnswer),
    Resolved(ResolveAnswer),
    Done,
}

/// The attempts that a reply hands to a worker.
pub(super) fn handed_out(reply: &Reply) -> Vec<(NotificationId, AttemptNumber)> {
    match reply {
        Reply::Claimed(claims) => claims.iter().map(|claimed| (claimed.id, claimed.attempt)).collect(),
        Reply::Asked(questions) => {
            let probe = |question: &Question| match question {
                Question::Probe(claimed) => Some((claimed.id, claimed.attempt)),
                Question::Lookup(_) => None,
            };
            questions.iter().filter_map(probe).collect()
        }
        _ => vec![],
    }
}

/// Facts about what is there come first, then what is new, then what is taken: so one batch is as good as several.
pub(super) async fn apply(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    batch: &[Command],
) -> Result<Vec<Reply>, StoreError> {
    let mut replies: Vec<Option<Reply>> = batch.iter().map(|_| None).collect();
    facts(core, book, tx, batch, &mut replies).await?;
    let admissions = |(i, c): (usize, &Command)| matches!(c.work, Work::Admit(_)).then_some(i);
    let places: Vec<usize> = batch.iter().enumerate().filter_map(admissions).collect();
    let prepared: Vec<&Prepared> = batch
        .iter()
        .filter_map(|c| match &c.work {
            Work::Admit(prepared) => Some(&**prepared),
            _ => None,
        })
        .collect();
    if !prepared.is_empty() {
        for (place, answer) in places.into_iter().zip(admit(core, book, tx, &prepared).await?) {
            replies[place] = Some(Reply::Admitted(answer));
        }
    }
    for (place, command) in batch.iter().enumerate() {
        let reply = match &command.work {
            Work::Claim(provider, room) => Reply::Claimed(claim(core, book, tx, provider, room()).await?),
            Work::Ask(provider, limit) => Reply::Asked(ask(core, book, tx, provider, *limit).await?),
            Work::Reroute(provider, limit) => Reply::Counted(reroute(core, book, tx, provider, *limit).await?.into()),
            Work::Forget { keys_before, receipts_before } => {
                let kept = core.policy.receipts_kept;
                tx.sweep_small(book.now, *receipts_before, kept, FORGET_LIMIT).await?;
                Reply::Counted(tx.forget_notifications(*keys_before, FORGET_LIMIT).await?)
            }
            _ => continue,
        };
        replies[place] = Some(reply);
    }
    Ok(replies.into_iter().map(|reply| reply.unwrap_or(Reply::Done)).collect())
}

/// Everything that happens to rows that are there already: read at once, judged one by one, written at once.
async fn facts(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    batch: &[Command],
    replies: &mut [Option<Reply>],
) -> Result<(), StoreError> {
    let ids: BTreeSet<NotificationId> = batch.iter().flat_map(|c| ids_of(&c.work)).collect();
    book.load(tx, &ids).await?;
    let receipts = batch.iter().filter_map(|c| match &c.work {
        Work::Receive(receipts) => Some(receipts),
        _ => None,
    });
    let receipts: Vec<&Receipt> = receipts.flatten().collect();
    let owners = if receipts.is_empty() { Default::default() } else { owners(book, tx, &receipts).await? };
    let mut kept = vec![];
    for (reply, command) in replies.iter_mut().zip(batch) {
        *reply = Some(match &command.work {
            Work::Settle(id, attempt, outcome) => Reply::Settled(settle(core, book, *id, *attempt, outcome)),
            Work::Answer(id, attempt, found) => Reply::Settled(answer(core, book, *id, *attempt, found)),
            Work::Receive(receipts) => {
                let became = |r: &Receipt| (r.clone(), receive(core, book, r, &owners));
                let became: Vec<_> = receipts.iter().map(became).collect();
                kept.extend(became.iter().filter(|(_, b)| *b == Received::Kept).map(|(r, _)| r.clone()));
                Reply::Received(became.into_iter().map(|(_, b)| b).collect())
            }
            Work::Listed(messages) => {
                Reply::Received(messages.iter().map(|message| listed(core, book, message)).collect())
            }
            Work::Cancel(tenant, id, actor) => Reply::Cancelled(cancel(core, book, tenant, *id, actor)),
            Work::Resolve(tenant, id, verdict, ticket, actor) => {
                Reply::Resolved(resolve(core, book, tenant.as_ref(), *id, *verdict, ticket, actor))
            }
            Work::Expire(ids) => {
                ids.iter().for_each(|id| expire(core, book, *id));
                Reply::Done
            }
            Work::Strand(left) => {
                Reply::Counted(left.iter().filter(|(id, owner)| strand(core, book, *id, owner)).count() as u64)
            }
            Work::Restore(ids, ticket) => {
                Reply::Counted(ids.iter().filter(|id| restore(core, book, **id, ticket)).count() as u64)
            }
            Work::Tell(record) => {
                book.tell(Record { at: book.now, ..(**record).clone() });
                Reply::Done
            }
            _ => continue,
        });
    }
    kept.retain(|receipt: &Receipt| receipt.message_id.is_some());
    if !kept.is_empty() {
        tx.keep_receipts(&kept, book.now).await?;
    }
    Ok(())
}

fn ids_of(work: &Work) -> Vec<NotificationId> {
    match work {
        Work::Settle(id, ..) | Work::Answer(id, ..) | Work::Cancel(_, id, _) | Work::Resolve(_, id, ..) => vec![*id],
        Work::Expire(ids) | Work::Restore(ids, _) => ids.clone(),
        Work::Strand(left) => left.iter().map(|(id, _)| *id).collect(),
        Work::Listed(messages) => messages.iter().filter_map(|message| message.reference.map(|r| r.id)).collect(),
        _ => vec![],
    }
}

/// A provider's id has become known: receipts that named it before count now.
pub(super) async fn match_kept_receipts(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
) -> Result<(), StoreError> {
    let has_receipts = |p: &ProviderName| core.routes.abilities(p).is_some_and(|a| a.receipts);
    let taken: Vec<_> = std::mem::take(&mut book.taken).into_iter().filter(|(p, ..)| has_receipts(p)).collect();
    if taken.is_empty() {
        return Ok(());
    }
    let messages: Vec<_> = taken.iter().map(|(p, m, _)| (p.clone(), m.clone())).collect();
    let kept = tx.take_receipts(&messages).await?;
    if kept.is_empty() {
        return Ok(());
    }
    let owners = taken.into_iter().map(|(p, m, id)| ((p, m), id)).collect();
    for receipt in &kept {
        let ids = super::receive::owner_of(receipt, &owners);
        book.load(tx, &ids.into_iter().collect()).await?;
        receive(core, book, receipt, &owners);
    }
    Ok(())
}
