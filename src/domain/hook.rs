//! Requests that other systems send as they are, read into the same event that an app would post.
//!
//! A reader writes what it finds down as a request of ours and has that read by [`EventRequest`], so that there is one
//! check of everything. An event that its sender does not name is named by a keyed hash over what tells one business
//! action from another, never over what a retry changes; the same hash is its idempotency key.

mod generic;
mod kratos;
mod link;
mod supabase;

use std::collections::BTreeMap;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::content::Channel;
use super::event::{BadRequest, EventRequest, Members};
use super::ids::{HookName, IdempotencyKey, KeyedHash, Kind, Tenant};
use super::strict_json::{self, Value};
pub use generic::{Naming, Places};
pub use link::{BadPattern, LinkPattern};
pub use supabase::ACTIONS as SUPABASE_ACTIONS;

/// A configured hook.
#[derive(Clone, Debug)]
pub struct Hook {
    /// The last segment of its path.
    pub name: HookName,
    /// Whose events it brings.
    pub tenant: Tenant,
    /// How a request proves where it comes from.
    pub proof: Proof,
    /// What its requests look like.
    pub speaks: Speaks,
    /// Which kind of message an action becomes.
    pub kinds: Kinds,
    /// How long its tokens live, in seconds, at least 1, where the request does not say less.
    pub expires_in: u64,
    /// The language where the request names none.
    pub locale: Option<String>,
    /// Where the request names the language.
    pub locale_at: Option<Pointer>,
    /// Members of `data` that are always the same.
    pub data: BTreeMap<String, String>,
}

/// How a request proves where it comes from. Two secrets are good at once while one is exchanged for the other.
#[derive(Clone, Debug)]
pub enum Proof {
    /// An API key of the hook's tenant, as for an app.
    Key,
    /// HTTP Basic (RFC 7617).
    Basic {
        /// The user.
        user: String,
        /// The passwords.
        secrets: Vec<SecretString>,
    },
    /// A secret in a header of its own.
    Header {
        /// The header, in lower case.
        header: String,
        /// The secrets.
        secrets: Vec<SecretString>,
    },
    /// HMAC-SHA-256 over the body, in a header.
    Hmac {
        /// The header, in lower case.
        header: String,
        /// What stands before the signature, such as `sha256=`.
        prefix: String,
        /// How it is written.
        encoding: Encoding,
        /// The keys.
        secrets: Vec<SecretString>,
    },
    /// Standard Webhooks.
    StandardWebhooks {
        /// The keys, as `whsec_` and base64.
        secrets: Vec<SecretString>,
    },
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal digits, in either case.
    Hex,
    /// Base64 (RFC 4648 section 4).
    Base64,
}

/// What a hook's requests look like.
#[derive(Clone, Debug)]
pub enum Speaks {
    /// Supabase Auth's Send SMS hook.
    SupabaseSms,
    /// Supabase Auth's Send Email hook, and the link that its messages have.
    SupabaseEmail(Option<LinkPattern>),
    /// Ory Kratos' HTTP courier.
    Kratos,
    /// JSON whose members stand where the configuration says.
    Generic(Box<Places>),
}

impl Speaks {
    /// The other side is Supabase Auth.
    pub const fn is_supabase(&self) -> bool {
        matches!(self, Self::SupabaseSms | Self::SupabaseEmail(_))
    }
}

/// Which kind of message an action becomes.
#[derive(Clone, Debug)]
pub enum Kinds {
    /// Always the same.
    One(Kind),
    /// By the name that the request gives the action.
    By {
        /// The kinds by action.
        map: BTreeMap<String, Kind>,
        /// What is not in the map is answered as done, and nothing is sent; else it is refused.
        ignore_others: bool,
    },
}

/// A JSON pointer (RFC 6901) that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// Checks `text`.
    ///
    /// # Errors
    /// When it is no JSON pointer to a part of a document.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let bad_escape = text.split('~').skip(1).any(|after| !after.starts_with(['0', '1']));
        if text.starts_with('/') && !bad_escape {
            Ok(Self(text.to_owned()))
        } else {
            Err("must be a JSON pointer, such as \"/user/id\"")
        }
    }

    /// The pointer as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a request brings no event. Never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It cannot be read as what it should be.
    Malformed(BadRequest),
    /// No kind is configured for what this field says.
    Unmapped(String),
}

impl From<BadRequest> for Unfit {
    fn from(e: BadRequest) -> Self {
        Self::Malformed(e)
    }
}

/// One event of a request.
#[derive(Debug)]
pub struct Heard {
    /// The event.
    pub event: EventRequest,
    /// Its idempotency key.
    pub key: IdempotencyKey,
    /// Its id and key are made of what it is, so that the key alone says that two are the same; else the sender named it.
    pub derived: bool,
}

/// The keyed hash of (tenant, hook, what tells one event from another).
pub type Hash<'a> = &'a dyn Fn(&[&[u8]]) -> KeyedHash;

