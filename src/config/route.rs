//! `[routes]`: which providers serve which addresses, in order.

use std::collections::BTreeMap;
use std::fmt;

use super::provider::ProviderSettings;
use crate::document::{Mistakes, Place, Table};
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;

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

/// `[routes]`. Every name in it is a configured provider, once in each list.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// For text messages to countries without a route of their own. Empty: none.
    pub sms: Vec<ProviderName>,
    /// For mail. Empty: none.
    pub email: Vec<ProviderName>,
    /// `[[routes.country]]`: for text messages to one country; an empty list sends nothing there.
    pub countries: BTreeMap<Country, Vec<ProviderName>>,
}

impl Routes {
    pub(super) fn read(mut t: Table, providers: &[ProviderSettings]) -> Self {
        let read = |t: &mut Table, key, channel| {
            let names = t.strs_at(key).unwrap_or_default();
            read_route(&names, channel, providers, &t.mistakes())
        };
        let mut routes = Self {
            sms: read(&mut t, "sms", Channel::Sms),
            email: read(&mut t, "email", Channel::Email),
            countries: BTreeMap::new(),
        };
        for mut entry in t.tables("country") {
            if !entry.has("country") || !entry.has("sms") {
                entry.wrong("country", "`country` and `sms` are required");
            }
            let country = entry.parsed("country", Country::parse);
            let route = read(&mut entry, "sms", Channel::Sms);
            if country.is_some_and(|c| routes.countries.insert(c, route).is_some()) {
                entry.wrong("country", "has two routes");
            }
            entry.finish();
        }
        if !t.had("sms") && !t.had("email") {
            t.wrong("sms", "`sms` or `email` is required; without them no message leaves");
        }
        t.finish();
        routes
    }
}

fn read_route(
    names: &[(String, Place)],
    channel: Channel,
    providers: &[ProviderSettings],
    mistakes: &Mistakes,
) -> Vec<ProviderName> {
    let mut route: Vec<ProviderName> = vec![];
    for (text, place) in names {
        match providers.iter().find(|p| p.name.as_str() == text) {
            None => mistakes.add(place, "names a provider that has no [provider.NAME] section"),
            Some(p) if p.channel().is_some_and(|c| c != channel) => {
                mistakes.add(place, format!("names a provider that does not carry {}", channel.code()));
            }
            Some(p) if route.contains(&p.name) => mistakes.add(place, "names a provider a second time"),
            Some(p) => route.push(p.name.clone()),
        }
    }
    route
}
