//! The write transaction: each primitive is one statement over a whole batch.

use std::collections::HashSet;

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use tokio::sync::OwnedMutexGuard;

use super::batch::Batch;
use super::bound::{Batched, Cells as Row, MOST};
use super::fault::{commit_fault, sql_fault};
use super::{Writer, sql};
use crate::domain::audit::Record;
use crate::domain::ids::{KeyedHash, NotificationId, ProviderMessageId, ProviderName, Tenant};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::rows::{
    Changes, Due, HighWater, Known, Leg, NotificationOutcome, NotificationRow, NotificationUpdate, Queue, WorkRow,
    WorkState, WorkUpdate, first_id_at,
};
use crate::store::{StoreError, Transaction, decode};

/// Holds the writer until it ends. When it is dropped, `Writer::open` stays set and the next user of the writer rolls
/// back first.
pub(super) struct SqliteTransaction {
    writer: OwnedMutexGuard<Writer>,
    now: Timestamp,
    /// Why the transaction has been rolled back already.
    failed: Option<StoreError>,
}

type Statement = Query<'static, Sqlite, SqliteArguments>;

impl SqliteTransaction {
    pub(super) fn new(writer: OwnedMutexGuard<Writer>, now: Timestamp) -> Self {
        Self { writer, now, failed: None }
    }

    /// Runs a statement; a failure ends the transaction, so that no half of a batch can be committed.
    async fn rows(&mut self, statement: Statement) -> Result<Vec<SqliteRow>, StoreError> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let connection = self.writer.connection.as_mut().ok_or(StoreError::Unavailable)?;
        match statement.fetch_all(connection).await {
            Ok(rows) => Ok(rows),
            Err(e) => Err(self.fail(sql_fault(&e)).await),
        }
    }

    pub(super) async fn run(&mut self, statement: Statement) -> Result<u64, StoreError> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let connection = self.writer.connection.as_mut().ok_or(StoreError::Unavailable)?;
        match statement.execute(connection).await {
            Ok(done) => Ok(done.rows_affected()),
            Err(e) => Err(self.fail(sql_fault(&e)).await),
        }
    }

    async fn fail(&mut self, fault: StoreError) -> StoreError {
        self.writer.undo().await;
        self.failed = Some(fault);
        fault
    }

    /// Runs a statement over a batch of any length; says how many rows it wrote.
    async fn put<T: Sync>(
        &mut self,
        statement: &'static Batched,
        items: &[T],
        write: impl Fn(&mut Row, &T) + Send,
    ) -> Result<u64, StoreError> {
        let mut written = 0;
        for items in items.chunks(MOST) {
            let arguments = statement.bind(items, &write);
            written += self.run(sqlx::query_with(statement.text(items.len()), arguments)).await?;
        }
        Ok(written)
    }
}

fn all<T>(rows: &[SqliteRow], read: impl Fn(&SqliteRow) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(read).collect()
}

fn ids_json(ids: &[NotificationId]) -> String {
    Batch::blobs(ids.iter().map(NotificationId::as_bytes))
}

fn hashes_json(hashes: &[KeyedHash]) -> String {
    Batch::blobs(hashes.iter().map(KeyedHash::as_bytes))
}

fn messages_json(messages: &[(ProviderName, ProviderMessageId)]) -> String {
    Batch::of(messages, |row, (provider, message)| {
        row.text(provider.as_str()).text(message.as_str());
    })
}

fn write_outcome(row: &mut Row, outcome: &NotificationOutcome) {
    row.opt_int(outcome.finished_at.map(Timestamp::micros))
        .text(outcome.state.code())
        .text(outcome.sent.code())
        .int(outcome.attempt)
        .opt_int(outcome.sent_attempt)
        .opt_int(outcome.open_attempt)
        .opt_text(outcome.channel.map(|channel| channel.code()))
        .int(outcome.delivery.delivered)
        .int(outcome.delivery.undelivered)
        .int(outcome.delivery.parts)
        .opt_text(outcome.provider.as_ref().map(ProviderName::as_str))
        .opt_text(outcome.message_id.as_ref().map(ProviderMessageId::as_str))
        .opt_text(outcome.receipt_key.as_ref().map(ProviderMessageId::as_str));
}

fn write_notification(row: &mut Row, n: &NotificationRow) {
    row.blob(n.id.as_bytes())
        .text(n.tenant.as_str())
        .blob(n.key.as_bytes())
        .blob(n.event.as_bytes())
        .text(n.event_id.as_str())
        .text(n.kind.as_str())
        .text(&n.mask)
        .blob(&n.fingerprint)
        .int(n.created_at.micros())
        .int(n.expires_at.micros());
    write_outcome(row, &n.outcome);
}

