//! Rows as the backends read and write them.

use std::fmt;

use crate::domain::audit::Record;
use crate::domain::content::Channel;
use crate::domain::delivery::DeliveryFacts;
use crate::domain::ids::{
    AttemptNumber, EventId, KeyedHash, Kind, NotificationId, ProviderMessageId, ProviderName, Tenant,
};
use crate::domain::lifecycle::{Life, Sent, State};
use crate::domain::outcome::Reason;
use crate::domain::time::Timestamp;

/// Version 1 fingerprint of a request: one version byte and 32 bytes of HMAC-SHA-256 under the index key.
pub type Fingerprint = [u8; 33];

/// The whole `notification` row.
#[derive(Clone, Debug)]
pub struct NotificationRow {
    /// Primary key.
    pub id: NotificationId,
    /// Whose.
    pub tenant: Tenant,
    /// Keyed hash of the idempotency key.
    pub key: KeyedHash,
    /// Keyed hash of the event id.
    pub event: KeyedHash,
    /// The app's name for the event.
    pub event_id: EventId,
    /// Kind of message.
    pub kind: Kind,
    /// The addresses, masked for people, joined by a comma.
    pub mask: String,
    /// Keyed fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// When it was admitted.
    pub created_at: Timestamp,
    /// When the token dies.
    pub expires_at: Timestamp,
    /// What may change later.
    pub outcome: NotificationOutcome,
}

/// The columns of `notification` that change. While there is work, `work.state` is ahead of `state` here.
#[derive(Clone, Debug)]
pub struct NotificationOutcome {
    /// Final state, or `accepted` while there is work that is not final.
    pub state: State,
    /// Whether it was sent.
    pub sent: Sent,
    /// The last attempt; 0 before there is one.
    pub attempt: AttemptNumber,
    /// Which attempt was.
    pub sent_attempt: Option<AttemptNumber>,
    /// The attempt of which nobody knows, where the state is final nevertheless.
    pub open_attempt: Option<AttemptNumber>,
    /// Channel of the attempt that was sent or asked about last.
    pub channel: Option<Channel>,
    /// What receipts said.
    pub delivery: DeliveryFacts,
    /// Provider of that attempt.
    pub provider: Option<ProviderName>,
    /// The provider's id.
    pub message_id: Option<ProviderMessageId>,
    /// The same id again, where receipts name the message only by it; indexed.
    pub receipt_key: Option<ProviderMessageId>,
    /// When the state became final.
    pub finished_at: Option<Timestamp>,
}

impl NotificationOutcome {
    /// Of a notification that was just admitted.
    pub const NEW: Self = Self {
        state: State::Accepted,
        sent: Sent::No,
        attempt: 0,
        sent_attempt: None,
        open_attempt: None,
        channel: None,
        delivery: DeliveryFacts { delivered: 0, undelivered: 0, parts: 0 },
        provider: None,
        message_id: None,
        receipt_key: None,
        finished_at: None,
    };

    /// Tells of a life what the narrow row keeps.
    pub fn tell(&mut self, life: &Life) {
        self.state = life.state;
        self.sent = life.sent;
        self.attempt = life.attempt;
        self.sent_attempt = life.sent_attempt;
        self.open_attempt = life.open;
    }
}

/// New values for one notification.
#[derive(Clone, Debug)]
pub struct NotificationUpdate {
    /// Which one.
    pub id: NotificationId,
    /// All columns that may change.
    pub outcome: NotificationOutcome,
}

/// The first of the ids that were made at a time: its first 48 bits are the milliseconds (RFC 9562 section 5.7).
pub(super) fn first_id_at(time: Timestamp) -> [u8; 16] {
    let millis = u64::try_from(time.micros() / 1000).unwrap_or(0);
    let mut id = [0; 16];
    id[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    id
}

/// What recognises a repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The first one's id.
    pub id: NotificationId,
    /// Whose.
    pub tenant: Tenant,
    /// Keyed hash of its idempotency key.
    pub key: KeyedHash,
    /// Keyed hash of its event id.
    pub event: KeyedHash,
    /// Its event id.
    pub event_id: EventId,
    /// Keyed fingerprint of its request.
    pub fingerprint: Fingerprint,
    /// Its expiry.
    pub expires_at: Timestamp,
}

/// Whose turn a row of work waits for. `None` in a row: nobody's (it is being worked on, or waits for an operator).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// To be sent by this provider.
    Send(ProviderName),
    /// To be asked about at this provider.
    Ask(ProviderName),
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(provider) => write!(f, "send:{provider}"),
            Self::Ask(provider) => write!(f, "ask:{provider}"),
        }
    }
}

impl Queue {
    /// Whose queue of messages to send it is.
    pub fn sends(&self) -> Option<&ProviderName> {
        match self {
            Self::Send(provider) => Some(provider),
            Self::Ask(_) => None,
        }
    }

