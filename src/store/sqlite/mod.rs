//! The embedded backend: one SQLite file, one writer, several readers.
//!
//! The writer commits with `synchronous=FULL`, so an acknowledged commit is on disk. Checkpoints run on a connection of
//! their own (`checkpoint.rs`), so that no commit ever waits for one to copy the whole write-ahead log.

mod batch;
mod bound;
mod callbacks;
mod checkpoint;
mod fault;
mod nodes;
mod reader;
pub mod sql;
mod transaction;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::callbacks::Callbacks;
use super::decode::Columns;
use super::nodes::Nodes;
use super::{Reader, Store, StoreError, Transaction, new_incarnation};
use crate::clock::SharedClock;
use checkpoint::Checkpointer;
use fault::{io_fault, migrate_fault, sql_fault};
use reader::SqliteReader;
use transaction::SqliteTransaction;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");

/// The writer's page cache, as SQLite takes it: KiB, negated. A batch touches a leaf of two indexes for each event.
const WRITER_CACHE: &str = "-16384";

/// Rows that the writer's thread reads ahead, so that it does not stop in the middle of a batch.
const ROWS_READ_AHEAD: usize = 512;

/// How the file is opened.
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    /// How long a statement waits for a lock that another connection holds.
    pub busy_timeout: Duration,
    /// Connections for reading; at least 1.
    pub readers: u32,
    /// The most pages (of 4096 bytes) that the file may have; `None` leaves the limit to the disk.
    pub max_pages: Option<u32>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), readers: 4, max_pages: None }
    }
}

/// The connection that writes.
struct Writer {
    options: SqliteConnectOptions,
    /// `None` before it is opened again after its thread died, and once the store is closed.
    connection: Option<SqliteConnection>,
    /// A transaction was begun, and it is not known that it ended.
    open: bool,
    closed: bool,
}

impl Writer {
    /// The connection, with no transaction on it.
    async fn idle(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        if self.closed {
            return Err(StoreError::Unavailable);
        }
        if self.open {
            self.undo().await;
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.options.connect().await.map_err(|e| sql_fault(&e))?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Ends a transaction without a trace. A connection on which that fails for any reason but that SQLite had ended it
    /// already is given up.
    async fn undo(&mut self) {
        if let Some(connection) = &mut self.connection {
            let undone = sqlx::query(sql::ROLLBACK).execute(&mut *connection).await;
            let ended = match undone {
                Ok(_) => true,
                Err(sqlx::Error::Database(e)) => e.code().as_deref() == Some(fault::GENERIC),
                Err(_) => false,
            };
            if !ended {
                self.connection = None;
            }
        }
        self.open = false;
    }
}

/// A store in one file.
pub struct SqliteStore {
    writer: Arc<Mutex<Writer>>,
    reader: SqliteReader,
    checkpointer: Checkpointer,
    clock: SharedClock,
    lock: File,
}

impl SqliteStore {
    /// Opens the store at `path` and brings its schema up to date; makes the file when it is not there. The directory
    /// must exist. New files can be read by their owner only.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has it open, [`StoreError::Schema`] when the file is another
    /// program's or a newer version's, and what SQLite and the file system report.
    pub async fn open(path: &Path, clock: SharedClock, options: SqliteOptions) -> Result<Self, StoreError> {
        let lock = open_private(&beside(path, ".lock"))?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => StoreError::Locked,
            TryLockError::Error(e) => io_fault(&e),
        })?;
        drop(open_private(path)?);

        let base =
            SqliteConnectOptions::new().filename(path).busy_timeout(options.busy_timeout).disable_statement_logging();
        let mut writing = base
            .clone()
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .pragma("secure_delete", "ON")
            .pragma("wal_autocheckpoint", "0")
            // A statement over a whole batch keeps what it would undo; by default that is spilled into a file.
            .pragma("temp_store", "MEMORY")
            .pragma("cache_size", WRITER_CACHE)
            .row_buffer_size(ROWS_READ_AHEAD);
        if let Some(pages) = options.max_pages {
            writing = writing.pragma("max_page_count", pages.to_string());
        }
        let mut connection = writing.connect().await.map_err(|e| sql_fault(&e))?;
        prepare(&mut connection).await?;

        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers.max(1))
            .acquire_timeout(options.busy_timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_with(base.clone().read_only(true).pragma("query_only", "ON"))
            .await
            .map_err(|e| sql_fault(&e))?;
        let copying = base.synchronous(SqliteSynchronous::Full).pragma("wal_autocheckpoint", "0");
        let checkpointer = Checkpointer::start(copying, beside(path, "-wal"));
        let writer = Writer { options: writing, connection: Some(connection), open: false, closed: false };
        Ok(Self {
            writer: Arc::new(Mutex::new(writer)),
            reader: SqliteReader::new(readers, clock.clone()),
            checkpointer,
            clock,
            lock,
        })
    }