impl Hook {
    /// Reads the body of a request whose origin is proven. There is no event where the action is one to be ignored.
    ///
    /// # Errors
    /// [`Unfit`].
    pub fn read(&self, body: &[u8], hash: Hash<'_>) -> Result<Vec<Heard>, Unfit> {
        let body = strict_json::parse(body).map_err(BadRequest::from)?;
        let reading = Reading { hook: self, body: &body, hash };
        match &self.speaks {
            Speaks::SupabaseSms => supabase::sms(&reading),
            Speaks::SupabaseEmail(link) => supabase::email(&reading, link.as_ref()),
            Speaks::Kratos => kratos::read(&reading),
            Speaks::Generic(places) => generic::read(&reading, places),
        }
    }
}

/// One request while it is read.
struct Reading<'a> {
    hook: &'a Hook,
    body: &'a Value,
    hash: Hash<'a>,
}

/// What one event of a request is made of.
struct Draft {
    kind: Kind,
    to: Vec<(Channel, Zeroizing<String>)>,
    user: Option<Zeroizing<String>>,
    data: Vec<(String, Zeroizing<String>)>,
    expires: Value,
    name: Name,
}

/// What names an event.
enum Name {
    /// The sender.
    Given(Zeroizing<String>),
    /// What tells it from every other; in fixed order, what is missing is empty.
    Derived(Vec<Zeroizing<String>>),
}

/// A pointer as people write the place: `user.id`.
fn place(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

impl Reading<'_> {
    /// The text or whole number at a pointer. What is empty or of another type counts as missing.
    fn text(&self, pointer: &str) -> Option<Zeroizing<String>> {
        match self.body.at(pointer)? {
            Value::Text(text) if !text.is_empty() => Some(text.clone()),
            Value::Whole(number) => Some(Zeroizing::new(number.to_string())),
            _ => None,
        }
    }

    /// The same, which must be there.
    fn need(&self, pointer: &str) -> Result<Zeroizing<String>, BadRequest> {
        self.text(pointer).ok_or_else(|| BadRequest::new(place(pointer), "is missing, empty or no text"))
    }

    /// The kind that the action at `pointer` becomes, and the action; nothing when it is one to be ignored.
    fn kind(&self, pointer: &str) -> Result<Option<(Kind, Zeroizing<String>)>, Unfit> {
        match &self.hook.kinds {
            Kinds::One(kind) => Ok(Some((kind.clone(), self.text(pointer).unwrap_or_default()))),
            Kinds::By { map, ignore_others } => {
                let action = self.need(pointer)?;
                match map.get(action.as_str()) {
                    Some(kind) => Ok(Some((kind.clone(), action))),
                    None if *ignore_others => Ok(None),
                    None => Err(Unfit::Unmapped(place(pointer))),
                }
            }
        }
    }

    /// The configured life time, or less.
    fn life(&self, said: Option<u64>) -> Value {
        Value::Whole(said.unwrap_or(u64::MAX).min(self.hook.expires_in))
    }

    /// The language that the request names, if it is the form of one; else the configured one.
    fn locale(&self) -> Option<String> {
        let said = self.hook.locale_at.as_ref().and_then(|at| self.text(at.as_str()));
        let said = said.filter(|text| super::event::is_locale(text));
        said.map(|text| text.to_string()).or_else(|| self.hook.locale.clone())
    }

    /// Has a draft read as a request of ours.
    fn event(&self, draft: Draft) -> Result<Heard, Unfit> {
        let hook = self.hook;
        let name = |parts: &[&[u8]]| {
            let owner = [hook.tenant.as_str().as_bytes(), hook.name.as_str().as_bytes()];
            format!("hook:{}:{}", hook.name, (self.hash)(&[owner.as_slice(), parts].concat()))
        };
        let (key, given) = match &draft.name {
            Name::Derived(parts) => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
                (name(&[&[b"derived".as_slice()], parts.as_slice()].concat()), None)
            }
            Name::Given(id) => (name(&[b"given", id.as_bytes()]), Some(id.clone())),
        };
        let derived = given.is_none();
        let text = |text: String| Value::Text(Zeroizing::new(text));
        let address =
            |(channel, text): (Channel, _)| Value::Object(vec![(channel.code().to_owned(), Value::Text(text))]);
        let constant = hook.data.iter().map(|(name, value)| (name.clone(), text(value.clone())));
        let data = draft.data.into_iter().map(|(name, value)| (name, Value::Text(value)));
        let expiry = if matches!(draft.expires, Value::Whole(_)) { "expires_in" } else { "expires_at" };
        let mut members = vec![
            ("event_id", given.map_or_else(|| text(key.clone()), Value::Text)),
            ("kind", text(draft.kind.to_string())),
            ("to", Value::List(draft.to.into_iter().map(address).collect())),
            ("data", Value::Object(data.chain(constant).collect())),
            (expiry, draft.expires),
        ];
        members.extend(draft.user.map(|user| ("user", Value::Text(user))));
        members.extend(self.locale().map(|locale| ("locale", text(locale))));
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let event = EventRequest::read(Members::of(Value::Object(members))?)?;
        if !derived {
            event.check_event_id()?;
        }
        let key = IdempotencyKey::parse(&key).map_err(|e| BadRequest::new("event_id", e.to_string()))?;
        Ok(Heard { event, key, derived })
    }
}

#[cfg(test)]
mod tests;
