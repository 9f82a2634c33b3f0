//! Which provider comes first, and which next.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;
use crate::ledger::Routes;
use crate::provider::{Abilities, Provider};
use crate::store::rows::Leg;

use super::breaker::Standing;
use super::station::{LaneSettings, Station};

/// The providers of one channel in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// For every address that `countries` does not name.
    pub default: Vec<ProviderName>,
    /// For phone numbers of one country (ISO 3166-1 alpha-2, upper case).
    pub countries: BTreeMap<[u8; 2], Vec<ProviderName>>,
}

/// Why providers and routes do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Two providers have one name.
    #[error("the provider `{0}` is configured twice")]
    Repeated(ProviderName),
    /// A route names a provider that is not configured.
    #[error("the route for {} names `{provider}`, which is not configured", .channel.code())]
    Unknown {
        /// The route's channel.
        channel: Channel,
        /// The name.
        provider: ProviderName,
    },
    /// A route names a provider of the other channel.
    #[error("the route for {} names `{provider}`, which is of the other channel", .channel.code())]
    WrongChannel {
        /// The route's channel.
        channel: Channel,
        /// The name.
        provider: ProviderName,
    },
}

/// The configured providers and the routes to them; the ledger asks it, the dispatcher runs it.
pub struct Router {
    clock: SharedClock,
    stations: BTreeMap<ProviderName, Arc<Station>>,
    routes: BTreeMap<Channel, Route>,
}

impl Router {
    /// Joins providers with the routes to them.
    ///
    /// # Errors
    /// [`RouteError`] when a route leads to a provider that is not there or is of the other channel.
    pub fn new(
        clock: SharedClock,
        providers: Vec<(Arc<dyn Provider>, LaneSettings)>,
        routes: BTreeMap<Channel, Route>,
    ) -> Result<Self, RouteError> {
        let mut stations = BTreeMap::new();
        for (provider, settings) in providers {
            let name = provider.name().clone();
            if stations.insert(name.clone(), Arc::new(Station::new(provider, &settings))).is_some() {
                return Err(RouteError::Repeated(name));
            }
        }
        for (channel, route) in &routes {
            for provider in route.countries.values().flatten().chain(&route.default) {
                let (channel, name) = (*channel, provider.clone());
                match stations.get(provider) {
                    None => return Err(RouteError::Unknown { channel, provider: name }),
                    Some(station) if station.provider.channel() != channel => {
                        return Err(RouteError::WrongChannel { channel, provider: name });
                    }
                    Some(_) => {}
                }
            }
        }
        Ok(Self { clock, stations, routes })
    }

    /// The provider of this name, for receipts and tests of a configuration.
    pub fn provider(&self, name: &ProviderName) -> Option<Arc<dyn Provider>> {
        self.stations.get(name).map(|station| station.provider.clone())
    }

    pub(super) fn station(&self, name: &ProviderName) -> Option<&Arc<Station>> {
        self.stations.get(name)
    }

    pub(super) fn stations(&self) -> impl Iterator<Item = &Arc<Station>> {
        self.stations.values()
    }

    fn route(&self, leg: &Leg) -> &[ProviderName] {
        let Some(route) = self.routes.get(&leg.channel) else { return &[] };
        leg.country.and_then(|country| route.countries.get(&country)).unwrap_or(&route.default)
    }

    fn is_closed(&self, provider: &ProviderName) -> bool {
        self.stations.get(provider).is_some_and(|s| s.standing(self.clock.since_boot()) == Standing::Closed)
    }

    /// Some route leads on from this provider to one that works.
    pub(super) fn has_alternative(&self, provider: &ProviderName) -> bool {
        let routes = self.routes.values().flat_map(|r| r.countries.values().chain([&r.default]));
        let mut rests = routes.filter_map(|r| r.iter().position(|p| p == provider).map(|at| &r[at + 1..]));
        rests.any(|rest| rest.iter().any(|p| self.is_closed(p)))
    }
}

impl Routes for Router {
    fn first(&self, leg: &Leg) -> Option<ProviderName> {
        let route = self.route(leg);
        let now = self.clock.since_boot();
        let admits = |p: &&ProviderName| self.stations.get(*p).is_some_and(|s| s.admits(now));
        route.iter().find(admits).or_else(|| route.first()).cloned()
    }

    fn after(&self, leg: &Leg, provider: &ProviderName) -> Option<ProviderName> {
        let route = self.route(leg);
        // A provider that was taken out of the route has all of it after it.
        let next = route.iter().position(|p| p == provider).map_or(0, |at| at + 1);
        route[next..].iter().find(|p| self.is_closed(p)).cloned()
    }

    fn abilities(&self, provider: &ProviderName) -> Option<Arc<Abilities>> {
        self.stations.get(provider).map(|station| station.abilities.clone())
    }

    fn is_open(&self, provider: &ProviderName) -> bool {
        !self.is_closed(provider)
    }

    fn has_room(&self, provider: &ProviderName) -> bool {
        self.stations.get(provider).is_some_and(|station| station.budget(self.clock.since_boot()) > 0)
    }
}