    /// Copies the whole write-ahead log into the file and empties it, when nobody reads or writes just now.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when somebody does, and what SQLite reports.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.clone().lock_owned().await;
        checkpoint::empty(writer.idle().await?).await
    }
}

impl SqliteStore {
    async fn transaction(&self) -> Result<SqliteTransaction, StoreError> {
        let mut writer: OwnedMutexGuard<Writer> = self.writer.clone().lock_owned().await;
        writer.idle().await?;
        writer.open = true;
        let Some(connection) = &mut writer.connection else { return Err(StoreError::Unavailable) };
        let begun = sqlx::query(sql::BEGIN).execute(connection).await;
        if let Err(e) = begun {
            writer.undo().await;
            return Err(sql_fault(&e));
        }
        Ok(SqliteTransaction::new(writer, self.clock.now()))
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn writers(&self) -> usize {
        1
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        Ok(Box::new(self.transaction().await?))
    }

    fn reader(&self) -> &dyn Reader {
        &self.reader
    }

    fn nodes(&self) -> &dyn Nodes {
        self
    }

    fn callbacks(&self) -> &dyn Callbacks {
        self
    }

    async fn close(&self) {
        self.checkpointer.stop().await;
        self.reader.close().await;
        let mut writer = self.writer.lock().await;
        if let Ok(connection) = writer.idle().await {
            // What is left in the log is no loss: the next one to open the file reads it.
            let _ = checkpoint::empty(connection).await;
        }
        writer.closed = true;
        if let Some(connection) = writer.connection.take() {
            let _ = connection.close().await;
        }
        // The next process need not wait until the last handle on this store is dropped.
        let _ = self.lock.unlock();
    }
}

/// `path` with something added to its last part.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens a file, or makes one that only its owner may read and write, whatever the umask. SQLite gives its side files
/// the mode of the database ("Write-Ahead Logging", `findCreateFileMode`).
fn open_private(path: &Path) -> Result<File, StoreError> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(file) => file.set_permissions(Permissions::from_mode(0o600)).map(|()| file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new().read(true).write(true).open(path),
        Err(e) => Err(e),
    }
    .map_err(|e| io_fault(&e))
}

/// Checks that the file is ours, brings the schema up to date and gives a new store its incarnation.
async fn prepare(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let foreign = sqlx::query(sql::IS_FOREIGN).fetch_one(&mut *connection).await.map_err(|e| sql_fault(&e))?;
    if foreign.try_get::<bool, _>(0).map_err(|e| sql_fault(&e))? {
        return Err(StoreError::Schema);
    }
    MIGRATIONS.run(&mut *connection).await.map_err(|e| migrate_fault(&e))?;
    sqlx::query(sql::INCARNATION).bind(new_incarnation()).execute(connection).await.map_err(|e| sql_fault(&e))?;
    Ok(())
}

impl Columns for SqliteRow {
    fn integer(&self, column: &str) -> Option<Option<i64>> {
        self.try_get(column).ok()
    }

    fn text(&self, column: &str) -> Option<Option<&str>> {
        self.try_get(column).ok()
    }

    fn bytes(&self, column: &str) -> Option<Option<&[u8]>> {
        self.try_get(column).ok()
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
