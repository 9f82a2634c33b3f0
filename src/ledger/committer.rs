//! Group commit: commands that wait together become one transaction, and are answered after its commit.
//!
//! Commands are data, so a batch can be run again: a batch that the store refuses is halved until the command at fault
//! fails alone. A caller that goes away changes nothing, because nobody polls its future to make the commit happen.
//!
//! Where the store takes several transactions at once, as many commits are under way beside each other. They stand to each
//! other as those of two nodes do: locks in the rows decide.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::clock::Quiet;
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName};
use crate::domain::outcome::{Outcome, Reason};
use crate::store::rows::{Owner, Queue};
use crate::store::{StoreError, Transaction};

use super::batch::{Reply, Work, apply, handed_out, match_kept_receipts};
use super::book::Book;
use super::claim::claim_here;
use super::command::LedgerError;
use super::core::Core;
use super::settle::settle;

/// Fewer commands than these wait for a commit that is under way to end, rather than make another one beside it: a
/// commit costs the server about as much as so many rows do.
const WORTH_A_COMMIT: usize = 32;

/// But they wait no longer than this: the other one may stand at a lock.
const FILL_MAX: Duration = Duration::from_millis(10);

/// How often one batch is run again because the store undid it for another transaction.
const RERUNS: u32 = 5;

/// Work and who waits for it.
pub(super) struct Command {
    pub work: Work,
    pub reply: oneshot::Sender<Result<Reply, LedgerError>>,
}

/// What the committer shares with its handles.
pub(super) struct Pulse {
    pub commits: watch::Sender<u64>,
    pub writable: AtomicBool,
    /// That the store cannot be written was told, and its end was not.
    told: AtomicBool,
    quiet: Quiet,
}

impl Pulse {
    pub(super) fn new() -> Self {
        let writable = AtomicBool::new(true);
        Self { commits: watch::channel(0).0, writable, told: AtomicBool::new(false), quiet: Quiet::default() }
    }

    /// A commit failed at the store. On a disk that is all but full others may succeed in between, so that the fault
    /// would begin and end many times a second: hence not each time is told.
    fn failed(&self, error: StoreError, commands: usize, now: Duration) {
        self.writable.store(false, Ordering::SeqCst);
        if self.quiet.may_tell(now) {
            self.told.store(true, Ordering::SeqCst);
            tracing::error!(%error, commands, "the store cannot be written");
        }
    }

    /// A commit wrote something.
    fn wrote(&self) {
        self.writable.store(true, Ordering::SeqCst);
        if self.told.swap(false, Ordering::SeqCst) {
            tracing::info!("the store can be written again");
        }
    }
}

/// An attempt that was recorded, or may have been, and that no worker was told of; and who recorded it.
struct NotHandedOut {
    id: NotificationId,
    attempt: AttemptNumber,
    owner: Owner,
}

/// What is carried from one commit to the next.
#[derive(Default)]
struct Carried {
    not_handed_out: Vec<NotHandedOut>,
    /// Who takes work in the commit that brings it, so that a message needs no second commit before it is sent.
    waiting: BTreeMap<ProviderName, Command>,
}

/// The queue of commands, and what its commits leave to each other.
pub(super) struct Committer {
    core: Arc<Core>,
    pulse: Arc<Pulse>,
    queue: tokio::sync::Mutex<mpsc::Receiver<Command>>,
    /// How many commits are under way.
    commits: watch::Sender<usize>,
    carried: Mutex<Carried>,
}

/// Counts one commit for as long as it is there.
struct UnderWay<'a>(&'a watch::Sender<usize>);

impl<'a> UnderWay<'a> {
    fn new(commits: &'a watch::Sender<usize>) -> Self {
        commits.send_modify(|commits| *commits += 1);
        Self(commits)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|commits| *commits -= 1);
    }
}

/// Starts as many commits beside each other as the store takes. They run until every handle is gone and the queue empty.
pub(super) fn start(core: &Arc<Core>, pulse: &Arc<Pulse>, queue: mpsc::Receiver<Command>) -> Vec<JoinHandle<()>> {
    let (core, pulse, queue) = (core.clone(), pulse.clone(), tokio::sync::Mutex::new(queue));
    let (commits, carried) = (watch::channel(0).0, Mutex::default());
    let committer = Arc::new(Committer { core, pulse, queue, commits, carried });
    (0..committer.core.store.writers()).map(|_| tokio::spawn(committer.clone().run())).collect()
}

impl Committer {
    async fn run(self: Arc<Self>) {
        let (metrics, clock) = (&self.core.metrics, &self.core.clock);
        while let Some((batch, _under_way)) = self.next_batch().await {
            let batch = self.set_waiting_apart(batch);
            if batch.is_empty() {
                continue;
            }
            let began = clock.since_boot();
            self.commit_all(batch).await;
            metrics.commit_seconds.observe(clock.since_boot().saturating_sub(began).as_secs_f64());
        }
    }

