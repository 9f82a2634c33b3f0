//! Moves the write-ahead log into the file, beside the writer instead of in its way.
//!
//! A passive checkpoint waits for nobody, but the log only starts over at a moment when all of it has been copied. Under
//! steady load that moment may never come by itself, so beyond a bound it is brought about. It is also brought about when
//! the store falls idle: until the log is emptied, it holds the former content of what was deleted.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::fault::sql_fault;
use super::sql;
use crate::store::StoreError;

const PAUSE: Duration = Duration::from_millis(75);
/// Pauses without a write after which the log is emptied.
const IDLE_PAUSES: u32 = 8;
const LOG_MAX: u64 = 64 * 1024 * 1024;
/// A writer waits this long at most while the log is being emptied and a reader still needs it.
const PATIENCE: Duration = Duration::from_millis(50);

/// The background task. It ends with [`Checkpointer::stop`], or when this is dropped.
pub(super) struct Checkpointer {
    stop: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    pub(super) fn start(options: SqliteConnectOptions, log: PathBuf) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(options.busy_timeout(PATIENCE), log, stopped));
        Self { stop, task: Mutex::new(Some(task)) }
    }

    /// Returns when its connection is closed.
    pub(super) async fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

async fn run(options: SqliteConnectOptions, log: PathBuf, mut stopped: watch::Receiver<bool>) {
    let mut connection: Option<SqliteConnection> = None;
    let (mut copied, mut idle) = (None, 0);
    while tokio::time::timeout(PAUSE, stopped.changed()).await.is_err() {
        // The file itself tells of a write: a transaction that changed nothing leaves it as it is, and must not pass for
        // traffic, since the sweep commits such ones for ever.
        let Some(mark) = tokio::fs::metadata(&log).await.ok().filter(|m| m.len() > 0) else { continue };
        let (length, written) = (mark.len(), mark.modified().ok());
        let grew = copied != Some((length, written));
        idle = if grew { 0 } else { u32::saturating_add(idle, 1) };
        let must_empty = idle >= IDLE_PAUSES || (grew && length > LOG_MAX);
        if !grew && !must_empty {
            continue;
        }
        let conn = match connection.take() {
            Some(conn) => conn,
            None => match options.connect().await {
                Ok(conn) => conn,
                Err(_) => continue,
            },
        };
        let conn = connection.insert(conn);
        let passive =
            if grew { sqlx::query(sql::CHECKPOINT_PASSIVE).execute(&mut *conn).await.map(|_| ()) } else { Ok(()) };
        if passive.is_ok() {
            copied = Some((length, written));
        }
        if must_empty {
            // When somebody is in the way it is tried again after the next stretch of rest, not at every turn.
            let _ = empty(conn).await;
            idle = 0;
        }
        if matches!(passive, Err(sqlx::Error::WorkerCrashed | sqlx::Error::Io(_))) {
            connection = None;
        }
    }
    if let Some(connection) = connection {
        let _ = connection.close().await;
    }
}

/// Copies everything and cuts the log to nothing.
pub(super) async fn empty(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let row = sqlx::query(sql::CHECKPOINT_TRUNCATE).fetch_one(connection).await.map_err(|e| sql_fault(&e))?;
    let busy: i64 = row.try_get(0).map_err(|e| sql_fault(&e))?;
    if busy == 0 { Ok(()) } else { Err(StoreError::Busy) }
}
