//! Sealing at rest, keyed hashes, and secrets that cannot be printed.
//!
//! Two secrets, kept apart: the *sealing keys* (AES-256-GCM-SIV, RFC 8452), each with an id that is written into every
//! sealed value so that keys can be rotated; and the *index key* (HMAC-SHA-256) behind every stored hash and every
//! reference, which stays the same for the life of the store, so that rotation breaks neither replay nor search.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hmac, rand};
use data_encoding::{BASE64, HEXLOWER};
use zeroize::Zeroizing;

use crate::domain::ids::{
    AttemptNumber, EventId, KeyedHash, NotificationId, ProviderMessageId, ProviderName, Reference, Tenant,
};

/// Length of every key, in bytes.
pub const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;
const SEALED_V1: u8 = 1;

/// Why a key file is not one. Holds a line number and never its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// There is no key in it.
    #[error("holds no key")]
    Empty,
    /// A line is not `ID BASE64`, with an id of 1 to 32 characters of a-z 0-9 _ - and a key of 32 bytes.
    #[error("line {0} is not an id and the base64 of 32 bytes")]
    Line(usize),
    /// An id stands there twice.
    #[error("line {0} repeats an id")]
    Repeated(usize),
    /// The index key file holds more than one key.
    #[error("holds more than one key")]
    NotOne,
}

/// A sealed value cannot be opened with the keys at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsealError {
    /// It is sealed under a key that is not configured.
    #[error("sealed under a key that is not configured")]
    UnknownKey,
    /// It was changed, belongs to another row, or is no sealed value.
    #[error("does not open")]
    Broken,
}

/// Which sealed column a value stands in; bound into the seal, so that values cannot be swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// `work.sealed_to`.
    To,
    /// `work.sealed_message`.
    Message,
}

impl Column {
    const fn code(self) -> &'static str {
        match self {
            Self::To => "to",
            Self::Message => "message",
        }
    }
}

struct SealingKey {
    id: String,
    key: LessSafeKey,
}

/// The sealing keys; the first one seals, all of them open.
pub struct Vault {
    keys: Vec<SealingKey>,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|k| &k.id)).finish()
    }
}

type KeyLine = (String, Zeroizing<[u8; KEY_LEN]>);

/// Reads lines of `ID BASE64`; empty lines and those that begin with `#` are passed over.
fn parse_key_lines(text: &str) -> Result<Vec<KeyLine>, KeyFileError> {
    let mut keys: Vec<KeyLine> = vec![];
    for (i, line) in text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (id, key) = line.split_once(char::is_whitespace).ok_or(KeyFileError::Line(i))?;
        let id_ok = (1..=32).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
        let bytes = Zeroizing::new(BASE64.decode(key.trim().as_bytes()).map_err(|_| KeyFileError::Line(i))?);
        let key: [u8; KEY_LEN] = bytes.as_slice().try_into().map_err(|_| KeyFileError::Line(i))?;
        if !id_ok {
            return Err(KeyFileError::Line(i));
        }
        if keys.iter().any(|(other, _)| other == id) {
            return Err(KeyFileError::Repeated(i));
        }
        keys.push((id.to_owned(), Zeroizing::new(key)));
    }
    if keys.is_empty() { Err(KeyFileError::Empty) } else { Ok(keys) }
}

/// A line for a key file: `id` and 32 bytes from the system's random source.
pub fn new_key_line(id: &str) -> Zeroizing<String> {
    Zeroizing::new(format!("{id} {}\n", BASE64.encode(random::<KEY_LEN>().as_slice())))
}

/// `N` bytes from the system's random source.
///
/// # Panics
/// When the system has none, which aws-lc treats as fatal too.
#[expect(clippy::expect_used, reason = "there is no way to go on without randomness")]
pub fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::fill(bytes.as_mut_slice()).expect("the system's random source");
    bytes
}

