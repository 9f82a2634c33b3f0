//! Noticing that the store was restored from an older copy, and releasing what was held because of it.

use std::sync::atomic::Ordering;

use crate::domain::ids::{NotificationId, Ticket};
use crate::store::mark::Mark;
use crate::store::rows::HighWater;
use crate::store::{Store, StoreError};

use super::batch::{Reply, Work};
use super::{Ledger, LedgerError, MISMATCH, expect_reply};

/// How many rows are released at once.
const RELEASE_LIMIT: u32 = 500;

/// How a store stands to what was seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is the same, and has come at least as far.
    Forth,
    /// It has not come as far, or is another one.
    Behind,
    /// It was recovered since, by whatever node.
    Recovered,
}

async fn standing(store: &dyn Store, seen: Option<&HighWater>) -> Result<Standing, StoreError> {
    let Some(seen) = seen else { return Ok(Standing::Forth) };
    let now = store.reader().high_water().await?;
    if now.incarnation == seen.incarnation {
        return Ok(if now.pos < seen.pos { Standing::Behind } else { Standing::Forth });
    }
    Ok(if store.nodes().succeeds(&seen.incarnation).await? { Standing::Recovered } else { Standing::Behind })
}

/// The store has not come as far as it was seen to have, or is another one, and nobody has recovered it.
pub(super) async fn is_behind(store: &dyn Store, mark: Option<&Mark>) -> Result<bool, StoreError> {
    Ok(standing(store, mark.and_then(Mark::read)).await? == Standing::Behind)
}

impl Ledger {
    /// Whether everything is held until [`Ledger::recover`].
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Holds everything where the store is behind what was seen before, since a server can fail over to an older copy while
    /// we run, and lifts the hold where it was recovered meanwhile.
    pub(super) async fn look_back(&self) -> Result<(), LedgerError> {
        let marker = self.marker.lock().await;
        let Some(mark) = marker.as_ref() else { return Ok(()) };
        match standing(self.core.store.as_ref(), mark.read()).await? {
            Standing::Behind => {
                if !self.held.swap(true, Ordering::SeqCst) {
                    tracing::error!(alert = true, "the store is older than it was seen to be; run `sendonce recover`");
                }
            }
            // What other nodes add to an older copy does not make it the one that we knew.
            Standing::Forth => {}
            Standing::Recovered => {
                if self.held.swap(false, Ordering::SeqCst) {
                    tracing::warn!("the store was recovered; the hold is lifted");
                }
            }
        }
        Ok(())
    }

    /// Remembers how far the store has come, unless it is held.
    pub(super) async fn remember(&self) -> Result<(), LedgerError> {
        let mut marker = self.marker.lock().await;
        let Some(mark) = marker.as_mut().filter(|_| !self.is_held()) else { return Ok(()) };
        let now = self.core.store.reader().high_water().await?;
        if mark.read() != Some(&now) {
            mark.write(&now)?;
            mark.sync()?;
        }
        Ok(())
    }

    /// After a restore: everything that is live becomes unknown, because the lost part of the history may have sent it.
    /// Says how many. Then the hold is lifted, on every node.
    ///
    /// # Errors
    /// When the store fails; the hold stays, and this can be repeated.
    pub async fn recover(&self, ticket: &Ticket) -> Result<u64, LedgerError> {
        let (mut after, mut total): (Option<NotificationId>, u64) = (None, 0);
        loop {
            let ids = self.core.store.reader().live(after, RELEASE_LIMIT).await?;
            let Some(last) = ids.last().copied() else { break };
            total += expect_reply!(self.command(Work::Restore(ids, ticket.clone()), false).await, Counted)?;
            after = Some(last);
        }
        self.core.store.nodes().succeed().await?;
        if let Some(mark) = self.marker.lock().await.as_mut() {
            mark.write(&self.core.store.reader().high_water().await?)?;
            mark.sync()?;
        }
        self.held.store(false, Ordering::SeqCst);
        Ok(total)
    }
}
