//! One record of the log as one line.
//!
//! The fields, in this order, in both formats:
//!
//! | field | what it is |
//! |---|---|
//! | `pos` | position in the log: an integer that grows with every record of the store, with gaps in a filtered export |
//! | `at` | when, by the store's clock: RFC 3339, UTC, microseconds |
//! | `tenant` | whose |
//! | `notification` | `ntf_` and a UUID |
//! | `event_id` | the app's name for the event |
//! | `what` | what happened ([`What`](crate::domain::audit::What)) |
//! | `from`, `to` | the state before and after ([`State`](crate::domain::lifecycle::State)) |
//! | `sent` | `no`, `yes` or `unknown`, as known afterwards |
//! | `delivery` | `none`, `delivered` or `undelivered`, as known afterwards |
//! | `attempt` | number of the attempt, from 1 |
//! | `provider` | its configured name |
//! | `message_id` | the provider's id |
//! | `outcome`, `reason` | how and why ([`OutcomeClass`](crate::domain::outcome::OutcomeClass), [`Reason`](crate::domain::outcome::Reason)) |
//! | `source` | where evidence came from ([`Source`](crate::domain::audit::Source)) |
//! | `actor` | `daemon:`, `key:`, `hook:` or `provider:` and a name |
//! | `address_hash` | keyed hash of the address, 32 hex digits |
//! | `ticket` | what an operator named |
//!
//! What a record does not have is `null` in NDJSON and empty in CSV. Fields may be added at the end, never moved.

use serde::Serialize;

use crate::domain::audit::{Source, What};
use crate::domain::delivery::Delivery;
use crate::domain::ids::{
    AttemptNumber, EventId, KeyedHash, NotificationId, ProviderMessageId, ProviderName, Tenant, Ticket,
};
use crate::domain::lifecycle::{Sent, State};
use crate::domain::outcome::{OutcomeClass, Reason};
use crate::domain::time::Timestamp;
use crate::store::rows::LogRow;

#[derive(Serialize)]
struct Line<'a> {
    pos: i64,
    at: Timestamp,
    tenant: &'a Tenant,
    notification: Option<NotificationId>,
    event_id: Option<&'a EventId>,
    what: What,
    from: Option<State>,
    to: Option<State>,
    sent: Option<Sent>,
    delivery: Option<Delivery>,
    attempt: Option<AttemptNumber>,
    provider: Option<&'a ProviderName>,
    message_id: Option<&'a ProviderMessageId>,
    outcome: Option<OutcomeClass>,
    reason: Option<Reason>,
    source: Option<Source>,
    actor: String,
    address_hash: Option<KeyedHash>,
    ticket: Option<&'a Ticket>,
}

const FIELDS: [&str; 19] = [
    "pos",
    "at",
    "tenant",
    "notification",
    "event_id",
    "what",
    "from",
    "to",
    "sent",
    "delivery",
    "attempt",
    "provider",
    "message_id",
    "outcome",
    "reason",
    "source",
    "actor",
    "address_hash",
    "ticket",
];

impl<'a> Line<'a> {
    fn of(row: &'a LogRow) -> Self {
        let record = &row.record;
        Self {
            pos: row.pos,
            at: record.at,
            tenant: &record.tenant,
            notification: record.notification,
            event_id: record.event_id.as_ref(),
            what: record.what,
            from: record.from,
            to: record.to,
            sent: record.sent,
            delivery: record.delivery,
            attempt: record.attempt,
            provider: record.provider.as_ref(),
            message_id: record.message_id.as_ref(),
            outcome: record.outcome,
            reason: record.reason,
            source: record.source,
            actor: record.actor.to_string(),
            address_hash: record.address,
            ticket: record.ticket.as_ref(),
        }
    }

    /// The cells of a CSV row, in the order of [`FIELDS`].
    fn cells(self) -> [String; FIELDS.len()] {
        fn cell(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        [
            self.pos.to_string(),
            self.at.to_string(),
            inert(self.tenant.as_str()),
            cell(self.notification),
            inert(&cell(self.event_id)),
            self.what.to_string(),
            cell(self.from),
            cell(self.to),
            cell(self.sent),
            cell(self.delivery),
            cell(self.attempt),
            inert(&cell(self.provider)),
            inert(&cell(self.message_id)),
            cell(self.outcome),
            cell(self.reason),
            cell(self.source),
            self.actor,
            cell(self.address_hash),
            inert(&cell(self.ticket)),
        ]
    }
}

/// Keeps a spreadsheet from taking a text for a formula (OWASP, "CSV Injection"): names may begin with `-`, and a
/// provider's id also with `=`, `+` or `@`. The other cells are codes and numbers of ours.
fn inert(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() }
}