    async fn next_batch(&self) -> Option<(Vec<Command>, UnderWay<'_>)> {
        let most = self.core.policy.batch;
        let mut batch = Vec::with_capacity(most);
        let mut queue = self.queue.lock().await;
        if queue.recv_many(&mut batch, most).await == 0 {
            return None;
        }
        // What can hand something over without waiting does so now, rather than one fsync later.
        tokio::task::yield_now().await;
        while batch.len() < most
            && let Ok(command) = queue.try_recv()
        {
            batch.push(command);
        }
        self.fill(&mut batch, &mut queue).await;
        self.core.metrics.commit_queue.set(i64::try_from(queue.len()).unwrap_or(i64::MAX));
        // Still in turn at the queue, so that the next one knows of this commit.
        Some((batch, UnderWay::new(&self.commits)))
    }

    /// Adds to a batch that is not worth a commit of its own beside others, while there are others.
    async fn fill(&self, batch: &mut Vec<Command>, queue: &mut mpsc::Receiver<Command>) {
        let enough = WORTH_A_COMMIT.min(self.core.policy.batch);
        let mut commits = self.commits.subscribe();
        let patience = tokio::time::sleep(FILL_MAX);
        tokio::pin!(patience);
        while batch.len() < enough && *commits.borrow_and_update() > 0 {
            tokio::select! {
                command = queue.recv() => match command {
                    Some(command) => batch.push(command),
                    None => return,
                },
                _ = commits.changed() => {}
                () = &mut patience => return,
            }
        }
    }

    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_waiting_apart(&self, batch: Vec<Command>) -> Vec<Command> {
        let (waiting, batch): (Vec<_>, _) = batch.into_iter().partition(|c| matches!(c.work, Work::Await(..)));
        for command in waiting {
            if let Work::Await(provider, ..) = &command.work {
                self.carried().waiting.insert(provider.clone(), command);
            }
        }
        batch
    }

    /// Whoever waits for this provider's work, with the hold that keeps him from going away meanwhile.
    fn take_waiting(&self, provider: &ProviderName) -> Option<(Command, OwnedMutexGuard<()>)> {
        let mut carried = self.carried();
        let command = carried.waiting.get(provider).filter(|command| !command.reply.is_closed())?;
        let Work::Await(_, _, hold) = &command.work else { return None };
        let held = hold.clone().try_lock_owned().ok()?;
        Some((carried.waiting.remove(provider)?, held))
    }

    /// Answers a command after its commit. A caller that went away has lost nothing but its answer, and attempts that
    /// were meant for it.
    fn answer(&self, owner: &Owner, command: Command, reply: Reply) {
        if let Err(Ok(reply)) = command.reply.send(Ok(reply)) {
            self.forget(owner, handed_out(&reply));
        }
    }

    /// Nobody was told of these attempts, and nobody will be.
    fn forget(&self, owner: &Owner, attempts: impl IntoIterator<Item = (NotificationId, AttemptNumber)>) {
        let forgotten = attempts.into_iter().map(|(id, attempt)| NotHandedOut { id, attempt, owner: owner.clone() });
        self.carried().not_handed_out.extend(forgotten);
    }

    /// Commits a batch, or halves of it where the store refuses the whole.
    async fn commit_all(&self, batch: Vec<Command>) {
        let mut rest = vec![batch];
        let mut serving = true;
        let mut reruns = 0;
        while let Some(mut batch) = rest.pop() {
            self.core.metrics.commit_commands.observe(batch.len() as f64);
            let mut commit = Commit::new(self, serving);
            let error = match commit.run(&batch).await {
                Ok(replies) => {
                    commit.answer(batch, replies);
                    continue;
                }
                Err(error) => error,
            };
            let served = commit.give_up();
            match error {
                // What waits came along uninvited, so it is the first to be left out.
                StoreError::Refused(_) | StoreError::Corrupt { .. } if served => {
                    serving = false;
                    rest.push(batch);
                }
                StoreError::Conflict if reruns < RERUNS => {
                    reruns += 1;
                    rest.push(batch);
                }
                StoreError::Refused(_) | StoreError::Corrupt { .. } if batch.len() > 1 => {
                    let second = batch.split_off(batch.len() / 2);
                    rest.push(second);
                    rest.push(batch);
                }
                error => self.refuse(batch, error),
            }
        }
    }

    fn refuse(&self, batch: Vec<Command>, error: StoreError) {
        self.core.metrics.commit_failures.inc();
        let transient = !matches!(error, StoreError::Refused(_) | StoreError::Corrupt { .. });
        if transient {
            self.pulse.failed(error, batch.len(), self.core.clock.since_boot());
        } else {
            tracing::error!(%error, "the store refused a command");
        }
        for command in batch {
            let _gone = command.reply.send(Err(error.into()));
        }
    }
}

