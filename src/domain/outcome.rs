//! How an attempt ended, and what a look-up found.

use std::time::Duration;

use super::ids::ProviderMessageId;

/// Makes a closed set of codes that the store, the audit and the metrics share.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every member.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)+ }
            }

            /// The member with this code.
            pub fn from_code(code: &str) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.code())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.code())
            }
        }
    };
}
pub(crate) use codes;

codes!(
    /// Why an attempt ended as it did. A closed set: a provider's own words never enter the audit.
    Reason {
        /// The provider took the message.
        Ok = "ok",
        /// The provider says that an earlier request under the same key or id stands.
        FirstStands = "first_stands",
        /// The provider took it, but its answer held no id that we could read.
        AcceptedWithoutId = "accepted_without_id",
        /// The address does not exist, cannot be reached, or is not of the wanted type.
        BadAddress = "bad_address",
        /// The recipient has opted out, or the provider suppresses the address.
        RecipientOptedOut = "recipient_opted_out",
        /// The provider refuses the content.
        BadContent = "bad_content",
        /// Refused for this message, for a reason that the provider's documents do not let us narrow down.
        MessageRefused = "message_refused",
        /// The server cannot carry an address or content outside ASCII (RFC 6531 section 3.5).
        NeedsSmtpUtf8 = "needs_smtputf8",
        /// Our credentials are refused.
        BadCredentials = "bad_credentials",
        /// Our account has no credit left, or its quota is used up.
        NoCredit = "no_credit",
        /// Our account or sender is suspended or not allowed.
        AccountRefused = "account_refused",
        /// The provider redirected us; its configured address is wrong.
        Redirected = "redirected",
        /// No TLS where the configuration requires it, or none of an acceptable version.
        TlsRequired = "tls_required",
        /// The name could not be resolved.
        Dns = "dns",
        /// The connection was refused, unreachable, or timed out.
        Connect = "connect",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The provider limits our rate and says that it did not take the message.
        RateLimited = "rate_limited",
        /// The provider said that it cannot take it now.
        TemporarilyRefused = "temporarily_refused",
        /// The connection ended at a point where the message cannot have been taken.
        LostBeforeCommit = "lost_before_commit",
        /// The provider was silent at a point where the message cannot have been taken.
        StalledBeforeCommit = "stalled_before_commit",
        /// The other side broke the protocol at a point where the message cannot have been taken.
        ProtocolBeforeCommit = "protocol_before_commit",
        /// The connection ended after the message may have been taken.
        LostAnswer = "lost_answer",
        /// No complete answer within the time-out after the message may have been taken.
        AnswerTimeout = "answer_timeout",
        /// The provider answered with a fault of its own (HTTP 5xx or 408, SMTP 421 after the dot).
        ServerFault = "server_fault",
        /// The answer could not be read as its documents say.
        UnreadableAnswer = "unreadable_answer",
        /// The manifest has no rule for this answer.
        Unclassified = "unclassified",
        /// The provider says that an earlier request under the same key is still running.
        DedupeInProgress = "dedupe_in_progress",
        /// The provider says that the key was used with another body.
        DedupeMismatch = "dedupe_mismatch",
        /// The worker panicked.
        Panicked = "panicked",
        /// The process that ran the attempt is gone, or gave up at the end of its drain time.
        ProcessDied = "process_died",
        /// The store was restored from an older copy; what happened since is not in it.
        Restored = "restored",
        /// The worker was paused past the moment at which it had to begin.
        StartedTooLate = "started_too_late",
        /// Too little time was left before the expiry when the bytes would have left.
        DeadlinePassed = "deadline_passed",
        /// The sealed message or address could not be opened; a fault of the configured keys.
        UnsealFailed = "unseal_failed",
        /// The daemon was stopping and the attempt had not begun.
        Draining = "draining",
        /// The attempt was recorded, but no worker was told of it.
        NotHandedOut = "not_handed_out",
        /// The provider is no longer configured.
        ProviderGone = "provider_gone",
        /// Every attempt that the configuration allows has been used.
        AttemptsUsedUp = "attempts_used_up",
        /// No address of the notification is left to try.
        AddressesUsedUp = "addresses_used_up",
        /// The next try would have come after the expiry.
        NoTimeLeft = "no_time_left",
        /// The notification's time is over.
        Expired = "expired",
        /// The app asked for it.
        CancelledByApp = "cancelled_by_app",
        /// A newer event for the same user took its place.
        NewerEvent = "newer_event",
        /// An operator found out that it was sent.
        OperatorSent = "operator_sent",
        /// An operator found out that it was not sent.
        OperatorNotSent = "operator_not_sent",
        /// An operator gave up on finding out.
        OperatorAbandoned = "operator_abandoned",
        /// A receipt carried our reference or the provider's id.
        ReceiptCame = "receipt_came",
        /// A look-up found the message.
        LookupFound = "lookup_found",
        /// Enough look-ups, late enough, did not find it.
        LookupMissed = "lookup_missed",
        /// The look-up failed or its answer could not be read, and counts for nothing.
        LookupUnreadable = "lookup_unreadable",
        /// The provider's own list of messages shows it under our reference.
        Listed = "listed",
        /// The provider dedupes on our key, so the same request again is safe.
        ProviderDedupes = "provider_dedupes",
        /// The provider's breaker is open, and the route has another provider.
        BreakerOpen = "breaker_open",
    }
);

