//! What `kind.toml` says: which data a kind takes, and its bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;

/// The variable that every template has without declaring it: whole minutes until the token dies.
pub(super) const EXPIRES_MINUTES: &str = "expires_minutes";

/// The rules of a kind of message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindRules {
    #[serde(rename = "max_expires_in")]
    max_seconds: u64,
    pub(super) default_locale: String,
    /// Of these optional variables at least one must be given.
    #[serde(default)]
    pub(super) one_of: Vec<String>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, Variable>,
    /// The locales that have templates, as [`locale_tag`] tells them.
    #[serde(skip)]
    pub(super) locales: BTreeSet<String>,
}

impl KindRules {
    /// The longest that a token of this kind may live, counted from admission.
    pub const fn max_expires_in(&self) -> Duration {
        Duration::from_secs(self.max_seconds)
    }

    /// The locale taken when the wanted one has no templates; lower case.
    pub fn default_locale(&self) -> &str {
        &self.default_locale
    }

    /// The locale that serves `wanted`: the same, or the nearest shorter tag (RFC 4647 section 3.4), or the default.
    pub fn locale(&self, wanted: Option<&str>) -> &str {
        let mut tag = wanted.and_then(locale_tag).unwrap_or_default();
        loop {
            if let Some(found) = self.locales.get(&tag) {
                return found;
            }
            match tag.rfind('-') {
                Some(end) => tag.truncate(end),
                None => return &self.default_locale,
            }
        }
    }
}

/// One variable of a kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Variable {
    #[serde(rename = "type")]
    pub(super) class: Class,
    max_length: Option<usize>,
    #[serde(default = "yes")]
    pub(super) required: bool,
}

const fn yes() -> bool {
    true
}

/// What a variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    /// An absolute http or https URL (RFC 3986).
    Link,
    /// A word of visible ASCII that people type in.
    Code,
    /// One line of any text.
    Text,
}

impl Variable {
    /// The longest value, in characters.
    pub(super) fn max_length(&self) -> usize {
        let (usual, most) = match self.class {
            Class::Link => (2048, 4096),
            Class::Code => (32, 32),
            Class::Text => (100, 1000),
        };
        self.max_length.map_or(usual, |max| max.clamp(1, most))
    }
}

/// A locale as a BCP 47 tag (RFC 5646) of a language and subtags, in lower case.
pub(super) fn locale_tag(text: &str) -> Option<String> {
    let mut subtags = text.split(['-', '_']);
    let language = subtags.next()?;
    let alphanumeric = |s: &str, min| (min..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric());
    let fits = (2..=3).contains(&language.len())
        && language.bytes().all(|b| b.is_ascii_alphabetic())
        && subtags.all(|s| alphanumeric(s, 1))
        && text.len() <= 35;
    fits.then(|| text.to_ascii_lowercase().replace('_', "-"))
}
