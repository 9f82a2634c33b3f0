//! What callers ask of the ledger, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::address::Address;
use crate::domain::audit::Actor;
use crate::domain::content::{Channel, Content};
use crate::domain::ids::{
    AttemptNumber, EventId, KeyedHash, Kind, NotificationId, ProviderMessageId, ProviderName, Reference, Tenant,
};
use crate::domain::lifecycle::State;
use crate::domain::outcome::codes;
use crate::domain::retry::RetryPolicy;
use crate::domain::time::Timestamp;
use crate::provider::{Abilities, Dispatch, Inquiry};
use crate::store::StoreError;
use crate::store::rows::{Fingerprint, Leg};

/// How many attempts may begin now. It is asked at the moment when they are taken, which may be a whole commit after a
/// claim was asked for.
pub type Room = Arc<dyn Fn() -> u32 + Send + Sync>;

/// Held by a commit while it takes work for somebody who waits for it. Whoever gets hold of it instead can go away and be
/// sure that nothing was taken for them.
pub type Hold = Arc<tokio::sync::Mutex<()>>;

/// Why the ledger did not do what was asked. Nothing is known to be stored; the same command may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Too many commands wait.
    #[error("overloaded")]
    Overloaded,
    /// The daemon is stopping.
    #[error("stopping")]
    Stopping,
    /// The store is older than what this node saw, and waits for `sendonce recover`.
    #[error("the store was restored from an older copy and waits for `sendonce recover`")]
    Held,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A judged event, sealed values still open.
#[derive(Debug)]
pub struct NewNotification {
    /// Whose.
    pub tenant: Tenant,
    /// Kind of message.
    pub kind: Kind,
    /// The app's name for the event.
    pub event_id: EventId,
    /// What recognises a repeat.
    pub repeat: Repeat,
    /// When it was judged; becomes `created_at` and the time in the id.
    pub now: Timestamp,
    /// When the token dies.
    pub expires_at: Timestamp,
    /// When the event happened, where the app said so.
    pub occurred_at: Option<Timestamp>,
    /// Keyed hash of (tenant, kind, user).
    pub user: KeyedHash,
    /// The addresses in the order in which they may be tried; at least one.
    pub to: Vec<Address>,
    /// What it says, for each channel in `to`.
    pub content: Content,
    /// Limits to check for a new event.
    pub limits: Vec<LimitCheck>,
    /// Who posted it.
    pub actor: Actor,
}

/// What recognises a repeat.
#[derive(Clone, Debug)]
pub struct Repeat {
    /// Whose.
    pub tenant: Tenant,
    /// Keyed hash of the idempotency key.
    pub key: KeyedHash,
    /// Keyed hash of the event id.
    pub event: KeyedHash,
    /// Keyed fingerprint of the request.
    pub fingerprint: Fingerprint,
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// One recipient of one tenant.
    Recipient,
    /// One tenant.
    Tenant,
}

/// One rate limit: at most `burst` at once, and `burst` in each `per` in the long run (GCRA).
#[derive(Clone, Copy, Debug)]
pub struct LimitCheck {
    /// What it is about, for the answer.
    pub scope: LimitScope,
    /// Under which keyed hash it is counted.
    pub key: KeyedHash,
    /// At least 1.
    pub burst: u32,
    /// Not zero.
    pub per: Duration,
}

/// What the answer to an admitted event is made of; the same on every repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The notification's id.
    pub id: NotificationId,
    /// The app's name for the event.
    pub event_id: EventId,
    /// When the token dies, as the first request said.
    pub expires_at: Timestamp,
}

/// What became of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Stored.
    New(Accepted),
    /// Same key, same payload: the first answer again.
    Replayed(Accepted),
    /// Same key, another payload. Nothing stored.
    KeyReused,
    /// Same event id under another key: the first one. Nothing stored.
    EventTaken(Accepted),
    /// No route leads to any of its addresses. Nothing stored.
    Unroutable,
    /// A limit is reached. Nothing stored; the same key may come again.
    Limited {
        /// Which limit.
        scope: LimitScope,
        /// When one more would pass.
        retry_after: Duration,
    },
}

/// An attempt or probe that is recorded and may begin.
pub struct Claimed {
    /// Whose.
    pub id: NotificationId,
    /// Whose.
    pub tenant: Tenant,
    /// The app's name for the event.
    pub event_id: EventId,
    /// Number of the attempt.
    pub attempt: AttemptNumber,
    /// At which provider.
    pub provider: ProviderName,
    /// Which address, counted from 0.
    pub leg_index: u8,
    /// That address, as far as it may be known.
    pub leg: Leg,
    /// The reference that the provider is given.
    pub reference: Reference,
    /// The dedupe key that the provider is given.
    pub dedupe_key: String,
    /// When it was admitted.
    pub admitted_at: Timestamp,
    /// When the token dies.
    pub expires_at: Timestamp,
    /// The octet that commits must leave before this time.
    pub commit_by: Timestamp,
    /// A probe: the same request again, under the provider's dedupe.
    pub probe: bool,
    /// The sealed addresses.
    pub sealed_to: Vec<u8>,
    /// The sealed message.
    pub sealed_message: Vec<u8>,
}

impl Claimed {
    /// What the provider is given of it, with its sealed values opened.
    pub fn dispatch(self, opened: Opened) -> Dispatch {
        Dispatch {
            id: self.id,
            to: opened.to,
            content: opened.content,
            reference: self.reference.to_string(),
            dedupe_key: self.dedupe_key,
            admitted_at: self.admitted_at,
            expires_at: self.expires_at,
        }
    }
}

impl std::fmt::Debug for Claimed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Claimed({} attempt {})", self.id, self.attempt)
    }
}

