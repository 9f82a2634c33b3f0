//! The file itself: who may open it, what it leaves behind, and how it fails.

use sqlx::{Connection as _, Row as _};

use super::*;

#[tokio::test]
async fn a_store_that_is_open_cannot_be_opened_again_until_it_is_closed() {
    let (dir, store) = fresh().await;
    let path = dir.path().join("s.db");
    let again = SqliteStore::open(&path, ManualClock::at(NOW), SqliteOptions::default()).await;
    assert_eq!(again.map(|_| ()), Err(StoreError::Locked));
    admit(&store, 0..1).await;
    let first = store.reader().high_water().await.expect("reads");
    store.close().await;
    assert_eq!(store.begin().await.map(|_| ()), Err(StoreError::Unavailable));
    drop(store);
    let store = open(&path).await;
    assert_eq!(store.reader().high_water().await, Ok(first), "same incarnation");
    assert_eq!(store.reader().live(None, 9).await, Ok(vec![id(0)]));
}

#[tokio::test]
async fn a_file_of_another_program_or_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let alien = dir.path().join("alien.db");
    raw(&alien, "CREATE TABLE t (x)").await;
    let newer = dir.path().join("newer.db");
    open(&newer).await.close().await;
    raw(&newer, "INSERT INTO _sqlx_migrations VALUES (9999, 'later', 0, 1, x'00', 0)").await;
    let text = dir.path().join("text.db");
    std::fs::write(&text, "not a database, and longer than the header of one; ".repeat(50)).expect("writes");
    for path in [alien, newer, text] {
        let opened = SqliteStore::open(&path, ManualClock::at(NOW), SqliteOptions::default()).await;
        assert_eq!(opened.map(|_| ()), Err(StoreError::Schema), "{}", path.display());
    }
    let missing = dir.path().join("no/such/directory/s.db");
    let opened = SqliteStore::open(&missing, ManualClock::at(NOW), SqliteOptions::default()).await;
    assert_eq!(opened.map(|_| ()), Err(StoreError::Unavailable));
}

/// Another connection to a file, which writes when it is not there.
async fn connect(path: &Path) -> sqlx::SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    sqlx::SqliteConnection::connect_with(&options).await.expect("connects")
}

async fn raw(path: &Path, sql: &'static str) {
    let mut connection = connect(path).await;
    sqlx::query(sql).execute(&mut connection).await.expect("runs");
    connection.close().await.expect("closes");
}

#[tokio::test]
async fn only_the_owner_can_read_any_file_of_the_store() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, store) = fresh().await;
    admit(&store, 0..1).await;
    let files: Vec<_> = std::fs::read_dir(dir.path()).expect("lists").map(|entry| entry.expect("an entry")).collect();
    assert!(files.len() >= 4, "database, log, index and lock");
    for file in files {
        let mode = file.metadata().expect("metadata").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.path().display());
    }
}

#[tokio::test]
async fn sealed_values_of_deleted_work_are_nowhere_in_the_files() {
    let (dir, store) = fresh().await;
    let canary = |n: u8| [b"canary-of-the-sealed-message".as_slice(), &[n; 900]].concat();
    let contains = |canary: &[u8]| {
        ["s.db", "s.db-wal"].iter().any(|name| {
            let bytes = std::fs::read(dir.path().join(name)).expect("reads");
            bytes.windows(canary.len()).any(|window| window == canary)
        })
    };
    let mut tx = begin(&store).await;
    let numbers: Vec<u32> = (0..60).collect();
    tx.insert_notifications(&numbers.iter().map(|&n| notification(n)).collect::<Vec<_>>()).await.expect("inserts");
    let sealed = |n: u32| {
        let canary = canary(u8::try_from(n).expect("small"));
        WorkRow { sealed_message: Some(canary.clone()), sealed_to: canary, ..work(n) }
    };
    let rows: Vec<_> = numbers.iter().map(|&n| sealed(n)).collect();
    tx.write(&new(rows)).await.expect("inserts");
    tx.commit().await.expect("commits");
    store.checkpoint().await.expect("checkpoints");
    assert!(contains(b"canary-of-the-sealed-message"));

    let mut tx = begin(&store).await;
    let (deleted, wiped) = numbers.split_at(30);
    tx.write(&over(deleted.to_vec())).await.expect("deletes");
    let wipes: Vec<_> =
        wiped.iter().map(|&n| WorkUpdate { wipe_message: true, ..update(n, State::Accepted, 0, 1) }).collect();
    tx.write(&changed(wipes)).await.expect("updates");
    tx.commit().await.expect("commits");
    let mut tx = begin(&store).await;
    tx.write(&over(wiped.to_vec())).await.expect("deletes");
    tx.commit().await.expect("commits");

    // Not asked for here: an idle store empties its log by itself.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while contains(b"canary-of-the-sealed-message") && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!contains(b"canary-of-the-sealed-message"));
}

