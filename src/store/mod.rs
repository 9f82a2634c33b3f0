//! The store seam: SQL primitives over batches.
//!
//! What may happen to a notification is decided in `ledger` and `domain`; a backend only reads and writes rows. Each
//! primitive is one statement for a whole batch with a constant text, because every statement costs a round trip
//! (PostgreSQL) or a thread hop (SQLite through sqlx). Rows are written in the order of their ids, so that two writers
//! never wait for each other in a circle.

#[macro_use]
mod words;

pub mod callbacks;
mod decode;
pub mod mark;
pub mod nodes;
pub mod postgres;
pub mod rows;
pub mod sqlite;

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::ids::{KeyedHash, NotificationId, ProviderMessageId, ProviderName, Tenant};
use crate::domain::receipt::Receipt;
use crate::domain::retry::RetryPolicy;
use crate::domain::time::Timestamp;
use rows::{
    AccountCounts, AccountFault, Changes, Due, HighWater, Known, LogFilter, LogRow, NotificationRow, Queue, StatusRow,
    StatusSelector, UnknownFilter, UnknownRow, WorkCounts, WorkRow,
};

/// Why the store did not do what was asked. Holds no value of any row and no text of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another writer holds the store for longer than the time-out. Nothing was written.
    #[error("the store is busy")]
    Busy,
    /// The disk or the quota is full. Nothing was written.
    #[error("the store is full")]
    Full,
    /// The store cannot be written now. Nothing was written.
    #[error("the store is read-only")]
    ReadOnly,
    /// The store cannot be reached or fails its I/O. Nothing was written.
    #[error("the store is unavailable")]
    Unavailable,
    /// It is not known whether the commit took effect.
    #[error("the commit's outcome is not known")]
    Ambiguous,
    /// Two transactions stood in each other's way, and this one was undone so that the other could go on. The same batch
    /// can be run again at once.
    #[error("the store undid the transaction for another one")]
    Conflict,
    /// A statement failed in a way that a later try of the same batch will not cure.
    #[error("the store refused a statement ({0})")]
    Refused(&'static str),
    /// A row does not read as what it should be.
    #[error("the store holds a value that cannot be: {table}.{column}")]
    Corrupt {
        /// In which table.
        table: &'static str,
        /// In which column.
        column: &'static str,
    },
    /// Another process has the store open.
    #[error("another process has the store open")]
    Locked,
    /// The server cannot or may not be used: it says why.
    #[error("{0}")]
    Unfit(&'static str),
    /// The file is not a store of this program's version, or not a database.
    #[error("the store's schema is not one that this program knows")]
    Schema,
}

/// Pauses between tries to reach a store that does not answer as it should.
pub const RETRY: RetryPolicy =
    RetryPolicy { first: Duration::from_millis(100), factor: 2.0, cap: Duration::from_secs(5), jitter: 0.5 };

/// A name for a store that no other has.
fn new_incarnation() -> String {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string()
}

/// What a commit needs to have read, in one transaction.
#[async_trait]
pub trait Store: Send + Sync {
    /// How many write transactions it serves beside each other.
    fn writers(&self) -> usize;

    /// Begins a write transaction. Dropping the future undoes what it did.
    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError>;

    /// Reads outside of any transaction.
    fn reader(&self) -> &dyn Reader;

    /// Who else works on this store.
    fn nodes(&self) -> &dyn nodes::Nodes;

    /// What apps are to be told of.
    fn callbacks(&self) -> &dyn callbacks::Callbacks;

    /// Closes all connections; on SQLite also moves the write-ahead log into the file.
    async fn close(&self);
}

/// One write transaction. Dropping it undoes it.
#[async_trait]
pub trait Transaction: Send {
    /// The store's clock at the beginning of the transaction.
    fn now(&self) -> Timestamp;

    /// Inserts those rows whose tenant, key and event are both new, and says which ones were.
    async fn insert_notifications(&mut self, rows: &[NotificationRow]) -> Result<HashSet<NotificationId>, StoreError>;

    /// Takes back rows that were inserted in this transaction.
    async fn delete_notifications(&mut self, ids: &[NotificationId]) -> Result<(), StoreError>;

    /// The rows that hold any of these (tenant, key hash, event hash), by key or by event.
    async fn known(&mut self, wanted: &[(Tenant, KeyedHash, KeyedHash)]) -> Result<Vec<Known>, StoreError>;

    /// The notification rows with these ids, locked for this transaction.
    async fn notifications(&mut self, ids: &[NotificationId]) -> Result<Vec<NotificationRow>, StoreError>;

    /// The work rows with these ids, locked for this transaction.
    async fn work(&mut self, ids: &[NotificationId]) -> Result<Vec<WorkRow>, StoreError>;

    /// Up to `limit` rows of a queue that are due at `now`, the longest due first, locked; rows that another transaction
    /// holds are passed over. A row that does not read is told of and leaves its queue, so that it holds up no other.
    async fn due(&mut self, queue: &Queue, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError>;

    /// Work of the same users: (user, id, order), to see which is the newest.
    async fn work_of_users(
        &mut self,
        users: &[KeyedHash],
    ) -> Result<Vec<(KeyedHash, NotificationId, Timestamp)>, StoreError>;

    /// Writes all that a batch changes. No two of its parts may speak of one row.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a row of work is not any more what it was when it was read.
    async fn write(&mut self, changes: &Changes) -> Result<(), StoreError>;

    /// The limits' theoretical arrival times, for those scopes that have one, locked for this transaction.
    async fn quotas(&mut self, scopes: &[KeyedHash]) -> Result<Vec<(KeyedHash, Timestamp)>, StoreError>;

    /// Stores limits' theoretical arrival times.
    async fn save_quotas(&mut self, quotas: &[(KeyedHash, Timestamp)]) -> Result<(), StoreError>;

    /// Keeps receipts that matched nothing. A repeat of one that is kept changes nothing.
    async fn keep_receipts(&mut self, receipts: &[Receipt], now: Timestamp) -> Result<(), StoreError>;

    /// Removes and returns the kept receipts for these messages.
    async fn take_receipts(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<Receipt>, StoreError>;

    /// The notifications whose provider names them only by its own id.
    async fn by_receipt_key(
        &mut self,
        messages: &[(ProviderName, ProviderMessageId)],
    ) -> Result<Vec<(ProviderName, ProviderMessageId, NotificationId)>, StoreError>;

    /// Deletes quotas that no longer limit anything and kept receipts that are older than `receipts_before` or beyond
    /// the newest `receipts_max`; at most `limit` rows of each.
    async fn sweep_small(
        &mut self,
        now: Timestamp,
        receipts_before: Timestamp,
        receipts_max: u32,
        limit: u32,
    ) -> Result<(), StoreError>;

    /// Deletes up to `limit` finished notifications whose id is older than `before`, and returns how many.
    async fn forget_notifications(&mut self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// The store's incarnation and high-water mark as this transaction sees them.
    async fn high_water(&mut self) -> Result<HighWater, StoreError>;

    /// Makes it durable.
    ///
    /// # Errors
    /// [`StoreError::Ambiguous`] when it may have taken effect; any other error means that it did not.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

/// Reads that need no lock and may lag by nothing: they see every commit that was acknowledged before they began.
#[async_trait]
pub trait Reader: Send + Sync {
    /// The store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// A notification with its history.
    async fn status(&self, tenant: &Tenant, selector: &StatusSelector) -> Result<Option<StatusRow>, StoreError>;

    /// The rows that hold this key or this event.
    async fn known(&self, tenant: &Tenant, key: KeyedHash, event: KeyedHash) -> Result<Vec<Known>, StoreError>;

    /// Live work whose expiry has come, oldest first.
    async fn expired(&self, now: Timestamp, limit: u32) -> Result<Vec<NotificationId>, StoreError>;

    /// Work that is `dispatching` or probing under a boot that is over, and that boot: it is not enrolled, nor `owner`.
    async fn stranded(&self, owner: &str, limit: u32) -> Result<Vec<(NotificationId, String)>, StoreError>;

    /// When the first row of a queue is due.
    async fn next_due(&self, queue: &Queue) -> Result<Option<Timestamp>, StoreError>;

    /// A page of the unknowns, oldest first.
    async fn unknowns(&self, filter: &UnknownFilter) -> Result<Vec<UnknownRow>, StoreError>;

    /// A page of the log after position `after`, at most `limit` rows.
    async fn log_page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, StoreError>;

    /// The position up to which the log is complete: no record that is not there now can still appear at or below it, and
    /// every record that was acknowledged before the call lies at or below it.
    async fn log_end(&self) -> Result<i64, StoreError>;

    /// Counts for the accounting, of one tenant or all.
    async fn account_counts(&self, tenant: Option<&Tenant>) -> Result<AccountCounts, StoreError>;

    /// Notifications whose records do not add up, at most `limit`.
    async fn account_faults(&self, tenant: Option<&Tenant>, limit: u32) -> Result<Vec<AccountFault>, StoreError>;

    /// Live work by state and provider.
    async fn work_counts(&self) -> Result<Vec<WorkCounts>, StoreError>;

    /// Ids of all live work after `after`, in order of id.
    async fn live(&self, after: Option<NotificationId>, limit: u32) -> Result<Vec<NotificationId>, StoreError>;

    /// The store's incarnation and high-water mark.
    async fn high_water(&self) -> Result<HighWater, StoreError>;
}