impl Vault {
    /// Reads a sealing-key file. The first key seals.
    ///
    /// # Errors
    /// [`KeyFileError`] with the line.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let keys = parse_key_lines(text)?;
        let keys = keys.into_iter().enumerate().map(|(i, (id, key))| {
            let key = UnboundKey::new(&AES_256_GCM_SIV, key.as_slice()).map_err(|_| KeyFileError::Line(i + 1))?;
            Ok(SealingKey { id, key: LessSafeKey::new(key) })
        });
        Ok(Self { keys: keys.collect::<Result<_, _>>()? })
    }

    /// Seals `plain` for one column of one row.
    ///
    /// # Panics
    /// When `plain` is longer than AES-GCM-SIV allows (2^36 bytes); admission bounds it far below.
    #[expect(clippy::expect_used, reason = "admission bounds the length")]
    pub fn seal(&self, column: Column, tenant: &Tenant, id: NotificationId, plain: &[u8]) -> Vec<u8> {
        let key = &self.keys[0];
        let nonce = random::<NONCE_LEN>();
        let mut out = Vec::with_capacity(2 + key.id.len() + NONCE_LEN + plain.len() + 16);
        out.push(SEALED_V1);
        out.push(u8::try_from(key.id.len()).expect("an id has at most 32 characters"));
        out.extend_from_slice(key.id.as_bytes());
        out.extend_from_slice(nonce.as_slice());
        let head = out.len();
        out.extend_from_slice(plain);
        let tag = key
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(associated(column, tenant, id)),
                &mut out[head..],
            )
            .expect("the plaintext is short");
        out.extend_from_slice(tag.as_ref());
        out
    }

    /// Opens what [`Vault::seal`] made for the same column of the same row.
    ///
    /// # Errors
    /// [`UnsealError`] when the key is missing or the value is not that one.
    pub fn open(
        &self,
        column: Column,
        tenant: &Tenant,
        id: NotificationId,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let (&[version, id_len], rest) = sealed.split_first_chunk::<2>().ok_or(UnsealError::Broken)?;
        if version != SEALED_V1 {
            return Err(UnsealError::Broken);
        }
        let (key_id, rest) = rest.split_at_checked(id_len.into()).ok_or(UnsealError::Broken)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError::Broken)?;
        let key = self.keys.iter().find(|k| k.id.as_bytes() == key_id).ok_or(UnsealError::UnknownKey)?;
        let mut plain = Zeroizing::new(rest.to_vec());
        let aad = Aad::from(associated(column, tenant, id));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = key.key.open_in_place(nonce, aad, &mut plain).map_err(|_| UnsealError::Broken)?.len();
        plain.truncate(len);
        Ok(plain)
    }
}

fn associated(column: Column, tenant: &Tenant, id: NotificationId) -> Vec<u8> {
    let mut aad = Vec::with_capacity(96);
    aad.extend_from_slice(id.as_bytes());
    aad.extend_from_slice(column.code().as_bytes());
    aad.push(0);
    aad.extend_from_slice(tenant.as_str().as_bytes());
    aad
}

/// What a keyed hash is for. Hashes of the same text for two purposes have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An idempotency key: (tenant, key).
    Key,
    /// An event id: (tenant, event id).
    Event,
    /// An address in the form that is sent to: (address).
    Address,
    /// A person: (tenant, kind, user).
    User,
    /// A limit on one recipient: (tenant, address).
    RecipientLimit,
    /// A limit on one tenant: (tenant).
    TenantLimit,
    /// A request's fingerprint.
    Fingerprint,
    /// A provider's message id that does not fit our set: (provider, id).
    MessageId,
    /// A provider's account: its identifying settings.
    Account,
    /// The revision of a provider: everything that shapes its requests.
    Revision,
    /// An event that another system's request tells of: (tenant, hook, what tells one from another).
    HookEvent,
    /// An idempotency key as the log names it: (key).
    LoggedKey,
    /// The key itself, as the store knows it: ().
    Itself,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Key => b"key",
            Self::Event => b"event",
            Self::Address => b"address",
            Self::User => b"user",
            Self::RecipientLimit => b"recipient-limit",
            Self::TenantLimit => b"tenant-limit",
            Self::Fingerprint => b"fingerprint",
            Self::MessageId => b"message-id",
            Self::Account => b"account",
            Self::Revision => b"revision",
            Self::HookEvent => b"hook-event",
            Self::LoggedKey => b"logged-key",
            Self::Itself => b"itself",
        }
    }
}

/// The key behind every stored hash and every reference.
pub struct IndexKey(hmac::Key);

impl fmt::Debug for IndexKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IndexKey")
    }
}

