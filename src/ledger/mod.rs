//! The ledger: every durable step of a notification's life.
//!
//! Handlers and workers never hold a transaction. They hand a command to the committer (`committer.rs`), which gathers
//! what is waiting, runs it as one transaction and answers after the commit. The steps themselves are written once, over
//! batches, above the store's primitives: `admit`, `claim`, `settle`, `receive`; what a fact leads to is the lifecycle's
//! word, and `book.rs` is the only place that turns that word into rows.

mod admit;
mod batch;
mod book;
mod claim;
pub mod command;
mod committer;
mod core;
mod house;
mod mark;
mod people;
mod read;
mod receive;
mod settle;

pub use command::{
    Accepted, Admission, Asking, CancelAnswer, Claimed, Hold, LedgerError, LimitCheck, LimitScope, NewNotification,
    Opened, Policy, Question, Received, Repeat, ResolveAnswer, Room, Routes, RoutingKey, SettleAnswer, Transit,
    Verdict,
};

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use crate::clock::SharedClock;
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName};
use crate::domain::outcome::{LookupAnswer, Outcome};
use crate::domain::time::Timestamp;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::mark::Mark;
use crate::store::nodes::Identity;
use crate::store::rows::Queue;
use crate::vault::{IndexKey, UnsealError, Vault};

use self::batch::{Reply, Work};
use self::committer::{Command, Pulse};
use self::core::Core;

/// What a ledger is made of.
pub struct Parts {
    /// Where rows are.
    pub store: Arc<dyn Store>,
    /// Which provider comes when.
    pub routes: Arc<dyn Routes>,
    /// The sealing keys.
    pub vault: Arc<Vault>,
    /// The index key.
    pub index: Arc<IndexKey>,
    /// The process's clock.
    pub clock: SharedClock,
    /// The numbers.
    pub policy: Policy,
    /// Who this process is to the store: the owner of what it works on.
    pub identity: Arc<Identity>,
    /// Where numbers are counted.
    pub metrics: Metrics,
    /// Draws in `0.0..1.0`, for jitter.
    pub draw: fn() -> f64,
}

/// Handle on the ledger; cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    core: Arc<Core>,
    pulse: Arc<Pulse>,
    queue: Arc<Mutex<Option<mpsc::Sender<Command>>>>,
    held: Arc<AtomicBool>,
    leads: Arc<AtomicBool>,
    running: Arc<Mutex<Vec<JoinHandle<()>>>>,
    listening: AbortHandle,
    marker: Arc<tokio::sync::Mutex<Option<Mark>>>,
    removed: Arc<tokio::sync::Mutex<Option<house::Removed>>>,
}

/// The committer answered with another kind of reply than the command has: impossible, and not worth a panic.
const MISMATCH: LedgerError = LedgerError::Store(crate::store::StoreError::Refused("reply"));

macro_rules! expect_reply {
    ($reply:expr, $variant:ident) => {
        match $reply? {
            Reply::$variant(value) => Ok(value),
            _ => Err(MISMATCH),
        }
    };
}
pub(crate) use expect_reply;

