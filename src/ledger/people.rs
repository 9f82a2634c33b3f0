//! What apps, operators and providers say from outside.

use crate::domain::audit::{Actor, Record};
use crate::domain::ids::{NotificationId, Tenant, Ticket};
use crate::domain::receipt::Receipt;

use super::batch::{Reply, Work};
use super::{CancelAnswer, Ledger, LedgerError, MISMATCH, Received, ResolveAnswer, Verdict, expect_reply};

impl Ledger {
    /// Takes a notification back, or marks it when it may have left.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn cancel(&self, tenant: &Tenant, id: NotificationId, actor: Actor) -> Result<CancelAnswer, LedgerError> {
        expect_reply!(self.command(Work::Cancel(tenant.clone(), id, actor), false).await, Cancelled)
    }

    /// Settles an unknown by an operator's verdict. Without `tenant`, of any tenant.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn resolve(
        &self,
        tenant: Option<&Tenant>,
        id: NotificationId,
        verdict: Verdict,
        ticket: Ticket,
        actor: Actor,
    ) -> Result<ResolveAnswer, LedgerError> {
        let work = Work::Resolve(tenant.cloned(), id, verdict, ticket, actor);
        expect_reply!(self.command(work, false).await, Resolved)
    }

    /// Stores receipts whose origin is proven; returns after the commit.
    ///
    /// # Errors
    /// When they cannot be stored; the provider must send them again.
    pub async fn receive(&self, receipts: Vec<Receipt>) -> Result<Vec<Received>, LedgerError> {
        if receipts.is_empty() {
            return Ok(vec![]);
        }
        expect_reply!(self.command(Work::Receive(receipts), true).await, Received)
    }

    /// Takes what a provider's own list shows under our references, as evidence; returns after the commit.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn listed(&self, messages: Vec<Receipt>) -> Result<Vec<Received>, LedgerError> {
        expect_reply!(self.command(Work::Listed(messages), false).await, Received)
    }

    /// Appends a record that changes nothing, such as that of an export. Its time is the commit's.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn record(&self, record: Record) -> Result<(), LedgerError> {
        self.command(Work::Tell(Box::new(record)), false).await.map(drop)
    }
}
