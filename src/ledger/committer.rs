//! Group commit: commands that wait together become one transaction, and are answered after its commit.
//!
//! Commands are data, so a batch can be run again: a batch that the store refuses is halved until the command at fault
//! fails alone. A caller that goes away changes nothing, because nobody polls its future to make the commit happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};

use crate::domain::audit::{Actor, Record};
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName, Tenant, Ticket};
use crate::domain::outcome::{LookupAnswer, Outcome, Reason};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::rows::Queue;
use crate::store::{StoreError, Transaction};

use super::admit::{Prepared, admit};
use super::book::Book;
use super::claim::{ask, claim, expire, reroute, restore, strand};
use super::command::{
    Admission, CancelAnswer, Claimed, Hold, LedgerError, Question, Received, ResolveAnswer, Room, SettleAnswer, Verdict,
};
use super::core::Core;
use super::receive::{cancel, owners, receive, resolve};
use super::settle::{answer, settle};

/// How many rows one housekeeping step deletes at most.
const FORGET_LIMIT: u32 = 500;

/// How often one batch is run again because the store undid it for another transaction.
const RERUNS: u32 = 5;

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

/// Work and who waits for it.
pub(super) struct Command {
    pub work: Work,
    pub reply: oneshot::Sender<Result<Reply, LedgerError>>,
}

/// What the committer shares with its handles.
pub(super) struct Pulse {
    pub commits: watch::Sender<u64>,
    pub writable: AtomicBool,
}

/// Attempts that were recorded, or may have been, and that no worker was told of.
type NotHandedOut = Vec<(NotificationId, AttemptNumber)>;

/// What is carried from one commit to the next.
#[derive(Default)]
struct Carried {
    not_handed_out: NotHandedOut,
    /// Who takes work in the commit that brings it, so that a message needs no second commit before it is sent.
    waiting: BTreeMap<ProviderName, Command>,
}

fn keys(claims: &[Claimed]) -> impl Iterator<Item = (NotificationId, AttemptNumber)> {
    claims.iter().map(|claimed| (claimed.id, claimed.attempt))
}

