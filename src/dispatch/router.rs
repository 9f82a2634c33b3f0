//! Which provider comes first, and which next.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::SharedClock;
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;
use crate::domain::route::RouteTable;
use crate::ledger::{Routes, RoutingKey};
use crate::provider::{Abilities, Provider};

use super::LaneView;
use super::breaker::Standing;
use super::station::{LaneSettings, Station};

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
    routes: RouteTable,
}

impl Router {
    /// Joins providers with the routes to them.
    ///
    /// # Errors
    /// [`RouteError`] when a route leads to a provider that is not there or is of the other channel.
    pub fn new(
        clock: SharedClock,
        providers: Vec<(Arc<dyn Provider>, LaneSettings)>,
        routes: RouteTable,
    ) -> Result<Self, RouteError> {
        let mut stations = BTreeMap::new();
        for (provider, settings) in providers {
            let name = provider.name().clone();
            if stations.insert(name.clone(), Arc::new(Station::new(provider, &settings))).is_some() {
                return Err(RouteError::Repeated(name));
            }
        }
        for (channel, route) in routes.routes() {
            for provider in route.providers() {
                let name = provider.clone();
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

    /// How the lanes do, in the order of their names.
    pub fn lanes(&self) -> Vec<LaneView> {
        let now = self.clock.since_boot();
        self.stations().map(|station| station.view(now)).collect()
    }

    pub(super) fn station(&self, name: &ProviderName) -> Option<&Arc<Station>> {
        self.stations.get(name)
    }

    pub(super) fn stations(&self) -> impl Iterator<Item = &Arc<Station>> {
        self.stations.values()
    }

    /// The providers that may serve this message, in order.
    fn order(&self, key: &RoutingKey<'_>) -> impl Iterator<Item = &ProviderName> + Clone {
        let route = self.routes.find(key.leg.channel, key.kind, key.leg.country);
        route.into_iter().flat_map(|route| route.order(key.id))
    }

    fn is_closed(&self, provider: &ProviderName) -> bool {
        self.stations.get(provider).is_some_and(|s| s.standing(self.clock.since_boot()) == Standing::Closed)
    }

    /// Some route leads on from this provider to one that works.
    pub(super) fn has_alternative(&self, provider: &ProviderName) -> bool {
        self.routes.routes().any(|(_, route)| route.may_follow(provider).any(|next| self.is_closed(next)))
    }
}

impl Routes for Router {
    fn first(&self, key: &RoutingKey<'_>) -> Option<ProviderName> {
        let mut order = self.order(key);
        let now = self.clock.since_boot();
        let admits = |p: &&ProviderName| self.stations.get(*p).is_some_and(|s| s.admits(now));
        order.clone().find(admits).or_else(|| order.next()).cloned()
    }

    fn after(&self, key: &RoutingKey<'_>, provider: &ProviderName) -> Option<ProviderName> {
        let order = self.order(key);
        // A provider that was taken out of the route has all of it after it.
        let next = order.clone().position(|p| p == provider).map_or(0, |at| at + 1);
        order.skip(next).find(|p| self.is_closed(p)).cloned()
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
