//! What is special to PostgreSQL: other nodes write at the same time, connections are lost, and the server may be unfit.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use sendonce::store::postgres::sql as pg;
use sqlx::{Connection as _, Executor as _, Row as _};

use super::*;
use crate::support::postgres::PASSWORD;

async fn ids(tx: &mut Box<dyn Transaction>, limit: u32) -> Vec<NotificationId> {
    let queue = Queue::Send(provider("sandbox"));
    let rows = tx.due(&queue, NOW.plus(Duration::from_secs(1)), limit).await.expect("reads");
    rows.iter().map(|row| row.work.id).collect()
}

fn record(n: u32) -> Record {
    let actor = Actor::Daemon(sendonce::domain::audit::DaemonPart::Admission);
    let mut record = Record::new(NOW, tenant("acme"), What::Accepted, actor);
    record.notification = Some(id(n));
    record
}

/// How many transactions are open in the database, other than the asker's.
async fn open_transactions(database: &Database) -> i64 {
    let mut connection = database.connect().await;
    let row = connection
        .fetch_one(
            "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND backend_type = 'client backend'",
        )
        .await
        .expect("reads");
    row.get("n")
}

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_begin_that_is_dropped_at_any_point_costs_no_later_commit() {
    let bed = Bed::postgres().await;
    let mut stored: u32 = 0;
    for polls in 1..=40 {
        {
            let mut begin = pin!(bed.store.begin());
            let mut done = false;
            for _ in 0..polls {
                let polled = begin.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(begun) = polled {
                    drop(begun.expect("begins"));
                    done = true;
                    break;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            let _ = done;
        }
        admit(bed.store.as_ref(), stored..stored + 1).await;
        stored += 1;
        let mut tx = bed.begin().await;
        let row = tx.notifications(&[id(stored - 1)]).await.expect("reads");
        assert_eq!(row.len(), 1, "acknowledged after a begin that was dropped at poll {polls}");
        tx.commit().await.expect("commits");
    }
    let kept = bed.reader().account_counts(None).await.expect("reads").notifications;
    assert_eq!(kept, u64::from(stored));
    until("a transaction stays open", async || open_transactions(bed.database()).await == 0).await;
}

#[tokio::test]
async fn a_transaction_that_is_dropped_in_the_middle_of_a_statement_leaves_nothing_open() {
    let bed = Bed::postgres().await;
    for polls in 1..=6 {
        let mut tx = bed.begin().await;
        {
            let rows = [notification(polls)];
            let mut insert = pin!(tx.insert_notifications(&rows));
            for _ in 0..polls {
                let polled = insert.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_ready() {
                    break;
                }
            }
        }
        drop(tx);
    }
    until("a transaction stays open", async || open_transactions(bed.database()).await == 0).await;
    assert_eq!(bed.reader().account_counts(None).await.expect("reads").notifications, 0);
    admit(bed.store.as_ref(), 0..1).await;
}

#[tokio::test]
async fn two_nodes_that_start_at_once_make_one_store() {
    let database = Database::fresh().await;
    let (one, two) = tokio::join!(open_postgres(&database), open_postgres(&database));
    let mark = one.reader().high_water().await.expect("reads");
    assert_eq!(two.reader().high_water().await, Ok(mark));
    admit(&one, 0..1).await;
    assert_eq!(two.reader().live(None, 9).await, Ok(vec![id(0)]));
}

#[tokio::test]
async fn what_one_node_has_taken_the_others_pass_over() {
    let bed = Bed::postgres().await;
    let other = open_postgres(bed.database()).await;
    admit(bed.store.as_ref(), 0..4).await;
    let mut first = bed.begin().await;
    assert_eq!(ids(&mut first, 2).await, [id(0), id(1)]);
    let mut second = begin(&other).await;
    assert_eq!(ids(&mut second, 9).await, [id(2), id(3)]);
    first.write(&changed([update(0, State::Accepted, 0, 1)])).await.expect("updates");
    first.commit().await.expect("commits");
    assert_eq!(ids(&mut second, 9).await, [id(1), id(2), id(3)]);
}

#[tokio::test]
async fn of_one_event_at_two_nodes_the_later_one_waits_and_then_knows_the_first() {
    let bed = Bed::postgres().await;
    let other = open_postgres(bed.database()).await;
    let mut first = bed.begin().await;
    assert_eq!(first.insert_notifications(&[notification(0)]).await.expect("inserts").len(), 1);
    let late = tokio::spawn(async move {
        let mut tx = begin(&other).await;
        let row = NotificationRow { id: id(9), ..notification(0) };
        let inserted = tx.insert_notifications(&[row]).await.expect("inserts");
        let known = tx.known(&[(tenant("acme"), hash(0), hash(0))]).await.expect("reads");
        (inserted, known.into_iter().map(|known| known.id).collect::<Vec<_>>())
    });
    until("it waits", async || open_transactions(bed.database()).await == 2).await;
    first.commit().await.expect("commits");
    assert_eq!(late.await.expect("ends"), ([].into(), vec![id(0)]));
}

#[tokio::test]
async fn two_transactions_in_each_others_way_end_with_one_that_may_run_again() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..2).await;
    let other = open_postgres(bed.database()).await;
    let (mut one, mut two) = (bed.begin().await, begin(&other).await);
    one.work(&[id(0)]).await.expect("locks");
    two.work(&[id(1)]).await.expect("locks");
    let (a, b) = ([id(1)], [id(0)]);
    let (first, second) = tokio::join!(one.work(&a), two.work(&b));
    let faults: Vec<_> = [first.err(), second.err()].into_iter().flatten().collect();
    assert_eq!(faults, [StoreError::Conflict]);
}

