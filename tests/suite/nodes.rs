//! Several daemons, each a process of its own, on one PostgreSQL: the promise holds over all of them together.

mod chaos;
mod faults;
mod leases;
mod member;
mod scenarios;

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection as _, Row as _};

use crate::promise::{attempts, oracle, sends, taken};
use crate::support::daemon::{Daemon, Plan, Strategy};
use crate::support::http_oracle::HttpOracle;
use crate::support::postgres::Database;

/// The lease of every node here: short, but so long that a busy machine does not make a node miss it.
const LEASE: Duration = Duration::from_secs(6);

/// Nodes that share a database and a provider, `probe`.
pub struct Nodes {
    database: Database,
    nodes: Vec<Daemon>,
}

impl std::ops::Index<usize> for Nodes {
    type Output = Daemon;

    fn index(&self, n: usize) -> &Daemon {
        &self.nodes[n]
    }
}

impl Nodes {
    /// Prepares `count` nodes called `n0`, `n1`, and so on. `lines` is for the provider's section.
    async fn prepare(count: usize, oracle: &HttpOracle, strategies: &[Strategy], lines: &str) -> Self {
        let plan = Plan::new().http_with("probe", &oracle.url(), strategies, lines).sms(&["probe"]);
        Self::planned(count, plan).await
    }

    /// The same for any plan.
    pub async fn planned(count: usize, plan: Plan) -> Self {
        let database = Database::fresh().await;
        let plan = plan.postgres(&database).section("node", "name = \"n0\"\nlease = \"6s\"");
        let first = Daemon::prepare(plan.section("dispatch", "start_by = \"2s\""));
        let mut nodes = vec![first];
        for n in 1..count {
            let twin = nodes[0].twin();
            twin.reconfigure("name = \"n0\"", &format!("name = \"n{n}\""));
            nodes.push(twin);
        }
        Self { database, nodes }
    }

    /// Prepares nodes and starts them all at once, on an empty database.
    async fn start(count: usize, oracle: &HttpOracle, strategies: &[Strategy], lines: &str) -> Self {
        let nodes = Self::prepare(count, oracle, strategies, lines).await;
        nodes.launch().await;
        nodes
    }

    pub async fn launch(&self) {
        futures_util::future::join_all(self.nodes.iter().map(Daemon::launch)).await;
    }

    /// One number from the database.
    pub async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = self.database.connect().await;
        let row = sqlx::query(sql).fetch_one(&mut connection).await.expect("a row");
        connection.close().await.expect("closes");
        row.get(0)
    }
}
