//! `[routes]`: which providers serve which addresses, in order.

use std::collections::BTreeMap;
use std::fmt;

use super::provider::ProviderSettings;
use crate::document::{Mistakes, Place, Table, Value};
use crate::domain::content::Channel;
use crate::domain::ids::Kind;
use crate::domain::route::{Hop, Route, RouteTable, Scope};

/// A country by its ISO 3166-1 alpha-2 code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

/// A text is no country code. It does not hold the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be two capital letters, such as \"VN\" (ISO 3166-1 alpha-2)")]
pub struct NotACountry;

impl Country {
    /// Reads two capital letters.
    ///
    /// # Errors
    /// [`NotACountry`] for any other text.
    pub fn parse(text: &str) -> Result<Self, NotACountry> {
        match *text.as_bytes() {
            [a, b] if a.is_ascii_uppercase() && b.is_ascii_uppercase() => Ok(Self([a, b])),
            _ => Err(NotACountry),
        }
    }

    /// The two letters.
    pub const fn code(self) -> [u8; 2] {
        self.0
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", char::from(self.0[0]), char::from(self.0[1]))
    }
}

/// A list of countries; what is none is told.
pub(super) fn read_countries(t: &mut Table) -> Vec<Country> {
    read_list(t, "countries", Country::parse).unwrap_or_default()
}

fn read_list<T, E: fmt::Display>(t: &mut Table, key: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<Vec<T>> {
    let texts = t.strs_at(key)?;
    let read = |(text, place): &(String, Place)| parse(text).map_err(|e| t.mistakes().add(place, e.to_string())).ok();
    Some(texts.iter().filter_map(read).collect())
}

/// Reads `[routes]`: the route of each channel, and in each `[[routes.rule]]` those that stand above it for some kinds and
/// countries. Every name in a route is a configured provider of its channel, once in each list.
pub(super) fn read(mut t: Table, providers: &[ProviderSettings]) -> RouteTable {
    let mut reader = Reader { providers, table: RouteTable::default(), places: BTreeMap::new() };
    reader.add(&mut t, &[None], &[None]);
    if !t.had("sms") && !t.had("email") {
        t.wrong("sms", "`sms` or `email` is required; without them no message leaves");
    }
    for mut rule in t.tables("rule") {
        let mut kinds = each_or_all(read_list(&mut rule, "kinds", Kind::parse));
        let countries = each_or_all(read_list(&mut rule, "countries", Country::parse));
        if kinds.is_empty() || countries.is_empty() || (kinds == [None] && countries == [None]) {
            rule.wrong("kinds", "`kinds` or `countries` must say which messages the rule is for");
            kinds.clear();
        }
        reader.add(&mut rule, &kinds, &countries);
        if !rule.had("sms") && !rule.had("email") {
            rule.wrong("sms", "`sms` or `email` is required");
        }
        rule.finish();
    }
    reader.tell_clashes(&t);
    t.finish();
    reader.table
}

fn each_or_all<T>(some: Option<Vec<T>>) -> Vec<Option<T>> {
    some.map_or_else(|| vec![None], |some| some.into_iter().map(Some).collect())
}

struct Reader<'p> {
    providers: &'p [ProviderSettings],
    table: RouteTable,
    /// Where a country has the route for all kinds.
    places: BTreeMap<[u8; 2], Place>,
}

impl Reader<'_> {
    /// Adds the routes of one table, for each of these kinds to each of these countries.
    fn add(&mut self, t: &mut Table, kinds: &[Option<Kind>], countries: &[Option<Country>]) {
        for channel in [Channel::Sms, Channel::Email] {
            let key = channel.code();
            let Some(values) = t.list(key) else { continue };
            if channel == Channel::Email && countries.iter().any(Option::is_some) {
                t.wrong(key, "cannot be told apart by `countries`, which only phone numbers have");
                continue;
            }
            let route = read_route(values, channel, self.providers, &t.mistakes());
            let mut is_new = true;
            for (kind, country) in kinds.iter().flat_map(|kind| countries.iter().map(move |country| (kind, country))) {
                let country = country.map(Country::code);
                if let (None, Some(country)) = (kind, country) {
                    self.places.insert(country, t.place_of(key));
                }
                is_new &= self.table.insert(Scope { channel, kind: kind.clone(), country }, route.clone());
            }
            if !is_new {
                t.wrong(key, "is a second route for the same messages");
            }
        }
    }

    fn tell_clashes(&self, t: &Table) {
        for Scope { kind, country, .. } in self.table.clashes() {
            let (Some(kind), Some(code)) = (kind, country) else { continue };
            let place = self.places.get(&code).cloned().unwrap_or_else(|| t.place_of("rule"));
            let country = Country(code);
            let message = format!(
                "a message of the kind `{kind}` to {country:?} has a rule by its kind and this one by its country, and \
                 neither is more specific; add one for both"
            );
            t.mistakes().add(&place, message);
        }
    }
}

fn read_route(values: Vec<Value>, channel: Channel, providers: &[ProviderSettings], mistakes: &Mistakes) -> Route {
    let mut hops: Vec<Hop> = vec![];
    for (text, place, weight) in values.into_iter().filter_map(|value| read_hop(value, mistakes)) {
        match providers.iter().find(|p| p.name.as_str() == text) {
            None => mistakes.add(&place, "names a provider that has no [provider.NAME] section"),
            Some(p) if p.channel().is_some_and(|c| c != channel) => {
                mistakes.add(&place, format!("names a provider that does not carry {}", channel.code()));
            }
            Some(p) if hops.iter().any(|hop| hop.provider == p.name) => {
                mistakes.add(&place, "names a provider a second time");
            }
            Some(p) => hops.push(Hop { provider: p.name.clone(), weight }),
        }
    }
    Route::new(hops)
}

/// A provider's name, or a table of `provider` and `weight`.
fn read_hop(value: Value, mistakes: &Mistakes) -> Option<(String, Place, u16)> {
    let place = value.place().clone();
    if let Some(name) = value.as_str() {
        return Some((name.to_owned(), place, 0));
    }
    let Some(mut t) = value.into_table() else {
        mistakes.add(&place, "must be a provider's name, or such as { provider = \"NAME\", weight = 3 }");
        return None;
    };
    let (provider, weight) = (t.need_str("provider"), t.need_int("weight", 1..=1000));
    let place = t.place_of("provider");
    t.finish();
    (!provider.is_empty()).then_some((provider, place, weight))
}
