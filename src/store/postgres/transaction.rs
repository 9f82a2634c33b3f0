//! The write transaction: each primitive is one statement over a whole batch, in one round trip.
//!
//! Rows are bound in the order of their keys, so that two nodes that write the same rows lock them in the same order.

use std::collections::HashSet;

use async_trait::async_trait;
use sqlx::postgres::PgRow;

use super::bind::{
    bind_outcome, bind_records, bind_work_state, column, hash_bytes, id_bytes, limit_of, number, sorted_by, statement,
};
use super::sql;
use super::wire::{Statement, Trouble, Wire};
use crate::domain::ids::{KeyedHash, NotificationId, ProviderMessageId, ProviderName, Tenant};
use crate::domain::receipt::Receipt;
use crate::domain::time::Timestamp;
use crate::store::rows::{Changes, Due, HighWater, Known, Leg, NotificationRow, Queue, WorkRow, first_id_at};
use crate::store::{StoreError, Transaction, decode};

/// Holds a connection until it ends. When it is dropped, the connection is closed, and the server rolls back.
pub(super) struct PostgresTransaction {
    /// `None` once it has been rolled back.
    wire: Option<Wire>,
    now: Timestamp,
    /// Why it has been rolled back already.
    failed: StoreError,
}

impl PostgresTransaction {
    pub(super) fn new(wire: Wire, now: Timestamp) -> Self {
        Self { wire: Some(wire), now, failed: StoreError::Unavailable }
    }

    /// Runs a statement; a failure ends the transaction, so that no half of a batch can be committed.
    async fn rows(&mut self, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        let wire = self.wire.as_mut().ok_or(self.failed)?;
        match wire.rows(statement).await {
            Ok(rows) => Ok(rows),
            Err(trouble) => Err(self.fail(&trouble).await),
        }
    }

    async fn run(&mut self, statement: Statement) -> Result<u64, StoreError> {
        let wire = self.wire.as_mut().ok_or(self.failed)?;
        match wire.run(statement).await {
            Ok(touched) => Ok(touched),
            Err(trouble) => Err(self.fail(&trouble).await),
        }
    }

    async fn fail(&mut self, trouble: &Trouble) -> StoreError {
        self.failed = trouble.fault();
        let Some(mut wire) = self.wire.take() else { return self.failed };
        if !trouble.is_only_the_statement() {
            wire.give_up();
        } else if wire.simple(sql::ROLLBACK).await.is_ok() {
            wire.give_back();
        }
        self.failed
    }

    async fn ids(&mut self, statement: Statement) -> Result<HashSet<NotificationId>, StoreError> {
        let rows = self.rows(statement).await?;
        rows.iter().map(|row| decode::Cells("notification", row).id("id")).collect()
    }
}

fn all<T>(rows: &[PgRow], read: impl Fn(&PgRow) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
    rows.iter().map(read).collect()
}

fn of_ids(text: &'static str, ids: &[NotificationId]) -> Statement {
    let ids = sorted_by(ids, |id| *id);
    statement(text).bind(column(&ids, |id| id_bytes(id)))
}

fn of_hashes(text: &'static str, hashes: &[KeyedHash]) -> Statement {
    let hashes = sorted_by(hashes, |hash| *hash.as_bytes());
    statement(text).bind(column(&hashes, |hash| hash_bytes(hash)))
}

fn of_messages(text: &'static str, messages: &[(ProviderName, ProviderMessageId)]) -> Statement {
    let messages = sorted_by(messages, |(provider, message)| (provider.as_str(), message.as_str()));
    statement(text)
        .bind(column(&messages, |(provider, _)| provider.as_str()))
        .bind(column(&messages, |(_, message)| message.as_str()))
}

#[async_trait]
impl Transaction for PostgresTransaction {
    fn now(&self) -> Timestamp {
        self.now
    }

