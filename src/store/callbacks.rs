//! What apps are to be told of: how far the log was taken over for each target, and what of it is not settled.
//!
//! The log is the outbox. A record of it is in the same transaction as the change that it tells of, so nothing is written
//! for a callback before it is taken over from there.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::audit::Record;
use crate::domain::callback::{Before, Change};
use crate::domain::delivery::Delivery;
use crate::domain::ids::{AttemptNumber, EventId, NotificationId, ProviderName, TargetName, Tenant};
use crate::domain::lifecycle::{Sent, State};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;

/// A record, with what must be known beside it to see what it changed.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its position.
    pub pos: i64,
    /// The record, which is about a notification.
    pub record: Record,
    /// What the notification's record before it told.
    pub before: Before,
    /// The notification's state after it.
    pub state: State,
}

/// A callback to be kept until it is settled.
#[derive(Clone, Debug)]
pub struct NewCallback {
    /// The position of its record.
    pub pos: i64,
    /// About which notification.
    pub notification: NotificationId,
    /// What it tells.
    pub change: Change,
    /// The state after the change.
    pub state: State,
    /// When it may first be sent.
    pub due_at: Timestamp,
}

/// A callback that is not settled, with what it tells of its record.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The position of its record.
    pub pos: i64,
    /// About which notification.
    pub notification: NotificationId,
    /// What it tells.
    pub change: Change,
    /// The state after the change.
    pub state: State,
    /// How often it was sent in vain.
    pub tries: u16,
    /// When it may be sent next.
    pub due_at: Timestamp,
    /// When the change happened.
    pub at: Timestamp,
    /// The app's name for the event.
    pub event_id: EventId,
    /// Whether it was sent, as it was known then.
    pub sent: Option<Sent>,
    /// What receipts had said by then.
    pub delivery: Option<Delivery>,
    /// The attempt that the change is about.
    pub attempt: Option<AttemptNumber>,
    /// The attempt's provider.
    pub provider: Option<ProviderName>,
    /// How the attempt ended.
    pub outcome: Option<OutcomeClass>,
    /// Why.
    pub reason: Option<Reason>,
}

/// A callback that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The position of its record.
    pub pos: i64,
    /// How often it was sent in vain by now.
    pub tries: u16,
    /// When it may be sent next.
    pub due_at: Timestamp,
}

/// How much of what was taken over is not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backlog {
    /// How many callbacks.
    pub count: u64,
    /// When the first of their changes happened.
    pub oldest: Option<Timestamp>,
}

/// The primitives of callbacks. Each takes effect whole or not at all.
#[async_trait]
pub trait Callbacks: Send + Sync {
    /// Has a target begin after position `pos`, unless it has begun already.
    async fn enlist(&self, target: &TargetName, pos: i64) -> Result<(), StoreError>;

    /// The position up to which the log was taken over for a target that is enlisted.
    async fn place(&self, target: &TargetName) -> Result<i64, StoreError>;

    /// The tenant's records about notifications after position `after`, up to `up_to`, in order; those that can change
    /// nothing for an app may be missing.
    async fn logged(&self, tenant: &Tenant, after: i64, up_to: i64) -> Result<Vec<Logged>, StoreError>;

    /// Takes over the log of a target from position `from` to `to`. `false`: it is not at `from` any more, and nothing is
    /// done.
    async fn take_over(
        &self,
        target: &TargetName,
        from: i64,
        to: i64,
        callbacks: &[NewCallback],
    ) -> Result<bool, StoreError>;

    /// Up to `limit` callbacks of a target, the first due first: of each notification only the earliest, because a later
    /// one waits until that is settled.
    async fn first(&self, target: &TargetName, limit: u32) -> Result<Vec<Callback>, StoreError>;

    /// Removes what is `over`, and postpones what is to be sent `again`. What is not there is passed over.
    async fn settle(&self, target: &TargetName, over: &[i64], again: &[Again]) -> Result<(), StoreError>;

    /// How much of a target's callbacks is not settled.
    async fn backlog(&self, target: &TargetName) -> Result<Backlog, StoreError>;
}
