//! One attempt, from its claim to its stored outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::domain::outcome::{Outcome, Reason};
use crate::ledger::{Claimed, LedgerError};
use crate::metrics::{ByProvider, ByProviderResult};
use crate::provider::gate::Gate;
use crate::store::StoreError;

use super::shared::{AttemptKey, Shared};
use super::station::Slot;

/// Runs a claim that holds `slot` until its attempt has ended, in a task of its own: nobody can drop it half-way.
/// `claimed_at` is the boot clock before the claim was asked for.
pub(super) fn spawn(shared: &Arc<Shared>, claimed: Claimed, claimed_at: Duration, slot: Slot) {
    shared.running.begin((claimed.id, claimed.attempt));
    let shared = shared.clone();
    tokio::spawn(async move { run(&shared, claimed, claimed_at, slot).await });
}

async fn run(shared: &Arc<Shared>, claimed: Claimed, claimed_at: Duration, slot: Slot) {
    let key = (claimed.id, claimed.attempt);
    let (provider, address) = (claimed.provider.clone(), claimed.leg.address);
    let label = ByProvider { provider: provider.to_string() };
    shared.metrics.in_flight.get_or_create(&label).inc();
    let sending = AssertUnwindSafe(send(shared, claimed, claimed_at)).catch_unwind();
    let outcome = sending.await.unwrap_or_else(|_panic| {
        tracing::error!(alert = true, %provider, notification = %key.0, attempt = key.1, "an attempt panicked");
        Outcome::unknown(Reason::Panicked)
    });
    shared.running.ended(key, &outcome);
    let now = shared.clock.since_boot();
    let taken = now.saturating_sub(claimed_at).as_secs_f64();
    shared.metrics.in_flight.get_or_create(&label).dec();
    shared.metrics.send_seconds.get_or_create(&label).observe(taken);
    let result = outcome.class.code();
    shared.metrics.attempts.get_or_create(&ByProviderResult { provider: provider.to_string(), result }).inc();
    // Before the outcome is stored, so that the ledger sees the breaker that this outcome opened.
    if let Some(station) = shared.router.station(&provider) {
        station.learn(&outcome, address, now, (shared.draw)());
    }
    // The provider has room again, and what it takes next is claimed by the commit that stores this outcome.
    drop(slot);
    settle(shared, key, outcome).await;
}

/// Everything up to the provider's answer.
async fn send(shared: &Shared, claimed: Claimed, claimed_at: Duration) -> Outcome {
    if shared.is_draining() {
        return Outcome::never_began(Reason::Draining);
    }
    let Some(station) = shared.router.station(&claimed.provider) else {
        return Outcome::never_began(Reason::ProviderGone);
    };
    let Some(opened) = shared.desk.open(&claimed) else {
        tracing::error!(
            alert = true,
            notification = %claimed.id,
            "a sealed message does not open with the configured keys; it waits"
        );
        return Outcome::never_began(Reason::UnsealFailed);
    };
    let start_by = claimed_at.saturating_add(shared.settings.start_by);
    let gate = Gate::new(shared.clock.clone(), start_by, claimed.commit_by);
    station.provider.send(&claimed.dispatch(opened), &gate).await
}

/// Stores the outcome: the write is repeated, never the send. While it cannot be stored nothing new is claimed.
async fn settle(shared: &Shared, key: AttemptKey, outcome: Outcome) {
    let mut unstored = Unstored { shared, counted: false };
    let mut tries = 0_u8;
    loop {
        match shared.desk.settle(key.0, key.1, outcome.clone()).await {
            Ok(_) => break,
            // The store is closed: at the next start the attempt is found under way, and is unknown.
            Err(LedgerError::Stopping) => return,
            // This row alone is at fault; others go on.
            Err(error @ LedgerError::Store(StoreError::Refused(_) | StoreError::Corrupt { .. })) => {
                unstored.clear();
                if shared.may_tell() {
                    tracing::error!(alert = true, notification = %key.0, attempt = key.1, %error, "a result is refused by the store");
                }
            }
            Err(error) => {
                unstored.count();
                if shared.may_tell() {
                    let waiting = shared.unstored.load(Ordering::SeqCst);
                    tracing::error!(%error, waiting, "results cannot be stored; nothing new is sent");
                }
            }
        }
        tries = tries.saturating_add(1);
        tokio::time::sleep(shared.store_pause(tries)).await;
    }
    shared.running.settled(key);
    unstored.clear();
}

/// Counts a result as not stored, for as long as it is there.
struct Unstored<'a> {
    shared: &'a Shared,
    counted: bool,
}

impl Unstored<'_> {
    fn count(&mut self) {
        if !self.counted {
            self.counted = true;
            self.shared.unstored.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.shared.unstored.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Unstored<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