    /// Reads the stored form.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("send", name) => ProviderName::parse(name).ok().map(Self::Send),
            ("ask", name) => ProviderName::parse(name).ok().map(Self::Ask),
            _ => None,
        }
    }
}

/// One address of a notification, as far as it may be known without opening the sealed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Phone or mail.
    pub channel: Channel,
    /// ISO 3166-1 alpha-2 of a phone number, where it has one.
    pub country: Option<[u8; 2]>,
    /// Keyed hash of the address.
    pub address: KeyedHash,
}

impl Leg {
    /// Length of one leg in the `legs` column: channel, country (two zero bytes for none), hash.
    pub const LEN: usize = 19;

    /// Writes legs as the `legs` column keeps them.
    pub fn encode(legs: &[Self]) -> Vec<u8> {
        let mut out = Vec::with_capacity(legs.len() * Self::LEN);
        for leg in legs {
            out.push(match leg.channel {
                Channel::Sms => 1,
                Channel::Email => 2,
            });
            out.extend_from_slice(&leg.country.unwrap_or_default());
            out.extend_from_slice(leg.address.as_bytes());
        }
        out
    }

    /// Reads the `legs` column; `None` when it is not one.
    pub fn decode(bytes: &[u8]) -> Option<Vec<Self>> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(Self::LEN) {
            return None;
        }
        let leg = |b: &[u8]| {
            let channel = match b[0] {
                1 => Channel::Sms,
                2 => Channel::Email,
                _ => return None,
            };
            let country = [b[1], b[2]];
            let address = KeyedHash::from_bytes(b[3..].try_into().ok()?);
            Some(Self { channel, country: (country != [0, 0]).then_some(country), address })
        };
        bytes.chunks(Self::LEN).map(leg).collect()
    }
}

/// What must be remembered of an attempt while somebody may have to ask about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number in its reference: its own, or 0 where the provider gets the notification's.
    pub attempt: AttemptNumber,
    /// Which account it used; a look-up with another one proves nothing.
    pub account: [u8; 16],
    /// Revision of manifest, settings and program; a dedupe probe needs the same.
    pub rev: [u8; 16],
    /// When the first attempt at this provider began; the dedupe window counts from there.
    pub first_there_at: Timestamp,
    /// When it ended, at the latest.
    pub ended_at: Option<Timestamp>,
    /// Why it is unknown.
    pub cause: Option<Reason>,
    /// Look-ups in a row that did not find it.
    pub misses: u8,
    /// Look-ups and probes made, for their backoff.
    pub asks: u16,
}

/// Who took work: one commit of one boot. A claim whose commit got no answer is told by it from one that was made since,
/// of the same attempt's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The boot that works on it.
    pub boot: String,
    /// The claim's number, of which a boot uses none twice.
    pub claim: i64,
}

/// The columns of `work` that change.
#[derive(Clone, Debug)]
pub struct WorkState {
    /// Where it stands.
    pub life: Life,
    /// Whose turn it waits for.
    pub queue: Option<Queue>,
    /// When its turn comes.
    pub due_at: Timestamp,
    /// Which leg is tried; an index into [`WorkRow::legs`].
    pub leg: u8,
    /// At which provider.
    pub provider: ProviderName,
    /// Attempts at this provider that ended `not_sent`, for failover.
    pub tries_here: u8,
    /// Who works on it.
    pub owner: Option<Owner>,
    /// The attempt to ask about.
    pub asked: Option<Asked>,
}

/// The whole `work` row, with what it needs of its notification.
#[derive(Clone, Debug)]
pub struct WorkRow {
    /// Primary key.
    pub id: NotificationId,
    /// Whose (from `notification`; not written by `insert_work`).
    pub tenant: Tenant,
    /// The app's name for the event (from `notification`).
    pub event_id: EventId,
    /// Its kind (from `notification`).
    pub kind: Kind,
    /// When it was admitted (from `notification`).
    pub created_at: Timestamp,
    /// What may change.
    pub state: WorkState,
    /// When the token dies.
    pub expires_at: Timestamp,
    /// When the event happened, for superseding.
    pub ordered_at: Timestamp,
    /// Keyed hash of (tenant, kind, user).
    pub user: KeyedHash,
    /// The addresses in the order in which they may be tried.
    pub legs: Vec<Leg>,
    /// The sealed addresses.
    pub sealed_to: Vec<u8>,
    /// The sealed message; `None` once nothing can be sent.
    pub sealed_message: Option<Vec<u8>>,
}

/// New values for one row of work, guarded.
#[derive(Clone, Debug)]
pub struct WorkUpdate {
    /// Which one.
    pub id: NotificationId,
    /// It must still be in this state.
    pub was_state: State,
    /// And at this attempt.
    pub was_attempt: AttemptNumber,
    /// The new values.
    pub state: WorkState,
    /// Overwrite the sealed message.
    pub wipe_message: bool,
}

