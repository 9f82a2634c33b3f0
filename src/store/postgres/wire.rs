//! Connections, lent out one at a time and taken back only when it is certain that they are idle.
//!
//! sqlx's own pool is not used: in 0.9.0 it takes back a connection on which `begin` was cancelled, with the transaction
//! still open, and what the next one writes there in good faith is rolled back later (sqlx issue 4393). Here a wire that is
//! dropped, for whatever reason and at whatever point, closes its connection, and the server rolls back.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::fault::{commit_fault, is_only_the_statement, sql_fault};
use super::fitness;
use crate::store::StoreError;

/// A statement with its values.
pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// What went wrong on a connection. It has no text, so that nobody can print the library's.
pub(super) struct Trouble(sqlx::Error);

impl Trouble {
    pub(super) fn fault(&self) -> StoreError {
        sql_fault(&self.0)
    }

    /// The same, when it met a COMMIT.
    pub(super) fn commit_fault(&self) -> StoreError {
        commit_fault(&self.0)
    }

    /// Whether the connection is still good.
    pub(super) fn is_only_the_statement(&self) -> bool {
        is_only_the_statement(&self.0)
    }
}

/// No answer in time.
fn silence<T>(_: Elapsed) -> Result<T, sqlx::Error> {
    Err(sqlx::Error::Io(ErrorKind::TimedOut.into()))
}

/// Connections with the same settings.
pub(super) struct Wires {
    options: PgConnectOptions,
    most: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<PgConnection>>,
    patience: Duration,
    /// Each new connection must prove that its server keeps what it acknowledges.
    writing: bool,
}

/// One connection, in the hands of one user.
pub(super) struct Wire {
    connection: PgConnection,
    /// It was idle before, so that it may have been lost meanwhile.
    used: bool,
    home: Arc<Wires>,
    _permit: OwnedSemaphorePermit,
}

impl Wires {
    /// At most `most` connections; `patience` bounds each wait for one and each statement, whatever the network does.
    pub(super) fn reading(options: PgConnectOptions, most: usize, patience: Duration) -> Arc<Self> {
        Self::new(options, most, patience, false)
    }

    /// The same, for connections to a server that is fit to be written to.
    pub(super) fn writing(options: PgConnectOptions, most: usize, patience: Duration) -> Arc<Self> {
        Self::new(options, most, patience, true)
    }

    fn new(options: PgConnectOptions, most: usize, patience: Duration, writing: bool) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(most));
        Arc::new(Self { options, most, permits, idle: Mutex::default(), patience, writing })
    }

    /// How many connections there are at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Begins a transaction with a text of ours, and gives the rows of its answer.
    pub(super) async fn begin(self: &Arc<Self>, text: &'static str) -> Result<(Wire, Vec<PgRow>), StoreError> {
        loop {
            let mut wire = self.take().await?;
            match wire.simple(text).await {
                Ok(rows) => return Ok((wire, rows)),
                Err(trouble) => wire.retire(&trouble)?,
            }
        }
    }

    /// Runs one statement outside of any transaction.
    pub(super) async fn read(
        self: &Arc<Self>,
        statement: impl Fn() -> Statement + Send,
    ) -> Result<Vec<PgRow>, StoreError> {
        loop {
            let mut wire = self.take().await?;
            match wire.rows(statement()).await {
                Ok(rows) => {
                    wire.give_back();
                    return Ok(rows);
                }
                Err(trouble) => wire.retire(&trouble)?,
            }
        }
    }

    /// A connection with no transaction on it.
    async fn take(self: &Arc<Self>) -> Result<Wire, StoreError> {
        let permit = timeout(self.patience, self.permits.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| StoreError::Busy)?.map_err(|_| StoreError::Unavailable)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let used = idle.is_some();
        let connection = match idle {
            Some(connection) => connection,
            None => timeout(self.patience, self.connect()).await.map_err(|_| StoreError::Unavailable)??,
        };
        Ok(Wire { connection, used, home: self.clone(), _permit: permit })
    }

    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let mut connection = self.options.connect().await.map_err(|e| sql_fault(&e))?;
        if self.writing {
            fitness::check(&mut connection).await?;
        }
        Ok(connection)
    }

    /// Forgets all idle connections: what one of them met will have met the others.
    fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes nothing back any more, and takes leave of the server on what is idle.
    pub(super) async fn close(&self) {
        self.permits.close();
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            let _ = timeout(self.patience, connection.close()).await;
        }
    }
}

impl Wire {
    /// Runs a prepared statement.
    pub(super) async fn rows(&mut self, statement: Statement) -> Result<Vec<PgRow>, Trouble> {
        let answer = timeout(self.home.patience, statement.fetch_all(&mut self.connection)).await;
        answer.unwrap_or_else(silence).map_err(Trouble)
    }

    /// Runs a prepared statement, and says how many rows it touched.
    pub(super) async fn run(&mut self, statement: Statement) -> Result<u64, Trouble> {
        let answer = timeout(self.home.patience, statement.execute(&mut self.connection)).await;
        answer.unwrap_or_else(silence).map(|done| done.rows_affected()).map_err(Trouble)
    }

    /// Runs a text of one or more statements, without preparing it.
    pub(super) async fn simple(&mut self, text: &'static str) -> Result<Vec<PgRow>, Trouble> {
        let answer = timeout(self.home.patience, sqlx::raw_sql(text).fetch_all(&mut self.connection)).await;
        answer.unwrap_or_else(silence).map_err(Trouble)
    }

    /// Gives the connection back, which has no transaction on it.
    pub(super) fn give_back(self) {
        let Self { connection, home, _permit, .. } = self;
        if !home.permits.is_closed() {
            home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }

    /// After trouble with the first statement on the connection: says whether to try again, on another one, because this one
    /// was lost while it was idle and so did nothing.
    fn retire(self, trouble: &Trouble) -> Result<(), StoreError> {
        let again = self.used && !trouble.is_only_the_statement() && trouble.fault() == StoreError::Unavailable;
        if trouble.is_only_the_statement() && !self.home.writing {
            self.give_back();
        } else {
            self.give_up();
        }
        if again { Ok(()) } else { Err(trouble.fault()) }
    }

    /// Closes the connection, which cannot be used any more, and those that were idle beside it.
    pub(super) fn give_up(self) {
        self.home.forget();
    }
}
