//! The comparison itself, without I/O.

use std::collections::{HashMap, HashSet};

use super::ours::Attempts;
use super::{Known, Line, Sums};
use crate::domain::ids::Tenant;
use crate::domain::lifecycle::Sent;
use crate::provider::statement::{Listed, Period};

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub sums: Sums,
    /// Messages under our references of which no attempt is known to have been sent.
    pub evidence: Vec<Listed>,
    /// What only one side knows.
    pub differences: Vec<Line>,
}

/// Holds a list against our attempts. Both reach a little beyond `period` on either side, so that what stands at its ends
/// finds its counterpart; told is what lies within. Attempts are told of to their own tenant only.
pub(super) fn compare(listed: &[Listed], attempts: &Attempts, period: Period, tenant: &Tenant) -> Comparison {
    let ids = attempts.iter().filter_map(|(id, number, attempt)| Some((attempt.message_id.as_ref()?, (id, number))));
    let by_message: HashMap<_, _> = ids.collect();
    let (mut told, mut matched, mut seen) = (Comparison::default(), HashSet::new(), HashSet::new());
    // Some lists have a line for each event of a message.
    for message in listed.iter().filter(|message| seen.insert(&message.message_id)) {
        let within = usize::from(period.holds(message.at));
        told.sums.listed += within;
        let by_reference = message.reference.map(|reference| (reference.id, reference.attempt));
        let Some((id, number)) = by_reference.or_else(|| by_message.get(&message.message_id).copied()) else {
            told.sums.provider_only += within;
            let Listed { message_id, at, status, .. } = message.clone();
            told.differences.extend((within > 0).then_some(Line::ProviderOnly { message_id, at, status }));
            continue;
        };
        told.sums.matched += within;
        let same_message =
            attempts.of(id, 0).filter(|(_, attempt)| attempt.message_id.as_ref() == Some(&message.message_id));
        matched.extend(attempts.of(id, number).chain(same_message).map(|(number, _)| (id, number)));
        if by_reference.is_some() && attempts.of(id, number).all(|(_, attempt)| attempt.sent != Sent::Yes) {
            told.evidence.push(message.clone());
        }
    }
    for (notification, number, attempt) in attempts.iter() {
        let sent = match attempt.sent {
            Sent::Yes => Known::Yes,
            Sent::Unknown => Known::Unknown,
            Sent::No => continue,
        };
        if attempt.tenant != *tenant || !period.holds(attempt.began_at) {
            continue;
        }
        told.sums.attempts += 1;
        if !matched.contains(&(notification, number)) {
            told.sums.ours_only += 1;
            let (at, message_id) = (attempt.began_at, attempt.message_id.clone());
            told.differences.push(Line::OursOnly { notification, attempt: number, at, sent, message_id });
        }
    }
    told
}