codes!(
    /// The class of an outcome.
    OutcomeClass {
        /// The provider took the message.
        Accepted = "accepted",
        /// Certainly not sent, and no retry helps for this address or content.
        RefusedMessage = "refused.message",
        /// Certainly not sent; our account or configuration is at fault.
        RefusedAccount = "refused.account",
        /// Certainly not sent, for a passing reason.
        NotSent = "not_sent",
        /// It may have been sent.
        Unknown = "unknown",
        /// No byte of it left, and not because of the provider. Uses up no attempt.
        NeverBegan = "never_began",
    }
);

/// How one attempt ended. The default of every match on a provider's answer is [`Outcome::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What may be concluded.
    pub class: OutcomeClass,
    /// Why, from the closed set.
    pub reason: Reason,
    /// The provider's id of the message, where it gave one.
    pub message_id: Option<ProviderMessageId>,
    /// How long the provider asks us to wait before another request to it. At most a day is believed.
    pub retry_after: Option<Duration>,
}

impl Outcome {
    /// An outcome with neither message id nor `Retry-After`.
    pub const fn new(class: OutcomeClass, reason: Reason) -> Self {
        Self { class, reason, message_id: None, retry_after: None }
    }

    /// The provider took it, under `message_id` where one could be read.
    pub const fn accepted(message_id: Option<ProviderMessageId>) -> Self {
        let reason = if message_id.is_some() { Reason::Ok } else { Reason::AcceptedWithoutId };
        Self { class: OutcomeClass::Accepted, reason, message_id, retry_after: None }
    }

    /// It may have been sent.
    pub const fn unknown(reason: Reason) -> Self {
        Self::new(OutcomeClass::Unknown, reason)
    }

    /// Certainly not sent, for a passing reason.
    pub const fn not_sent(reason: Reason) -> Self {
        Self::new(OutcomeClass::NotSent, reason)
    }

    /// No byte of it left.
    pub const fn never_began(reason: Reason) -> Self {
        Self::new(OutcomeClass::NeverBegan, reason)
    }
}

/// What a look-up by our reference or the provider's id found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// The provider has it; with its id and its word on delivery where the answer holds them.
    Found {
        /// The provider's id of the message.
        message_id: Option<ProviderMessageId>,
        /// What the provider says of its delivery.
        delivery: Option<super::receipt::ReceiptStatus>,
    },
    /// A complete, readable answer that does not hold it.
    NotFound,
    /// Anything else: counts for nothing.
    Unreadable,
}
