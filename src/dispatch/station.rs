//! One configured provider with what is known of its health and its load.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::domain::ids::{KeyedHash, ProviderName};
use crate::domain::outcome::{Outcome, Reason};
use crate::metrics::{ByProvider, ByProviderState, Metrics};
use crate::provider::{Abilities, Provider};

use super::LaneView;
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
    /// What the metrics were told last.
    shown: Option<(Standing, u32)>,
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

impl Load {
    fn closed_for(&self, now: Duration) -> Duration {
        self.rate.ready_at(now).max(self.breaker.half_open_at(now).unwrap_or(now)).saturating_sub(now)
    }
}

impl Station {
    pub(super) fn new(provider: Arc<dyn Provider>, settings: &LaneSettings) -> Self {
        let load = Load {
            breaker: Breaker::new(settings.breaker, settings.concurrency),
            rate: Rate::new(settings.rate, settings.burst),
            in_flight: 0,
            shown: None,
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
        self.load().closed_for(now)
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

    /// The same, told to the metrics too.
    pub(super) fn show(&self, metrics: &Metrics, now: Duration) -> Standing {
        let mut load = self.load();
        let standing = load.breaker.standing(now);
        let told = Some((standing, load.breaker.limit(now)));
        if load.shown != told {
            load.shown = told;
            let provider = || self.name().to_string();
            for state in Standing::ALL {
                let label = ByProviderState { provider: provider(), state: state.code() };
                metrics.breaker.get_or_create(&label).set((state == standing).into());
            }
            let label = ByProvider { provider: provider() };
            metrics.permits.get_or_create(&label).set(load.breaker.limit(now).into());
        }
        standing
    }

    /// How it does at `now`.
    pub(super) fn view(&self, now: Duration) -> LaneView {
        let load = self.load();
        LaneView {
            provider: self.name().clone(),
            channel: self.provider.channel(),
            breaker: load.breaker.standing(now),
            permits: load.breaker.limit(now),
            in_flight: load.in_flight,
            closed_for: load.closed_for(now),
        }
    }

    pub(super) fn admits(&self, now: Duration) -> bool {
        self.load().breaker.admits(now)
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
