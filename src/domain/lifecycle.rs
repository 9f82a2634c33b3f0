//! The life of a notification: the one place that names a next state.
//!
//! [`step`] takes what is known of a notification and one fact, and says what is known afterwards. It is pure: the
//! ledger gathers the facts, this function judges them, and the store's guards repeat its edges in SQL.
//!
//! The rule that everything serves: while any attempt is *open* (nobody knows whether it was sent), no edge leads to
//! another attempt. Only evidence closes it.

use super::ids::AttemptNumber;
use super::outcome::codes;

codes!(
    /// Where a notification stands.
    State {
        /// Stored; no attempt yet.
        Accepted = "accepted",
        /// An attempt is recorded and may be under way.
        Dispatching = "dispatching",
        /// Certainly not sent so far; another attempt will follow.
        RetryWait = "retry_wait",
        /// An attempt may have been sent; nobody knows yet.
        DispatchUnknown = "dispatch_unknown",
        /// A provider took it. Final.
        Dispatched = "dispatched",
        /// No further attempt will be made, for a reason other than time. Final.
        Failed = "failed",
        /// Its time is over. Final.
        Expired = "expired",
        /// The app took it back before it left. Final.
        Cancelled = "cancelled",
        /// A newer event for the same user took its place before it left. Final.
        Superseded = "superseded",
    }
);

impl State {
    /// No edge leaves a final state.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Dispatched | Self::Failed | Self::Expired | Self::Cancelled | Self::Superseded)
    }

    /// Waits for a worker.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Accepted | Self::RetryWait)
    }
}

codes!(
    /// Whether the message was handed to a provider, as far as anyone knows.
    Sent {
        /// Certainly not.
        No = "no",
        /// Certainly.
        Yes = "yes",
        /// It may have been.
        Unknown = "unknown",
    }
);

/// What people asked for while an attempt could not be recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Marks {
    /// The app asked to cancel.
    pub cancel: bool,
    /// A newer event came.
    pub supersede: bool,
}

/// What is known of one notification's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    /// Where it stands.
    pub state: State,
    /// Whether it was sent.
    pub sent: Sent,
    /// Number of the last attempt that was begun; 0 before the first.
    pub attempt: AttemptNumber,
    /// How many attempts count against the maximum.
    pub used: u8,
    /// The attempt of which nobody knows whether it was sent. A probe of it does not open another, and takes its place
    /// only where it is under way when the attempt turns out not to have been sent.
    pub open: Option<AttemptNumber>,
    /// The attempt known to have been sent.
    pub sent_attempt: Option<AttemptNumber>,
    /// A dedupe probe of the open attempt is under way.
    pub probing: bool,
    /// What waits to take effect.
    pub marks: Marks,
}

impl Life {
    /// A life at its beginning.
    pub const NEW: Self = Self {
        state: State::Accepted,
        sent: Sent::No,
        attempt: 0,
        used: 0,
        open: None,
        sent_attempt: None,
        probing: false,
        marks: Marks { cancel: false, supersede: false },
    };

    /// Nothing can be done or asked any more: the sealed values go.
    pub const fn is_over(&self) -> bool {
        self.state.is_final() && self.open.is_none() && !self.probing
    }

