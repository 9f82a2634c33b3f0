//! The backend that several nodes share: a PostgreSQL server, version 15 or newer.
//!
//! One clock: `now` is the server's. One commit: `synchronous_commit` must not be off, which is checked on every connection
//! that writes, because after a failover another server answers. Whatever goes wrong on a connection, or is merely dropped
//! there, closes it (`wire.rs`).
//!
//! What SQLite's `secure_delete` does has no counterpart here: the bytes of a deleted row stay in the table's file until
//! vacuum and later rows overwrite them, and in the write-ahead log and its archives for as long as those are kept. They are
//! sealed; who wants them gone for good retires the sealing key.
//!
//! Prepared statements live on the connection, so a pooler in front of the server must pool sessions, not transactions.

mod bind;
pub mod callbacks;
mod fault;
mod fitness;
mod nodes;
mod reader;
pub mod sql;
mod transaction;
mod wire;

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::time::timeout;

use super::callbacks::Callbacks;
use super::nodes::Nodes;
use super::{Reader, Store, StoreError, Transaction, new_incarnation};
use fault::{connect_fault, migrate_fault, sql_fault};
use nodes::Neighbourhood;
use reader::PostgresReader;
use transaction::{PostgresTransaction, clock};
use wire::Wires;

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// How long a connection attempt, and a node's wait for another one's migration, may take.
const START_MAX: Duration = Duration::from_secs(60);
/// How much longer we wait for an answer than the server lets a statement run.
const NETWORK: Duration = Duration::from_secs(2);
/// A statement of a reader may be an accounting over everything.
const READING_MAX: Duration = Duration::from_secs(60);
/// Connections for callbacks, at most.
const CALLBACK_WIRES: usize = 2;
/// How long a transaction may wait for its next statement: a process that was stopped for longer loses it.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How the server is used.
#[derive(Clone, Copy, Debug)]
pub struct PostgresOptions {
    /// How long a statement of a write transaction waits for a lock; it is given 5 s more for its work.
    pub busy_timeout: Duration,
    /// Connections for reading, at most; at least 1.
    pub readers: u32,
    /// Connections for writing, at most; at least 1.
    pub writers: u32,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), readers: 8, writers: 4 }
    }
}

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    writers: Arc<Wires>,
    reader: PostgresReader,
    nodes: Neighbourhood,
    callbacks: Arc<Wires>,
}

impl PostgresStore {
    /// Opens the store in the database that `url` names, and brings its schema up to date; two nodes that start at once
    /// do so one after the other. `password` stands above one in the URL.
    ///
    /// The URL is `postgres://USER@HOST:PORT/DATABASE` with the parameters of libpq that sqlx knows: `host` (also a
    /// directory with the server's socket), `port`, `user`, `dbname`, `sslmode` (`disable`, `prefer`, `require`,
    /// `verify-ca`, `verify-full`), `sslrootcert`, `sslcert`, `sslkey`, `application_name`, `options`. Without
    /// `sslrootcert`, a verified server needs a certificate of a public authority.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] when the server or the URL cannot be used, and says why; [`StoreError::ReadOnly`] when it is a
    /// standby; [`StoreError::Schema`] when the tables are another program's or a newer version's.
    pub async fn open(
        url: &SecretString,
        password: Option<&SecretString>,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        // sqlx takes any scheme for its own.
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.expose_secret().starts_with(scheme)) {
            return Err(StoreError::Unfit("the PostgreSQL URL must begin with postgres://"));
        }
        let base = PgConnectOptions::from_str(url.expose_secret()).map_err(|e| connect_fault(&e))?;
        let base = match password {
            Some(password) => base.password(password.expose_secret()),
            None => base,
        };
        let base = base.application_name("sendonce").disable_statement_logging();
        prepare(&base).await?;
        let nodes = Neighbourhood::new(&base);
        let lock = options.busy_timeout;
        let statement = lock + Duration::from_secs(5);
        let writing = base.clone().options([
            ("statement_timeout", millis(statement)),
            ("lock_timeout", millis(lock)),
            ("idle_in_transaction_session_timeout", millis(IDLE_MAX)),
        ]);
        let reading = base.options([
            ("default_transaction_read_only", "on".to_owned()),
            ("statement_timeout", millis(READING_MAX)),
            ("idle_in_transaction_session_timeout", millis(IDLE_MAX)),
        ]);
        let most = |connections: u32| connections.max(1) as usize;
        let callbacks = Wires::writing(writing.clone(), CALLBACK_WIRES, statement + NETWORK);
        let writers = Wires::writing(writing.options(PLANS), most(options.writers), statement + NETWORK);
        let readers = Wires::reading(reading, most(options.readers), READING_MAX + NETWORK);
        Ok(Self { writers, reader: PostgresReader::new(readers), nodes, callbacks })
    }
}

/// The write primitives all find their rows by index, in tables whose size and statistics change by the minute. So their
/// plans are made once, for a batch of unknown size, and may not become the ones that suit a table that is small just now.
const PLANS: [(&str, &str); 6] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
];

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

/// Checks the server, brings the schema up to date and gives a new store its incarnation.
async fn prepare(base: &PgConnectOptions) -> Result<(), StoreError> {
    let options = base.clone().options([("lock_timeout", millis(START_MAX))]);
    let connected = timeout(START_MAX, options.connect()).await.map_err(|_| StoreError::Unavailable)?;
    let mut connection = connected.map_err(|e| connect_fault(&e))?;
    fitness::check(&mut connection).await?;
    update_schema(&mut connection).await?;
    let _ = connection.close().await;
    Ok(())
}

async fn update_schema(connection: &mut PgConnection) -> Result<(), StoreError> {
    let foreign = sqlx::query(sql::IS_FOREIGN).fetch_one(&mut *connection).await.map_err(|e| sql_fault(&e))?;
    if foreign.try_get::<bool, _>(0).map_err(|e| sql_fault(&e))? {
        return Err(StoreError::Schema);
    }
    MIGRATIONS.run(&mut *connection).await.map_err(|e| migrate_fault(&e))?;
    sqlx::query(sql::INCARNATION).bind(new_incarnation()).execute(connection).await.map_err(|e| sql_fault(&e))?;
    Ok(())
}

#[async_trait]
impl Store for PostgresStore {
    fn writers(&self) -> usize {
        self.writers.most()
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>, StoreError> {
        let (wire, rows) = self.writers.begin(sql::BEGIN).await?;
        let row = rows.last().ok_or(StoreError::Unavailable)?;
        if row.try_get("read_only").unwrap_or(true) {
            wire.give_up();
            return Err(StoreError::ReadOnly);
        }
        let now = clock(&rows)?;
        Ok(Box::new(PostgresTransaction::new(wire, now)))
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
        self.nodes.close().await;
        self.callbacks.close().await;
        self.writers.close().await;
        self.reader.close().await;
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresStore")
    }
}
