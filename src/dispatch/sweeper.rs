//! Housekeeping on the side: the sweep, the numbers of live work, and the look at the clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::domain::ids::ProviderName;
use crate::domain::lifecycle::State;
use crate::domain::time::Timestamp;
use crate::ledger::LedgerError;
use crate::metrics::{ByProvider, ByProviderState};

use super::clockwatch::{ClockState, ClockWatch};
use super::shared::Shared;

/// A sweep may take this share of the time: one part in so many.
const SHARE: u32 = 20;

/// Sweeps in a row, where each found more than it could hold.
const IN_A_ROW: u32 = 20;

/// Time between two looks at the clocks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Sweeps until the drain begins.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut shown = BTreeSet::new();
    while !shared.is_draining() {
        if !shared.may_claim() {
            // As right after the start, before the clocks were looked at. The first sweep is soon due then.
            shared.desk.resign().await;
            shared.sleep(shared.settings.poll.min(shared.settings.sweep_every)).await;
            continue;
        }
        let began = shared.clock.since_boot();
        if let Err(error) = sweep(&shared, &mut shown).await
            && shared.may_tell()
        {
            tracing::error!(%error, "the sweep failed; it is tried again");
        }
        let taken = shared.clock.since_boot().saturating_sub(began);
        shared.sleep(shared.settings.sweep_every.max(taken.saturating_mul(SHARE))).await;
    }
}

async fn sweep(shared: &Shared, shown: &mut BTreeSet<(ProviderName, State)>) -> Result<(), LedgerError> {
    for _ in 0..IN_A_ROW {
        if !shared.desk.sweep().await? || !shared.may_claim() {
            break;
        }
    }
    if shared.desk.leads() {
        return show_work(shared, shown).await;
    }
    // One node shows the numbers of the store; they must not stand still on another.
    shared.metrics.work.clear();
    shared.metrics.lateness_seconds.clear();
    shown.clear();
    Ok(())
}

/// Shows how much work there is and how late it is. What has gone is shown as zero, not as its last value.
async fn show_work(shared: &Shared, shown: &mut BTreeSet<(ProviderName, State)>) -> Result<(), LedgerError> {
    let counts = shared.desk.work_counts().await?;
    let now = shared.clock.now();
    let mut work: BTreeMap<(ProviderName, State), u64> = shown.iter().map(|key| (key.clone(), 0)).collect();
    let stations = shared.router.stations().map(|station| station.name().clone());
    let mut late: BTreeMap<ProviderName, Timestamp> = stations.map(|name| (name, now)).collect();
    for count in counts {
        shown.insert((count.provider.clone(), count.state));
        if count.state.is_waiting() {
            let oldest = late.entry(count.provider.clone()).or_insert(now);
            *oldest = (*oldest).min(count.oldest_due);
        }
        work.insert((count.provider, count.state), count.count);
    }
    for ((provider, state), count) in work {
        let label = ByProviderState { provider: provider.to_string(), state: state.code() };
        shared.metrics.work.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    for (provider, oldest) in late {
        let label = ByProvider { provider: provider.to_string() };
        shared.metrics.lateness_seconds.get_or_create(&label).set(now.since(oldest).as_secs_f64());
    }
    Ok(())
}

/// Looks at the clocks until the drain begins.
pub(super) async fn watch_clocks(shared: Arc<Shared>) {
    let mut watch = ClockWatch::default();
    let mut before = ClockState::Steady;
    while !shared.is_draining() {
        // Read first: what is recorded while we look is later than the floor, never earlier than the wall clock.
        let floor = shared.desk.last_time().await.ok();
        let state = watch.look(shared.clock.now(), shared.clock.since_boot(), floor);
        shared.clock_steady.store(state == ClockState::Steady, Ordering::SeqCst);
        match (before, state) {
            (ClockState::Steady, ClockState::Jumped) => {
                tracing::error!(alert = true, "the wall clock jumped; nothing is sent or expired until it runs evenly");
            }
            (ClockState::Steady | ClockState::Jumped, ClockState::BehindStore) => {
                tracing::error!(alert = true, "the wall clock is behind the store; nothing is sent or expired");
            }
            (ClockState::Jumped | ClockState::BehindStore, ClockState::Steady) => {
                tracing::warn!("the wall clock is believed again");
            }
            _ => {}
        }
        before = state;
        shared.sleep(LOOK_EVERY).await;
    }
}
