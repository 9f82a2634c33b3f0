//! Names: of notifications, events, keys, tenants, providers, and the reference of an attempt.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use uuid::Uuid;

use super::time::Timestamp;

/// Why a text is not a name of the wanted kind. It never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing was given.
    #[error("is empty")]
    Empty,
    /// Longer than the limit, in characters.
    #[error("is longer than {0} characters")]
    TooLong(usize),
    /// A character outside the allowed set.
    #[error("has a character outside {0}")]
    Charset(&'static str),
    /// Not of the form that such a name has.
    #[error("is not of the form {0}")]
    Form(&'static str),
}

fn checked(text: &str, max: usize, set: &'static str, ok: fn(char) -> bool) -> Result<Arc<str>, BadName> {
    if text.is_empty() {
        Err(BadName::Empty)
    } else if text.len() > max {
        Err(BadName::TooLong(max))
    } else if !text.chars().all(ok) {
        Err(BadName::Charset(set))
    } else {
        Ok(text.into())
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $max:expr, $set:literal, $ok:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest that such a name may be, in characters.
            pub const MAX: usize = $max;

            /// Checks `text`.
            ///
            /// # Errors
            /// [`BadName`] when it is empty, too long, or has a character outside the set.
            pub fn parse(text: &str) -> Result<Self, BadName> {
                checked(text, $max, $set, $ok).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadName;
            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::parse(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }
    };
}

fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-')
}

fn is_slug_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-')
}

name_type!(
    /// The app's name for one business action. Kept in clear, so it may not hold an address or a code: its characters
    /// are few, and admission refuses one that contains a value of `data`.
    EventId, 255, "A-Z a-z 0-9 . _ : -", is_key_char
);
name_type!(
    /// The value of an `Idempotency-Key` header. Stored only as a keyed hash.
    IdempotencyKey, 255, "A-Z a-z 0-9 . _ : -", is_key_char
);
name_type!(
    /// An organisation or app whose rows no other can see.
    Tenant, 64, "a-z 0-9 _ -", is_slug_char
);
name_type!(
    /// A configured provider, which is also the name of its lane.
    ProviderName, 40, "a-z 0-9 _ -", is_slug_char
);
name_type!(
    /// A configured hook: the name under which another system posts its own requests.
    HookName, 40, "a-z 0-9 _ -", is_slug_char
);
name_type!(
    /// A configured target of callbacks.
    TargetName, 40, "a-z 0-9 _ -", is_slug_char
);
name_type!(
    /// A kind of message, such as `password_reset`; names its templates.
    Kind, 64, "a-z 0-9 _ -", is_slug_char
);
name_type!(
    /// A provider's own id of a message, from a bounded set so that free text can never reach the audit log. What does
    /// not fit is replaced by a keyed hash before it comes here.
    ProviderMessageId, 128, "A-Z a-z 0-9 . _ : @ < > + = / -",
    |c| is_key_char(c) || matches!(c, '@' | '<' | '>' | '+' | '=' | '/')
);
name_type!(
    /// The id of a ticket or change that an operator names as the ground of a verdict.
    Ticket, 64, "A-Z a-z 0-9 . _ : -", is_key_char
);
name_type!(
    /// The name of a node: of a process that shares its store with others, the same from one start to the next.
    NodeName, 64, "A-Z a-z 0-9 . _ -", |c| c != ':' && is_key_char(c)
);
name_type!(
    /// One life of a node, from a start or a lost lease on: the owner of what it works on. Never used twice.
    BootId, 32, "A-Z a-z 0-9 . _ : -", is_key_char
);
name_type!(
    /// Who did something: a key's id, or a part of the daemon.
    ActorName, 64, "A-Z a-z 0-9 . _ : -", is_key_char
);

impl BootId {
    /// Makes an id from random bytes.
    pub fn new(random: [u8; 8]) -> Self {
        Self(HEXLOWER.encode(&random).into())
    }
}

/// The id of a notification: a UUIDv7 (RFC 9562 section 5.7), shown as `ntf_` and the UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotificationId([u8; 16]);