/// The sealed values of a claim, opened.
#[derive(Debug)]
pub struct Opened {
    /// The address of the claim's leg.
    pub to: Address,
    /// The message.
    pub content: Content,
}

/// What became of an outcome or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleAnswer {
    /// Stored; the notification is in this state now.
    Now(State),
    /// The attempt was not the caller's any more; what it found was kept as evidence.
    Late(State),
    /// The notification is not there any more.
    Gone,
}

/// An unknown that is due to be asked about.
#[derive(Debug)]
pub enum Question {
    /// Look it up.
    Lookup(Asking),
    /// Repeat it under the provider's dedupe.
    Probe(Box<Claimed>),
}

/// What a look-up needs.
#[derive(Debug)]
pub struct Asking {
    /// Whose.
    pub id: NotificationId,
    /// Which attempt is open.
    pub attempt: AttemptNumber,
    /// At which provider.
    pub provider: ProviderName,
    /// The reference that it carried.
    pub reference: Reference,
    /// The dedupe key that it carried.
    pub dedupe_key: String,
    /// The provider's id, where it is known.
    pub message_id: Option<ProviderMessageId>,
    /// When the first attempt at this provider began.
    pub began_at: Timestamp,
    /// The address, when the look-up needs it and it is still kept.
    pub to: Option<Address>,
}

impl Asking {
    /// What the provider is asked, at `now`.
    pub fn inquiry(self, now: Timestamp) -> Inquiry {
        Inquiry {
            id: self.id,
            reference: self.reference.to_string(),
            dedupe_key: self.dedupe_key,
            to: self.to,
            message_id: self.message_id,
            began_at: self.began_at,
            now,
        }
    }
}

/// What a cancel came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It had not left and never will.
    Cancelled,
    /// It may have left; no further attempt is made.
    Marked(State),
    /// It was over already.
    AlreadyFinal(State),
    /// There is no such notification of this tenant.
    NotFound,
}

codes!(
    /// An operator's verdict on an unknown.
    Verdict {
        /// It was sent.
        Sent = "sent",
        /// It was not sent; another attempt may follow.
        NotSent = "not_sent",
        /// Nobody will find out; no further attempt.
        Abandon = "abandon",
    }
);

/// What a verdict came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveAnswer {
    /// Taken; this is the state now.
    Resolved(State),
    /// There is no open question about it; this is its state.
    NothingOpen(State),
    /// There is no such notification.
    NotFound,
}

/// What became of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It belongs to a notification and told something new.
    Matched(NotificationId),
    /// It belongs to a notification and told nothing new.
    Repeated(NotificationId),
    /// It belongs to none yet, and is kept.
    Kept,
}

impl Received {
    /// The stable code, for the metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Matched(_) => "matched",
            Self::Repeated(_) => "repeated",
            Self::Kept => "kept",
        }
    }
}

/// How long a message travels after the provider took it, by channel: it must leave so much before its expiry.
#[derive(Clone, Copy, Debug)]
pub struct Transit {
    /// For text messages.
    pub sms: Duration,
    /// For mail.
    pub email: Duration,
}

impl Transit {
    /// The margin of one channel.
    pub const fn of(&self, channel: Channel) -> Duration {
        match channel {
            Channel::Sms => self.sms,
            Channel::Email => self.email,
        }
    }
}

/// The numbers by which the ledger decides.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Counted attempts of one notification.
    pub max_attempts: u8,
    /// Delays between attempts.
    pub retry: RetryPolicy,
    /// Delays between look-ups of one unknown.
    pub ask: RetryPolicy,
    /// Transit margins.
    pub transit: Transit,
    /// After so many `not_sent` at one provider the next one of the route is tried.
    pub failover_after: u8,
    /// How long a finished notification recognises repeats; at least 30 days.
    pub key_retention: Duration,
    /// How long unmatched receipts are kept.
    pub receipt_retention: Duration,
    /// How many unmatched receipts are kept.
    pub receipts_kept: u32,
    /// How long after a node was taken for dead it may still begin what it had claimed, should it only be cut off or
    /// paused. `None` where such a node is certainly dead.
    pub begins_after_loss: Option<Duration>,
    /// How many commands may wait for the committer.
    pub queue: usize,
    /// How many commands one transaction takes at most.
    pub batch: usize,
}

/// What a route is chosen by, and the place within it.
#[derive(Clone, Copy, Debug)]
pub struct RoutingKey<'a> {
    /// The notification.
    pub id: NotificationId,
    /// Its kind.
    pub kind: &'a Kind,
    /// The address.
    pub leg: &'a Leg,
}

/// What the ledger asks the dispatcher: which provider comes first, which next, and what each can tell. The order of
/// providers is the same whenever it is asked for with one key, but for those whose breakers are open.
pub trait Routes: Send + Sync {
    /// The provider to begin with: the first one of the route whose breaker is closed, else the first. `None` when no
    /// route leads there.
    fn first(&self, key: &RoutingKey<'_>) -> Option<ProviderName>;

    /// The provider after `provider` in the route whose breaker is closed.
    fn after(&self, key: &RoutingKey<'_>, provider: &ProviderName) -> Option<ProviderName>;

    /// What a provider can tell; `None` when it is not configured any more.
    fn abilities(&self, provider: &ProviderName) -> Option<Arc<Abilities>>;

    /// The provider's breaker is open: nothing is sent there now but probes of its health.
    fn is_open(&self, provider: &ProviderName) -> bool;

    /// This node could begin an attempt there just now; else other nodes are told of what falls due.
    fn has_room(&self, _provider: &ProviderName) -> bool {
        true
    }
}