#[tokio::test]
async fn a_full_store_says_so_stores_nothing_and_recovers() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = SqliteOptions { max_pages: Some(60), ..SqliteOptions::default() };
    let path = dir.path().join("s.db");
    let store = SqliteStore::open(&path, ManualClock::at(NOW), options).await.expect("opens");
    let insert = async |n: u32| {
        let mut tx = store.begin().await?;
        tx.insert_notifications(&[notification(n)]).await?;
        tx.write(&new([WorkRow { sealed_message: Some(vec![1; 3000]), ..work(n) }])).await?;
        tx.commit().await
    };
    let mut stored = 0;
    let fault = loop {
        match insert(stored).await {
            Ok(()) => stored += 1,
            Err(fault) => break fault,
        }
        assert!(stored < 1000, "the limit holds");
    };
    assert_eq!(fault, StoreError::Full);
    assert_eq!(insert(stored).await, Err(StoreError::Full), "still");
    assert_eq!(store.reader().live(None, 1000).await.expect("reads").len(), stored as usize);

    let mut tx = begin(&store).await;
    tx.write(&over(0..stored)).await.expect("deletes");
    tx.commit().await.expect("commits");
    assert_eq!(insert(stored).await, Ok(()));
}

#[tokio::test]
async fn a_write_lock_held_elsewhere_makes_the_store_busy_and_nothing_is_stored() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("s.db");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(100), ..SqliteOptions::default() };
    let store = SqliteStore::open(&path, ManualClock::at(NOW), options).await.expect("opens");
    let mut other = connect(&path).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.expect("locks");
    assert_eq!(store.begin().await.map(|_| ()), Err(StoreError::Busy));
    sqlx::query("ROLLBACK").execute(&mut other).await.expect("unlocks");
    assert_eq!(store.reader().live(None, 1).await, Ok(vec![]));
    admit(&store, 0..1).await;
}

#[tokio::test]
async fn a_row_of_the_log_can_be_neither_changed_nor_removed() {
    let (dir, store) = fresh().await;
    let mut tx = begin(&store).await;
    let record =
        Record::new(NOW, tenant("acme"), What::Accepted, Actor::Daemon(sendonce::domain::audit::DaemonPart::Admission));
    tx.write(&log([record])).await.expect("appends");
    tx.commit().await.expect("commits");
    let mut other = connect(&dir.path().join("s.db")).await;
    for statement in ["UPDATE log SET tenant = 'other'", "DELETE FROM log"] {
        let done = sqlx::query(statement).execute(&mut other).await;
        assert!(done.expect_err("refused").to_string().contains("append-only"), "{statement}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_is_named_and_never_guessed() {
    let (dir, store) = fresh().await;
    admit(&store, 0..1).await;
    raw(&dir.path().join("s.db"), "UPDATE notification SET tenant = 'NO TENANT'").await;
    let mut tx = begin(&store).await;
    let read = tx.notifications(&[id(0)]).await.map(|_| ());
    assert_eq!(read, Err(StoreError::Corrupt { table: "notification", column: "tenant" }));
}

#[tokio::test]
async fn due_work_that_does_not_read_leaves_its_queue_and_holds_up_no_other() {
    let (dir, store) = fresh().await;
    admit(&store, 0..3).await;
    raw(&dir.path().join("s.db"), "UPDATE work SET legs = x'00' WHERE id = (SELECT min(id) FROM work)").await;
    let queue = Queue::Send(provider("sandbox"));
    let mut tx = begin(&store).await;
    let due = tx.due(&queue, NOW.plus(Duration::from_secs(1)), 1).await.expect("reads");
    assert!(due.is_empty(), "the first one does not read");
    let due = tx.due(&queue, NOW.plus(Duration::from_secs(1)), 1).await.expect("reads");
    assert_eq!(due.iter().map(|due| due.work.id).collect::<Vec<_>>(), [id(1)]);
    let read = tx.work(&[id(0)]).await.map(|_| ());
    assert_eq!(read, Err(StoreError::Corrupt { table: "work", column: "legs" }), "it is still there to be looked at");
}

#[tokio::test]
async fn no_statement_of_the_hot_path_scans_a_table() {
    let (dir, store) = fresh().await;
    drop(store);
    let mut connection = connect(&dir.path().join("s.db")).await;
    for (text, index) in [(sql::DUE, "work_due"), (sql::EXPIRED, "work_expiry"), (sql::STRANDED, "work_owner")] {
        let plan = plan(&mut connection, text).await;
        assert!(plan.contains(index), "{text}\n{plan}");
    }
    let tables = ["notification", "work", "log", "quota", "unmatched_receipt", "n", "w"];
    for text in sql::hot() {
        let plan = plan(&mut connection, text).await;
        let mut lines = plan.lines();
        let scan = lines.find(
            |line| matches!(line.split(' ').collect::<Vec<_>>()[..], ["SCAN", name, ..] if tables.contains(&name)),
        );
        assert_eq!(scan, None, "{text}\n{plan}");
    }
}

async fn plan(connection: &mut sqlx::SqliteConnection, text: &'static str) -> String {
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
    let rows = sqlx::query(explain).fetch_all(connection).await.expect("explains");
    rows.iter().map(|row| row.get::<String, _>("detail") + "\n").collect()
}