impl NotificationId {
    /// Makes an id from the time of admission and 10 random bytes.
    pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
        let millis = u64::try_from(now.micros() / 1000).unwrap_or(0);
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().into_bytes())
    }

    /// The id stored as these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes that the store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// How many bits [`draw`](Self::draw) has.
    pub const DRAW_BITS: u32 = 62;

    /// A number that is random from one id to the next, and the same for one id at all times: its `rand_b`.
    pub const fn draw(&self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a & 0x3f, b, c, d, e, f, g, h])
    }

    /// Reads `ntf_` and a hyphenated lower-case UUID.
    ///
    /// # Errors
    /// [`BadName::Form`] for any other text.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let form = BadName::Form("ntf_ and a UUID");
        let uuid = Uuid::try_parse(text.strip_prefix("ntf_").ok_or(form)?).map_err(|_| form)?;
        let id = Self(uuid.into_bytes());
        if id.to_string() == text { Ok(id) } else { Err(form) }
    }
}

impl fmt::Display for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ntf_{}", Uuid::from_bytes(self.0))
    }
}

impl fmt::Debug for NotificationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for NotificationId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// The first 16 bytes of a keyed hash (HMAC-SHA-256 under the index key): finds rows, tells nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyedHash([u8; 16]);

impl KeyedHash {
    /// The hash stored as these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes that the store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for KeyedHash {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// The number of an attempt of one notification, counted from 1.
pub type AttemptNumber = u8;

/// The token that a provider is given for an attempt and echoes in receipts and look-ups.
///
/// It is the notification's id, the attempt's number and a 56-bit MAC, in lower-case base32 (RFC 4648 section 6, no
/// padding): 39 characters, one alphanumeric word. It can be recomputed, so it needs no column, and it routes a receipt
/// by primary key. Number 0 names the notification as a whole: providers that compare requests byte for byte get
/// that one, the same on every attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Whose attempt.
    pub id: NotificationId,
    /// Which attempt; 0 for the notification as a whole.
    pub attempt: AttemptNumber,
    /// The MAC that tells ours from a forged one. Made and checked by the vault.
    pub mac: [u8; Self::MAC_LEN],
}

impl Reference {
    /// Length of the MAC in bytes.
    pub const MAC_LEN: usize = 7;

    /// Reads the text form, in either case. The MAC is not checked here.
    ///
    /// # Errors
    /// [`BadName::Form`] when it cannot be a reference.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let form = BadName::Form("a reference");
        let bytes = BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).map_err(|_| form)?;
        let bytes: [u8; 24] = bytes.try_into().map_err(|_| form)?;
        let (mut id, mut mac) = ([0; 16], [0; Self::MAC_LEN]);
        id.copy_from_slice(&bytes[..16]);
        mac.copy_from_slice(&bytes[17..]);
        Ok(Self { id: NotificationId(id), attempt: bytes[16], mac })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.id.0);
        bytes[16] = self.attempt;
        bytes[17..].copy_from_slice(&self.mac);
        f.write_str(&BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_orders_by_time() {
        let early = NotificationId::new(Timestamp::from_micros(1_000_000), [255; 10]);
        let late = NotificationId::new(Timestamp::from_micros(2_000_000), [0; 10]);
        assert!(early < late);
        assert_eq!(NotificationId::parse(&early.to_string()), Ok(early));
        for text in ["", "ntf_", "0198c7f4-0000-7000-8000-000000000000", "ntf_0198C7F4-0000-7000-8000-00000000000A"] {
            assert!(NotificationId::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_reference_is_one_short_word_and_reads_back_in_either_case() {
        let r = Reference { id: NotificationId::from_bytes([7; 16]), attempt: 3, mac: [9; 7] };
        let text = r.to_string();
        assert_eq!(text.len(), 39);
        assert!(text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        assert_eq!(Reference::parse(&text), Ok(r));
        assert_eq!(Reference::parse(&text.to_ascii_uppercase()), Ok(r));
        assert!(Reference::parse(&text[1..]).is_err());
    }

    #[test]
    fn a_name_outside_its_set_is_refused_without_being_echoed() {
        assert_eq!(EventId::parse(""), Err(BadName::Empty));
        assert!(EventId::parse(&"x".repeat(255)).is_ok());
        assert_eq!(EventId::parse(&"x".repeat(256)), Err(BadName::TooLong(255)));
        for name in ["Shop", "shop.a", "shop:a", "sh\u{f6}p", "a b"] {
            assert_eq!(Tenant::parse(name), Err(BadName::Charset("a-z 0-9 _ -")), "{name}");
        }
        let refusal = EventId::parse("user@example.org").expect_err("an address is no event id");
        assert!(!refusal.to_string().contains("example"));
    }
}
