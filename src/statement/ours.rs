//! Our attempts at one provider in a period, from the log. Its positions grow with time, so that the beginning is found by
//! halving, without an index of times.

use std::collections::BTreeMap;

use super::{Fault, MOST};
use crate::domain::audit::{Record, What};
use crate::domain::ids::{AttemptNumber, NotificationId, ProviderMessageId, ProviderName, Tenant};
use crate::domain::lifecycle::Sent;
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::ledger::{Ledger, LedgerError};
use crate::provider::statement::Period;
use crate::store::rows::LogFilter;

/// Records that are read at once.
const PAGE: u32 = 1000;

/// One attempt, or repeat of one.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub tenant: Tenant,
    pub began_at: Timestamp,
    pub sent: Sent,
    pub message_id: Option<ProviderMessageId>,
}

/// Attempts by notification and number.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<(NotificationId, AttemptNumber), Attempt>);

impl Attempts {
    /// In the order of notifications and numbers.
    pub fn iter(&self) -> impl Iterator<Item = (NotificationId, AttemptNumber, &Attempt)> {
        self.0.iter().map(|((id, number), attempt)| (*id, *number, attempt))
    }

    /// One of them, or all of its notification under number 0.
    pub fn of(&self, id: NotificationId, number: AttemptNumber) -> impl Iterator<Item = (AttemptNumber, &Attempt)> {
        let range = if number == 0 { 0..=AttemptNumber::MAX } else { number..=number };
        self.0.range((id, *range.start())..=(id, *range.end())).map(|((_, number), attempt)| (*number, attempt))
    }

    /// Whether the notification is this tenant's, as far as it has attempts here.
    pub fn is_of(&self, id: NotificationId, tenant: &Tenant) -> bool {
        self.of(id, 0).any(|(_, attempt)| attempt.tenant == *tenant)
    }

    /// Takes what a record says of an attempt.
    fn take(&mut self, record: &Record) {
        let (Some(id), Some(number)) = (record.notification, record.attempt) else { return };
        if matches!(record.what, What::AttemptBegun | What::ProbeBegun) {
            let (tenant, began_at) = (record.tenant.clone(), record.at);
            self.0.insert((id, number), Attempt { tenant, began_at, sent: Sent::Unknown, message_id: None });
        }
        let Some(attempt) = self.0.get_mut(&(id, number)) else { return };
        match record.what {
            What::AttemptEnded | What::ProbeEnded | What::Evidence => {
                attempt.sent = said(record).unwrap_or(attempt.sent)
            }
            _ => return,
        }
        attempt.message_id = record.message_id.clone().or(attempt.message_id.take());
    }
}

/// What a record says of its attempt's having been sent.
fn said(record: &Record) -> Option<Sent> {
    match (record.outcome, record.reason) {
        (Some(OutcomeClass::Accepted), _) => Some(Sent::Yes),
        (Some(OutcomeClass::Unknown), _) => None,
        (Some(_), _) | (None, Some(Reason::LookupMissed | Reason::OperatorNotSent)) => Some(Sent::No),
        (None, _) => Some(Sent::Yes),
    }
}

/// Reads them. What is appended meanwhile is left out.
pub(super) async fn read(ledger: &Ledger, provider: &ProviderName, period: Period) -> Result<Attempts, Fault> {
    let end = ledger.log_end().await?;
    let mut after = before(ledger, period.since, end).await?;
    let filter = LogFilter { up_to: Some(end), ..LogFilter::default() };
    let mut attempts = Attempts::default();
    loop {
        let rows = ledger.log_page(&filter, after, PAGE).await?;
        let at_provider = rows.iter().filter(|row| row.record.provider.as_ref() == Some(provider));
        at_provider.for_each(|row| attempts.take(&row.record));
        if attempts.0.len() > MOST {
            return Err(Fault::TooMany);
        }
        match rows.last() {
            Some(last) if rows.len() == PAGE as usize && last.record.at < period.until => after = last.pos,
            _ => return Ok(attempts),
        }
    }
}

/// A position behind which everything since `time` lies.
async fn before(ledger: &Ledger, time: Timestamp, end: i64) -> Result<i64, LedgerError> {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        let next = ledger.log_page(&LogFilter::default(), middle, 1).await?.pop();
        match next.filter(|row| row.pos <= high && row.record.at < time) {
            Some(row) => low = row.pos,
            None => high = middle,
        }
    }
    Ok(low)
}
