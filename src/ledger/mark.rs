//! Noticing that the store was restored from an older copy, and releasing what was held because of it.

use std::sync::atomic::Ordering;

use crate::domain::ids::{NotificationId, Ticket};
use crate::store::mark::Mark;
use crate::store::rows::HighWater;
use crate::store::{Store, StoreError};

use super::committer::{Reply, Work};
use super::{Ledger, LedgerError, MISMATCH, expect_reply};

/// How many rows are released at once.
const RELEASE_LIMIT: u32 = 500;

/// The store has not come as far as it was seen to have, or is another one.
pub(super) async fn is_behind(store: &dyn Store, mark: Option<&Mark>) -> Result<bool, StoreError> {
    let Some(seen) = mark.and_then(|mark| mark.read().cloned()) else { return Ok(false) };
    Ok(is_older(&store.reader().high_water().await?, &seen))
}

fn is_older(now: &HighWater, seen: &HighWater) -> bool {
    now.incarnation != seen.incarnation || now.pos < seen.pos
}

impl Ledger {
    /// Whether everything is held until [`Ledger::recover`].
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    /// Remembers how far the store has come. Holds everything where it is behind what was seen before: a server can fail
    /// over to an older copy while we run.
    ///
    /// # Errors
    /// When the store cannot be read or the mark not written.
    pub async fn remember(&self) -> Result<(), LedgerError> {
        if self.is_held() {
            return Ok(());
        }
        let mut marker = self.marker.lock().await;
        if let Some(mark) = marker.as_mut() {
            let now = self.core.store.reader().high_water().await?;
            if mark.read().is_some_and(|seen| is_older(&now, seen)) {
                self.held.store(true, Ordering::SeqCst);
                tracing::error!(alert = true, "the store is older than it was seen to be; run `sendonce recover`");
            } else if mark.read() != Some(&now) {
                mark.write(&now)?;
                mark.sync()?;
            }
        }
        Ok(())
    }

    /// After a restore: everything that is live becomes unknown, because the lost part of the history may have sent it.
    /// Says how many. Then the hold is lifted.
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
        if let Some(mark) = self.marker.lock().await.as_mut() {
            mark.write(&self.core.store.reader().high_water().await?)?;
            mark.sync()?;
        }
        self.held.store(false, Ordering::SeqCst);
        Ok(total)
    }
}
