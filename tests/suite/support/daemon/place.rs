//! Where the store of a daemon under test is, and how its commits are held up there from outside.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::{Daemon, Plan, wait};
use crate::support::postgres::Database;

/// The tables that a commit writes to, in the order in which it comes to them.
pub const TABLES: [&str; 3] = ["notification", "work", "log"];

/// One of the two stores.
pub enum Place {
    /// A SQLite file in the daemon's directory.
    File,
    /// A database of the tests' PostgreSQL.
    Server(Database),
}

/// Commits are held up until this is let go.
pub enum Held {
    /// The write lock of the file.
    File(SqliteConnection),
    /// The lock of a table.
    Server(PgConnection),
}

impl Place {
    /// A new database.
    pub async fn server() -> Self {
        Self::Server(Database::fresh().await)
    }

    /// A plan for a daemon whose store is here.
    pub fn plan(&self, plan: Plan) -> Plan {
        match self {
            Self::File => plan,
            Self::Server(database) => {
                let node = "name = \"n0\"\nlease = \"3s\"";
                plan.postgres(database).section("node", node).section("dispatch", "start_by = \"1s\"")
            }
        }
    }

    /// Lets no commit through that writes to `table`; in a file there is one lock for all. Reading goes on.
    pub async fn hold(&self, daemon: &Daemon, table: &str) -> Held {
        match self {
            Self::File => {
                let options = SqliteConnectOptions::new().filename(daemon.path("sendonce.db"));
                let mut connection = options.connect().await.expect("the store's file");
                connection.execute("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE").await.expect("the lock");
                Held::File(connection)
            }
            Self::Server(database) => {
                let mut connection = database.connect().await;
                let lock = format!("BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE");
                connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(lock))).await.expect("the lock");
                Held::Server(connection)
            }
        }
    }

    /// Waits until a commit stands before what is held. A file does not tell; there it is enough that the daemon has
    /// answered a question that came after what it was asked to store.
    pub async fn somebody_waits(&self, daemon: &Daemon) {
        match self {
            Self::File => drop(daemon.get("/v1/unknown").await),
            Self::Server(database) => waits(database, "").await,
        }
    }

    /// Waits until a claim stands before what is held on a server.
    pub async fn a_claim_waits(&self) {
        if let Self::Server(database) = self {
            waits(database, "SKIP LOCKED").await;
        }
    }
}

/// Waits until a statement that holds `part` waits for a lock.
async fn waits(database: &Database, part: &str) {
    wait("a commit that is held up", async || {
        let mut connection = database.connect().await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND position($1 IN query) > 0";
        let count: i64 = sqlx::query_scalar(waiting).bind(part).fetch_one(&mut connection).await.expect("a row");
        connection.close().await.expect("closes");
        count > 0
    })
    .await;
}

impl Held {
    /// Lets go.
    pub async fn release(self) {
        match self {
            Self::File(mut connection) => {
                connection.execute("ROLLBACK").await.expect("the lock is given back");
                connection.close().await.expect("closes");
            }
            Self::Server(mut connection) => {
                connection.execute("ROLLBACK").await.expect("the lock is given back");
                connection.close().await.expect("closes");
            }
        }
    }
}
