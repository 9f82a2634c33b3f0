//! What keeps the promise.

/// Each can be taken out of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// 202 only after the commit.
    AnswerAfterCommit,
    /// One row for an event, by a constraint.
    OneRowForAnEvent,
    /// The attempt is on disk before its first byte.
    RecordBeforeSend,
    /// A lost answer is unknown, and not a failure.
    LostIsUnknown,
    /// What a worker says is about its own attempt only.
    AttemptFence,
    /// A worker that has stalled past its time never begins.
    StartBy,
    /// A miss counts only when nothing can be on its way and the provider's index has caught up.
    SettleAfter,
    /// A look-up that cannot be read counts for nothing.
    UnreadableIsNothing,
    /// A probe only while the provider remembers the key.
    DedupeWindow,
    /// A refused probe says nothing of what it repeats.
    ProbeSaysNothing,
    /// Nothing leaves past the deadline, however long ago it was claimed.
    ExpiryGate,
    /// A late answer is evidence.
    LateAnswerCounts,
    /// What was stopped is not tried again.
    MarksHold,
    /// What a dead worker left is found.
    StrandedAreFound,
    /// What is live after a restore from a copy is unknown.
    RestoredIsUnknown,
    /// After a restore no miss of one attempt authorises a resend.
    MissAfterRestore,
    /// An attempt that was not sent is followed by none while its repeat is under way.
    ProbeIsAwaited,
    /// A late answer of an attempt says nothing of its repeats.
    RepeatIsApart,
    /// Nothing is recorded past the deadline, nor handed out.
    NoneAfterDeadline,
    /// What has expired ends there, whatever is learnt of its attempts.
    ExpiredIsOver,
}
