//! Routes: which providers serve a message, and in which order.

use std::collections::BTreeMap;

use super::content::Channel;
use super::ids::{Kind, NotificationId, ProviderName};

/// One provider of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Which one.
    pub provider: ProviderName,
    /// Its share of the notifications that begin with one of the weighted hops of its route; 0: none begins here as long
    /// as another hop has a weight.
    pub weight: u16,
}

/// Providers in the order in which they are tried. Where some of them have weights, one of these comes first, another for
/// each notification but the same for all attempts of one; the rest follow as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route(Vec<Hop>);

impl Route {
    /// A route over these; no provider stands in it twice.
    pub fn new(hops: Vec<Hop>) -> Self {
        Self(hops)
    }

    /// A route without weights.
    pub fn in_order(providers: impl IntoIterator<Item = ProviderName>) -> Self {
        Self(providers.into_iter().map(|provider| Hop { provider, weight: 0 }).collect())
    }

    /// Its providers as they are written. None: nothing is sent this way.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderName> {
        self.0.iter().map(|hop| &hop.provider)
    }

    /// The order for one notification: it hangs on nothing but the route and the id.
    pub fn order(&self, id: NotificationId) -> impl Iterator<Item = &ProviderName> + Clone {
        self.beginning_with(self.head(id))
    }

    /// Whoever comes after `provider` in the order of some notification; each once or more often.
    pub fn may_follow(&self, provider: &ProviderName) -> impl Iterator<Item = &ProviderName> {
        let weighted = self.0.iter().any(|hop| hop.weight > 0);
        let heads = (0..self.0.len()).filter(move |at| if weighted { self.0[*at].weight > 0 } else { *at == 0 });
        heads.flat_map(move |head| self.beginning_with(head).skip_while(move |p| *p != provider).skip(1))
    }

    fn beginning_with(&self, head: usize) -> impl Iterator<Item = &ProviderName> + Clone {
        let others = self.0.iter().enumerate().filter(move |(at, _)| *at != head).map(|(_, hop)| hop);
        self.0.get(head).into_iter().chain(others).map(|hop| &hop.provider)
    }

    /// Divides the range of draws among the weights.
    fn head(&self, id: NotificationId) -> usize {
        let total: u128 = self.0.iter().map(|hop| u128::from(hop.weight)).sum();
        let mut at = (u128::from(id.draw()) * total) >> NotificationId::DRAW_BITS;
        for (head, hop) in self.0.iter().enumerate() {
            match at.checked_sub(hop.weight.into()) {
                Some(rest) => at = rest,
                None => return head,
            }
        }
        0
    }
}

/// Which messages a route is for. `None` is all of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Phone or mail.
    pub channel: Channel,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only to phone numbers of this country (ISO 3166-1 alpha-2, upper case).
    pub country: Option<[u8; 2]>,
}

/// All routes. The most specific one serves: of kind and country before either alone, and these before the channel's.
#[derive(Clone, Debug, Default)]
pub struct RouteTable(BTreeMap<(Channel, Option<[u8; 2]>), ByKind>);

#[derive(Clone, Debug, Default)]
struct ByKind {
    any: Option<Route>,
    kinds: BTreeMap<Kind, Route>,
}

impl RouteTable {
    /// Adds a route; `false` where there is one for the same already.
    pub fn insert(&mut self, scope: Scope, route: Route) -> bool {
        let routes = self.0.entry((scope.channel, scope.country)).or_default();
        match scope.kind {
            Some(kind) => routes.kinds.insert(kind, route).is_none(),
            None => routes.any.replace(route).is_none(),
        }
    }

    /// The route of a message. In a table without [`clashes`](Self::clashes) there is one that is the most specific.
    pub fn find(&self, channel: Channel, kind: &Kind, country: Option<[u8; 2]>) -> Option<&Route> {
        let everywhere = self.0.get(&(channel, None));
        let there = country.and_then(|country| self.0.get(&(channel, Some(country))));
        let of_kind = [there, everywhere].into_iter().flatten().find_map(|routes| routes.kinds.get(kind));
        of_kind.or_else(|| [there, everywhere].into_iter().flatten().find_map(|routes| routes.any.as_ref()))
    }

    /// Messages for which a route of their kind and one of their country stand against each other, and none is for both.
    pub fn clashes(&self) -> Vec<Scope> {
        let mut clashes = vec![];
        for ((channel, country), there) in
            self.0.iter().filter(|((_, country), there)| country.is_some() && there.any.is_some())
        {
            let kinds = self.0.get(&(*channel, None)).into_iter().flat_map(|everywhere| everywhere.kinds.keys());
            let open = kinds.filter(|kind| !there.kinds.contains_key(*kind));
            clashes.extend(open.map(|kind| Scope { channel: *channel, kind: Some(kind.clone()), country: *country }));
        }
        clashes
    }

    /// Every route, with its channel.
    pub fn routes(&self) -> impl Iterator<Item = (Channel, &Route)> {
        self.0.iter().flat_map(|((channel, _), routes)| {
            routes.any.iter().chain(routes.kinds.values()).map(move |route| (*channel, route))
        })
    }

    /// Every kind that a route is for, once or more often.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.0.values().flat_map(|routes| routes.kinds.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::Timestamp;
    use super::*;

