//! The request that an app posts: read strictly, not yet judged.
//!
//! Reading needs nothing but the bytes, so what is refused here can never have been taken, under any configuration.
//! Judging (is the kind known, is there time left, do the data fit) comes afterwards.

mod members;

use std::collections::BTreeMap;
use std::fmt;

use zeroize::Zeroizing;

use super::content::Channel;
use super::ids::{EventId, IdempotencyKey, Kind};
use super::strict_json::{self, NotStrict};
use super::time::Timestamp;
pub use members::{Members, is_locale};

/// The most addresses that one event may name.
pub const MAX_ADDRESSES: usize = 8;
/// The most members of `data`.
pub const MAX_DATA: usize = 32;
/// The longest value in `data`, in bytes.
pub const MAX_DATA_VALUE: usize = 4096;
/// The longest `user`, in characters.
pub const MAX_USER: usize = 256;
/// The longest `locale`: the length that RFC 5646 section 4.4.1 asks implementations to hold.
pub const MAX_LOCALE: usize = 35;
/// The longest address that is looked at, in bytes; real ones are shorter still.
const MAX_ADDRESS: usize = 320;
/// Values of `data` from this length on may not stand in names that are kept in clear.
const TELLING: usize = 4;

/// Why a request is not one. It names a field and never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// The field, where there is one: `to[1].sms`, `a member of data`.
    pub field: Option<String>,
    /// What is wrong with it, to be read after the field's name.
    pub what: String,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field.as_deref().unwrap_or("the body"), self.what)
    }
}

impl std::error::Error for BadRequest {}

impl BadRequest {
    /// Something is wrong with `field`.
    pub fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { field: Some(field.into()), what: what.into() }
    }
}

impl From<NotStrict> for BadRequest {
    fn from(e: NotStrict) -> Self {
        Self { field: e.place().filter(|place| !place.is_empty()).map(str::to_owned), what: e.to_string() }
    }
}

/// An address as it was posted. Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PostedAddress {
    /// Under which name it stood.
    pub channel: Channel,
    /// The text.
    pub text: Zeroizing<String>,
}

/// When the token dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At this time.
    At(Timestamp),
    /// So many seconds after admission; at least 1.
    In(u64),
}

/// One posted event.
#[derive(Clone, PartialEq, Eq)]
pub struct EventRequest {
    /// The app's name for it.
    pub event_id: EventId,
    /// Kind of message.
    pub kind: Kind,
    /// The addresses in their order; 1 to [`MAX_ADDRESSES`].
    pub to: Vec<PostedAddress>,
    /// The wanted language (of the form of RFC 5646).
    pub locale: Option<String>,
    /// The values for the template. Secret.
    pub data: BTreeMap<String, Zeroizing<String>>,
    /// The person, as the app names them.
    pub user: Option<Zeroizing<String>>,
    /// When the token dies.
    pub expiry: Expiry,
    /// When the event happened, where the app says so.
    pub occurred_at: Option<Timestamp>,
}

impl fmt::Debug for EventRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRequest")
            .field("event_id", &self.event_id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl EventRequest {
    /// Reads the body of `POST /v1/notifications`.
    ///
    /// # Errors
    /// [`BadRequest`], which names the field.
    pub fn parse(body: &[u8]) -> Result<Self, BadRequest> {
        let request = Self::read(Members::of(strict_json::parse(body)?)?)?;
        request.check_event_id()?;
        Ok(request)
    }

    /// Reads one line of `POST /v1/notifications:batch`: such a body, with its key as the member `idempotency_key`.
    ///
    /// # Errors
    /// [`BadRequest`], which names the field.
    pub fn parse_line(line: &[u8]) -> Result<(IdempotencyKey, Self), BadRequest> {
        let mut m = Members::of(strict_json::parse(line)?)?;
        let key: IdempotencyKey = m.required("idempotency_key", Members::name)?;
        let request = Self::read(m)?;
        request.check_event_id()?;
        request.keeps_secrets_out_of("idempotency_key", key.as_str())?;
        Ok((key, request))
    }

    /// Reads a request, whatever its names hold.
    pub(super) fn read(mut m: Members) -> Result<Self, BadRequest> {
        let request = Self {
            event_id: m.required("event_id", Members::name)?,
            kind: m.required("kind", Members::name)?,
            to: m.required("to", members::addresses)?,
            locale: m.optional("locale", members::locale)?,
            data: m.optional("data", members::data)?.unwrap_or_default(),
            user: m.optional("user", members::user)?,
            expiry: members::expiry(&mut m)?,
            occurred_at: m.optional("occurred_at", Members::time)?,
        };
        m.nothing_else()?;
        Ok(request)
    }

    /// Refuses an event id that holds a value of `data` or an address.
    pub(super) fn check_event_id(&self) -> Result<(), BadRequest> {
        self.keeps_secrets_out_of("event_id", self.event_id.as_str())
    }

    /// Refuses a key that holds a value of `data` or an address.
    ///
    /// # Errors
    /// [`BadRequest`] for the field `Idempotency-Key`.
    pub fn check_key(&self, key: &IdempotencyKey) -> Result<(), BadRequest> {
        self.keeps_secrets_out_of("Idempotency-Key", key.as_str())
    }

    /// Event ids are kept in clear, and both names are prone to be logged by apps.
    fn keeps_secrets_out_of(&self, field: &str, name: &str) -> Result<(), BadRequest> {
        let name = name.to_ascii_lowercase();
        let holds = |value: &str| value.len() >= TELLING && name.contains(&value.to_ascii_lowercase());
        if self.data.values().any(|value| holds(value)) {
            return Err(BadRequest::new(field, "contains a value of data; name the event without it"));
        }
        // A name cannot hold `+` or `@`, so it is the digits of a phone number that can stand in it.
        if self.to.iter().any(|address| holds(address.text.trim_start_matches('+'))) {
            return Err(BadRequest::new(field, "contains an address; name the event without it"));
        }
        Ok(())
    }

    /// What a fingerprint is made of, in fixed order: the parsed request, so that spelling, order and white space of the
    /// JSON make no difference; `expires_in` as it was sent, because the time of a repeat is another one. Counts stand
    /// before lists, and each part is to be hashed with its length. Secret.
    pub fn fingerprint_parts(&self) -> Vec<Zeroizing<Vec<u8>>> {
        let mut parts: Vec<Zeroizing<Vec<u8>>> = vec![];
        let mut put = |bytes: &[u8]| parts.push(Zeroizing::new(bytes.to_vec()));
        put(self.event_id.as_str().as_bytes());
        put(self.kind.as_str().as_bytes());
        put(&self.to.len().to_be_bytes());
        for address in &self.to {
            put(address.channel.code().as_bytes());
            put(address.text.as_bytes());
        }
        put(self.locale.as_deref().unwrap_or_default().as_bytes());
        put(&self.data.len().to_be_bytes());
        for (name, value) in &self.data {
            put(name.as_bytes());
            put(value.as_bytes());
        }
        put(self.user.as_ref().map_or("", |user| user.as_str()).as_bytes());
        match self.expiry {
            Expiry::At(time) => {
                put(b"at");
                put(&time.micros().to_be_bytes());
            }
            Expiry::In(seconds) => {
                put(b"in");
                put(&seconds.to_be_bytes());
            }
        }
        match self.occurred_at {
            Some(time) => put(&time.micros().to_be_bytes()),
            None => put(b""),
        }
        parts
    }
}

#[cfg(test)]
mod tests;
