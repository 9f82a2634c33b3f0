//! What the log tells of one event, by construction without a secret: no field can hold a body, a token, an address or a
//! provider's free text.

use super::delivery::Delivery;
use super::ids::{
    ActorName, AttemptNumber, EventId, HookName, KeyedHash, NotificationId, ProviderMessageId, ProviderName, Tenant,
    Ticket,
};
use super::lifecycle::{Sent, State};
use super::outcome::{OutcomeClass, Reason, codes};
use super::time::Timestamp;

codes!(
    /// What a record tells of.
    What {
        /// The event was admitted. Exactly one for each 202.
        Accepted = "accepted",
        /// An attempt was recorded, before its first byte.
        AttemptBegun = "attempt_begun",
        /// An attempt ended, with its outcome.
        AttemptEnded = "attempt_ended",
        /// The deadline passed.
        Expired = "expired",
        /// The app asked to cancel.
        CancelAsked = "cancel_asked",
        /// A newer event came.
        NewerEvent = "newer_event",
        /// Evidence settled, or contradicted, what was known of an attempt.
        Evidence = "evidence",
        /// A look-up that settled nothing.
        LookedUp = "looked_up",
        /// A dedupe probe was recorded, before its first byte.
        ProbeBegun = "probe_begun",
        /// A dedupe probe ended, with its outcome.
        ProbeEnded = "probe_ended",
        /// A receipt changed what is known of delivery.
        Receipt = "receipt",
        /// An operator gave up on an unknown.
        Abandoned = "abandoned",
        /// Work was moved to another provider of its route.
        Rerouted = "rerouted",
        /// The store was restored from a copy, and an operator released its work as unknown.
        Restored = "restored",
        /// Two attempts were sent, or one was under way beside one that was sent.
        Contradicted = "evidence_contradicted",
        /// An auditor took an export.
        Exported = "exported",
    }
);

codes!(
    /// Where evidence comes from.
    Source {
        /// A provider's receipt.
        Receipt = "receipt",
        /// A look-up at the provider.
        Lookup = "lookup",
        /// The answer to a dedupe probe.
        Dedupe = "dedupe",
        /// The attempt's own answer, after it was taken for lost.
        LateAnswer = "late_answer",
        /// The provider's own list of messages.
        Statement = "statement",
        /// An operator.
        Operator = "operator",
    }
);

codes!(
    /// The parts of the daemon that cause changes.
    DaemonPart {
        /// A newer event came in.
        Admission = "admission",
        /// Claims and sends.
        Worker = "worker",
        /// Asks about unknowns.
        Reconciler = "reconciler",
        /// Expires, and takes over what an earlier boot left.
        Sweeper = "sweeper",
        /// `sendonce recover`.
        Recovery = "recovery",
    }
);

/// Who caused a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A part of the daemon.
    Daemon(DaemonPart),
    /// The holder of an API key, by the key's id.
    Key(ActorName),
    /// An identity system, by the hook that it posts to.
    Hook(HookName),
    /// A configured provider, by its receipt.
    Provider(ProviderName),
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Daemon(part) => write!(f, "daemon:{part}"),
            Self::Key(id) => write!(f, "key:{id}"),
            Self::Hook(name) => write!(f, "hook:{name}"),
            Self::Provider(name) => write!(f, "provider:{name}"),
        }
    }
}

/// One line of the log, before it has a position.
#[derive(Clone, Debug)]
pub struct Record {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Whose.
    pub tenant: Tenant,
    /// Of which notification; none for an export.
    pub notification: Option<NotificationId>,
    /// The app's name for it.
    pub event_id: Option<EventId>,
    /// What happened.
    pub what: What,
    /// State before.
    pub from: Option<State>,
    /// State after.
    pub to: Option<State>,
    /// What is known of its being sent, afterwards.
    pub sent: Option<Sent>,
    /// What is known of delivery, afterwards.
    pub delivery: Option<Delivery>,
    /// The attempt that it is about.
    pub attempt: Option<AttemptNumber>,
    /// The provider that it is about.
    pub provider: Option<ProviderName>,
    /// The provider's id of the message.
    pub message_id: Option<ProviderMessageId>,
    /// How the attempt ended.
    pub outcome: Option<OutcomeClass>,
    /// Why.
    pub reason: Option<Reason>,
    /// Where evidence came from.
    pub source: Option<Source>,
    /// Who.
    pub actor: Actor,
    /// Keyed hash of the address that it is about.
    pub address: Option<KeyedHash>,
    /// The ticket that an operator named.
    pub ticket: Option<Ticket>,
}

impl Record {
    /// A record with nothing but the required fields.
    pub fn new(at: Timestamp, tenant: Tenant, what: What, actor: Actor) -> Self {
        Self {
            at,
            tenant,
            what,
            actor,
            notification: None,
            event_id: None,
            from: None,
            to: None,
            sent: None,
            delivery: None,
            attempt: None,
            provider: None,
            message_id: None,
            outcome: None,
            reason: None,
            source: None,
            address: None,
            ticket: None,
        }
    }
}
