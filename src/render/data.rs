//! Checks the data of a message against its kind.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::kind::{Class, KindRules, Variable};

/// Why a message was not rendered. It names what is wrong and never holds a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderRefusal {
    /// No such kind is configured.
    #[error("the kind is not known")]
    UnknownKind,
    /// A required variable is missing or empty.
    #[error("data must have `{0}`")]
    MissingVariable(String),
    /// None of these is there, and one is needed.
    #[error("data must have at least one of: {}", .0.join(", "))]
    NoneOf(Vec<String>),
    /// A member that the kind does not declare. Its name is told only if it looks like one.
    #[error("the kind has no variable for {}", .0.as_ref().map_or_else(|| "a member of data".to_owned(), |n| format!("`{n}`")))]
    UnknownVariable(Option<String>),
    /// A value of another JSON type.
    #[error("`{0}` must be a string")]
    NotAString(String),
    /// Longer than the kind allows.
    #[error("`{name}` is longer than {max} characters")]
    TooLong {
        /// The variable.
        name: String,
        /// The limit, in characters.
        max: usize,
    },
    /// A control character, line breaks included.
    #[error("`{0}` has a control character")]
    ControlCharacter(String),
    /// Not an absolute http or https URL of visible ASCII.
    #[error("`{0}` is not an absolute http or https URL in ASCII")]
    BadLink(String),
    /// Not one word of visible ASCII.
    #[error("`{0}` is not one word of visible ASCII characters")]
    BadCode(String),
    /// The SMS would be too long.
    #[error("the SMS would take {parts} parts and {max} are allowed")]
    TooManySmsParts {
        /// What it would take.
        parts: usize,
        /// What is allowed.
        max: u8,
    },
    /// The template does more work than is allowed.
    #[error("the template takes too much work to render")]
    TooMuchFuel,
    /// The template fails with this data, though it was sound when it was loaded.
    #[error("the template cannot be rendered")]
    Broken,
}

impl RenderRefusal {
    /// The member of `data` that is at fault, if it is one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::MissingVariable(name)
            | Self::NotAString(name)
            | Self::TooLong { name, .. }
            | Self::ControlCharacter(name)
            | Self::BadLink(name)
            | Self::BadCode(name)
            | Self::UnknownVariable(Some(name)) => Some(name),
            _ => None,
        }
    }
}

/// The value of every declared variable; an optional one that is not given is empty.
pub(super) type Checked<'a> = BTreeMap<&'a str, Zeroizing<String>>;

pub(super) fn check<'a>(rules: &'a KindRules, data: &Map<String, Value>) -> Result<Checked<'a>, RenderRefusal> {
    if let Some(name) = data.keys().find(|name| !rules.variables.contains_key(*name)) {
        return Err(RenderRefusal::UnknownVariable(plausible(name)));
    }
    let mut checked = Checked::new();
    for (name, variable) in &rules.variables {
        let text = match data.get(name) {
            None => "",
            Some(Value::String(text)) => text,
            Some(_) => return Err(RenderRefusal::NotAString(name.clone())),
        };
        if !text.is_empty() {
            check_value(name, variable, text)?;
        } else if variable.required {
            return Err(RenderRefusal::MissingVariable(name.clone()));
        }
        checked.insert(name, Zeroizing::new(text.to_owned()));
    }
    let given = |name: &String| checked.get(name.as_str()).is_some_and(|text| !text.is_empty());
    if rules.one_of.is_empty() || rules.one_of.iter().any(given) {
        Ok(checked)
    } else {
        Err(RenderRefusal::NoneOf(rules.one_of.clone()))
    }
}

/// A name may be a secret that stands in the wrong place, so only what looks like a name is told.
fn plausible(name: &str) -> Option<String> {
    let fits = (1..=40).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    fits.then(|| name.to_owned())
}

fn check_value(name: &str, variable: &Variable, text: &str) -> Result<(), RenderRefusal> {
    let max = variable.max_length();
    if text.chars().count() > max {
        return Err(RenderRefusal::TooLong { name: name.to_owned(), max });
    }
    if text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(RenderRefusal::ControlCharacter(name.to_owned()));
    }
    match variable.class {
        Class::Link if !is_link(text) => Err(RenderRefusal::BadLink(name.to_owned())),
        Class::Code if !text.bytes().all(|b| b.is_ascii_graphic()) => Err(RenderRefusal::BadCode(name.to_owned())),
        _ => Ok(()),
    }
}

/// The link arrives byte for byte, so only what must not stand in a message is refused, not every breach of RFC 3986.
fn is_link(text: &str) -> bool {
    let scheme_end = text.find("://").unwrap_or(0);
    let scheme = &text[..scheme_end];
    let host = text.get(scheme_end + 3..).and_then(|rest| rest.chars().next());
    (scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http"))
        && host.is_some_and(|c| c.is_ascii_alphanumeric() || c == '[')
        && text.bytes().all(|b| b.is_ascii_graphic())
}
