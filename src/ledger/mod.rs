//! The ledger: every durable step of a notification's life.
//!
//! Handlers and workers never hold a transaction. They hand a command to the committer (`committer.rs`), which gathers
//! what is waiting, runs it as one transaction and answers after the commit. The steps themselves are written once, over
//! batches, above the store's primitives: `admit`, `claim`, `settle`, `ask`, `receive`, `sweep`.

pub mod command;

pub use command::{
    Accepted, Admission, Asking, CancelAnswer, Claimed, LedgerError, LimitCheck, LimitScope, NewNotification, Opened,
    Policy, Question, Received, Repeat, ResolveAnswer, Routes, SettleAnswer, Transit, Verdict,
};

use std::sync::Arc;

use tokio::sync::watch;

use crate::domain::audit::{Actor, Record};
use crate::domain::ids::{AttemptNumber, EventId, IdempotencyKey, NotificationId, ProviderName, Tenant, Ticket};
use crate::domain::outcome::{LookupAnswer, Outcome};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::rows::{
    AccountCounts, AccountFault, LogFilter, LogRow, StatusRow, UnknownFilter, UnknownRow, WorkCounts,
};
use crate::vault::{IndexKey, Vault};

/// Handle on the ledger; cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    _inner: Arc<()>,
}

#[expect(clippy::unimplemented, clippy::missing_errors_doc, missing_docs, reason = "outline")]
impl Ledger {
    // -- admission -------------------------------------------------------------------------------------------------
    /// Stores a judged event, or recognises it. Runs to its end even when the caller goes away.
    pub async fn admit(&self, new: NewNotification) -> Result<Admission, LedgerError> {
        let _ = new;
        unimplemented!()
    }
    /// Looks whether a *refused* request is a repeat of one that was taken. `Ok(None)`: it is not.
    pub async fn recognise(&self, repeat: &Repeat) -> Result<Option<Admission>, LedgerError> {
        let _ = repeat;
        unimplemented!()
    }