    fn name(text: &str) -> ProviderName {
        ProviderName::parse(text).expect("a name")
    }

    fn kind(text: &str) -> Kind {
        Kind::parse(text).expect("a kind")
    }

    fn route(hops: &[(&str, u16)]) -> Route {
        Route::new(hops.iter().map(|(provider, weight)| Hop { provider: name(provider), weight: *weight }).collect())
    }

    fn order(route: &Route, id: NotificationId) -> Vec<&str> {
        route.order(id).map(ProviderName::as_str).collect()
    }

    /// `n` ids whose random parts lie evenly over their whole range.
    fn even_ids(n: u64) -> impl Iterator<Item = NotificationId> {
        (0..n).map(move |i| {
            let mut random = [0; 10];
            let middle = (u128::from(2 * i + 1) << (NotificationId::DRAW_BITS - 1)) / u128::from(n);
            random[2..].copy_from_slice(&u64::try_from(middle).expect("in range").to_be_bytes());
            NotificationId::new(Timestamp::from_micros(1_795_000_000_000_000), random)
        })
    }

    #[test]
    fn of_even_draws_each_provider_begins_with_its_exact_share_and_the_rest_follow_as_written() {
        let route = route(&[("a", 3), ("spare", 0), ("b", 1)]);
        let orders: Vec<_> = even_ids(1000).map(|id| order(&route, id)).collect();
        let begin = |with: &[&str]| orders.iter().filter(|order| *order == with).count();
        assert_eq!((begin(&["a", "spare", "b"]), begin(&["b", "a", "spare"])), (750, 250));
    }

    #[test]
    fn without_weights_the_order_is_as_written_for_all() {
        let route = route(&[("a", 0), ("b", 0), ("c", 0)]);
        assert!(even_ids(100).all(|id| order(&route, id) == ["a", "b", "c"]));
        assert!(even_ids(3).all(|id| order(&Route::default(), id).is_empty()));
    }

    #[test]
    fn the_highest_draw_still_begins_somewhere() {
        let last = NotificationId::new(Timestamp::from_micros(1), [0xff; 10]);
        assert_eq!(order(&route(&[("a", u16::MAX), ("b", u16::MAX)]), last), ["b", "a"]);
    }

    #[test]
    fn whoever_may_follow_does_so_in_some_order() {
        let follow = |route: &Route, after: &str| {
            let mut all: Vec<_> = route.may_follow(&name(after)).map(ToString::to_string).collect();
            all.sort();
            all.dedup();
            all
        };
        let plain = route(&[("a", 0), ("b", 0)]);
        assert_eq!((follow(&plain, "a"), follow(&plain, "b")), (vec!["b".to_owned()], vec![]));
        let weighted = route(&[("a", 1), ("b", 1), ("c", 0)]);
        assert_eq!(follow(&weighted, "b"), ["a", "c"]);
        assert_eq!(follow(&weighted, "c"), [""; 0]);
        assert_eq!(follow(&weighted, "gone"), [""; 0]);
        let one = route(&[("a", 0), ("b", 1), ("c", 0)]);
        assert_eq!(follow(&one, "a"), ["c"], "b always comes first");
    }

    #[test]
    fn the_most_specific_route_serves() {
        let scope = |kind: Option<&str>, country: Option<[u8; 2]>| Scope {
            channel: Channel::Sms,
            kind: kind.map(|text| Kind::parse(text).expect("a kind")),
            country,
        };
        let mut table = RouteTable::default();
        for (scope, to) in [
            (scope(None, None), "channel"),
            (scope(Some("login"), None), "kind"),
            (scope(None, Some(*b"VN")), "country"),
            (scope(Some("login"), Some(*b"VN")), "both"),
        ] {
            assert!(table.insert(scope.clone(), Route::in_order([name(to)])));
            assert!(!table.clone().insert(scope, Route::default()), "{to}");
        }
        let find = |channel, of: &str, country| {
            table.find(channel, &kind(of), country).and_then(|route| route.providers().next()).map(ProviderName::as_str)
        };
        assert_eq!(find(Channel::Sms, "reset", None), Some("channel"));
        assert_eq!(find(Channel::Sms, "reset", Some(*b"GB")), Some("channel"));
        assert_eq!(find(Channel::Sms, "login", Some(*b"GB")), Some("kind"));
        assert_eq!(find(Channel::Sms, "reset", Some(*b"VN")), Some("country"));
        assert_eq!(find(Channel::Sms, "login", Some(*b"VN")), Some("both"));
        assert_eq!(find(Channel::Email, "login", None), None);
        assert_eq!(table.clashes(), []);
        assert_eq!(table.routes().count(), 4);
        assert_eq!(table.kinds().collect::<Vec<_>>(), [&kind("login"); 2], "everywhere and in one country");

        let mut table = RouteTable::default();
        table.insert(scope(None, Some(*b"VN")), Route::default());
        table.insert(scope(Some("login"), None), Route::default());
        assert_eq!(table.clashes(), [scope(Some("login"), Some(*b"VN"))], "neither is more specific");

        let mut table = RouteTable::default();
        table.insert(scope(Some("reset"), Some(*b"VN")), Route::default());
        table.insert(scope(Some("login"), None), Route::default());
        assert_eq!(table.clashes(), [], "what is not for its kind in a country goes by the route for everywhere");
    }
}