impl IndexKey {
    /// Reads an index-key file: exactly one key.
    ///
    /// # Errors
    /// [`KeyFileError`] with the line.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        match parse_key_lines(text)?.as_slice() {
            [(_, key)] => Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, key.as_slice()))),
            _ => Err(KeyFileError::NotOne),
        }
    }

    /// HMAC over a purpose and length-prefixed parts, so that no two lists of parts are the same bytes.
    fn tag(&self, label: &[u8], parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        for part in std::iter::once(&label).chain(parts) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign()
    }

    /// The 16-byte keyed hash of `parts` for one purpose.
    pub fn hash(&self, purpose: Purpose, parts: &[&[u8]]) -> KeyedHash {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.tag(purpose.label(), parts).as_ref()[..16]);
        KeyedHash::from_bytes(bytes)
    }

    /// The full 32-byte keyed hash.
    pub fn hash32(&self, purpose: Purpose, parts: &[&[u8]]) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.tag(purpose.label(), parts).as_ref());
        bytes
    }

    /// The reference of an attempt; number 0 is the notification's own.
    pub fn reference(&self, id: NotificationId, attempt: AttemptNumber) -> Reference {
        let tag = self.tag(b"reference", &[id.as_bytes(), &[attempt]]);
        let mut mac = [0; Reference::MAC_LEN];
        mac.copy_from_slice(&tag.as_ref()[..Reference::MAC_LEN]);
        Reference { id, attempt, mac }
    }

    /// Reads a reference and checks that it is one of ours, in constant time.
    pub fn read_reference(&self, text: &str) -> Option<Reference> {
        let given = Reference::parse(text).ok()?;
        let ours = self.reference(given.id, given.attempt);
        constant_time::verify_slices_are_equal(&given.mac, &ours.mac).ok().map(|()| ours)
    }

    /// The dedupe key of an event at one provider for one address: 32 hexadecimal digits, the same on every attempt
    /// there, also from a store restored from a copy.
    pub fn dedupe_key(&self, tenant: &Tenant, event: &EventId, provider: &ProviderName, address: KeyedHash) -> String {
        let parts: [&[u8]; 4] =
            [tenant.as_str().as_bytes(), event.as_str().as_bytes(), provider.as_str().as_bytes(), address.as_bytes()];
        HEXLOWER.encode(&self.tag(b"dedupe", &parts).as_ref()[..16])
    }

    /// A provider's message id as we may keep it: as it is when it fits the bounded set, else `h:` and its keyed hash.
    pub fn message_id(&self, provider: &ProviderName, raw: &str) -> Option<ProviderMessageId> {
        if raw.is_empty() {
            return None;
        }
        ProviderMessageId::parse(raw)
            .or_else(|_| {
                let hash = self.hash(Purpose::MessageId, &[provider.as_str().as_bytes(), raw.as_bytes()]);
                ProviderMessageId::parse(&format!("h:{hash}"))
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::parse(name).expect("a tenant")
    }

    const ID: NotificationId = NotificationId::from_bytes([1; 16]);

    #[test]
    fn a_sealed_value_opens_only_for_its_own_row_and_column() {
        let vault = Vault::parse(&new_key_line("k1")).expect("a key");
        let sealed = vault.seal(Column::Message, &tenant("shop"), ID, b"493021");
        let open = |column, name, id| vault.open(column, &tenant(name), id, &sealed).map(|p| p.to_vec());
        assert_eq!(open(Column::Message, "shop", ID), Ok(b"493021".to_vec()));
        assert_eq!(open(Column::To, "shop", ID), Err(UnsealError::Broken));
        assert_eq!(open(Column::Message, "other", ID), Err(UnsealError::Broken));
        assert_eq!(open(Column::Message, "shop", NotificationId::from_bytes([2; 16])), Err(UnsealError::Broken));
        for cut in 0..sealed.len() {
            assert!(vault.open(Column::Message, &tenant("shop"), ID, &sealed[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn after_a_rotation_old_values_still_open_and_new_ones_use_the_first_key() {
        let (old, new) = (new_key_line("k1"), new_key_line("k2"));
        let before = Vault::parse(&old).expect("a key");
        let after = Vault::parse(&format!("{}{}", *new, *old)).expect("two keys");
        let sealed = before.seal(Column::To, &tenant("shop"), ID, b"x");
        assert!(after.open(Column::To, &tenant("shop"), ID, &sealed).is_ok());
        let sealed = after.seal(Column::To, &tenant("shop"), ID, b"x");
        assert_eq!(before.open(Column::To, &tenant("shop"), ID, &sealed), Err(UnsealError::UnknownKey));
    }

    #[test]
    fn a_key_file_is_refused_with_the_line_and_never_its_text() {
        let good = new_key_line("k1");
        assert_eq!(Vault::parse("# none\n").map(drop), Err(KeyFileError::Empty));
        assert_eq!(Vault::parse(&format!("{}k2 short\n", *good)).map(drop), Err(KeyFileError::Line(2)));
        assert_eq!(Vault::parse(&format!("{0}{0}", *good)).map(drop), Err(KeyFileError::Repeated(2)));
        let two = format!("{}{}", *good, *new_key_line("k2"));
        assert_eq!(IndexKey::parse(&two).map(drop), Err(KeyFileError::NotOne));
    }

    #[test]
    fn a_reference_of_another_key_or_attempt_is_not_ours() {
        let key = IndexKey::parse(&new_key_line("i")).expect("a key");
        let other = IndexKey::parse(&new_key_line("i")).expect("a key");
        let reference = key.reference(ID, 2);
        assert_eq!(key.read_reference(&reference.to_string()), Some(reference));
        assert_eq!(other.read_reference(&reference.to_string()), None);
        let forged = Reference { attempt: 3, ..reference };
        assert_eq!(key.read_reference(&forged.to_string()), None);
    }

    #[test]
    fn parts_cannot_be_moved_across_their_borders() {
        let key = IndexKey::parse(&new_key_line("i")).expect("a key");
        assert_ne!(key.hash(Purpose::Key, &[b"ab", b"c"]), key.hash(Purpose::Key, &[b"a", b"bc"]));
        assert_ne!(key.hash(Purpose::Key, &[b"ab"]), key.hash(Purpose::Event, &[b"ab"]));
    }

    #[test]
    fn a_providers_id_outside_the_bounded_set_is_kept_as_a_hash() {
        let key = IndexKey::parse(&new_key_line("i")).expect("a key");
        let provider = ProviderName::parse("p").expect("a name");
        assert_eq!(key.message_id(&provider, "SM1").map(|id| id.to_string()), Some("SM1".to_owned()));
        let hashed = key.message_id(&provider, "your code is 493021").expect("a hash");
        assert!(hashed.as_str().starts_with("h:") && !hashed.as_str().contains("493021"));
        assert_eq!(key.message_id(&provider, ""), None);
    }
}