#[tokio::test]
async fn the_log_is_complete_only_where_no_writer_can_still_fill_a_gap() {
    let bed = Bed::postgres().await;
    assert_eq!(bed.reader().log_end().await, Ok(0));
    let other = open_postgres(bed.database()).await;
    let mut slow = bed.begin().await;
    slow.write(&log([record(0)])).await.expect("appends");
    let mut quick = begin(&other).await;
    quick.write(&log([record(1)])).await.expect("appends");
    quick.commit().await.expect("commits");
    let seen = bed.reader().log_page(&LogFilter::default(), 0, 9).await.expect("reads");
    assert_eq!(seen.iter().map(|row| row.pos).collect::<Vec<_>>(), [2], "a later position is there earlier");

    let store = bed.store.clone();
    let end = tokio::spawn(async move { store.reader().log_end().await });
    // A writer that begins now is not waited for.
    let _later = begin(&other).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!end.is_finished(), "the gap may still be filled");
    slow.commit().await.expect("commits");
    let end = end.await.expect("ends").expect("reads");
    assert_eq!(end, 2);
    let filter = LogFilter { up_to: Some(end), ..LogFilter::default() };
    let seen = bed.reader().log_page(&filter, 0, 9).await.expect("reads");
    assert_eq!(seen.iter().map(|row| row.pos).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test]
async fn a_lock_that_is_held_too_long_makes_the_store_busy() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..1).await;
    let options = PostgresOptions { busy_timeout: Duration::from_millis(100), ..PostgresOptions::default() };
    let hasty = PostgresStore::open(&bed.database().url().into(), None, options).await.expect("opens");
    let mut holder = bed.begin().await;
    holder.work(&[id(0)]).await.expect("locks");
    let mut tx = begin(&hasty).await;
    assert_eq!(tx.work(&[id(0)]).await.map(|_| ()), Err(StoreError::Busy));
    assert_eq!(tx.commit().await, Err(StoreError::Busy));
    holder.commit().await.expect("commits");
    assert_eq!(begin(&hasty).await.work(&[id(0)]).await.map(|rows| rows.len()), Ok(1));
}

#[tokio::test]
async fn a_lost_connection_undoes_its_transaction_and_the_store_connects_again() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..1).await;
    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(1)]).await.expect("inserts");
    bed.database().cut().await;
    assert_eq!(tx.insert_notifications(&[notification(2)]).await, Err(StoreError::Unavailable));
    assert_eq!(tx.commit().await, Err(StoreError::Unavailable));

    let mut tx = bed.begin().await;
    tx.insert_notifications(&[notification(3)]).await.expect("inserts");
    bed.database().cut().await;
    assert_eq!(tx.commit().await, Err(StoreError::Ambiguous), "it may have come before the end");

    for _ in 0..3 {
        bed.database().cut().await;
        assert_eq!(bed.reader().live(None, 9).await, Ok(vec![id(0)]), "a reader's idle connection was lost");
        admit(bed.store.as_ref(), 5..6).await;
        bed.database()
            .run("DELETE FROM work WHERE owner IS NULL AND due_at > 1795910400000004; DELETE FROM notification")
            .await;
    }
}

#[tokio::test]
async fn a_server_that_was_made_read_only_says_so_and_recovers() {
    let bed = Bed::postgres().await;
    let name = bed.database().name();
    let set = |value: &str| format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
    bed.database().run(&set("on")).await;
    bed.database().cut().await;
    assert_eq!(bed.store.begin().await.map(|_| ()), Err(StoreError::ReadOnly));
    assert_eq!(bed.reader().live(None, 9).await, Ok(vec![]));
    let again = PostgresStore::open(&bed.database().url().into(), None, PostgresOptions::default()).await;
    assert_eq!(again.map(|_| ()), Err(StoreError::ReadOnly));
    bed.database().run(&set("off")).await;
    admit(bed.store.as_ref(), 0..1).await;
}

