//! One configured provider with what is known of its health and its load.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::ids::{KeyedHash, ProviderName};
use crate::domain::outcome::{Outcome, Reason};
use crate::provider::{Abilities, Provider};

use super::breaker::{Breaker, BreakerSettings, Change, Standing};
use super::rate::Rate;

/// The bounds of one provider's lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaneSettings {
    /// Attempts under way at a time; at least 1.
    pub concurrency: u32,
    /// Attempts a second; `None` for no limit.
    pub rate: Option<f64>,
    /// Attempts that may leave at once under `rate`; at least 1.
    pub burst: u32,
    /// When the provider is left alone.
    pub breaker: BreakerSettings,
}

impl Default for LaneSettings {
    fn default() -> Self {
        Self { concurrency: 16, rate: None, burst: 1, breaker: BreakerSettings::default() }
    }
}

/// A provider, its bounds and its health.
pub(super) struct Station {
    pub provider: Arc<dyn Provider>,
    pub abilities: Arc<Abilities>,
    /// Rung when an attempt has ended.
    pub freed: Notify,
    load: Mutex<Load>,
}

struct Load {
    breaker: Breaker,
    rate: Rate,
    in_flight: u32,
}

/// One attempt's place in the lane; dropping it makes room.
pub(super) struct Slot(Arc<Station>);

impl Drop for Slot {
    fn drop(&mut self) {
        let mut load = self.0.load();
        load.in_flight = load.in_flight.saturating_sub(1);
        drop(load);
        self.0.freed.notify_one();
    }
}

impl Station {
    pub(super) fn new(provider: Arc<dyn Provider>, settings: &LaneSettings) -> Self {
        let load = Load {
            breaker: Breaker::new(settings.breaker, settings.concurrency),
            rate: Rate::new(settings.rate, settings.burst),
            in_flight: 0,
        };
        let abilities = Arc::new(provider.abilities().clone());
        Self { provider, abilities, freed: Notify::new(), load: Mutex::new(load) }
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> &ProviderName {
        self.provider.name()
    }

    /// How many attempts may begin at `now`.
    pub(super) fn budget(&self, now: Duration) -> u32 {
        let load = self.load();
        load.breaker.limit(now).saturating_sub(load.in_flight).min(load.rate.available(now))
    }

    /// How long nothing can begin for another reason than the attempts under way.
    pub(super) fn closed_for(&self, now: Duration) -> Duration {
        let load = self.load();
        load.rate.ready_at(now).max(load.breaker.half_open_at(now).unwrap_or(now)).saturating_sub(now)
    }

    /// Takes places for attempts that begin now.
    pub(super) fn enter(self: &Arc<Self>, now: Duration) -> Slot {
        let mut load = self.load();
        load.in_flight += 1;
        load.rate.spend(now, 1);
        Slot(self.clone())
    }

    pub(super) fn standing(&self, now: Duration) -> Standing {
        self.load().breaker.standing(now)
    }

    pub(super) fn admits(&self, now: Duration) -> bool {
        self.load().breaker.admits(now)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.load().in_flight
    }

    /// Learns from an outcome, and tells people where they are needed.
    pub(super) fn learn(&self, outcome: &Outcome, to: KeyedHash, now: Duration, draw: f64) {
        let change = {
            let mut load = self.load();
            if outcome.reason == Reason::RateLimited {
                load.rate.pause(now, outcome.retry_after);
            }
            load.breaker.learn(outcome, to, now, draw)
        };
        let (provider, reason) = (self.name(), outcome.reason);
        match change {
            Some(Change::Opened) => {
                tracing::error!(alert = true, %provider, %reason, "the breaker opened: messages wait or take another provider");
            }
            Some(Change::Reopened) => tracing::warn!(%provider, %reason, "the provider still fails"),
            Some(Change::Closed) => tracing::info!(%provider, "the breaker closed"),
            None if outcome.class == crate::domain::outcome::OutcomeClass::RefusedAccount => {
                tracing::error!(alert = true, %provider, %reason, "the provider refuses our account for one recipient");
            }
            None => {}
        }
    }
}
