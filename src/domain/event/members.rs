//! Takes an object apart, member by member, until nothing is left.

use std::collections::BTreeMap;
use std::str::FromStr;

use zeroize::Zeroizing;

use super::PostedAddress;
use super::{BadRequest, Expiry, MAX_ADDRESS, MAX_ADDRESSES, MAX_DATA, MAX_DATA_VALUE, MAX_LOCALE, MAX_USER};
use crate::domain::content::Channel;
use crate::domain::ids::BadName;
use crate::domain::strict_json::{Value, showable};
use crate::domain::time::Timestamp;

/// The members of an object that nobody has asked for yet.
pub struct Members(Vec<(String, Value)>);

/// What reading one member gives.
type Read<T> = Result<T, BadRequest>;

impl Members {
    /// The members of the body's object.
    ///
    /// # Errors
    /// [`BadRequest`] when it is something else.
    pub fn of(value: Value) -> Read<Self> {
        match value {
            Value::Object(members) => Ok(Self(members)),
            _ => Err(BadRequest { field: None, what: "must be a JSON object".to_owned() }),
        }
    }

    /// Reads `field` if it is there.
    ///
    /// # Errors
    /// What `read` says.
    pub fn optional<T>(&mut self, field: &str, read: impl FnOnce(&str, Value) -> Read<T>) -> Read<Option<T>> {
        match self.0.iter().position(|(name, _)| name == field) {
            Some(at) => read(field, self.0.swap_remove(at).1).map(Some),
            None => Ok(None),
        }
    }

    /// Reads `field`.
    ///
    /// # Errors
    /// [`BadRequest`] when it is missing, or what `read` says.
    pub fn required<T>(&mut self, field: &str, read: impl FnOnce(&str, Value) -> Read<T>) -> Read<T> {
        self.optional(field, read)?.ok_or_else(|| BadRequest::new(field, "is missing"))
    }

    /// Refuses what nobody asked for.
    ///
    /// # Errors
    /// [`BadRequest`] that names the first such member if its name looks like one.
    pub fn nothing_else(self) -> Read<()> {
        match self.0.first() {
            Some((name, _)) => Err(BadRequest::new(showable(name).unwrap_or("an unknown member"), "is not known here")),
            None => Ok(()),
        }
    }

    /// A text.
    ///
    /// # Errors
    /// [`BadRequest`] for another type.
    pub fn text(field: &str, value: Value) -> Read<Zeroizing<String>> {
        match value {
            Value::Text(text) => Ok(text),
            _ => Err(BadRequest::new(field, "must be a string")),
        }
    }

    /// A whole number from 1 on.
    ///
    /// # Errors
    /// [`BadRequest`] for anything else.
    pub fn count(field: &str, value: Value) -> Read<u64> {
        match value {
            Value::Whole(number @ 1..) => Ok(number),
            _ => Err(BadRequest::new(field, "must be a whole number from 1 on")),
        }
    }

    /// A name of ours.
    ///
    /// # Errors
    /// [`BadRequest`] for another type or form.
    pub fn name<T: FromStr<Err = BadName>>(field: &str, value: Value) -> Read<T> {
        Self::text(field, value)?.parse().map_err(|e: BadName| BadRequest::new(field, e.to_string()))
    }

    /// An RFC 3339 time.
    ///
    /// # Errors
    /// [`BadRequest`] for another type or form.
    pub fn time(field: &str, value: Value) -> Read<Timestamp> {
        Timestamp::parse_rfc3339(&Self::text(field, value)?).map_err(|e| BadRequest::new(field, e.to_string()))
    }
}

pub(super) fn addresses(field: &str, value: Value) -> Read<Vec<PostedAddress>> {
    match value {
        Value::Object(_) => Ok(vec![address(field, value)?]),
        Value::List(items) if (1..=MAX_ADDRESSES).contains(&items.len()) => {
            items.into_iter().enumerate().map(|(i, item)| address(&format!("{field}[{i}]"), item)).collect()
        }
        Value::List(_) => Err(BadRequest::new(field, format!("must name 1 to {MAX_ADDRESSES} addresses"))),
        _ => Err(BadRequest::new(field, "must be an address object or a list of them")),
    }
}

fn address(field: &str, value: Value) -> Read<PostedAddress> {
    let wrong = || BadRequest::new(field, "must be an object with exactly one member: sms or email");
    let Value::Object(members) = value else { return Err(wrong()) };
    let [(name, value)] = <[_; 1]>::try_from(members).map_err(|_| wrong())?;
    let channel = match name.as_str() {
        "sms" => Channel::Sms,
        "email" => Channel::Email,
        _ => return Err(wrong()),
    };
    let field = format!("{field}.{name}");
    let text = Members::text(&field, value)?;
    if text.is_empty() || text.len() > MAX_ADDRESS {
        return Err(BadRequest::new(field, format!("must have 1 to {MAX_ADDRESS} bytes")));
    }
    Ok(PostedAddress { channel, text })
}

/// Language tags by their outer form (RFC 5646 section 2.1): alphanumeric subtags of 1 to 8, the first one of letters.
pub fn is_locale(text: &str) -> bool {
    let mut subtags = text.split('-');
    let first_ok =
        subtags.next().is_some_and(|s| (2..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphabetic()));
    let rest_ok = subtags.all(|s| (1..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric()));
    text.len() <= MAX_LOCALE && first_ok && rest_ok
}

pub(super) fn locale(field: &str, value: Value) -> Read<String> {
    let text = Members::text(field, value)?;
    if is_locale(&text) {
        Ok(text.to_string())
    } else {
        Err(BadRequest::new(field, "is not a language tag such as en or pt-BR"))
    }
}

pub(super) fn data(field: &str, value: Value) -> Read<BTreeMap<String, Zeroizing<String>>> {
    let Value::Object(members) = value else { return Err(BadRequest::new(field, "must be an object of strings")) };
    if members.len() > MAX_DATA {
        return Err(BadRequest::new(field, format!("has more than {MAX_DATA} members")));
    }
    let member = |(name, value)| match value {
        Value::Text(text) if text.len() <= MAX_DATA_VALUE => Ok((name, text)),
        Value::Text(_) => Err(BadRequest::new("a member of data", format!("is longer than {MAX_DATA_VALUE} bytes"))),
        _ => Err(BadRequest::new("a member of data", "must be a string")),
    };
    members.into_iter().map(member).collect()
}

pub(super) fn user(field: &str, value: Value) -> Read<Zeroizing<String>> {
    let text = Members::text(field, value)?;
    if text.is_empty() || text.chars().count() > MAX_USER {
        return Err(BadRequest::new(field, format!("must have 1 to {MAX_USER} characters")));
    }
    Ok(text)
}

pub(super) fn expiry(m: &mut Members) -> Read<Expiry> {
    let at = m.optional("expires_at", Members::time)?;
    let within = m.optional("expires_in", Members::count)?;
    match (at, within) {
        (Some(time), None) => Ok(Expiry::At(time)),
        (None, Some(seconds)) => Ok(Expiry::In(seconds)),
        (Some(_), Some(_)) => Err(BadRequest::new("expires_in", "may not stand beside expires_at")),
        (None, None) => Err(BadRequest::new("expires_at", "or expires_in is missing")),
    }
}