impl Ledger {
    /// Starts the committer, and holds the ledger when the store is older than `mark`, which remembers beside it how far
    /// it had come; `None` where nothing can be remembered.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(parts: Parts, mark: Option<Mark>) -> Result<Self, LedgerError> {
        let held = mark::is_behind(parts.store.as_ref(), mark.as_ref()).await?;
        let (sender, receiver) = mpsc::channel(parts.policy.queue);
        let core = Arc::new(Core::new(parts));
        let pulse = Arc::new(Pulse::new());
        let running = committer::start(&core, &pulse, receiver);
        let listening = tokio::spawn(house::listen(core.clone())).abort_handle();
        Ok(Self {
            core,
            pulse,
            queue: Arc::new(Mutex::new(Some(sender))),
            held: Arc::new(AtomicBool::new(held)),
            // Until the first sweep nobody knows.
            leads: Arc::default(),
            running: Arc::new(Mutex::new(running)),
            listening,
            marker: Arc::new(tokio::sync::Mutex::new(mark)),
            removed: Arc::default(),
        })
    }

    fn sender(&self) -> Result<mpsc::Sender<Command>, LedgerError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.clone().ok_or(LedgerError::Stopping)
    }

    /// Hands work over and waits for its commit. `admission` work is turned away when the queue is full; the daemon's
    /// own work waits for a place, because it must not be lost.
    async fn command(&self, work: Work, admission: bool) -> Result<Reply, LedgerError> {
        if self.is_held() && !matches!(work, Work::Restore(..)) {
            return Err(LedgerError::Held);
        }
        let sender = self.sender()?;
        let (reply, answer) = oneshot::channel();
        let command = Command { work, reply };
        if admission {
            sender.try_send(command).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => LedgerError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => LedgerError::Stopping,
            })?;
        } else {
            sender.send(command).await.map_err(|_| LedgerError::Stopping)?;
        }
        drop(sender);
        answer.await.map_err(|_| LedgerError::Stopping)?
    }

    /// Stores a judged event, or recognises it. Once handed over it runs to its end, even when the caller goes away.
    ///
    /// # Errors
    /// [`LedgerError`]: not known to be stored; the same event may be posted again.
    pub async fn admit(&self, new: NewNotification) -> Result<Admission, LedgerError> {
        match admit::prepare(&self.core, new) {
            Some(prepared) => expect_reply!(self.command(Work::Admit(Box::new(prepared)), true).await, Admitted),
            None => Ok(Admission::Unroutable),
        }
    }

    /// Looks whether a *refused* request is a repeat of one that was taken.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn recognise(&self, repeat: &Repeat) -> Result<Option<Admission>, LedgerError> {
        let known = self.core.store.reader().known(&repeat.tenant, repeat.key, repeat.event).await?;
        Ok(admit::judge_repeat(&known, repeat))
    }

    /// Takes up to `limit` due notifications of one provider; each attempt is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be stored; nothing is taken then.
    pub async fn claim(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Claimed>, LedgerError> {
        self.claim_into(provider, Arc::new(move || limit)).await
    }

    /// The same for as many as there is room for when the commit begins.
    ///
    /// # Errors
    /// As there.
    pub async fn claim_into(&self, provider: &ProviderName, room: Room) -> Result<Vec<Claimed>, LedgerError> {
        expect_reply!(self.command(Work::Claim(provider.clone(), room), false).await, Claimed)
    }

    /// Waits for a commit that puts something into the provider's queue, and takes it in that same commit. What was due
    /// before is not seen. One caller waits for each provider. Going away takes the wish back; who does it without `hold`
    /// may leave behind attempts that never begin.
    ///
    /// # Errors
    /// When the daemon stops.
    pub async fn claim_next(
        &self,
        provider: &ProviderName,
        room: Room,
        hold: Hold,
    ) -> Result<Vec<Claimed>, LedgerError> {
        if self.is_held() {
            return std::future::pending().await;
        }
        expect_reply!(self.command(Work::Await(provider.clone(), room, hold), false).await, Claimed)
    }

    /// Opens the sealed values of a claim.
    ///
    /// # Errors
    /// When the key is missing or the value was changed.
    pub fn open(&self, claimed: &Claimed) -> Result<Opened, UnsealError> {
        admit::open(&self.core, claimed)
    }

    /// Stores how an attempt or a probe ended. On an error the caller repeats it with the same arguments.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn settle(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        outcome: Outcome,
    ) -> Result<SettleAnswer, LedgerError> {
        expect_reply!(self.command(Work::Settle(id, attempt, outcome), false).await, Settled)
    }

    /// Takes up to `limit` unknowns that are due to be asked about at one provider. Probes among them are recorded.
    ///
    /// # Errors
    /// When it cannot be stored; nothing is taken then.
    pub async fn ask(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Question>, LedgerError> {
        expect_reply!(self.command(Work::Ask(provider.clone(), limit), false).await, Asked)
    }

    /// Stores what a look-up found.
    ///
    /// # Errors
    /// When it cannot be stored; the question comes up again.
    pub async fn answer(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        answer: LookupAnswer,
    ) -> Result<SettleAnswer, LedgerError> {
        expect_reply!(self.command(Work::Answer(id, attempt, answer), false).await, Settled)
    }

    /// Looks at up to `limit` due notifications of a provider, and moves them to the next of their route where there is
    /// one; says how many it looked at.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn reroute(&self, provider: &ProviderName, limit: u32) -> Result<u32, LedgerError> {
        let moved = expect_reply!(self.command(Work::Reroute(provider.clone(), limit), false).await, Counted)?;
        Ok(u32::try_from(moved).unwrap_or(u32::MAX))
    }

    /// When the first notification of a provider is due to be sent (`ask` = false) or asked about (`ask` = true).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next_due(&self, provider: &ProviderName, ask: bool) -> Result<Option<Timestamp>, LedgerError> {
        Ok(self.core.store.reader().next_due(&queue_of(provider, ask)).await?)
    }

    /// Rung when work of this provider may have become due.
    pub fn wakes(&self, provider: &ProviderName, ask: bool) -> Arc<tokio::sync::Notify> {
        self.core.wake(&queue_of(provider, ask))
    }

    /// Stops taking commands, finishes those that wait, gives the node's name back and closes the store.
    pub async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        // Each ends when the queue is empty; none panics, and if one did there is nothing to finish.
        let _ended = tokio::time::timeout(Duration::from_secs(30), join_all(running)).await;
        self.listening.abort();
        let remembered = match self.look_back().await {
            Ok(()) => self.remember().await,
            unread => unread,
        };
        if let Err(error) = remembered {
            tracing::warn!(%error, "the high-water mark could not be written");
        }
        self.leave().await;
        self.core.store.close().await;
    }
}

fn queue_of(provider: &ProviderName, ask: bool) -> Queue {
    if ask { Queue::Ask(provider.clone()) } else { Queue::Send(provider.clone()) }
}
