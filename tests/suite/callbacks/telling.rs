//! Telling alone, without a daemon around it: where time is moved, and where commits come in another order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sendonce::callback::client::Client;
use sendonce::callback::{Parts, Target, Tellers, enlist};
use sendonce::clock::ManualClock;
use sendonce::domain::audit::{Actor, DaemonPart, Record, What};
use sendonce::domain::callback::Change;
use sendonce::domain::delivery::Delivery;
use sendonce::domain::ids::{EventId, NotificationId, TargetName, Tenant};
use sendonce::domain::lifecycle::{Sent, State};
use sendonce::domain::retry::RetryPolicy;
use sendonce::domain::time::Timestamp;
use sendonce::metrics::Metrics;
use sendonce::provider::signature::standard::StandardKey;
use sendonce::store::postgres::{PostgresOptions, PostgresStore};
use sendonce::store::rows::Changes;
use sendonce::store::sqlite::{SqliteOptions, SqliteStore};
use sendonce::store::{Store, Transaction};
use tokio::sync::watch;

use super::*;
use crate::support::daemon::PATIENCE;
use crate::support::postgres::Database;

fn now() -> Timestamp {
    sendonce::clock::Clock::now(&sendonce::clock::SystemClock)
}

fn target(hook: &Hook) -> Target {
    let delay = Duration::from_millis(50);
    Target {
        name: TargetName::parse("app").expect("a name"),
        tenant: Tenant::parse("shop").expect("a name"),
        client: Client::new(&hook.oracle.url(), Duration::from_secs(5), true).expect("a client"),
        keys: vec![StandardKey::parse(SECRET).expect("a secret")],
        changes: Change::ALL.iter().copied().collect(),
        concurrency: 4,
        retry: RetryPolicy { first: delay, factor: 1.0, cap: delay, jitter: 0.0 },
        give_up_after: Duration::from_secs(72 * 3600),
    }
}

async fn write(tx: &mut dyn Transaction, records: impl IntoIterator<Item = Record>) {
    tx.write(&Changes { records: records.into_iter().collect(), ..Changes::default() }).await.expect("written");
}

/// A bench with a store, a clock and an app.
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    metrics: Metrics,
    leads: Arc<AtomicBool>,
    commits: watch::Sender<u64>,
    hook: Hook,
}

impl Bench {
    async fn new(store: Arc<dyn Store>, clock: Arc<ManualClock>) -> Self {
        let (metrics, leads) = (Metrics::default(), Arc::new(AtomicBool::new(true)));
        Self { store, clock, metrics, leads, commits: watch::channel(0).0, hook: Hook::start().await }
    }

    async fn on_file(dir: &Path) -> Self {
        let clock = ManualClock::at(now());
        let store = SqliteStore::open(&dir.join("s.db"), clock.clone(), SqliteOptions::default()).await;
        Self::new(Arc::new(store.expect("a store")), clock).await
    }

    async fn enlist(&self) {
        enlist(self.store.as_ref(), &[target(&self.hook)]).await.expect("enlisted");
    }

    fn start(&self) -> Tellers {
        let leads = self.leads.clone();
        let parts = Parts {
            store: self.store.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            commits: self.commits.subscribe(),
            leads: Arc::new(move || leads.load(Ordering::SeqCst)),
            public_url: None,
            draw: || 0.5,
        };
        Tellers::start(&parts, vec![target(&self.hook)])
    }

    /// The record that a notification was sent.
    fn sent(&self, n: u8) -> Record {
        let tenant = Tenant::parse("shop").expect("a name");
        let at = sendonce::clock::Clock::now(self.clock.as_ref());
        Record {
            notification: Some(NotificationId::from_bytes([n; 16])),
            event_id: Some(EventId::parse(&format!("e{n}")).expect("an id")),
            from: Some(State::Dispatching),
            to: Some(State::Dispatched),
            sent: Some(Sent::Yes),
            ..Record::new(at, tenant, What::AttemptEnded, Actor::Daemon(DaemonPart::Worker))
        }
    }

    async fn commit(&self, record: Record) {
        let mut tx = self.store.begin().await.expect("begun");
        write(tx.as_mut(), [record]).await;
        tx.commit().await.expect("committed");
        self.commits.send_modify(|commits| *commits += 1);
    }

    fn counts(&self, result: &str) -> bool {
        let line = format!("sendonce_callbacks_total{{target=\"app\",result=\"{result}\"}} ");
        self.metrics.encode().contains(&line)
    }
}

