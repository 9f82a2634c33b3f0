//! Which changes of a notification its app is told of.

use super::audit::Record;
use super::delivery::Delivery;
use super::lifecycle::{Sent, State};
use super::outcome::codes;

codes!(
    /// A change that a callback tells. Its type is `notification.` and this code.
    Change {
        /// A provider took it. Final, as all states but `dispatch_unknown`.
        Dispatched = "dispatched",
        /// No further attempt will be made.
        Failed = "failed",
        /// Its time is over.
        Expired = "expired",
        /// The app took it back.
        Cancelled = "cancelled",
        /// A newer event took its place.
        Superseded = "superseded",
        /// An attempt may have been sent; nobody knows yet.
        DispatchUnknown = "dispatch_unknown",
        /// Receipts say that it was delivered.
        Delivered = "delivered",
        /// Receipts say that it was not, and will not be.
        Undelivered = "undelivered",
        /// After the end it became known whether it was sent.
        SentChanged = "sent_changed",
    }
);

/// What the record before the one that is judged had told of the same notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Before {
    /// Whether it was sent.
    pub sent: Option<Sent>,
    /// What receipts had said.
    pub delivery: Option<Delivery>,
}

impl Change {
    /// What a record tells its app, if anything. `state` is the notification's after the record. One record tells at most
    /// one change: a state is entered, or a verdict on delivery is reached, or what was known of its being sent changes.
    pub fn told_by(record: &Record, before: Before, state: State) -> Option<Self> {
        let entered = record.to.filter(|to| record.from != Some(*to)).and_then(Self::entering);
        let verdict =
            record.delivery.filter(|verdict| before.delivery != Some(*verdict)).and_then(|verdict| match verdict {
                Delivery::Delivered => Some(Self::Delivered),
                Delivery::Undelivered => Some(Self::Undelivered),
                Delivery::None => None,
            });
        let turned = matches!((before.sent, record.sent), (Some(before), Some(now)) if before != now);
        entered.or(verdict).or((turned && state.is_final()).then_some(Self::SentChanged))
    }

    const fn entering(state: State) -> Option<Self> {
        match state {
            State::Dispatched => Some(Self::Dispatched),
            State::Failed => Some(Self::Failed),
            State::Expired => Some(Self::Expired),
            State::Cancelled => Some(Self::Cancelled),
            State::Superseded => Some(Self::Superseded),
            State::DispatchUnknown => Some(Self::DispatchUnknown),
            State::Accepted | State::Dispatching | State::RetryWait => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::audit::{Actor, DaemonPart, What};
    use crate::domain::ids::Tenant;
    use crate::domain::time::Timestamp;

    fn record(states: Option<(State, State)>, sent: Sent, delivery: Option<Delivery>) -> Record {
        let tenant = Tenant::parse("shop").expect("a name");
        Record {
            from: states.map(|states| states.0),
            to: states.map(|states| states.1),
            sent: Some(sent),
            delivery,
            ..Record::new(Timestamp::from_micros(0), tenant, What::Evidence, Actor::Daemon(DaemonPart::Worker))
        }
    }

    fn before(sent: Sent, delivery: Option<Delivery>) -> Before {
        Before { sent: Some(sent), delivery }
    }

    #[test]
    fn a_state_is_told_when_it_is_entered_and_not_when_it_is_kept() {
        use State::{Accepted, DispatchUnknown, Dispatched, Dispatching, Expired, RetryWait};
        for (from, to, told) in [
            (Dispatching, Dispatched, Some(Change::Dispatched)),
            (DispatchUnknown, Expired, Some(Change::Expired)),
            (Dispatching, DispatchUnknown, Some(Change::DispatchUnknown)),
            (DispatchUnknown, DispatchUnknown, None),
            (Accepted, Dispatching, None),
            (Dispatching, RetryWait, None),
        ] {
            let change = Change::told_by(&record(Some((from, to)), Sent::Unknown, None), before(Sent::No, None), to);
            assert_eq!(change, told, "{from} to {to}");
        }
    }

    #[test]
    fn a_verdict_on_delivery_is_told_once_and_again_when_it_turns() {
        use Delivery::{Delivered, Undelivered};
        for (was, is, told) in [
            (None, None, None),
            (None, Some(Delivered), Some(Change::Delivered)),
            (Some(Delivered), Some(Delivered), None),
            (Some(Delivered), Some(Undelivered), Some(Change::Undelivered)),
            (Some(Delivered), None, None),
        ] {
            let record = record(None, Sent::Yes, is);
            assert_eq!(Change::told_by(&record, before(Sent::Yes, was), State::Dispatched), told, "{was:?} to {is:?}");
        }
    }

    #[test]
    fn late_evidence_is_told_where_it_changes_what_is_known() {
        let expired = Some((State::Expired, State::Expired));
        let told = |sent, was| Change::told_by(&record(expired, sent, None), before(was, None), State::Expired);
        assert_eq!(told(Sent::Yes, Sent::Unknown), Some(Change::SentChanged));
        assert_eq!(told(Sent::Unknown, Sent::Unknown), None);
        // Before the end it is no news: an attempt begins, and its end is told by the state.
        let begun = record(Some((State::Accepted, State::Dispatching)), Sent::Unknown, None);
        assert_eq!(Change::told_by(&begun, before(Sent::No, None), State::Dispatching), None);
    }
}