fn write_work_state(row: &mut Row, state: &WorkState) {
    let (life, asked) = (&state.life, state.asked.as_ref());
    row.text(life.state.code())
        .text(life.sent.code())
        .opt_text(state.queue.as_ref().map(Queue::to_string).as_deref())
        .int(state.due_at.micros())
        .int(state.leg)
        .text(state.provider.as_str())
        .opt_text(state.owner.as_ref().map(|owner| owner.boot.as_str()))
        .opt_int(state.owner.as_ref().map(|owner| owner.claim))
        .int(life.attempt)
        .int(life.used)
        .opt_int(life.open)
        .opt_int(life.sent_attempt)
        .int(life.probing)
        .int(life.marks.cancel)
        .int(life.marks.supersede)
        .int(state.tries_here)
        .opt_int(asked.map(|a| a.attempt))
        .opt_blob(asked.map(|a| &a.account[..]))
        .opt_blob(asked.map(|a| &a.rev[..]))
        .opt_int(asked.map(|a| a.first_there_at.micros()))
        .opt_int(asked.and_then(|a| a.ended_at).map(Timestamp::micros))
        .opt_text(asked.and_then(|a| a.cause).map(|cause| cause.code()))
        .int(asked.map_or(0, |a| a.misses))
        .int(asked.map_or(0, |a| a.asks));
}

fn write_work(row: &mut Row, work: &WorkRow) {
    write_work_state(row.blob(work.id.as_bytes()), &work.state);
    row.int(work.expires_at.micros())
        .int(work.ordered_at.micros())
        .blob(work.user.as_bytes())
        .blob(&Leg::encode(&work.legs))
        .blob(&work.sealed_to)
        .opt_blob(work.sealed_message.as_deref());
}

fn write_work_update(row: &mut Row, update: &WorkUpdate) {
    write_work_state(row.blob(update.id.as_bytes()), &update.state);
    row.text(update.was_state.code()).int(update.was_attempt).int(update.wipe_message);
}

fn write_notification_update(row: &mut Row, update: &NotificationUpdate) {
    write_outcome(row.blob(update.id.as_bytes()), &update.outcome);
}

fn write_record(row: &mut Row, r: &Record) {
    row.int(r.at.micros())
        .text(r.tenant.as_str())
        .opt_blob(r.notification.as_ref().map(|id| &id.as_bytes()[..]))
        .opt_text(r.event_id.as_ref().map(|id| id.as_str()))
        .text(r.what.code())
        .opt_text(r.from.map(|state| state.code()))
        .opt_text(r.to.map(|state| state.code()))
        .opt_text(r.sent.map(|sent| sent.code()))
        .opt_text(r.delivery.map(|delivery| delivery.code()))
        .opt_int(r.attempt)
        .opt_text(r.provider.as_ref().map(ProviderName::as_str))
        .opt_text(r.message_id.as_ref().map(ProviderMessageId::as_str))
        .opt_text(r.outcome.map(|outcome| outcome.code()))
        .opt_text(r.reason.map(|reason| reason.code()))
        .opt_text(r.source.map(|source| source.code()))
        .text(&r.actor.to_string())
        .opt_blob(r.address.as_ref().map(|hash| &hash.as_bytes()[..]))
        .opt_text(r.ticket.as_ref().map(|ticket| ticket.as_str()));
}

#[async_trait]
impl Transaction for SqliteTransaction {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn insert_notifications(&mut self, rows: &[NotificationRow]) -> Result<HashSet<NotificationId>, StoreError> {
        let inserted = self.put(&sql::INSERT_NOTIFICATIONS, rows, write_notification).await?;
        let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
        // Each row that a statement returns wakes the caller's thread, so which ones they are is asked only where it is
        // not plain. Nobody else has these ids.
        if inserted == rows.len() as u64 {
            return Ok(ids.into_iter().collect());
        }
        Ok(self.notifications(&ids).await?.into_iter().map(|row| row.id).collect())
    }

    async fn delete_notifications(&mut self, ids: &[NotificationId]) -> Result<(), StoreError> {
        self.run(sqlx::query(sql::DELETE_NOTIFICATIONS).bind(ids_json(ids))).await.map(|_| ())
    }

    async fn known(&mut self, wanted: &[(Tenant, KeyedHash, KeyedHash)]) -> Result<Vec<Known>, StoreError> {
        let wanted = Batch::of(wanted, |row, (tenant, key, event)| {
            row.text(tenant.as_str()).blob(key.as_bytes()).blob(event.as_bytes());
        });
        all(&self.rows(sqlx::query(sql::KNOWN).bind(wanted)).await?, decode::known)
    }

    async fn notifications(&mut self, ids: &[NotificationId]) -> Result<Vec<NotificationRow>, StoreError> {
        all(&self.rows(sqlx::query(sql::NOTIFICATIONS).bind(ids_json(ids))).await?, decode::notification)
    }

    async fn work(&mut self, ids: &[NotificationId]) -> Result<Vec<WorkRow>, StoreError> {
        all(&self.rows(sqlx::query(sql::WORK).bind(ids_json(ids))).await?, decode::work)
    }