    /// No attempt, not even a probe, can follow: the sealed message goes.
    pub const fn is_past_sending(&self) -> bool {
        self.state.is_final()
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A worker takes it, and the attempt is recorded.
    Claimed,
    /// Its deadline has passed.
    TimeOver,
    /// The app asks to cancel.
    CancelAsked,
    /// A newer event for the same user was admitted.
    NewerEvent,
    /// The attempt's own worker: no byte left.
    NeverBegan,
    /// The attempt's own worker: the provider took it.
    Accepted,
    /// The attempt's own worker: certainly not sent, for a passing reason.
    NotSent,
    /// The attempt's own worker: certainly not sent, our account is at fault.
    RefusedAccount,
    /// The attempt's own worker: certainly not sent, this address or content is at fault.
    RefusedMessage,
    /// The attempt's own worker, its supervisor or a sweep: nobody knows.
    Lost,
    /// Evidence that this attempt was sent; 0 for "one of them".
    EvidenceSent(AttemptNumber),
    /// Evidence that this attempt was not sent.
    EvidenceNotSent(AttemptNumber),
    /// The same request is repeated at a provider that dedupes.
    ProbeBegun,
    /// The repeat ended without settling anything.
    ProbeEnded,
    /// The repeat ended before any byte of it left.
    ProbeNeverBegan,
    /// An operator gives up on finding out.
    Abandoned,
    /// The store was restored from a copy: an attempt may have been made of which it does not know.
    Restored,
}

/// What may follow, as the ledger sees it at the moment of the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Another attempt could begin before the deadline.
    pub in_time: bool,
    /// There is an address after the one that was refused.
    pub another_address: bool,
    /// How many counted attempts are allowed.
    pub max_attempts: u8,
}

/// What follows from a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is known now.
    pub life: Life,
    /// Two attempts were sent, or one is under way beside one that was sent. Alert.
    pub contradicted: bool,
}

/// The fact cannot happen in this state. The ledger writes nothing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fact:?} cannot happen in {state}")]
pub struct Illegal {
    /// Where the notification stands.
    pub state: State,
    /// What was claimed to have happened.
    pub fact: Fact,
}

/// Judges one fact.
///
/// # Errors
/// [`Illegal`] when the state has no edge for the fact.
pub fn step(life: &Life, fact: Fact, outlook: Outlook) -> Result<Step, Illegal> {
    let illegal = Illegal { state: life.state, fact };
    let to = |state, sent| Step { life: Life { state, sent, ..*life }, contradicted: false };
    match (life.state, fact) {
        (State::Accepted | State::RetryWait, _) => waiting(life, fact).ok_or(illegal),
        (State::Dispatching, Fact::Accepted) => Ok(settled_as_sent(life, life.attempt, State::Dispatched)),
        (State::Dispatching, Fact::NeverBegan | Fact::RefusedAccount) => {
            let refunded = Life { used: life.used.saturating_sub(1), sent: Sent::No, ..*life };
            Ok(again(&refunded, outlook))
        }
        (State::Dispatching, Fact::NotSent) => Ok(again(&Life { sent: Sent::No, ..*life }, outlook)),
        (State::Dispatching, Fact::RefusedMessage) if outlook.another_address => {
            Ok(again(&Life { sent: Sent::No, ..*life }, outlook))
        }
        (State::Dispatching, Fact::RefusedMessage) => Ok(to(State::Failed, Sent::No)),
        (State::Dispatching, Fact::Lost | Fact::Restored) => {
            let mut step = to(State::DispatchUnknown, Sent::Unknown);
            step.life.open = Some(life.attempt);
            Ok(step)
        }
        (State::Dispatching | State::DispatchUnknown, Fact::CancelAsked) => {
            Ok(marked(life, Marks { cancel: true, ..life.marks }))
        }
        (State::Dispatching | State::DispatchUnknown, Fact::NewerEvent) => {
            Ok(marked(life, Marks { supersede: true, ..life.marks }))
        }
        (State::DispatchUnknown, Fact::TimeOver) => Ok(to(State::Expired, Sent::Unknown)),
        (State::DispatchUnknown, Fact::Abandoned) => {
            let mut step = to(State::Failed, Sent::Unknown);
            step.life.open = None;
            Ok(step)
        }
        (State::DispatchUnknown, Fact::ProbeBegun) if !life.probing => {
            let mut step = to(life.state, life.sent);
            step.life.attempt = life.attempt.checked_add(1).ok_or(illegal)?;
            step.life.used = life.used.saturating_add(1);
            step.life.probing = true;
            Ok(step)
        }
        (State::DispatchUnknown, Fact::Restored) => {
            let mut step = to(life.state, life.sent);
            step.life.probing = false;
            Ok(step)
        }
        (_, Fact::ProbeEnded | Fact::ProbeNeverBegan) if life.probing => {
            let mut step = to(life.state, life.sent);
            step.life.probing = false;
            step.life.used = life.used.saturating_sub(u8::from(fact == Fact::ProbeNeverBegan));
            Ok(step)
        }
        (State::Dispatching | State::DispatchUnknown, Fact::EvidenceSent(attempt)) => {
            Ok(settled_as_sent(life, attempt, State::Dispatched))
        }
        (state, Fact::EvidenceSent(attempt)) => Ok(settled_as_sent(life, attempt, state)),
        // The attempt was not sent, but its repeat is under way and may be: now that is what nobody knows.
        (state, Fact::EvidenceNotSent(attempt)) if life.probing && life.open == Some(attempt) => {
            if attempt == life.attempt {
                return Err(illegal);
            }
            let mut step = to(state, life.sent);
            step.life.open = Some(life.attempt);
            Ok(step)
        }
        (State::DispatchUnknown, Fact::EvidenceNotSent(attempt)) if life.open == Some(attempt) => {
            Ok(again(&Life { open: None, sent: Sent::No, ..*life }, outlook))
        }
        (state, Fact::EvidenceNotSent(attempt)) if life.open == Some(attempt) => {
            let mut step = to(state, if life.sent == Sent::Yes { Sent::Yes } else { Sent::No });
            step.life.open = None;
            Ok(step)
        }
        _ => Err(illegal),
    }
}

