//! The first start of all, on an empty store, is cut short.

use std::time::Duration;

use rand::RngExt as _;
use serde_json::json;
use sqlx::{ConnectOptions as _, Connection as _, Executor as _};

use super::vendor::{Kind, Vendor};
use crate::support::daemon::{Daemon, Place, Plan, event_to};
use crate::support::dice;

/// What is begun in a store is finished by the next start, and a message goes out.
async fn works(daemon: &Daemon, vendor: &Vendor, n: usize) {
    daemon.launch().await;
    let event = event_to("first", json!([{ "sms": Kind::Silent.address(n) }]), json!({ "code": "493021" }));
    let id = daemon.accept(&event).await;
    daemon.wait_for_state(&id, "dispatched").await;
    daemon.audit_closes().await;
    assert_eq!(vendor.copies().get(&Kind::Silent.address(n)), Some(&1));
}

async fn prepare(place: &Place, vendor: &Vendor) -> Daemon {
    Daemon::prepare(place.plan(vendor.plan(Plan::new())))
}

#[tokio::test]
async fn a_first_start_that_is_killed_at_any_moment_is_taken_up_by_the_next_one() {
    let (vendor, mut dice) = (Vendor::start(None).await, dice::dice());
    for n in 0..dice::rounds(6) {
        let place = if n % 2 == 0 { Place::File } else { Place::server().await };
        let daemon = prepare(&place, &vendor).await;
        for _ in 0..2 {
            let delay = Duration::from_millis(dice.random_range(0..250));
            println!("start {n} is killed after {delay:?}");
            daemon.spawn();
            tokio::time::sleep(delay).await;
            daemon.kill9();
        }
        works(&daemon, &vendor, n).await;
    }
}

#[tokio::test]
async fn a_first_start_that_is_killed_while_its_migration_is_held_up_leaves_nothing_half_done() {
    let vendor = Vendor::start(None).await;
    let place = Place::server().await;
    let Place::Server(database) = &place else { return };
    let daemon = prepare(&place, &vendor).await;
    for table in ["notification", "log", "node"] {
        // A table of this name that another transaction has made, and has not committed.
        let mut other = database.connect().await;
        let make = format!("BEGIN; CREATE TABLE {table} (x int)");
        other.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(make))).await.expect("made");
        daemon.spawn();
        place.somebody_waits(&daemon).await;
        daemon.kill9();
        other.execute("ROLLBACK").await.expect("undone");
        other.close().await.expect("closes");
    }
    works(&daemon, &vendor, 1).await;
}

#[tokio::test]
async fn a_first_start_that_is_killed_while_another_program_holds_its_file_is_taken_up_by_the_next_one() {
    let vendor = Vendor::start(None).await;
    let daemon = prepare(&Place::File, &vendor).await;
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(daemon.path("sendonce.db")).create_if_missing(true);
    let mut other = file.connect().await.expect("a file");
    other.execute("BEGIN EXCLUSIVE").await.expect("the lock");
    daemon.spawn();
    // The daemon has its own lock before it comes to the file.
    crate::support::daemon::wait("it is there", async || daemon.path("sendonce.db.lock").exists()).await;
    daemon.kill9();
    other.execute("ROLLBACK").await.expect("the lock is given back");
    other.close().await.expect("closes");
    works(&daemon, &vendor, 1).await;
}