    async fn due(&mut self, queue: &Queue, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        let due = sqlx::query(sql::DUE).bind(queue.to_string()).bind(now.micros()).bind(limit);
        let (due, unreadable) = decode::due_that_reads(&self.rows(due).await?)?;
        if !unreadable.is_empty() {
            self.run(sqlx::query(sql::SET_ASIDE).bind(ids_json(&unreadable))).await?;
        }
        Ok(due)
    }

    async fn work_of_users(
        &mut self,
        users: &[KeyedHash],
    ) -> Result<Vec<(KeyedHash, NotificationId, Timestamp)>, StoreError> {
        let rows = self.rows(sqlx::query(sql::WORK_OF_USERS).bind(hashes_json(users))).await?;
        all(&rows, |row| {
            let c = decode::Cells("work", row);
            Ok((c.hash("user_h")?, c.id("id")?, c.time("ordered_at")?))
        })
    }

    async fn write(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let Changes { new, changed, over, outcomes, records } = changes;
        if records.iter().any(decode::is_unreadable) {
            return Err(self.fail(StoreError::Refused("actor")).await);
        }
        self.put(&sql::INSERT_WORK, new, write_work).await?;
        let written = self.put(&sql::UPDATE_WORK, changed, write_work_update).await?;
        if written < changed.len() as u64 {
            return Err(self.fail(StoreError::Conflict).await);
        }
        if !over.is_empty() {
            self.run(sqlx::query(sql::DELETE_WORK).bind(ids_json(over))).await?;
        }
        self.put(&sql::UPDATE_NOTIFICATIONS, outcomes, write_notification_update).await?;
        self.put(&sql::APPEND, records, write_record).await.map(|_| ())
    }

    async fn quotas(&mut self, scopes: &[KeyedHash]) -> Result<Vec<(KeyedHash, Timestamp)>, StoreError> {
        let rows = self.rows(sqlx::query(sql::QUOTAS).bind(hashes_json(scopes))).await?;
        all(&rows, |row| {
            let c = decode::Cells("quota", row);
            Ok((c.hash("scope_h")?, c.time("tat")?))
        })
    }

    async fn save_quotas(&mut self, quotas: &[(KeyedHash, Timestamp)]) -> Result<(), StoreError> {
        let quotas = Batch::of(quotas, |row, (scope, tat)| {
            row.blob(scope.as_bytes()).int(tat.micros());
        });
        self.run(sqlx::query(sql::SAVE_QUOTAS).bind(quotas)).await.map(|_| ())
    }

    async fn keep_receipts(&mut self, receipts: &[Receipt], now: Timestamp) -> Result<(), StoreError> {
        // One without the provider's id could never be matched later.
        let named = receipts.iter().filter_map(|receipt| Some((receipt, receipt.message_id.as_ref()?)));
        let named = Batch::of(named, |row, (receipt, message)| {
            row.text(receipt.provider.as_str())
                .text(message.as_str())
                .text(receipt.status.code())
                .int(receipt.part.index)
                .int(receipt.part.of);
        });
        self.run(sqlx::query(sql::KEEP_RECEIPTS).bind(named).bind(now.micros())).await.map(|_| ())
    }

    async fn take_receipts(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<Receipt>, StoreError> {
        let rows = self.rows(sqlx::query(sql::TAKE_RECEIPTS).bind(messages_json(messages))).await?;
        let mut taken = all(&rows, decode::receipt)?;
        taken.sort_by_key(|(seq, _)| *seq);
        Ok(taken.into_iter().map(|(_, receipt)| receipt).collect())
    }

    async fn by_receipt_key(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<(ProviderName, ProviderMessageId, NotificationId)>, StoreError> {
        let found = self.rows(sqlx::query(sql::BY_RECEIPT_KEY).bind(messages_json(messages))).await?;
        all(&found, decode::receipt_key)
    }

    async fn sweep_small(
        &mut self,
        now: Timestamp,
        receipts_before: Timestamp,
        receipts_max: u32,
        limit: u32,
    ) -> Result<(), StoreError> {
        self.run(sqlx::query(sql::SWEEP_QUOTAS).bind(now.micros()).bind(limit)).await?;
        let receipts = sqlx::query(sql::SWEEP_RECEIPTS).bind(receipts_before.micros()).bind(receipts_max).bind(limit);
        self.run(receipts).await.map(|_| ())
    }

    async fn forget_notifications(&mut self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let first_kept = first_id_at(before);
        self.run(sqlx::query(sql::FORGET_NOTIFICATIONS).bind(first_kept.to_vec()).bind(limit)).await
    }

    async fn high_water(&mut self) -> Result<HighWater, StoreError> {
        let rows = self.rows(sqlx::query(sql::HIGH_WATER)).await?;
        decode::high_water(rows.first().ok_or(StoreError::Refused("statement"))?)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let connection = self.writer.connection.as_mut().ok_or(StoreError::Unavailable)?;
        match sqlx::query(sql::COMMIT).execute(connection).await {
            Ok(_) => {
                self.writer.open = false;
                Ok(())
            }
            Err(e) => {
                self.writer.undo().await;
                Err(commit_fault(&e))
            }
        }
    }
}