/// The edges out of `accepted` and `retry_wait`, which have the same ones.
fn waiting(life: &Life, fact: Fact) -> Option<Step> {
    let end = |state| Some(Step { life: Life { state, ..*life }, contradicted: false });
    let begun = |state| {
        let attempt = life.attempt.checked_add(1)?;
        let used = life.used.saturating_add(1);
        let life = Life { state, sent: Sent::Unknown, attempt, used, ..*life };
        Some(Step { life, contradicted: false })
    };
    match fact {
        Fact::Claimed => begun(State::Dispatching),
        Fact::TimeOver => end(State::Expired),
        Fact::CancelAsked => end(State::Cancelled),
        Fact::NewerEvent => end(State::Superseded),
        // A receipt for an attempt that we took for not sent, or that a lost copy of the store made: it stands, and no
        // other attempt may follow.
        Fact::EvidenceSent(attempt) => Some(settled_as_sent(life, attempt, State::Dispatched)),
        // The attempt that the lost copy may have made has the next number, so its reference can be looked up.
        Fact::Restored => begun(State::DispatchUnknown).map(|mut step| {
            step.life.open = Some(step.life.attempt);
            step
        }),
        _ => None,
    }
}

/// Another attempt would follow: it does, unless a mark, the maximum or the clock ends the life here.
fn again(life: &Life, outlook: Outlook) -> Step {
    let state = if life.marks.cancel {
        State::Cancelled
    } else if life.marks.supersede {
        State::Superseded
    } else if life.used >= outlook.max_attempts || life.attempt == AttemptNumber::MAX {
        State::Failed
    } else if !outlook.in_time {
        State::Expired
    } else {
        State::RetryWait
    };
    Step { life: Life { state, ..*life }, contradicted: false }
}

fn settled_as_sent(life: &Life, attempt: AttemptNumber, state: State) -> Step {
    let attempt = match attempt {
        0 => life.sent_attempt.or(life.open).unwrap_or(life.attempt),
        n => n,
    };
    let also_under_way = life.state == State::Dispatching && attempt != life.attempt;
    let also_sent = life.sent_attempt.is_some_and(|sent| sent != attempt);
    let sent_attempt = Some(life.sent_attempt.unwrap_or(attempt));
    Step {
        life: Life { state, sent: Sent::Yes, open: None, sent_attempt, attempt: life.attempt.max(attempt), ..*life },
        contradicted: also_under_way || also_sent,
    }
}

fn marked(life: &Life, marks: Marks) -> Step {
    Step { life: Life { marks, ..*life }, contradicted: false }
}
