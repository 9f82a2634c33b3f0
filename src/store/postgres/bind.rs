//! A batch as one array for each column.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::wire::Statement;
use crate::domain::audit::Record;
use crate::domain::ids::{KeyedHash, NotificationId, ProviderMessageId, ProviderName};
use crate::domain::time::Timestamp;
use crate::store::StoreError;
use crate::store::decode::Columns;
use crate::store::rows::{NotificationOutcome, Queue, WorkState};

pub(super) fn statement(text: &'static str) -> Statement {
    sqlx::query(text)
}

/// One cell of each row.
pub(super) fn column<'a, R, T>(rows: &'a [R], cell: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(cell).collect()
}

/// The rows in the order of a key; of equal ones the first stays the first.
pub(super) fn sorted_by<'a, R, K: Ord>(rows: &'a [R], key: impl Fn(&'a R) -> K) -> Vec<&'a R> {
    let mut sorted: Vec<&R> = rows.iter().collect();
    sorted.sort_by_key(|row| key(row));
    sorted
}

pub(super) fn id_bytes(id: &NotificationId) -> &[u8] {
    &id.as_bytes()[..]
}

pub(super) fn hash_bytes(hash: &KeyedHash) -> &[u8] {
    &hash.as_bytes()[..]
}

pub(super) fn limit_of(limit: u32) -> i64 {
    limit.into()
}

pub(super) fn bind_outcome(statement: Statement, rows: &[&NotificationOutcome]) -> Statement {
    statement
        .bind(column(rows, |o| o.finished_at.map(Timestamp::micros)))
        .bind(column(rows, |o| o.state.code()))
        .bind(column(rows, |o| o.sent.code()))
        .bind(column(rows, |o| i16::from(o.attempt)))
        .bind(column(rows, |o| o.sent_attempt.map(i16::from)))
        .bind(column(rows, |o| o.open_attempt.map(i16::from)))
        .bind(column(rows, |o| o.channel.map(|channel| channel.code())))
        .bind(column(rows, |o| i64::from(o.delivery.delivered)))
        .bind(column(rows, |o| i64::from(o.delivery.undelivered)))
        .bind(column(rows, |o| i64::from(o.delivery.parts)))
        .bind(column(rows, |o| o.provider.as_ref().map(ProviderName::as_str)))
        .bind(column(rows, |o| o.message_id.as_ref().map(ProviderMessageId::as_str)))
        .bind(column(rows, |o| o.receipt_key.as_ref().map(ProviderMessageId::as_str)))
}

pub(super) fn bind_work_state(statement: Statement, rows: &[&WorkState]) -> Statement {
    statement
        .bind(column(rows, |w| w.life.state.code()))
        .bind(column(rows, |w| w.life.sent.code()))
        .bind(column(rows, |w| w.queue.as_ref().map(Queue::to_string)))
        .bind(column(rows, |w| w.due_at.micros()))
        .bind(column(rows, |w| i16::from(w.leg)))
        .bind(column(rows, |w| w.provider.as_str()))
        .bind(column(rows, |w| w.owner.as_ref().map(|owner| owner.boot.as_str())))
        .bind(column(rows, |w| w.owner.as_ref().map(|owner| owner.claim)))
        .bind(column(rows, |w| i16::from(w.life.attempt)))
        .bind(column(rows, |w| i16::from(w.life.used)))
        .bind(column(rows, |w| w.life.open.map(i16::from)))
        .bind(column(rows, |w| w.life.sent_attempt.map(i16::from)))
        .bind(column(rows, |w| i16::from(w.life.probing)))
        .bind(column(rows, |w| i16::from(w.life.marks.cancel)))
        .bind(column(rows, |w| i16::from(w.life.marks.supersede)))
        .bind(column(rows, |w| i16::from(w.tries_here)))
        .bind(column(rows, |w| w.asked.as_ref().map(|a| i16::from(a.attempt))))
        .bind(column(rows, |w| w.asked.as_ref().map(|a| &a.account[..])))
        .bind(column(rows, |w| w.asked.as_ref().map(|a| &a.rev[..])))
        .bind(column(rows, |w| w.asked.as_ref().map(|a| a.first_there_at.micros())))
        .bind(column(rows, |w| w.asked.as_ref().and_then(|a| a.ended_at).map(Timestamp::micros)))
        .bind(column(rows, |w| w.asked.as_ref().and_then(|a| a.cause).map(|cause| cause.code())))
        .bind(column(rows, |w| w.asked.as_ref().map_or(0, |a| i16::from(a.misses))))
        .bind(column(rows, |w| w.asked.as_ref().map_or(0, |a| i32::from(a.asks))))
}

pub(super) fn bind_records(statement: Statement, records: &[Record]) -> Statement {
    statement
        .bind(column(records, |r| r.at.micros()))
        .bind(column(records, |r| r.tenant.as_str()))
        .bind(column(records, |r| r.notification.as_ref().map(id_bytes)))
        .bind(column(records, |r| r.event_id.as_ref().map(|id| id.as_str())))
        .bind(column(records, |r| r.what.code()))
        .bind(column(records, |r| r.from.map(|state| state.code())))
        .bind(column(records, |r| r.to.map(|state| state.code())))
        .bind(column(records, |r| r.sent.map(|sent| sent.code())))
        .bind(column(records, |r| r.delivery.map(|delivery| delivery.code())))
        .bind(column(records, |r| r.attempt.map(i16::from)))
        .bind(column(records, |r| r.provider.as_ref().map(ProviderName::as_str)))
        .bind(column(records, |r| r.message_id.as_ref().map(ProviderMessageId::as_str)))
        .bind(column(records, |r| r.outcome.map(|outcome| outcome.code())))
        .bind(column(records, |r| r.reason.map(|reason| reason.code())))
        .bind(column(records, |r| r.source.map(|source| source.code())))
        .bind(column(records, |r| r.actor.to_string()))
        .bind(column(records, |r| r.address.as_ref().map(hash_bytes)))
        .bind(column(records, |r| r.ticket.as_ref().map(|ticket| ticket.as_str())))
}

/// A number of the last row, by name.
pub(super) fn number(rows: &[PgRow], column: &'static str) -> Result<i64, StoreError> {
    let row = rows.last().ok_or(StoreError::Refused("statement"))?;
    row.try_get(column).map_err(|_| StoreError::Refused("statement"))
}

impl Columns for PgRow {
    fn integer(&self, column: &str) -> Option<Option<i64>> {
        let Some(bytes) = self.bytes(column)? else { return Some(None) };
        // SMALLINT, INTEGER or BIGINT, in network order (results of prepared statements are binary).
        let number = match bytes.len() {
            2 => i16::from_be_bytes(bytes.try_into().ok()?).into(),
            4 => i32::from_be_bytes(bytes.try_into().ok()?).into(),
            8 => i64::from_be_bytes(bytes.try_into().ok()?),
            _ => return None,
        };
        Some(Some(number))
    }

    fn text(&self, column: &str) -> Option<Option<&str>> {
        self.bytes(column)?.map(std::str::from_utf8).transpose().ok()
    }

    fn bytes(&self, column: &str) -> Option<Option<&[u8]>> {
        // NULL is the only value without bytes.
        Some(self.try_get_raw(column).ok()?.as_bytes().ok())
    }
}