/// What was taken for somebody who waited for it.
struct Served {
    command: Command,
    queue: Queue,
    reply: Reply,
    _held: OwnedMutexGuard<()>,
}

/// One transaction on its way, with what it took of what is carried.
struct Commit<'a> {
    committer: &'a Committer,
    core: &'a Core,
    /// Under which name it claims.
    owner: Owner,
    serving: bool,
    not_handed_out: Vec<NotHandedOut>,
    served: Vec<Served>,
}

impl<'a> Commit<'a> {
    fn new(committer: &'a Committer, serving: bool) -> Self {
        let core = &*committer.core;
        let not_handed_out = std::mem::take(&mut committer.carried().not_handed_out);
        Self { committer, core, owner: core.next_owner(), serving, not_handed_out, served: vec![] }
    }

    async fn run(&mut self, batch: &[Command]) -> Result<Vec<Reply>, StoreError> {
        let core = self.core;
        let mut tx = core.store.begin().await?;
        let mut book = Book::new(core, tx.now(), self.owner.clone());
        self.settle_not_handed_out(&mut book, tx.as_mut()).await?;
        let replies = apply(core, &mut book, tx.as_mut(), batch).await?;
        if self.serving {
            self.serve(&mut book);
        }
        match_kept_receipts(core, &mut book, tx.as_mut()).await?;
        book.close(tx.as_mut()).await?;
        if let Err(error) = tx.commit().await {
            if error == StoreError::Ambiguous {
                let served = self.served.iter().map(|served| &served.reply);
                self.committer.forget(&self.owner, replies.iter().chain(served).flat_map(handed_out));
            }
            return Err(error);
        }
        self.tell(&book, batch);
        Ok(replies)
    }

    /// An attempt whose claim nobody was told of certainly never began. This says so while the notification bears that
    /// very claim: where it did not take effect after all, somebody else may have made an attempt of the same number.
    async fn settle_not_handed_out(&self, book: &mut Book<'_>, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        book.load(tx, &self.not_handed_out.iter().map(|lost| lost.id).collect()).await?;
        for NotHandedOut { id, attempt, owner } in &self.not_handed_out {
            let work = book.get(*id).and_then(|entry| entry.work.as_ref());
            if work.is_some_and(|work| work.state.owner.as_ref() == Some(owner)) {
                settle(self.core, book, *id, *attempt, &Outcome::never_began(Reason::NotHandedOut));
            }
        }
        Ok(())
    }

    /// Gives what this batch put into a queue to the one who waits for it.
    fn serve(&mut self, book: &mut Book<'_>) {
        let filled: BTreeSet<ProviderName> = book.woken.iter().filter_map(Queue::sends).cloned().collect();
        for provider in filled {
            let Some((command, _held)) = self.committer.take_waiting(&provider) else { continue };
            let Work::Await(_, room, _) = &command.work else { continue };
            let (limit, queue) = (room(), Queue::Send(provider.clone()));
            let claims = claim_here(self.core, book, &provider, limit, &BTreeSet::new());
            if claims.is_empty() {
                self.wait_on(command);
                continue;
            }
            if claims.len() < limit as usize {
                book.woken.remove(&queue);
            }
            self.served.push(Served { command, queue, reply: Reply::Claimed(claims), _held });
        }
    }

    /// Lets somebody wait again, unless he has made another wish meanwhile.
    fn wait_on(&self, command: Command) {
        if let Work::Await(provider, ..) = &command.work {
            self.committer.carried().waiting.entry(provider.clone()).or_insert(command);
        }
    }

    /// What follows from what is durable now.
    fn tell(&self, book: &Book<'_>, batch: &[Command]) {
        let (core, pulse) = (self.core, &self.committer.pulse);
        let wrote = book.written || batch.iter().any(|command| matches!(command.work, Work::Forget { .. }));
        if wrote {
            pulse.wrote();
        }
        if book.contradictions > 0 {
            core.metrics.contradictions.inc_by(book.contradictions);
            tracing::error!(count = book.contradictions, "evidence contradicts what was known; see the audit log");
        }
        for queue in &book.woken {
            // Who was served looks again by himself.
            let filled = self.served.iter().any(|served| served.queue == *queue);
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
    }

    fn answer(self, batch: Vec<Command>, replies: Vec<Reply>) {
        for (command, reply) in batch.into_iter().zip(replies) {
            self.committer.answer(&self.owner, command, reply);
        }
        for Served { command, reply, _held, .. } in self.served {
            self.committer.answer(&self.owner, command, reply);
        }
    }

    /// Leaves to the next one what this one could not do; says whether it had done more than it was asked.
    fn give_up(mut self) -> bool {
        let served = std::mem::take(&mut self.served);
        let any = !served.is_empty();
        served.into_iter().for_each(|served| self.wait_on(served.command));
        self.committer.carried().not_handed_out.append(&mut self.not_handed_out);
        any
    }
}