    // -- dispatch --------------------------------------------------------------------------------------------------
    /// Takes up to `limit` due notifications for one provider; each attempt is on disk when this returns.
    pub async fn claim(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Claimed>, LedgerError> {
        let _ = (provider, limit);
        unimplemented!()
    }
    /// Opens the sealed values of a claim.
    pub fn open(&self, claimed: &Claimed) -> Result<Opened, crate::vault::UnsealError> {
        let _ = claimed;
        unimplemented!()
    }
    /// Stores how an attempt or a probe ended. The caller repeats it (with the same arguments) on an error.
    pub async fn settle(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        outcome: Outcome,
    ) -> Result<SettleAnswer, LedgerError> {
        let _ = (id, attempt, outcome);
        unimplemented!()
    }
    /// Takes up to `limit` unknowns that are due to be asked about at one provider. Probes among them are recorded as attempts.
    pub async fn ask(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Question>, LedgerError> {
        let _ = (provider, limit);
        unimplemented!()
    }
    /// Stores what a look-up found.
    pub async fn answer(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        answer: LookupAnswer,
    ) -> Result<SettleAnswer, LedgerError> {
        let _ = (id, attempt, answer);
        unimplemented!()
    }
    /// Moves up to `limit` due notifications from a provider whose breaker is open to the next of their route; says how many moved.
    pub async fn reroute(&self, provider: &ProviderName, limit: u32) -> Result<u32, LedgerError> {
        let _ = (provider, limit);
        unimplemented!()
    }
    /// When the first notification for (`ask` = false) or question about (`ask` = true) a provider is due.
    pub async fn next_due(&self, provider: &ProviderName, ask: bool) -> Result<Option<Timestamp>, LedgerError> {
        let _ = (provider, ask);
        unimplemented!()
    }
    /// Expires what is over, releases what another boot left behind, deletes what retention allows. Says whether there was more than one batch could hold.
    pub async fn sweep(&self) -> Result<bool, LedgerError> {
        unimplemented!()
    }
    /// At start: everything that an earlier boot left `dispatching` becomes unknown at once. Says how many.
    pub async fn take_over(&self) -> Result<u64, LedgerError> {
        unimplemented!()
    }

    // -- people ----------------------------------------------------------------------------------------------------
    pub async fn cancel(&self, tenant: &Tenant, id: NotificationId, actor: Actor) -> Result<CancelAnswer, LedgerError> {
        let _ = (tenant, id, actor);
        unimplemented!()
    }
    pub async fn resolve(
        &self,
        tenant: Option<&Tenant>,
        id: NotificationId,
        verdict: Verdict,
        ticket: Ticket,
        actor: Actor,
    ) -> Result<ResolveAnswer, LedgerError> {
        let _ = (tenant, id, verdict, ticket, actor);
        unimplemented!()
    }
    /// Stores receipts whose origin is proven; returns after the commit.
    pub async fn receive(&self, receipts: Vec<Receipt>) -> Result<Vec<Received>, LedgerError> {
        let _ = receipts;
        unimplemented!()
    }
    /// Appends a record that changes nothing (an export).
    pub async fn record(&self, record: Record) -> Result<(), LedgerError> {
        let _ = record;
        unimplemented!()
    }

    // -- reading ---------------------------------------------------------------------------------------------------
    pub async fn status(&self, tenant: &Tenant, id: NotificationId) -> Result<Option<StatusRow>, LedgerError> {
        let _ = (tenant, id);
        unimplemented!()
    }
    pub async fn status_by_event(&self, tenant: &Tenant, event: &EventId) -> Result<Option<StatusRow>, LedgerError> {
        let _ = (tenant, event);
        unimplemented!()
    }
    pub async fn status_by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> Result<Option<StatusRow>, LedgerError> {
        let _ = (tenant, key);
        unimplemented!()
    }
    pub async fn unknowns(&self, filter: &UnknownFilter) -> Result<Vec<UnknownRow>, LedgerError> {
        let _ = filter;
        unimplemented!()
    }
    pub async fn log_page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError> {
        let _ = (filter, after, limit);
        unimplemented!()
    }
    pub async fn log_count(&self, filter: &LogFilter) -> Result<u64, LedgerError> {
        let _ = filter;
        unimplemented!()
    }
    pub async fn account_counts(&self, tenant: Option<&Tenant>) -> Result<AccountCounts, LedgerError> {
        let _ = tenant;
        unimplemented!()
    }
    pub async fn account_faults(&self, tenant: Option<&Tenant>, limit: u32) -> Result<Vec<AccountFault>, LedgerError> {
        let _ = (tenant, limit);
        unimplemented!()
    }
    pub async fn work_counts(&self) -> Result<Vec<WorkCounts>, LedgerError> {
        unimplemented!()
    }
    /// Grows with every commit: for waiters. A waiter re-reads what it waits for whenever this changes.
    pub fn commits(&self) -> watch::Receiver<u64> {
        unimplemented!()
    }
    /// Woken when work for this provider may have become due earlier than was known (`ask` = false: to send, true: to ask).
    pub fn wakes(&self, provider: &ProviderName, ask: bool) -> Arc<tokio::sync::Notify> {
        let _ = (provider, ask);
        unimplemented!()
    }
    /// How many commands wait for the committer, and the most that may.
    pub fn queue_depth(&self) -> (usize, usize) {
        unimplemented!()
    }
    /// When the last durable write succeeded, and whether the last one that was tried did: for readiness.
    pub fn writable(&self) -> bool {
        unimplemented!()
    }
    pub async fn now(&self) -> Result<Timestamp, LedgerError> {
        unimplemented!()
    }
    pub fn vault(&self) -> &Vault {
        unimplemented!()
    }
    pub fn index(&self) -> &IndexKey {
        unimplemented!()
    }
    /// Stops taking commands, finishes those that wait, and closes the store.
    pub async fn close(&self) {
        unimplemented!()
    }
}