/// Work whose turn has come.
#[derive(Clone, Debug)]
pub struct Due {
    /// The row.
    pub work: WorkRow,
    /// There is newer work of the same person.
    pub overtaken: bool,
}

/// What a batch changes, beyond the notifications that it inserts.
#[derive(Debug, Default)]
pub struct Changes {
    /// Work to insert.
    pub new: Vec<WorkRow>,
    /// Work to change.
    pub changed: Vec<WorkUpdate>,
    /// Work to delete; its sealed values are overwritten.
    pub over: Vec<NotificationId>,
    /// What changes of notifications; those that are not there are passed over.
    pub outcomes: Vec<NotificationUpdate>,
    /// What is appended to the log, in this order.
    pub records: Vec<Record>,
}

impl Changes {
    /// Nothing changes.
    pub fn is_empty(&self) -> bool {
        let Self { new, changed, over, outcomes, records } = self;
        new.is_empty() && changed.is_empty() && over.is_empty() && outcomes.is_empty() && records.is_empty()
    }
}

/// How to find one notification.
#[derive(Clone, Debug)]
pub enum StatusSelector {
    /// By id.
    Id(NotificationId),
    /// By keyed hash of the event id.
    Event(KeyedHash),
    /// By keyed hash of the idempotency key.
    Key(KeyedHash),
}

/// A notification as its status page shows it.
#[derive(Clone, Debug)]
pub struct StatusRow {
    /// The narrow row.
    pub notification: NotificationRow,
    /// The live columns, while there is work.
    pub work: Option<WorkState>,
    /// Its log, in order.
    pub log: Vec<LogRow>,
}

/// One stored log record.
#[derive(Clone, Debug)]
pub struct LogRow {
    /// Position; grows with every record of the store.
    pub pos: i64,
    /// The record.
    pub record: Record,
}

/// Which part of the log is wanted. `None` everywhere is all of it.
#[derive(Clone, Debug, Default)]
pub struct LogFilter {
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only from this time on.
    pub from: Option<Timestamp>,
    /// Only before this time.
    pub to: Option<Timestamp>,
    /// Only of this notification.
    pub notification: Option<NotificationId>,
    /// Only of this event.
    pub event_id: Option<EventId>,
    /// Only this kind of record.
    pub what: Option<crate::domain::audit::What>,
    /// Only up to this position, inclusive; see [`Reader::log_end`](super::Reader::log_end).
    pub up_to: Option<i64>,
}

/// Which unknowns are wanted.
#[derive(Clone, Debug, Default)]
pub struct UnknownFilter {
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only at this provider.
    pub provider: Option<ProviderName>,
    /// Only with this cause.
    pub cause: Option<Reason>,
    /// Only those whose attempt ended before this time.
    pub before: Option<Timestamp>,
    /// Only after this id.
    pub after: Option<NotificationId>,
    /// At most so many.
    pub limit: u32,
}

/// One unknown, as the operator sees it.
#[derive(Clone, Debug)]
pub struct UnknownRow {
    /// Which one.
    pub id: NotificationId,
    /// Whose.
    pub tenant: Tenant,
    /// The app's name for it.
    pub event_id: EventId,
    /// Masked addresses.
    pub mask: String,
    /// Live columns.
    pub state: WorkState,
    /// When it was admitted.
    pub created_at: Timestamp,
    /// When the token dies.
    pub expires_at: Timestamp,
}

/// Numbers that must add up: see `audit account`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AccountCounts {
    /// Notifications that were acknowledged and are still kept.
    pub notifications: u64,
    /// Of those, in a final state.
    pub finished: u64,
    /// Of those, still live.
    pub live: u64,
    /// `accepted` records of kept notifications.
    pub accepted_records: u64,
    /// Records that tell of a step into a final state, of kept notifications.
    pub final_records: u64,
    /// Known to be sent.
    pub sent: u64,
    /// Certainly not sent, and final.
    pub not_sent: u64,
    /// Final or not, unknown whether sent.
    pub unknown: u64,
}

/// A notification whose records do not add up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AccountFault {
    /// Which one.
    pub id: NotificationId,
    /// Its `accepted` records; should be 1.
    pub accepted_records: u64,
    /// Its final records; should be 1 when it is final, else 0.
    pub final_records: u64,
    /// Whether it is final.
    pub finished: bool,
}

/// How much work there is.
#[derive(Clone, Debug)]
pub struct WorkCounts {
    /// At which provider.
    pub provider: ProviderName,
    /// In which state.
    pub state: State,
    /// How many.
    pub count: u64,
    /// The earliest due time among them.
    pub oldest_due: Timestamp,
}

/// How far a store has come: compared with what a node saw before, it tells a restored copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighWater {
    /// Made once, when the store was.
    pub incarnation: String,
    /// Highest log position.
    pub pos: i64,
    /// Time of the last record.
    pub at: Timestamp,
}
