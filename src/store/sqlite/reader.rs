//! Reads beside the writer: a WAL reader sees every commit that was acknowledged before its statement began.

use async_trait::async_trait;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqlitePool, SqliteRow};

use super::batch::Batch;
use super::fault::sql_fault;
use super::sql;
use crate::clock::SharedClock;
use crate::domain::ids::{EventId, KeyedHash, NotificationId, ProviderName, Tenant};
use crate::domain::time::Timestamp;
use crate::store::rows::{
    AccountCounts, AccountFault, HighWater, Known, LogFilter, LogRow, Queue, StatusRow, StatusSelector, UnknownFilter,
    UnknownRow, WorkCounts,
};
use crate::store::{Reader, StoreError, decode};

/// The pool of reading connections.
pub(super) struct SqliteReader {
    pool: SqlitePool,
    clock: SharedClock,
}

type Statement = Query<'static, Sqlite, SqliteArguments>;

impl SqliteReader {
    pub(super) fn new(pool: SqlitePool, clock: SharedClock) -> Self {
        Self { pool, clock }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }

    pub(super) async fn all<T>(
        &self,
        statement: Statement,
        read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = statement.fetch_all(&self.pool).await.map_err(|e| sql_fault(&e))?;
        rows.iter().map(read).collect()
    }

    pub(super) async fn one<T>(
        &self,
        statement: Statement,
        read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let row = statement.fetch_one(&self.pool).await.map_err(|e| sql_fault(&e))?;
        read(&row)
    }

    async fn ids(&self, statement: Statement) -> Result<Vec<NotificationId>, StoreError> {
        self.all(statement, |row| decode::Cells("work", row).id("id")).await
    }
}

/// The bytes to begin after: nothing sorts before all ids.
fn after(id: Option<NotificationId>) -> Vec<u8> {
    id.map(|id| id.as_bytes().to_vec()).unwrap_or_default()
}

/// Binds the nine parameters of the log statements.
fn log_query(texts: [&'static str; 2], filter: &LogFilter, after: i64, limit: i64) -> Statement {
    let [any, of_one] = texts;
    sqlx::query(if filter.notification.is_some() { of_one } else { any })
        .bind(after)
        .bind(filter.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
        .bind(filter.from.map(Timestamp::micros))
        .bind(filter.to.map(Timestamp::micros))
        .bind(filter.event_id.as_ref().map(|id: &EventId| id.as_str().to_owned()))
        .bind(filter.what.map(|what| what.code()))
        .bind(limit)
        .bind(filter.notification.map(|id| id.as_bytes().to_vec()))
        .bind(filter.up_to.unwrap_or(i64::MAX))
}

#[async_trait]
impl Reader for SqliteReader {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    async fn status(&self, tenant: &Tenant, selector: &StatusSelector) -> Result<Option<StatusRow>, StoreError> {
        // One transaction, so that the three statements see the same moment.
        let mut tx = self.pool.begin().await.map_err(|e| sql_fault(&e))?;
        let (text, value) = match selector {
            StatusSelector::Id(id) => (sql::STATUS_BY_ID, *id.as_bytes()),
            StatusSelector::Event(hash) => (sql::STATUS_BY_EVENT, *hash.as_bytes()),
            StatusSelector::Key(hash) => (sql::STATUS_BY_KEY, *hash.as_bytes()),
        };
        let found = sqlx::query(text).bind(tenant.as_str().to_owned()).bind(value.to_vec());
        let Some(row) = found.fetch_optional(&mut *tx).await.map_err(|e| sql_fault(&e))? else { return Ok(None) };
        let notification = decode::notification(&row)?;
        let id = notification.id.as_bytes();
        let work = sqlx::query(sql::WORK).bind(Batch::blobs([id]));
        let work = work.fetch_optional(&mut *tx).await.map_err(|e| sql_fault(&e))?;
        let work = work.as_ref().map(decode::work_state).transpose()?;
        let log = sqlx::query(sql::LOG_OF).bind(id.to_vec()).fetch_all(&mut *tx).await.map_err(|e| sql_fault(&e))?;
        let log = log.iter().map(decode::log).collect::<Result<_, _>>()?;
        Ok(Some(StatusRow { notification, work, log }))
    }

    async fn known(&self, tenant: &Tenant, key: KeyedHash, event: KeyedHash) -> Result<Vec<Known>, StoreError> {
        let wanted = Batch::of([tenant], |row, tenant| {
            row.text(tenant.as_str()).blob(key.as_bytes()).blob(event.as_bytes());
        });
        self.all(sqlx::query(sql::KNOWN).bind(wanted), decode::known).await
    }

    async fn expired(&self, now: Timestamp, limit: u32) -> Result<Vec<NotificationId>, StoreError> {
        self.ids(sqlx::query(sql::EXPIRED).bind(now.micros()).bind(limit)).await
    }

    async fn stranded(&self, owner: &str, limit: u32) -> Result<Vec<(NotificationId, String)>, StoreError> {
        let stranded = sqlx::query(sql::STRANDED).bind(owner.to_owned()).bind(limit);
        self.all(stranded, |row| {
            let c = decode::Cells("work", row);
            Ok((c.id("id")?, c.text("owner")?.to_owned()))
        })
        .await
    }

    async fn next_due(&self, queue: &Queue) -> Result<Option<Timestamp>, StoreError> {
        let first = sqlx::query(sql::NEXT_DUE).bind(queue.to_string());
        self.one(first, |row| decode::Cells("work", row).opt_time("due_at")).await
    }

    async fn unknowns(&self, filter: &UnknownFilter) -> Result<Vec<UnknownRow>, StoreError> {
        let page = sqlx::query(sql::UNKNOWNS)
            .bind(after(filter.after))
            .bind(filter.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(filter.provider.as_ref().map(|name: &ProviderName| name.as_str().to_owned()))
            .bind(filter.cause.map(|cause| cause.code()))
            .bind(filter.before.map(Timestamp::micros))
            .bind(filter.limit);
        self.all(page, decode::unknown).await
    }

    async fn log_page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, StoreError> {
        self.all(log_query([sql::LOG_PAGE, sql::LOG_PAGE_OF], filter, after, limit.into()), decode::log).await
    }

    async fn log_end(&self) -> Result<i64, StoreError> {
        // One writer at a time: positions become visible in their order.
        Ok(self.high_water().await?.pos)
    }

    async fn account_counts(&self, tenant: Option<&Tenant>) -> Result<AccountCounts, StoreError> {
        let counts = sqlx::query(sql::ACCOUNT_COUNTS).bind(tenant.map(|tenant| tenant.as_str().to_owned()));
        self.one(counts, decode::account_counts).await
    }

    async fn account_faults(&self, tenant: Option<&Tenant>, limit: u32) -> Result<Vec<AccountFault>, StoreError> {
        let faults = sqlx::query(sql::ACCOUNT_FAULTS).bind(tenant.map(|tenant| tenant.as_str().to_owned())).bind(limit);
        self.all(faults, decode::account_fault).await
    }

    async fn work_counts(&self) -> Result<Vec<WorkCounts>, StoreError> {
        self.all(sqlx::query(sql::WORK_COUNTS), decode::work_counts).await
    }

    async fn live(&self, after_id: Option<NotificationId>, limit: u32) -> Result<Vec<NotificationId>, StoreError> {
        self.ids(sqlx::query(sql::LIVE).bind(after(after_id)).bind(limit)).await
    }

    async fn high_water(&self) -> Result<HighWater, StoreError> {
        self.one(sqlx::query(sql::HIGH_WATER), decode::high_water).await
    }
}