/// The attempts that a reply hands to a worker.
fn handed_out(reply: &Reply) -> NotHandedOut {
    match reply {
        Reply::Claimed(claims) => keys(claims).collect(),
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

/// Runs until every handle is gone and the queue is empty.
pub(super) async fn run(core: Arc<Core>, pulse: Arc<Pulse>, mut queue: mpsc::Receiver<Command>) {
    let mut carried = Carried::default();
    loop {
        let mut batch = Vec::with_capacity(core.policy.batch);
        if queue.recv_many(&mut batch, core.policy.batch).await == 0 {
            return;
        }
        // What can hand something over without waiting does so now, rather than one fsync later.
        tokio::task::yield_now().await;
        while batch.len() < core.policy.batch
            && let Ok(command) = queue.try_recv()
        {
            batch.push(command);
        }
        let batch = carried.set_waiting_apart(batch);
        if batch.is_empty() {
            continue;
        }
        core.metrics.commit_queue.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
        let began = core.clock.since_boot();
        commit_all(&core, &pulse, batch, &mut carried).await;
        core.metrics.commit_seconds.observe(core.clock.since_boot().saturating_sub(began).as_secs_f64());
    }
}

impl Carried {
    fn set_waiting_apart(&mut self, batch: Vec<Command>) -> Vec<Command> {
        let (waiting, batch) = batch.into_iter().partition(|command| matches!(command.work, Work::Await(..)));
        let waiting: Vec<Command> = waiting;
        for command in waiting {
            if let Work::Await(provider, ..) = &command.work {
                self.waiting.insert(provider.clone(), command);
            }
        }
        batch
    }

    /// Answers a command after its commit. A caller that went away has lost nothing but its answer, and attempts that
    /// were meant for it.
    fn answer(&mut self, command: Command, reply: Reply) {
        if let Err(Ok(reply)) = command.reply.send(Ok(reply)) {
            self.not_handed_out.extend(handed_out(&reply));
        }
    }
}

/// Commits a batch, or halves of it where the store refuses the whole.
///
/// An attempt whose claim nobody was told of certainly never began. The next commit that succeeds says so before it hands
/// anything out, and so no number of a forgotten attempt can be in a worker's hands when it is settled here.
async fn commit_all(core: &Core, pulse: &Pulse, batch: Vec<Command>, carried: &mut Carried) {
    let mut rest = vec![batch];
    let mut serving = true;
    let mut reruns = 0;
    while let Some(mut batch) = rest.pop() {
        core.metrics.commit_commands.observe(batch.len() as f64);
        match commit(core, pulse, &batch, carried, serving).await {
            Ok((replies, served)) => {
                for (command, reply) in batch.into_iter().zip(replies) {
                    carried.answer(command, reply);
                }
                for Served { provider, claims, _held, .. } in served {
                    if let Some(command) = carried.waiting.remove(&provider) {
                        carried.answer(command, Reply::Claimed(claims));
                    }
                }
            }
            // What waits came along uninvited, so it is the first to be left out.
            Err(StoreError::Refused(_) | StoreError::Corrupt { .. }) if serving && !carried.waiting.is_empty() => {
                serving = false;
                rest.push(batch);
            }
            Err(StoreError::Conflict) if reruns < RERUNS => {
                reruns += 1;
                rest.push(batch);
            }
            Err(StoreError::Refused(_) | StoreError::Corrupt { .. }) if batch.len() > 1 => {
                let second = batch.split_off(batch.len() / 2);
                rest.push(second);
                rest.push(batch);
            }
            Err(error) => {
                core.metrics.commit_failures.inc();
                let transient = !matches!(error, StoreError::Refused(_) | StoreError::Corrupt { .. });
                if transient && pulse.writable.swap(false, Ordering::SeqCst) {
                    tracing::error!(%error, commands = batch.len(), "the store cannot be written");
                } else if !transient {
                    tracing::error!(%error, "the store refused a command");
                }
                for command in batch {
                    let _gone = command.reply.send(Err(error.into()));
                }
            }
        }
    }
}

async fn commit(
    core: &Core,
    pulse: &Pulse,
    batch: &[Command],
    carried: &mut Carried,
    serving: bool,
) -> Result<(Vec<Reply>, Vec<Served>), StoreError> {
    let Carried { not_handed_out, waiting } = carried;
    let mut tx = core.store.begin().await?;
    let mut book = Book::new(core, tx.now());
    book.load(tx.as_mut(), &not_handed_out.iter().map(|(id, _)| *id).collect()).await?;
    for (id, attempt) in &*not_handed_out {
        settle(core, &mut book, *id, *attempt, &Outcome::never_began(Reason::NotHandedOut));
    }
    let replies = apply(core, &mut book, tx.as_mut(), batch).await?;
    let served = if serving { serve(core, &mut book, tx.as_mut(), waiting).await? } else { vec![] };
    match_kept_receipts(core, &mut book, tx.as_mut()).await?;
    book.close(tx.as_mut()).await?;
    if let Err(error) = tx.commit().await {
        if error == StoreError::Ambiguous {
            not_handed_out.extend(replies.iter().flat_map(handed_out));
            not_handed_out.extend(served.iter().flat_map(|served| keys(&served.claims)));
        }
        return Err(error);
    }
    not_handed_out.clear();
    let wrote = book.written || batch.iter().any(|command| matches!(command.work, Work::Forget { .. }));
    if wrote && !pulse.writable.swap(true, Ordering::SeqCst) {
        tracing::info!("the store can be written again");
    }
    if book.contradictions > 0 {
        core.metrics.contradictions.inc_by(book.contradictions);
        tracing::error!(count = book.contradictions, "evidence contradicts what was known; see the audit log");
    }
    for queue in &book.woken {
        // Who was served looks again by himself.
        let filled = served.iter().any(|served| served.queue == *queue);
        if !filled {
            core.wake(queue).notify_one();
        }
        if let Queue::Send(provider) = queue
            && (filled || !core.routes.has_room(provider))
        {
            core.store.nodes().ring(queue);
        }
    }
    pulse.commits.send_modify(|n| *n += 1);
    Ok((replies, served))
}

/// What was taken for somebody who waited for it.
struct Served {
    provider: ProviderName,
    queue: Queue,
    claims: Vec<Claimed>,
    _held: OwnedMutexGuard<()>,
}

/// Gives what this batch put into a queue to the one who waits for it.
async fn serve(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    waiting: &BTreeMap<ProviderName, Command>,
) -> Result<Vec<Served>, StoreError> {
    let mut served = vec![];
    for (provider, command) in waiting {
        let queue = Queue::Send(provider.clone());
        let Work::Await(_, room, hold) = &command.work else { continue };
        let Ok(held) = hold.clone().try_lock_owned() else { continue };
        if command.reply.is_closed() || !book.woken.contains(&queue) {
            continue;
        }
        let limit = room();
        let claims = if limit == 0 { vec![] } else { claim(core, book, tx, provider, limit).await? };
        book.flush(tx).await?;
        if claims.is_empty() {
            continue;
        }
        if claims.len() < limit as usize {
            book.woken.remove(&queue);
        }
        served.push(Served { provider: provider.clone(), queue, claims, _held: held });
    }
    Ok(served)
}

/// Facts about what is there come first, then what is new, then what is taken: so one batch is as good as several.
async fn apply(
    core: &Core,
    book: &mut Book<'_>,
    tx: &mut dyn Transaction,
    batch: &[Command],
) -> Result<Vec<Reply>, StoreError> {
    let mut replies: Vec<Option<Reply>> = batch.iter().map(|_| None).collect();
    facts(core, book, tx, batch, &mut replies).await?;
    book.flush(tx).await?;
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
        book.flush(tx).await?;
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
        book.flush(tx).await?;
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
        _ => vec![],
    }
}

/// A provider's id has become known: receipts that named it before count now.
async fn match_kept_receipts(core: &Core, book: &mut Book<'_>, tx: &mut dyn Transaction) -> Result<(), StoreError> {
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
    book.flush(tx).await?;
    for receipt in &kept {
        let ids = super::receive::owner_of(receipt, &owners);
        book.load(tx, &ids.into_iter().collect()).await?;
        receive(core, book, receipt, &owners);
    }
    Ok(())
}
