//! Reads beside the writers, on connections of their own: a statement sees every commit that was acknowledged before it
//! began.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::bind::{column, id_bytes, limit_of, number, statement};
use super::sql;
use super::transaction::{clock, known};
use super::wire::{Statement, Wire, Wires};
use crate::domain::ids::{EventId, KeyedHash, NotificationId, ProviderName, Tenant};
use crate::domain::time::Timestamp;
use crate::store::rows::{
    AccountCounts, AccountFault, HighWater, Known, LogFilter, LogRow, Queue, StatusRow, StatusSelector, UnknownFilter,
    UnknownRow, WorkCounts,
};
use crate::store::{Reader, StoreError, decode};

/// How long the end of the log waits for the writers that run. None of them can run for longer: see the time-outs of
/// [`PostgresOptions`](super::PostgresOptions).
const WRITERS_MAX: Duration = Duration::from_secs(15);

/// The reading connections.
pub(super) struct PostgresReader {
    wires: Arc<Wires>,
}

impl PostgresReader {
    pub(super) fn new(wires: Arc<Wires>) -> Self {
        Self { wires }
    }

    pub(super) async fn close(&self) {
        self.wires.close().await;
    }

    async fn all<T>(
        &self,
        statement: impl Fn() -> Statement + Send,
        read: impl Fn(&PgRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.wires.read(statement).await?.iter().map(read).collect()
    }

    async fn one<T>(
        &self,
        statement: impl Fn() -> Statement + Send,
        read: impl Fn(&PgRow) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let rows = self.wires.read(statement).await?;
        read(rows.first().ok_or(StoreError::Refused("statement"))?)
    }

    async fn ids(&self, statement: impl Fn() -> Statement + Send) -> Result<Vec<NotificationId>, StoreError> {
        self.all(statement, |row| decode::Cells("work", row).id("id")).await
    }

    /// The names of the write transactions that run.
    async fn running(&self) -> Result<HashSet<String>, StoreError> {
        let rows = self.wires.read(|| statement(sql::RUNNING)).await?;
        rows.iter().map(|row| row.try_get("name").map_err(|_| StoreError::Refused("statement"))).collect()
    }
}

/// The bytes to begin after: nothing sorts before all ids.
fn after(id: Option<NotificationId>) -> Vec<u8> {
    id.map(|id| id.as_bytes().to_vec()).unwrap_or_default()
}

/// Binds the nine parameters of the log statements.
fn log_query(texts: [&'static str; 2], filter: &LogFilter, after: i64, limit: i64) -> Statement {
    let [any, of_one] = texts;
    statement(if filter.notification.is_some() { of_one } else { any })
        .bind(after)
        .bind(filter.tenant.as_ref().map(Tenant::as_str))
        .bind(filter.from.map(Timestamp::micros))
        .bind(filter.to.map(Timestamp::micros))
        .bind(filter.event_id.as_ref().map(EventId::as_str))
        .bind(filter.what.map(|what| what.code()))
        .bind(limit)
        .bind(filter.notification.as_ref().map(id_bytes))
        .bind(filter.up_to.unwrap_or(i64::MAX))
}

/// Reads a notification, its work and its log at one moment.
async fn status_on(
    wire: &mut Wire,
    tenant: &Tenant,
    selector: &StatusSelector,
) -> Result<Option<StatusRow>, StoreError> {
    let (text, value) = match selector {
        StatusSelector::Id(id) => (sql::STATUS_BY_ID, *id.as_bytes()),
        StatusSelector::Event(hash) => (sql::STATUS_BY_EVENT, *hash.as_bytes()),
        StatusSelector::Key(hash) => (sql::STATUS_BY_KEY, *hash.as_bytes()),
    };
    let found = wire.rows(statement(text).bind(tenant.as_str()).bind(&value[..])).await.map_err(|t| t.fault())?;
    let Some(row) = found.first() else { return Ok(None) };
    let notification = decode::notification(row)?;
    let work = statement(sql::WORK_UNLOCKED).bind(column(&[notification.id], id_bytes));
    let work = wire.rows(work).await.map_err(|t| t.fault())?;
    let work = work.first().map(decode::work_state).transpose()?;
    let log = statement(sql::LOG_OF).bind(id_bytes(&notification.id));
    let log = wire.rows(log).await.map_err(|t| t.fault())?;
    let log = log.iter().map(decode::log).collect::<Result<_, _>>()?;
    Ok(Some(StatusRow { notification, work, log }))
}

#[async_trait]
impl Reader for PostgresReader {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        clock(&self.wires.read(|| statement(sql::NOW)).await?)
    }

    async fn status(&self, tenant: &Tenant, selector: &StatusSelector) -> Result<Option<StatusRow>, StoreError> {
        let (mut wire, _) = self.wires.begin(sql::BEGIN_READING).await?;
        let status = status_on(&mut wire, tenant, selector).await?;
        wire.simple(sql::ROLLBACK).await.map_err(|t| t.fault())?;
        wire.give_back();
        Ok(status)
    }

    async fn known(&self, tenant: &Tenant, key: KeyedHash, event: KeyedHash) -> Result<Vec<Known>, StoreError> {
        self.all(|| known(&[(tenant.clone(), key, event)]), decode::known).await
    }

    async fn expired(&self, now: Timestamp, limit: u32) -> Result<Vec<NotificationId>, StoreError> {
        self.ids(|| statement(sql::EXPIRED).bind(now.micros()).bind(limit_of(limit))).await
    }

    async fn stranded(&self, owner: &str, limit: u32) -> Result<Vec<(NotificationId, String)>, StoreError> {
        let stranded = || statement(sql::STRANDED).bind(owner.to_owned()).bind(limit_of(limit));
        self.all(stranded, |row| {
            let c = decode::Cells("work", row);
            Ok((c.id("id")?, c.text("owner")?.to_owned()))
        })
        .await
    }

    async fn next_due(&self, queue: &Queue) -> Result<Option<Timestamp>, StoreError> {
        let first = || statement(sql::NEXT_DUE).bind(queue.to_string());
        self.one(first, |row| decode::Cells("work", row).opt_time("due_at")).await
    }

    async fn unknowns(&self, filter: &UnknownFilter) -> Result<Vec<UnknownRow>, StoreError> {
        let page = || {
            statement(sql::UNKNOWNS)
                .bind(after(filter.after))
                .bind(filter.tenant.as_ref().map(Tenant::as_str))
                .bind(filter.provider.as_ref().map(ProviderName::as_str))
                .bind(filter.cause.map(|cause| cause.code()))
                .bind(filter.before.map(Timestamp::micros))
                .bind(limit_of(filter.limit))
        };
        self.all(page, decode::unknown).await
    }

    async fn log_page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, StoreError> {
        let page = || log_query([sql::LOG_PAGE, sql::LOG_PAGE_OF], filter, after, limit.into());
        self.all(page, decode::log).await
    }

    /// A position is taken before the record is committed, and one that was taken later may be committed earlier. So this
    /// waits for those that might still fill a gap: the transactions that run now and have, or may have, taken a position.
    async fn log_end(&self) -> Result<i64, StoreError> {
        let end = number(&self.wires.read(|| statement(sql::LAST_TAKEN)).await?, "pos")?;
        let before = self.running().await?;
        let mut pause = Duration::from_millis(1);
        let gone = async {
            while !before.is_disjoint(&self.running().await?) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Ok(end)
        };
        if before.is_empty() {
            return Ok(end);
        }
        tokio::time::timeout(WRITERS_MAX, gone).await.unwrap_or(Err(StoreError::Busy))
    }

    async fn account_counts(&self, tenant: Option<&Tenant>) -> Result<AccountCounts, StoreError> {
        let counts = || statement(sql::ACCOUNT_COUNTS).bind(tenant.map(Tenant::as_str));
        self.one(counts, decode::account_counts).await
    }

    async fn account_faults(&self, tenant: Option<&Tenant>, limit: u32) -> Result<Vec<AccountFault>, StoreError> {
        let faults = || statement(sql::ACCOUNT_FAULTS).bind(tenant.map(Tenant::as_str)).bind(limit_of(limit));
        self.all(faults, decode::account_fault).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCounts>, StoreError> {
        self.all(|| statement(sql::WORK_COUNTS), decode::work_counts).await
    }

    async fn live(&self, after_id: Option<NotificationId>, limit: u32) -> Result<Vec<NotificationId>, StoreError> {
        self.ids(|| statement(sql::LIVE).bind(after(after_id)).bind(limit_of(limit))).await
    }

    async fn high_water(&self) -> Result<HighWater, StoreError> {
        self.one(|| statement(sql::HIGH_WATER), decode::high_water).await
    }
}