#[tokio::test]
async fn what_was_refused_for_three_days_is_given_up_and_its_successor_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::on_file(dir.path()).await;
    bench.hook.oracle.script(|seen| Reply::status(if seen.contains("notification.dispatched") { 400 } else { 204 }));
    bench.enlist().await;
    let tellers = bench.start();
    bench.commit(bench.sent(1)).await;
    bench.hook.oracle.wait_for(1, PATIENCE).await;
    wait("it failed", async || bench.counts("failed")).await;
    bench.clock.advance(Duration::from_secs(71 * 3600));
    bench.commit(Record { from: None, to: None, delivery: Some(Delivery::Delivered), ..bench.sent(1) }).await;
    bench.hook.oracle.wait_for(2, PATIENCE).await;
    assert!(!bench.counts("given_up") && !bench.counts("delivered"), "it is tried for 72 hours");
    bench.clock.advance(Duration::from_secs(3600));
    wait("it is given up", async || bench.counts("given_up")).await;
    wait("the next one is told", async || bench.hook.oracle.count("notification.delivered") == 1).await;
    tellers.ended().await;
    let name = target(&bench.hook).name;
    assert_eq!(bench.store.callbacks().backlog(&name).await.expect("a count").count, 0);
    bench.store.close().await;
}

#[tokio::test]
async fn who_does_not_lead_tells_nothing_and_begins_where_the_other_one_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::on_file(dir.path()).await;
    bench.enlist().await;
    let (first, second) = (bench.start(), bench.start());
    bench.commit(bench.sent(1)).await;
    bench.hook.wait_for(1).await;
    first.ended().await;
    bench.leads.store(false, Ordering::SeqCst);
    let pending = "sendonce_callbacks_pending{target=\"app\"}";
    wait("the numbers are hidden", async || !bench.metrics.encode().contains(pending)).await;
    let before = bench.hook.told().len();
    bench.commit(bench.sent(2)).await;
    bench.commit(bench.sent(3)).await;
    assert_eq!(bench.hook.told().len(), before);
    bench.leads.store(true, Ordering::SeqCst);
    bench.hook.wait_for(3).await;
    second.ended().await;
    let told = by_event(&bench.hook.told());
    assert_eq!(told.keys().collect::<Vec<_>>(), ["e1", "e2", "e3"]);
    bench.store.close().await;
}

#[tokio::test]
async fn more_than_one_piece_of_the_log_is_told_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let bench = Bench::on_file(dir.path()).await;
    bench.enlist().await;
    let mut tx = bench.store.begin().await.expect("begun");
    let other = Record { tenant: Tenant::parse("else").expect("a name"), ..bench.sent(9) };
    for n in 1..=3 {
        write(tx.as_mut(), std::iter::once(bench.sent(n)).chain(vec![other.clone(); 1200])).await;
    }
    tx.commit().await.expect("committed");
    let tellers = bench.start();
    let told = by_event(&bench.hook.wait_for(3).await);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["e1", "e2", "e3"], "and nothing of another tenant");
    tellers.ended().await;
    bench.store.close().await;
}

/// One value from a database.
async fn one<T>(database: &Database, sql: &str) -> T
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let mut connection = database.connect().await;
    let value =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.expect("a value");
    sqlx::Connection::close(connection).await.expect("closes");
    value
}

#[tokio::test]
async fn a_record_that_is_committed_after_later_ones_is_told_too() {
    let database = Database::fresh().await;
    let store = PostgresStore::open(&database.url().into(), None, PostgresOptions::default()).await.expect("a store");
    let bench = Bench::new(Arc::new(store), ManualClock::at(now())).await;
    bench.enlist().await;
    let mut slow = bench.store.begin().await.expect("begun");
    write(slow.as_mut(), [bench.sent(1)]).await;
    bench.commit(bench.sent(2)).await;
    let begun: String = one(&database, "SELECT clock_timestamp()::text").await;
    let tellers = bench.start();
    let asked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE '%virtualtransaction%' AND pid <> pg_backend_pid() AND query_start > '{begun}'::timestamptz"
    );
    wait("the end of the log is asked for while the first record is not committed", async || {
        one::<i64>(&database, &asked).await > 0
    })
    .await;
    assert!(bench.hook.told().is_empty());
    slow.commit().await.expect("committed");
    let told = by_event(&bench.hook.wait_for(2).await);
    assert_eq!(told.keys().collect::<Vec<_>>(), ["e1", "e2"]);
    tellers.ended().await;
    bench.store.close().await;
}
