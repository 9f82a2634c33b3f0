//! Reading: local state only, never a side effect.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use tokio::sync::watch;

use crate::domain::ids::{EventId, IdempotencyKey, NotificationId, Tenant};
use crate::domain::time::Timestamp;
use crate::store::rows::{
    AccountCounts, AccountFault, LogFilter, LogRow, StatusRow, StatusSelector, UnknownFilter, UnknownRow, WorkCounts,
};
use crate::vault::{IndexKey, Purpose, Vault};

use super::{Ledger, LedgerError};

/// Each returns [`LedgerError::Store`] when the store cannot be read.
#[expect(clippy::missing_errors_doc, reason = "told once, above")]
impl Ledger {
    /// A notification with its history.
    pub async fn status(&self, tenant: &Tenant, id: NotificationId) -> Result<Option<StatusRow>, LedgerError> {
        self.find(tenant, StatusSelector::Id(id)).await
    }

    /// The same, found by the app's name for the event.
    pub async fn status_by_event(&self, tenant: &Tenant, event: &EventId) -> Result<Option<StatusRow>, LedgerError> {
        let parts = [tenant.as_str().as_bytes(), event.as_str().as_bytes()];
        self.find(tenant, StatusSelector::Event(self.core.index.hash(Purpose::Event, &parts))).await
    }

    /// The same, found by the idempotency key.
    pub async fn status_by_key(&self, tenant: &Tenant, key: &IdempotencyKey) -> Result<Option<StatusRow>, LedgerError> {
        let parts = [tenant.as_str().as_bytes(), key.as_str().as_bytes()];
        self.find(tenant, StatusSelector::Key(self.core.index.hash(Purpose::Key, &parts))).await
    }

    async fn find(&self, tenant: &Tenant, selector: StatusSelector) -> Result<Option<StatusRow>, LedgerError> {
        Ok(self.core.store.reader().status(tenant, &selector).await?)
    }

    /// A page of the unknowns.
    pub async fn unknowns(&self, filter: &UnknownFilter) -> Result<Vec<UnknownRow>, LedgerError> {
        Ok(self.core.store.reader().unknowns(filter).await?)
    }

    /// A page of the log after a position.
    pub async fn log_page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError> {
        Ok(self.core.store.reader().log_page(filter, after, limit).await?)
    }

    /// The position up to which the log is complete: nothing can still appear at or below it.
    pub async fn log_end(&self) -> Result<i64, LedgerError> {
        Ok(self.core.store.reader().log_end().await?)
    }

    /// The accounting's numbers.
    pub async fn account_counts(&self, tenant: Option<&Tenant>) -> Result<AccountCounts, LedgerError> {
        Ok(self.core.store.reader().account_counts(tenant).await?)
    }

    /// What does not add up, at most `limit`.
    pub async fn account_faults(&self, tenant: Option<&Tenant>, limit: u32) -> Result<Vec<AccountFault>, LedgerError> {
        Ok(self.core.store.reader().account_faults(tenant, limit).await?)
    }

    /// Live work by provider and state.
    pub async fn work_counts(&self) -> Result<Vec<WorkCounts>, LedgerError> {
        Ok(self.core.store.reader().work_counts().await?)
    }

    /// The store's clock.
    pub async fn now(&self) -> Result<Timestamp, LedgerError> {
        Ok(self.core.store.reader().now().await?)
    }

    /// How far the log has come.
    pub async fn last_position(&self) -> Result<i64, LedgerError> {
        Ok(self.core.store.reader().high_water().await?.pos)
    }

    /// Time of the last record: the wall clock must not be behind it.
    pub async fn last_time(&self) -> Result<Timestamp, LedgerError> {
        Ok(self.core.store.reader().high_water().await?.at)
    }

    /// Changes with every commit: a waiter re-reads what it waits for whenever this changes.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.pulse.commits.subscribe()
    }

    /// How many commands wait for the committer, and the most that may.
    pub fn queue_depth(&self) -> (usize, usize) {
        let max = self.core.policy.queue;
        (self.sender().map_or(0, |sender| max.saturating_sub(sender.capacity())), max)
    }

    /// All commits run. Where one does not, only a new process helps; a store that cannot be written is no such case.
    pub fn is_alive(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        !running.is_empty() && running.iter().all(|task| !task.is_finished())
    }

    /// The last durable write that was tried succeeded.
    pub fn writable(&self) -> bool {
        self.pulse.writable.load(Ordering::SeqCst)
    }

    /// The sealing keys.
    pub fn vault(&self) -> &Vault {
        &self.core.vault
    }

    /// The index key.
    pub fn index(&self) -> &IndexKey {
        &self.core.index
    }
}