    async fn insert_notifications(&mut self, rows: &[NotificationRow]) -> Result<HashSet<NotificationId>, StoreError> {
        // By key and not by id: what two nodes wait for here is each other's entry in the index of keys. Of two rows with
        // one key, the first of the batch stays the first.
        let rows = sorted_by(rows, |n| (n.tenant.as_str(), *n.key.as_bytes()));
        let insert = statement(sql::INSERT_NOTIFICATIONS)
            .bind(column(&rows, |n| id_bytes(&n.id)))
            .bind(column(&rows, |n| n.tenant.as_str()))
            .bind(column(&rows, |n| hash_bytes(&n.key)))
            .bind(column(&rows, |n| hash_bytes(&n.event)))
            .bind(column(&rows, |n| n.event_id.as_str()))
            .bind(column(&rows, |n| n.kind.as_str()))
            .bind(column(&rows, |n| n.mask.as_str()))
            .bind(column(&rows, |n| &n.fingerprint[..]))
            .bind(column(&rows, |n| n.created_at.micros()))
            .bind(column(&rows, |n| n.expires_at.micros()));
        self.ids(bind_outcome(insert, &column(&rows, |n| &n.outcome))).await
    }

    async fn delete_notifications(&mut self, ids: &[NotificationId]) -> Result<(), StoreError> {
        self.run(of_ids(sql::DELETE_NOTIFICATIONS, ids)).await.map(|_| ())
    }

    async fn known(&mut self, wanted: &[(Tenant, KeyedHash, KeyedHash)]) -> Result<Vec<Known>, StoreError> {
        all(&self.rows(known(wanted)).await?, decode::known)
    }

    async fn notifications(&mut self, ids: &[NotificationId]) -> Result<Vec<NotificationRow>, StoreError> {
        all(&self.rows(of_ids(sql::NOTIFICATIONS, ids)).await?, decode::notification)
    }

    async fn work(&mut self, ids: &[NotificationId]) -> Result<Vec<WorkRow>, StoreError> {
        all(&self.rows(of_ids(sql::WORK, ids)).await?, decode::work)
    }

    async fn due(&mut self, queue: &Queue, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        let due = statement(sql::DUE).bind(queue.to_string()).bind(now.micros()).bind(limit_of(limit));
        let (due, unreadable) = decode::due_that_reads(&self.rows(due).await?)?;
        if !unreadable.is_empty() {
            self.run(of_ids(sql::SET_ASIDE, &unreadable)).await?;
        }
        Ok(due)
    }

    async fn work_of_users(
        &mut self,
        users: &[KeyedHash],
    ) -> Result<Vec<(KeyedHash, NotificationId, Timestamp)>, StoreError> {
        let rows = self.rows(of_hashes(sql::WORK_OF_USERS, users)).await?;
        all(&rows, |row| {
            let c = decode::Cells("work", row);
            Ok((c.hash("user_h")?, c.id("id")?, c.time("ordered_at")?))
        })
    }

    async fn write(&mut self, changes: &Changes) -> Result<(), StoreError> {
        if changes.records.iter().any(decode::is_unreadable) {
            self.failed = StoreError::Refused("actor");
            // Dropped with its transaction.
            self.wire = None;
            return Err(self.failed);
        }
        let answer = self.rows(write(changes)).await?;
        if number(&answer, "changed") == Ok(i64::try_from(changes.changed.len()).unwrap_or(i64::MAX)) {
            return Ok(());
        }
        self.failed = StoreError::Conflict;
        self.wire = None;
        Err(self.failed)
    }

    async fn quotas(&mut self, scopes: &[KeyedHash]) -> Result<Vec<(KeyedHash, Timestamp)>, StoreError> {
        let rows = self.rows(of_hashes(sql::QUOTAS, scopes)).await?;
        all(&rows, |row| {
            let c = decode::Cells("quota", row);
            Ok((c.hash("scope_h")?, c.time("tat")?))
        })
    }

    async fn save_quotas(&mut self, quotas: &[(KeyedHash, Timestamp)]) -> Result<(), StoreError> {
        let quotas = sorted_by(quotas, |(scope, _)| *scope.as_bytes());
        let save = statement(sql::SAVE_QUOTAS)
            .bind(column(&quotas, |(scope, _)| hash_bytes(scope)))
            .bind(column(&quotas, |(_, tat)| tat.micros()));
        self.run(save).await.map(|_| ())
    }

    async fn keep_receipts(&mut self, receipts: &[Receipt], now: Timestamp) -> Result<(), StoreError> {
        // One without the provider's id could never be matched later.
        let named = receipts.iter().filter_map(|receipt| Some((receipt, receipt.message_id.as_ref()?)));
        let named: Vec<_> = named.collect();
        let keep = statement(sql::KEEP_RECEIPTS)
            .bind(column(&named, |(receipt, _)| receipt.provider.as_str()))
            .bind(column(&named, |(_, message)| message.as_str()))
            .bind(column(&named, |(receipt, _)| receipt.status.code()))
            .bind(column(&named, |(receipt, _)| i64::from(receipt.part.index)))
            .bind(column(&named, |(receipt, _)| i64::from(receipt.part.of)))
            .bind(now.micros());
        self.run(keep).await.map(|_| ())
    }

