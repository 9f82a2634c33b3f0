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
    /// Places that claims on their way may fill.
    promised: u32,
    /// What the metrics were told last.
    shown: Option<(Standing, u32)>,
}

/// Places that one claim may fill, for as long as nobody knows how many it does.
pub(super) struct Promise {
    station: Arc<Station>,
    places: Mutex<Places>,
}

/// What a claim was told last.
#[derive(Clone, Copy, Default)]
pub(super) struct Places {
    /// By the boot clock; before anything was claimed because of it.
    pub at: Duration,
    /// How many attempts may begin.
    pub count: u32,
    held: u32,
}

impl Promise {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises up to `most` of the places that are free at `at`, instead of what was promised before.
    pub(super) fn renew(&self, at: Duration, most: u32) -> u32 {
        let mut places = self.places();
        let mut load = self.station.load();
        load.promised = load.promised.saturating_sub(places.held);
        let count = load.budget(at).min(most);
        load.promised = load.promised.saturating_add(count);
        *places = Places { at, count, held: count };
        count
    }

    /// What was told last; nothing is promised any more.
    pub(super) fn redeem(&self) -> Places {
        let mut places = self.places();
        let mut load = self.station.load();
        load.promised = load.promised.saturating_sub(std::mem::take(&mut places.held));
        *places
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.redeem();
    }
}

impl Load {
    fn budget(&self, now: Duration) -> u32 {
        let taken = self.in_flight.saturating_add(self.promised);
        self.breaker.limit(now).saturating_sub(taken).min(self.rate.available(now).saturating_sub(self.promised))
    }

    fn closed_for(&self, now: Duration) -> Duration {
        self.rate.ready_at(now).max(self.breaker.half_open_at(now).unwrap_or(now)).saturating_sub(now)
    }
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
            promised: 0,
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
        self.load().budget(now)
    }

    /// Whether at least half of the places are free at `now`.
    pub(super) fn is_half_free(&self, now: Duration) -> bool {
        let load = self.load();
        load.budget(now).saturating_mul(2) >= load.breaker.limit(now).max(1)
    }

    /// Promises nothing yet.
    pub(super) fn promise(self: &Arc<Self>) -> Promise {
        Promise { station: self.clone(), places: Mutex::default() }
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
        let permits = load.breaker.limit(now);
        let told = Some((standing, permits));
        if load.shown != told {
            load.shown = told;
            let provider = || self.name().to_string();
            for state in Standing::ALL {
                let label = ByProviderState { provider: provider(), state: state.code() };
                metrics.breaker.get_or_create(&label).set((state == standing).into());
            }
            let label = ByProvider { provider: provider() };
            metrics.permits.get_or_create(&label).set(permits.into());
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::domain::content::Channel;
    use crate::provider::inbox::Inbox;
    use crate::provider::sandbox::{Sandbox, SandboxPace};
    use crate::vault::{IndexKey, new_key_line};

    const NOW: Duration = Duration::from_secs(100);

    fn station(settings: LaneSettings) -> (TempDir, Arc<Station>) {
        let place = TempDir::new().expect("a folder");
        let index = IndexKey::parse(&new_key_line("1")).expect("a key");
        let name = ProviderName::parse("sms").expect("a name");
        let (receipts, _) = Inbox::new(1);
        let outbox = place.path().join("outbox");
        let sandbox = Sandbox::build(name, Channel::Sms, &outbox, SandboxPace::default(), &index, receipts);
        (place, Arc::new(Station::new(Arc::new(sandbox.expect("a sandbox")), &settings)))
    }

    #[test]
    fn no_place_is_promised_to_two_claims() {
        let (_place, station) = station(LaneSettings { concurrency: 10, ..LaneSettings::default() });
        let (first, second) = (station.promise(), station.promise());
        assert_eq!((first.renew(NOW, 6), station.budget(NOW), second.renew(NOW, 100)), (6, 4, 4));
        assert_eq!((station.budget(NOW), station.promise().renew(NOW, 100)), (0, 0));
        // Three of six came: the rest of the promise is free again.
        let slots: Vec<Slot> = (0..3).map(|_| station.enter(NOW)).collect();
        assert_eq!((first.redeem().count, station.budget(NOW)), (6, 3));
        drop(slots);
        assert_eq!(station.budget(NOW), 6);
    }

    #[test]
    fn a_promise_that_is_renewed_or_given_up_keeps_nothing_of_what_it_was() {
        let (_place, station) = station(LaneSettings { concurrency: 10, ..LaneSettings::default() });
        let promise = station.promise();
        assert_eq!((promise.renew(NOW, 8), promise.renew(NOW, 3), station.budget(NOW)), (8, 3, 7));
        assert_eq!((promise.redeem().count, station.budget(NOW)), (3, 10));
        assert_eq!((promise.renew(NOW, 5), station.budget(NOW)), (5, 5));
        drop(promise);
        assert_eq!(station.budget(NOW), 10);
    }

    #[test]
    fn promises_count_against_the_rate_too() {
        let (_place, station) = station(LaneSettings { rate: Some(1.0), burst: 4, ..LaneSettings::default() });
        let promise = station.promise();
        assert_eq!((promise.renew(NOW, 3), station.budget(NOW)), (3, 1));
        let _slots: Vec<Slot> = (0..3).map(|_| station.enter(NOW)).collect();
        promise.redeem();
        assert_eq!(station.budget(NOW), 1);
    }
}
