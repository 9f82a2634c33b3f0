//! The provider seam: one call of one provider, and what may be asked of it afterwards.

pub mod gate;
pub mod http_client;
pub mod http_provider;
pub mod inbox;
pub mod manifest;
pub mod mime;
mod net;
mod receipt;
pub mod sandbox;
pub mod signature;
pub mod smpp;
pub mod smtp;
mod sns;
pub mod statement;
pub mod template;

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::address::Address;
use crate::domain::content::{Channel, Content};
use crate::domain::ids::{NotificationId, ProviderMessageId, ProviderName};
use crate::domain::outcome::{LookupAnswer, Outcome};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use gate::Gate;
use statement::Statement;

/// One configured provider.
///
/// A call never fails: what happened is its outcome, and what cannot be told is `unknown`. An implementation bounds every
/// stage by its own time-outs, and its futures run to their end: nobody drops one, because a dropped send leaves a
/// question that nobody could answer.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Its configured name.
    fn name(&self) -> &ProviderName;

    /// Which addresses it reaches.
    fn channel(&self) -> Channel;

    /// What may be done after a lost answer, and its bounds.
    fn abilities(&self) -> &Abilities;

    /// Sends one message. Asks `gate` right before the first byte leaves, and again before the octet that commits.
    async fn send(&self, dispatch: &Dispatch, gate: &Gate) -> Outcome;

    /// Asks whether an earlier attempt arrived. Called only when [`Abilities::lookup`] is there.
    async fn lookup(&self, inquiry: &Inquiry) -> LookupAnswer;

    /// Checks a receipt's origin and reads it. An authentic request may hold several, or none that matters.
    ///
    /// # Errors
    /// [`ReceiptError`] when the origin is not proven or the body does not read.
    async fn receipts(&self, request: &ReceiptRequest, now: Timestamp) -> Result<Vec<Receipt>, ReceiptError>;

    /// Begins what lives longer than a send, such as a session on which receipts come. Once begun, another call changes
    /// nothing.
    fn start(&self) {}

    /// Ends in good order what [`start`](Self::start) began, within a bounded time. Nothing is sent after it.
    async fn stop(&self) {}
    /// The provider's own list of messages; `None` where it has none.
    fn statement(&self) -> Option<&dyn Statement> {
        None
    }
}

/// What a provider lets us do after a lost answer.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// Keyed hash of the settings that name the account. A look-up with another account proves nothing.
    pub account: [u8; 16],
    /// Keyed hash of manifest, settings, account and program version: all that shapes a request.
    pub rev: [u8; 16],
    /// The longest that [`Provider::send`] may take, all stages together.
    pub send_timeout: Duration,
    /// Look-up of an earlier attempt.
    pub lookup: Option<LookupRules>,
    /// Repeating under the same key.
    pub dedupe: Option<DedupeRules>,
    /// Receipts come from it.
    pub receipts: bool,
    /// Its receipts name a message only by the provider's id, never by our reference.
    pub receipts_by_id: bool,
    /// Requests under one dedupe key must be the same to the byte, so every attempt carries the notification's reference.
    pub identical_body: bool,
}

/// When a look-up says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupRules {
    /// A miss counts only this long after the attempt ended: the provider's indexing lag.
    pub settle_after: Duration,
    /// So many misses in a row, each counted, prove "not sent".
    pub misses_needed: u8,
    /// A miss may prove "not sent" at all: `settle_after` is documented by the vendor or set by the operator.
    pub trust_miss: bool,
    /// The provider forgets messages after this long; later look-ups prove nothing.
    pub window: Duration,
    /// The look-up's request needs the address.
    pub needs_address: bool,
}

/// When a repeat under the same key is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupeRules {
    /// Counted from the first attempt at this provider.
    pub window: Duration,
    /// Not before the lost attempt has been over for this long.
    pub settle_after: Duration,
    /// Which lost answers it covers.
    pub covers: DedupeCovers,
}

/// Which unknown outcomes a provider's dedupe makes safe to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DedupeCovers {
    /// Only those without any answer.
    NoAnswer,
    /// Also those with an answer that we could not trust, such as a 5xx.
    Any,
}

/// One message for one address, ready to leave.
#[derive(Debug)]
pub struct Dispatch {
    /// Whose attempt.
    pub id: NotificationId,
    /// Where to.
    pub to: Address,
    /// What it says.
    pub content: Content,
    /// The attempt's reference (or the notification's, under [`Abilities::identical_body`]).
    pub reference: String,
    /// The same on every attempt for this event, provider and address.
    pub dedupe_key: String,
    /// When it was admitted; fixes every date in the message.
    pub admitted_at: Timestamp,
    /// When the token dies.
    pub expires_at: Timestamp,
}

/// A question about an earlier attempt.
#[derive(Debug)]
pub struct Inquiry {
    /// Whose attempt.
    pub id: NotificationId,
    /// The reference that it carried.
    pub reference: String,
    /// The dedupe key that it carried.
    pub dedupe_key: String,
    /// Where to, when [`LookupRules::needs_address`] and the address is still kept.
    pub to: Option<Address>,
    /// The provider's id, where it is known.
    pub message_id: Option<ProviderMessageId>,
    /// When the attempt began.
    pub began_at: Timestamp,
    /// Now, for windows in the request.
    pub now: Timestamp,
}

/// A receipt as it came over HTTP.
pub struct ReceiptRequest {
    /// Path and query as they were sent, such as `/v1/receipts/twilio?ref=…`.
    pub path_and_query: String,
    /// The request's method.
    pub method: http::Method,
    /// All headers.
    pub headers: http::HeaderMap,
    /// The raw bytes, which are what a signature covers.
    pub body: bytes::Bytes,
}

impl std::fmt::Debug for ReceiptRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReceiptRequest")
    }
}

/// Why a receipt was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// This provider has no receipts, or none configured.
    #[error("this provider takes no receipts")]
    NotOffered,
    /// The signature, secret or time does not prove its origin.
    #[error("the receipt's origin is not proven")]
    NotAuthentic,
    /// Its body does not read as its documents say.
    #[error("the receipt does not read")]
    Unreadable,
    /// What proves its origin cannot be fetched now; it should come again.
    #[error("the receipt's origin cannot be checked now")]
    Unavailable,
}
