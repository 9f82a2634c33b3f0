//! Housekeeping: what only one node does, what each does, and what nodes hear from each other.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::ids::ProviderName;
use crate::store::nodes::Rung;

use super::batch::{Reply, Work};
use super::core::Core;
use super::{Ledger, LedgerError, MISMATCH, expect_reply};

/// How many rows one sweep takes to the committer at once.
const SWEEP_LIMIT: u32 = 500;

/// Time between two looks for providers that were removed.
const LOOK_FOR_REMOVED: Duration = Duration::from_secs(600);

/// The providers that have work and are not configured any more, as they were found.
#[derive(Debug)]
pub(super) struct Removed {
    /// On the boot-time clock.
    looked_at: Duration,
    providers: BTreeSet<ProviderName>,
}

/// Rings our own waiters for what other nodes tell.
pub(super) async fn listen(core: Arc<Core>) {
    loop {
        match core.store.nodes().heard().await {
            Rung::Queue(queue) => core.wake(&queue).notify_one(),
            Rung::Everything => core.wake_all(),
        }
    }
}

impl Core {
    fn wake_all(&self) {
        let wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.values().map(Arc::as_ref).for_each(Notify::notify_one);
    }
}

impl Ledger {
    /// Ends what dead nodes left. Where this node leads, also expires what is over, moves work of providers that are gone,
    /// and deletes what retention allows. Says whether a batch was full, so that there may be more.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn sweep(&self) -> Result<bool, LedgerError> {
        self.look_back().await?;
        if self.is_held() {
            self.resign().await;
            return Ok(false);
        }
        // A mark that cannot be written, on a full disk say, holds up nothing else.
        let remembered = self.remember().await;
        self.bury().await?;
        self.take_over().await?;
        let leads = self.core.store.nodes().lead().await?;
        if leads != self.leads.swap(leads, Ordering::SeqCst) {
            tracing::info!(leads, "which node keeps house has changed");
        }
        let full = leads && self.expire().await?;
        // The deletes also find out whether a store that could not be written can be again.
        if leads || !self.writable() {
            self.forget().await?;
        }
        remembered.map(|()| full)
    }

    async fn expire(&self) -> Result<bool, LedgerError> {
        let expired = self.core.store.reader().expired(self.now().await?, SWEEP_LIMIT).await?;
        let full = expired.len() == SWEEP_LIMIT as usize;
        if !expired.is_empty() {
            self.command(Work::Expire(expired), false).await?;
        }
        for provider in &self.removed().await? {
            self.reroute(provider, SWEEP_LIMIT).await?;
            // Nobody is left to ask: no question comes of it, and what is final goes.
            self.ask(provider, SWEEP_LIMIT).await?;
        }
        Ok(full)
    }

    /// To find them all work is counted, so that is seldom done: only a start makes one, ours or that of another node.
    async fn removed(&self) -> Result<BTreeSet<ProviderName>, LedgerError> {
        let now = self.core.clock.since_boot();
        let mut known = self.removed.lock().await;
        if let Some(known) = known.as_ref().filter(|known| now < known.looked_at + LOOK_FOR_REMOVED) {
            return Ok(known.providers.clone());
        }
        let counts = self.work_counts().await?.into_iter().map(|counts| counts.provider);
        let providers: BTreeSet<_> = counts.filter(|name| self.core.routes.abilities(name).is_none()).collect();
        *known = Some(Removed { looked_at: now, providers: providers.clone() });
        Ok(providers)
    }

    async fn forget(&self) -> Result<(), LedgerError> {
        let now = self.now().await?;
        let keys_before = now.minus(self.core.policy.key_retention);
        let receipts_before = now.minus(self.core.policy.receipt_retention);
        self.command(Work::Forget { keys_before, receipts_before }, false).await.map(drop)
    }

    /// Ends the boots of nodes that have been silent for too long, unless it is we who have heard nothing.
    async fn bury(&self) -> Result<(), LedgerError> {
        let identity = &self.core.identity;
        if identity.may_bury(self.core.clock.since_boot()) {
            for node in self.core.store.nodes().bury(identity.name()).await? {
                tracing::error!(alert = true, %node, "the lease of a node has run out; what it had begun is unknown");
            }
        }
        Ok(())
    }

    /// Everything that a boot which is over left under way becomes unknown. Says how many there were.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take_over(&self) -> Result<u64, LedgerError> {
        let mut total = 0;
        loop {
            let own = self.core.identity.boot();
            let stranded = self.core.store.reader().stranded(own.as_str(), SWEEP_LIMIT).await?;
            if stranded.is_empty() {
                return Ok(total);
            }
            let taken = expect_reply!(self.command(Work::Strand(stranded), false).await, Counted)?;
            if taken == 0 {
                return Ok(total);
            }
            total += taken;
        }
    }

    /// Leaves to others what only one should do, because this node cannot do it now.
    pub async fn resign(&self) {
        if self.core.store.nodes().resign().await {
            self.leads.store(false, Ordering::SeqCst);
            tracing::info!("another node may keep house");
        }
    }

    /// This node does what only one should do.
    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    /// This node's lease runs: what it begins, no other node takes for lost.
    pub fn holds_lease(&self) -> bool {
        self.core.identity.holds(self.core.clock.since_boot())
    }

    /// Gives the node's name back, so that nobody need wait for the end of its lease.
    pub(super) async fn leave(&self) {
        let identity = &self.core.identity;
        if let Err(error) = self.core.store.nodes().release(identity.name(), &identity.boot()).await {
            tracing::warn!(%error, "the node's name could not be given back; its lease runs out");
        }
        identity.lost();
    }
}