    async fn take_receipts(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<Receipt>, StoreError> {
        let rows = self.rows(of_messages(sql::TAKE_RECEIPTS, messages)).await?;
        let mut taken = all(&rows, decode::receipt)?;
        taken.sort_by_key(|(seq, _)| *seq);
        Ok(taken.into_iter().map(|(_, receipt)| receipt).collect())
    }

    async fn by_receipt_key(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<(ProviderName, ProviderMessageId, NotificationId)>, StoreError> {
        let found = self.rows(of_messages(sql::BY_RECEIPT_KEY, messages)).await?;
        all(&found, decode::receipt_key)
    }

    async fn sweep_small(
        &mut self,
        now: Timestamp,
        receipts_before: Timestamp,
        receipts_max: u32,
        limit: u32,
    ) -> Result<(), StoreError> {
        let sweep = statement(sql::SWEEP_SMALL)
            .bind(now.micros())
            .bind(limit_of(limit))
            .bind(receipts_before.micros())
            .bind(limit_of(receipts_max));
        self.run(sweep).await.map(|_| ())
    }

    async fn forget_notifications(&mut self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        let forget = statement(sql::FORGET_NOTIFICATIONS).bind(&first_id_at(before)[..]).bind(limit_of(limit));
        self.run(forget).await
    }

    async fn high_water(&mut self) -> Result<HighWater, StoreError> {
        let rows = self.rows(statement(sql::HIGH_WATER)).await?;
        decode::high_water(rows.first().ok_or(StoreError::Refused("statement"))?)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let mut wire = self.wire.take().ok_or(self.failed)?;
        match wire.simple(sql::COMMIT).await {
            Ok(_) => {
                wire.give_back();
                Ok(())
            }
            Err(trouble) => {
                let fault = trouble.commit_fault();
                wire.give_up();
                Err(fault)
            }
        }
    }
}

fn write(changes: &Changes) -> Statement {
    let Changes { new, changed, over, outcomes, records } = changes;
    let (new, changed) = (sorted_by(new, |work| work.id), sorted_by(changed, |update| update.id));
    let (over, outcomes) = (sorted_by(over, |id| *id), sorted_by(outcomes, |update| update.id));
    let legs = column(&new, |work| Leg::encode(&work.legs));
    let insert = statement(sql::WRITE).bind(column(&new, |work| id_bytes(&work.id)));
    let insert = bind_work_state(insert, &column(&new, |work| &work.state))
        .bind(column(&new, |work| work.expires_at.micros()))
        .bind(column(&new, |work| work.ordered_at.micros()))
        .bind(column(&new, |work| hash_bytes(&work.user)))
        .bind(legs)
        .bind(column(&new, |work| &work.sealed_to[..]))
        .bind(column(&new, |work| work.sealed_message.as_deref()));
    let update = insert.bind(column(&changed, |update| id_bytes(&update.id)));
    let update = bind_work_state(update, &column(&changed, |update| &update.state))
        .bind(column(&changed, |update| update.was_state.code()))
        .bind(column(&changed, |update| i16::from(update.was_attempt)))
        .bind(column(&changed, |update| i16::from(update.wipe_message)));
    let delete = update.bind(column(&over, |id| id_bytes(id)));
    let tell = delete.bind(column(&outcomes, |update| id_bytes(&update.id)));
    bind_records(bind_outcome(tell, &column(&outcomes, |update| &update.outcome)), records)
}

/// Looks up by key and by event.
pub(super) fn known(wanted: &[(Tenant, KeyedHash, KeyedHash)]) -> Statement {
    statement(sql::KNOWN)
        .bind(column(wanted, |(tenant, ..)| tenant.as_str()))
        .bind(column(wanted, |(_, key, _)| hash_bytes(key)))
        .bind(column(wanted, |(.., event)| hash_bytes(event)))
}

/// The clock of the answer to a text that asks for it.
pub(super) fn clock(rows: &[PgRow]) -> Result<Timestamp, StoreError> {
    number(rows, "now").map(Timestamp::from_micros)
}