#[tokio::test]
async fn an_unfit_server_or_url_is_refused_and_the_reason_holds_no_part_of_it() {
    let bed = Bed::postgres().await;
    let (url, tcp) = (bed.database().url(), bed.database().tcp_url());
    let wrong = sendonce_secret("canary-wrong");
    let cases = [
        (format!("{url}?options=-c%20synchronous_commit%3Doff"), None, "synchronous_commit is off"),
        (url.replace(bed.database().name(), "canary_none"), None, "no database of this name"),
        (tcp.clone(), Some(wrong), "refused the user or the password"),
        (format!("{tcp}?sslmode=require"), None, "TLS"),
        ("postgres://u@%2Fcanary%2Fnowhere/db".to_owned(), None, "is not there"),
        ("canary://".to_owned(), None, "URL"),
    ];
    for (url, password, reason) in cases {
        let opened = PostgresStore::open(&url.clone().into(), password.as_ref(), PostgresOptions::default()).await;
        let fault = opened.map(|_| ()).expect_err("refused");
        let text = format!("{fault} {fault:?}");
        assert!(text.contains(reason) && !text.contains("canary"), "{reason}: {text}");
    }
    let password = sendonce_secret(PASSWORD);
    let opened = PostgresStore::open(&tcp.into(), Some(&password), PostgresOptions::default()).await;
    assert!(opened.is_ok(), "the right password beside the URL");
}

fn sendonce_secret(text: &str) -> secrecy::SecretString {
    text.into()
}

#[tokio::test]
async fn a_database_of_another_program_or_a_newer_version_is_refused() {
    let alien = Database::fresh().await;
    alien.run("CREATE TABLE work (x int)").await;
    let newer = Database::fresh().await;
    open_postgres(&newer).await.close().await;
    newer.run("INSERT INTO _sqlx_migrations VALUES (9999, 'later', now(), true, '\\x00', 0)").await;
    for database in [alien, newer] {
        let opened = PostgresStore::open(&database.url().into(), None, PostgresOptions::default()).await;
        assert_eq!(opened.map(|_| ()), Err(StoreError::Schema));
    }
}

#[tokio::test]
async fn a_row_of_the_log_can_be_neither_changed_nor_removed() {
    let bed = Bed::postgres().await;
    let mut tx = bed.begin().await;
    tx.write(&log([record(0)])).await.expect("appends");
    tx.commit().await.expect("commits");
    for text in ["UPDATE log SET tenant = 'other'", "DELETE FROM log", "TRUNCATE log"] {
        let changed = bed.database().connect().await.execute(text).await;
        assert!(changed.expect_err("refused").to_string().contains("append-only"), "{text}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_is_named_and_never_guessed() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..1).await;
    bed.database().run("UPDATE notification SET tenant = 'NO TENANT'").await;
    let read = bed.begin().await.notifications(&[id(0)]).await.map(|_| ());
    assert_eq!(read, Err(StoreError::Corrupt { table: "notification", column: "tenant" }));
}

#[tokio::test]
async fn a_store_that_was_closed_gives_nothing_any_more() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..1).await;
    bed.store.close().await;
    assert_eq!(bed.store.begin().await.map(|_| ()), Err(StoreError::Unavailable));
    assert_eq!(bed.reader().live(None, 9).await, Err(StoreError::Unavailable));
    until("a connection stays", async || {
        let count = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() \
                     AND pid <> pg_backend_pid()";
        bed.database().connect().await.fetch_one(count).await.expect("reads").get::<i64, _>("n") == 0
    })
    .await;
}

/// How many finished rows the plan is looked at with: 10,000, or `SENDONCE_TEST_FINISHED`.
fn finished_rows() -> u64 {
    std::env::var("SENDONCE_TEST_FINISHED").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
}

#[tokio::test]
async fn due_work_is_found_by_its_index_however_many_rows_are_finished() {
    let bed = Bed::postgres().await;
    admit(bed.store.as_ref(), 0..300).await;
    // As many finished notifications, and as much work that came and went or waits for somebody else.
    let columns = "tenant, event_id, kind, mask, fingerprint, created_at, expires_at, sent";
    bed.database()
        .run(&format!(
            "INSERT INTO notification (id, key_h, event_h, finished_at, state, {columns}) \
             SELECT decode(md5(i::text), 'hex'), decode(md5(i::text), 'hex'), decode(md5(i::text), 'hex'), 1, 'failed', \
             {columns} FROM generate_series(1, {n}) AS i, (SELECT * FROM notification LIMIT 1) AS one; \
             ANALYZE notification",
            n = finished_rows()
        ))
        .await;
    let mut connection = bed.database().connect().await;
    for (name, value) in [
        ("enable_seqscan", "off"),
        ("enable_bitmapscan", "off"),
        ("enable_hashjoin", "off"),
        ("enable_mergejoin", "off"),
        ("plan_cache_mode", "force_generic_plan"),
    ] {
        connection.execute(sqlx::AssertSqlSafe(format!("SET {name} = {value}"))).await.expect("sets");
    }
    connection.execute(sqlx::AssertSqlSafe(format!("PREPARE due AS {}", pg::DUE))).await.expect("prepares");
    let far = i64::MAX;
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE due('send:sandbox', {far}, 64)");
    let rows = connection.fetch_all(sqlx::AssertSqlSafe(explain)).await.expect("explains");
    let plan: String = rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect();
    assert!(plan.contains("Index Scan using work_due") && !plan.contains("Seq Scan"), "{plan}");
    assert!(plan.contains("Index Scan using notification_pkey"), "{plan}");
    connection.close().await.expect("closes");
}
