//! Exports of the log: whole, bounded in memory, and ending.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _};
use sendonce::audit::export::PAGE;
use sendonce::audit::{Format, LogPages, stream};
use sendonce::clock::ManualClock;
use sendonce::domain::audit::{Actor, Record, What};
use sendonce::domain::ids::Tenant;
use sendonce::domain::time::Timestamp;
use sendonce::ledger::LedgerError;
use sendonce::store::rows::{AccountFault, Changes, LogFilter, LogRow};
use sendonce::store::sqlite::{SqliteOptions, SqliteStore};
use sendonce::store::{Store as _, StoreError};

use crate::support::bench::{Bench, START, accepted, actor, silent, tenant};

fn record(n: i64) -> Record {
    let tenant = Tenant::parse("acme").expect("a tenant");
    Record::new(
        Timestamp::from_micros(n),
        tenant,
        What::Accepted,
        Actor::Daemon(sendonce::domain::audit::DaemonPart::Admission),
    )
}

/// A log that is made up as it is read, and grows by as many rows as are read.
#[derive(Default)]
struct Endless {
    rows: AtomicI64,
    pages: AtomicUsize,
    largest: AtomicU32,
    fails_after: Option<i64>,
}

#[derive(Clone)]
struct Shared(Arc<Endless>);

#[async_trait]
impl LogPages for Shared {
    async fn end(&self) -> Result<i64, LedgerError> {
        Ok(self.0.rows.load(Ordering::SeqCst))
    }

    async fn page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError> {
        if self.0.fails_after.is_some_and(|last| after >= last) {
            return Err(StoreError::Unavailable.into());
        }
        self.0.pages.fetch_add(1, Ordering::SeqCst);
        self.0.largest.fetch_max(limit, Ordering::SeqCst);
        let end = self.0.rows.fetch_add(limit.into(), Ordering::SeqCst).min(filter.up_to.unwrap_or(i64::MAX));
        Ok((after + 1..=end.min(after + i64::from(limit))).map(|pos| LogRow { pos, record: record(pos) }).collect())
    }
}

fn endless(rows: i64, fails_after: Option<i64>) -> Shared {
    Shared(Arc::new(Endless { rows: rows.into(), fails_after, ..Endless::default() }))
}

#[tokio::test]
async fn a_million_records_are_exported_a_page_at_a_time_and_the_export_ends_though_the_log_grows() {
    let log = endless(1_000_500, None);
    let mut lines = Box::pin(stream(log.clone(), LogFilter::default(), Format::Csv));
    let (mut count, mut largest, mut pieces) = (0, 0, 0);
    while let Some(piece) = lines.next().await {
        let piece = piece.expect("reads");
        count += piece.iter().filter(|byte| **byte == b'\n').count();
        largest = largest.max(piece.len());
        pieces += 1;
        assert!(log.0.pages.load(Ordering::SeqCst) <= pieces, "no page is read before it is asked for");
    }
    assert_eq!(count, 1_000_501, "a header and every record that was there at the beginning");
    assert_eq!(log.0.pages.load(Ordering::SeqCst), 1001);
    assert_eq!(log.0.largest.load(Ordering::SeqCst), PAGE);
    assert!(largest < 256 * 1024, "{largest} bytes at once");
}

#[tokio::test]
async fn an_export_that_fails_ends_with_the_error() {
    let log = endless(5000, Some(2000));
    let pieces: Vec<_> = stream(log, LogFilter::default(), Format::Ndjson).collect().await;
    assert_eq!(pieces.len(), 3, "two pages and the error");
    assert!(pieces[..2].iter().all(Result::is_ok));
    assert_eq!(pieces[2], Err(LedgerError::Store(StoreError::Unavailable)));
}

/// A real store as a source of pages.
struct Stored(SqliteStore);

#[async_trait]
impl LogPages for Stored {
    async fn end(&self) -> Result<i64, LedgerError> {
        Ok(self.0.reader().log_end().await?)
    }

    async fn page(&self, filter: &LogFilter, after: i64, limit: u32) -> Result<Vec<LogRow>, LedgerError> {
        Ok(self.0.reader().log_page(filter, after, limit).await?)
    }
}

#[tokio::test]
async fn an_export_of_a_real_store_has_every_matching_record_once_and_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = ManualClock::at(Timestamp::from_micros(0));
    let options = SqliteOptions::default();
    let store = SqliteStore::open(&dir.path().join("s.db"), clock, options).await.expect("opens");
    let mut tx = store.begin().await.expect("begins");
    let records: Vec<_> = (0..5000)
        .map(|n| Record { what: if n % 2 == 0 { What::Accepted } else { What::Expired }, ..record(n) })
        .collect();
    tx.write(&Changes { records, ..Changes::default() }).await.expect("appends");
    tx.commit().await.expect("commits");

    let filter = LogFilter { what: Some(What::Expired), ..LogFilter::default() };
    let pieces: Vec<_> = stream(Stored(store), filter, Format::Ndjson).try_collect().await.expect("reads");
    let text = String::from_utf8(pieces.concat()).expect("text");
    let positions: Vec<i64> = text
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(value["what"], "expired");
            value["pos"].as_i64().expect("a position")
        })
        .collect();
    assert_eq!(positions, (1..=2500).map(|n| 2 * n).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_ledger_exports_what_happened_and_its_accounting_closes() {
    let bench = Bench::with(silent()).await;
    let id = bench.admit("e1").await;
    let claimed = bench.claim_one("sms-a").await;
    bench.settle(&claimed, accepted("M1")).await;
    let pieces: Vec<_> =
        stream(bench.ledger.clone(), LogFilter::default(), Format::Ndjson).try_collect().await.expect("reads");
    let text = String::from_utf8(pieces.concat()).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let told: Vec<_> = lines.map(|line| (line["what"].clone(), line["notification"].clone())).collect();
    let expected = ["accepted", "attempt_begun", "attempt_ended"].map(|what| (what.into(), id.to_string().into()));
    assert_eq!(told, expected);
    let account = sendonce::audit::account(&bench.ledger, None).await.expect("reads");
    assert!(account.closes && account.counts.notifications == 1 && account.counts.final_records == 1, "{account}");
}

#[tokio::test]
async fn an_accounting_names_the_notification_that_has_a_record_too_many() {
    let bench = Bench::with(silent()).await;
    bench.admit("e1").await;
    let id = bench.admit("e2").await;
    let twice = Record { notification: Some(id), ..Record::new(START, tenant(), What::Accepted, actor()) };
    bench.ledger.record(twice).await.expect("a working store");
    let account = sendonce::audit::account(&bench.ledger, Some(&tenant())).await.expect("reads");
    let fault = AccountFault { id, accepted_records: 2, final_records: 0, finished: false };
    assert_eq!((account.closes, account.faults), (false, vec![fault]));
}

#[test]
fn an_export_says_of_which_type_it_is() {
    assert_eq!(Format::Ndjson.media_type(), "application/x-ndjson");
    assert_eq!(Format::Csv.media_type(), "text/csv; charset=utf-8; header=present");
}