/// The record as one JSON object and a line feed.
pub fn ndjson_line(row: &LogRow) -> String {
    // Strings, numbers and options of them always have a JSON form.
    let mut line = serde_json::to_string(&Line::of(row)).unwrap_or_default();
    line.push('\n');
    line
}

/// The names of the fields as one CSV line (RFC 4180).
pub fn csv_header() -> String {
    csv([FIELDS])
}

/// The records as CSV lines (RFC 4180). A text that a spreadsheet would take for a formula has an apostrophe before it;
/// the NDJSON form has every value as it is.
pub fn csv_lines(rows: &[LogRow]) -> String {
    csv(rows.iter().map(|row| Line::of(row).cells()))
}

fn csv<T: AsRef<[u8]>>(lines: impl IntoIterator<Item = [T; FIELDS.len()]>) -> String {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(vec![]);
    for cells in lines {
        // Writing to memory cannot fail, and all cells are text.
        let _ = writer.write_record(cells);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::audit::{Actor, DaemonPart, Record};

    fn bare() -> LogRow {
        let at = Timestamp::from_micros(1_795_910_400_000_001);
        let tenant = Tenant::parse("acme").expect("a tenant");
        LogRow { pos: 1, record: Record::new(at, tenant, What::Accepted, Actor::Daemon(DaemonPart::Admission)) }
    }

    fn full() -> LogRow {
        let mut row = bare();
        let provider = ProviderName::parse("mailer").expect("a name");
        row.pos = i64::MAX;
        row.record = Record {
            notification: Some(NotificationId::from_bytes([7; 16])),
            event_id: EventId::parse("-e:1").ok(),
            what: What::AttemptEnded,
            from: Some(State::Dispatching),
            to: Some(State::Dispatched),
            sent: Some(Sent::Yes),
            delivery: Some(Delivery::None),
            attempt: Some(2),
            provider: Some(provider.clone()),
            message_id: ProviderMessageId::parse("=1+1").ok(),
            outcome: Some(OutcomeClass::RefusedMessage),
            reason: Some(Reason::Ok),
            source: Some(Source::Receipt),
            actor: Actor::Provider(provider),
            address: Some(KeyedHash::from_bytes([0xab; 16])),
            ticket: Ticket::parse("OPS-1").ok(),
            ..row.record
        };
        row
    }

    #[test]
    fn an_ndjson_line_has_every_field_in_the_stable_order() {
        assert_eq!(
            ndjson_line(&full()),
            "{\"pos\":9223372036854775807,\"at\":\"2026-11-29T00:00:00.000001Z\",\"tenant\":\"acme\",\
             \"notification\":\"ntf_07070707-0707-0707-0707-070707070707\",\"event_id\":\"-e:1\",\
             \"what\":\"attempt_ended\",\"from\":\"dispatching\",\"to\":\"dispatched\",\"sent\":\"yes\",\
             \"delivery\":\"none\",\"attempt\":2,\"provider\":\"mailer\",\"message_id\":\"=1+1\",\
             \"outcome\":\"refused.message\",\"reason\":\"ok\",\"source\":\"receipt\",\"actor\":\"provider:mailer\",\
             \"address_hash\":\"abababababababababababababababab\",\"ticket\":\"OPS-1\"}\n"
        );
        let line = ndjson_line(&bare());
        let places: Vec<_> = FIELDS.iter().map(|field| line.find(&format!("\"{field}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
        assert_eq!(line.matches("null").count(), 14);
    }

    #[test]
    fn a_csv_line_has_the_same_cells_and_none_that_a_spreadsheet_would_run() {
        assert_eq!(csv_header(), FIELDS.join(",") + "\r\n");
        assert_eq!(
            csv_lines(&[full()]),
            "9223372036854775807,2026-11-29T00:00:00.000001Z,acme,ntf_07070707-0707-0707-0707-070707070707,'-e:1,\
             attempt_ended,dispatching,dispatched,yes,none,2,mailer,'=1+1,refused.message,ok,receipt,provider:mailer,\
             abababababababababababababababab,OPS-1\r\n"
        );
        assert_eq!(
            csv_lines(&[bare()]),
            "1,2026-11-29T00:00:00.000001Z,acme,,,accepted,,,,,,,,,,,daemon:admission,,\r\n"
        );
    }
}
