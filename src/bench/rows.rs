//! Rows as the daemon writes them, with the same sizes, and with random bytes where it would have sealed or hashed.

use crate::domain::audit::{Actor, DaemonPart, Record, What};
use crate::domain::content::Channel;
use crate::domain::ids::{ActorName, BadName, EventId, KeyedHash, Kind, NotificationId, ProviderMessageId};
use crate::domain::ids::{ProviderName, Tenant};
use crate::domain::lifecycle::{Life, Sent, State};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::store::rows::{
    Asked, Leg, NotificationOutcome, NotificationRow, NotificationUpdate, Owner, Queue, WorkRow, WorkState, WorkUpdate,
};

use super::{PROVIDER, TENANT};

/// Length of the sealed addresses of one phone number, and of a sealed text message of the shipped template.
const SEALED_TO: usize = 64;
const SEALED_MESSAGE: usize = 143;

/// One admitted event: its rows and the first record of its log.
#[derive(Clone)]
pub(super) struct Admitted {
    pub notification: NotificationRow,
    pub work: WorkRow,
    pub record: Record,
}

/// Makes rows.
pub(super) struct Maker {
    tenant: Tenant,
    kind: Kind,
    provider: ProviderName,
    event_id: EventId,
    message_id: ProviderMessageId,
    actor: ActorName,
}

impl Maker {
    /// One for the bench's own tenant and provider.
    ///
    /// # Errors
    /// Never in truth: [`BadName`] would mean that a constant name is none.
    pub fn new() -> Result<Self, BadName> {
        Ok(Self {
            tenant: Tenant::parse(TENANT)?,
            kind: Kind::parse("password_reset")?,
            provider: ProviderName::parse(PROVIDER)?,
            event_id: EventId::parse("e00c0ffee")?,
            message_id: ProviderMessageId::parse("m00000000")?,
            actor: ActorName::parse("key00000")?,
        })
    }

    /// Whose work it is.
    pub fn queue(&self) -> Queue {
        Queue::Send(self.provider.clone())
    }

    /// Whose rows they are.
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// A new event, admitted and due at `now`.
    pub fn admitted(&self, now: Timestamp) -> Admitted {
        let id = NotificationId::new(now, rand::random());
        let (user, address) = (hash(), hash());
        let expires_at = now.plus(std::time::Duration::from_secs(3600));
        let mut fingerprint = [1; 33];
        fingerprint[1..].copy_from_slice(&rand::random::<[u8; 32]>());
        let notification = NotificationRow {
            id,
            tenant: self.tenant.clone(),
            key: hash(),
            event: hash(),
            event_id: self.event_id.clone(),
            kind: self.kind.clone(),
            mask: "+44•••••567".to_owned(),
            fingerprint,
            created_at: now,
            expires_at,
            outcome: NotificationOutcome::NEW,
        };
        let state = WorkState {
            life: Life::NEW,
            queue: Some(self.queue()),
            due_at: now,
            leg: 0,
            provider: self.provider.clone(),
            tries_here: 0,
            owner: None,
            asked: None,
        };
        let work = WorkRow {
            id,
            tenant: self.tenant.clone(),
            event_id: self.event_id.clone(),
            kind: notification.kind.clone(),
            created_at: now,
            state,
            expires_at,
            ordered_at: now,
            user,
            legs: vec![Leg { channel: Channel::Sms, country: Some(*b"GB"), address }],
            sealed_to: vec![7; SEALED_TO],
            sealed_message: Some(vec![7; SEALED_MESSAGE]),
        };
        let mut record = self.record(now, id, What::Accepted, Actor::Key(self.actor.clone()), Sent::No, address);
        record.to = Some(State::Accepted);
        Admitted { notification, work, record }
    }

    fn record(&self, at: Timestamp, id: NotificationId, what: What, actor: Actor, sent: Sent, to: KeyedHash) -> Record {
        let mut record = Record::new(at, self.tenant.clone(), what, actor);
        record.notification = Some(id);
        record.event_id = Some(self.event_id.clone());
        record.sent = Some(sent);
        record.address = Some(to);
        record
    }

    fn attempt(&self, at: Timestamp, work: &WorkRow, what: What, sent: Sent, states: (State, State)) -> Record {
        let address = work.legs.first().map_or_else(hash, |leg| leg.address);
        let mut record = self.record(at, work.id, what, Actor::Daemon(DaemonPart::Worker), sent, address);
        (record.from, record.to) = (Some(states.0), Some(states.1));
        record.attempt = Some(1);
        record.provider = Some(self.provider.clone());
        record
    }

    /// The claim of waiting work: its new columns, and the record of its first attempt.
    pub fn claimed(&self, now: Timestamp, work: &WorkRow) -> (WorkUpdate, Record) {
        let life = Life { state: State::Dispatching, sent: Sent::Unknown, attempt: 1, used: 1, ..Life::NEW };
        let asked = Asked {
            attempt: 1,
            account: [7; 16],
            rev: [7; 16],
            first_there_at: now,
            ended_at: None,
            cause: None,
            misses: 0,
            asks: 0,
        };
        let (queue, owner) = (None, Some(Owner { boot: "0123456789abcdef".to_owned(), claim: 1 }));
        let state = WorkState { life, queue, owner, asked: Some(asked), ..work.state.clone() };
        let states = (State::Accepted, State::Dispatching);
        let record = self.attempt(now, work, What::AttemptBegun, Sent::Unknown, states);
        let (was_state, was_attempt) = (work.state.life.state, work.state.life.attempt);
        (WorkUpdate { id: work.id, was_state, was_attempt, state, wipe_message: false }, record)
    }

    /// The end of an attempt that the provider took: the last columns, and the last record.
    pub fn settled(&self, now: Timestamp, work: &WorkRow) -> (NotificationUpdate, Record) {
        let outcome = NotificationOutcome {
            state: State::Dispatched,
            sent: Sent::Yes,
            attempt: 1,
            sent_attempt: Some(1),
            channel: Some(Channel::Sms),
            provider: Some(self.provider.clone()),
            message_id: Some(self.message_id.clone()),
            finished_at: Some(now),
            ..NotificationOutcome::NEW
        };
        let mut record =
            self.attempt(now, work, What::AttemptEnded, Sent::Yes, (State::Dispatching, State::Dispatched));
        record.message_id = Some(self.message_id.clone());
        record.outcome = Some(OutcomeClass::Accepted);
        record.reason = Some(Reason::Ok);
        (NotificationUpdate { id: work.id, outcome }, record)
    }
}

fn hash() -> KeyedHash {
    KeyedHash::from_bytes(rand::random())
}
