//! What the dispatcher asks of the ledger, as a seam: so that it can be tested against one that fails at will.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::domain::ids::{AttemptNumber, NotificationId, ProviderName};
use crate::domain::outcome::{LookupAnswer, Outcome};
use crate::domain::time::Timestamp;
use crate::ledger::{Claimed, Hold, Ledger, LedgerError, Opened, Question, Room, SettleAnswer};
use crate::store::rows::WorkCounts;

/// The ledger as the dispatcher sees it. The methods and their errors are those of [`Ledger`].
#[async_trait]
pub trait Desk: Send + Sync {
    /// See [`Ledger::claim_into`].
    ///
    /// # Errors
    /// As there, and so on for the others.
    async fn claim(&self, provider: &ProviderName, room: Room) -> Result<Vec<Claimed>, LedgerError>;
    /// See [`Ledger::claim_next`].
    async fn claim_next(&self, provider: &ProviderName, room: Room, hold: Hold) -> Result<Vec<Claimed>, LedgerError>;
    /// See [`Ledger::open`]. `None` when it does not open.
    fn open(&self, claimed: &Claimed) -> Option<Opened>;
    /// See [`Ledger::settle`].
    async fn settle(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        outcome: Outcome,
    ) -> Result<SettleAnswer, LedgerError>;
    /// See [`Ledger::ask`].
    async fn ask(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Question>, LedgerError>;
    /// See [`Ledger::answer`].
    async fn answer(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        answer: LookupAnswer,
    ) -> Result<SettleAnswer, LedgerError>;
    /// See [`Ledger::reroute`].
    async fn reroute(&self, provider: &ProviderName, limit: u32) -> Result<u32, LedgerError>;
    /// See [`Ledger::next_due`].
    async fn next_due(&self, provider: &ProviderName, ask: bool) -> Result<Option<Timestamp>, LedgerError>;
    /// See [`Ledger::sweep`].
    async fn sweep(&self) -> Result<bool, LedgerError>;
    /// See [`Ledger::work_counts`].
    async fn work_counts(&self) -> Result<Vec<WorkCounts>, LedgerError>;
    /// See [`Ledger::last_time`].
    async fn last_time(&self) -> Result<Timestamp, LedgerError>;
    /// See [`Ledger::holds_lease`].
    fn holds_lease(&self) -> bool {
        true
    }
    /// See [`Ledger::leads`].
    fn leads(&self) -> bool {
        true
    }
    /// See [`Ledger::resign`].
    async fn resign(&self) {}
    /// See [`Ledger::wakes`].
    fn wakes(&self, provider: &ProviderName, ask: bool) -> Arc<Notify>;
}

#[async_trait]
impl Desk for Ledger {
    async fn claim(&self, provider: &ProviderName, room: Room) -> Result<Vec<Claimed>, LedgerError> {
        self.claim_into(provider, room).await
    }

    async fn claim_next(&self, provider: &ProviderName, room: Room, hold: Hold) -> Result<Vec<Claimed>, LedgerError> {
        self.claim_next(provider, room, hold).await
    }

    fn open(&self, claimed: &Claimed) -> Option<Opened> {
        self.open(claimed).ok()
    }

    async fn settle(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        outcome: Outcome,
    ) -> Result<SettleAnswer, LedgerError> {
        self.settle(id, attempt, outcome).await
    }

    async fn ask(&self, provider: &ProviderName, limit: u32) -> Result<Vec<Question>, LedgerError> {
        self.ask(provider, limit).await
    }

    async fn answer(
        &self,
        id: NotificationId,
        attempt: AttemptNumber,
        answer: LookupAnswer,
    ) -> Result<SettleAnswer, LedgerError> {
        self.answer(id, attempt, answer).await
    }

    async fn reroute(&self, provider: &ProviderName, limit: u32) -> Result<u32, LedgerError> {
        self.reroute(provider, limit).await
    }

    async fn next_due(&self, provider: &ProviderName, ask: bool) -> Result<Option<Timestamp>, LedgerError> {
        self.next_due(provider, ask).await
    }

    async fn sweep(&self) -> Result<bool, LedgerError> {
        self.sweep().await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCounts>, LedgerError> {
        self.work_counts().await
    }

    async fn last_time(&self) -> Result<Timestamp, LedgerError> {
        self.last_time().await
    }

    fn holds_lease(&self) -> bool {
        self.holds_lease()
    }

    fn leads(&self) -> bool {
        self.leads()
    }

    async fn resign(&self) {
        self.resign().await;
    }

    fn wakes(&self, provider: &ProviderName, ask: bool) -> Arc<Notify> {
        self.wakes(provider, ask)
    }
}
