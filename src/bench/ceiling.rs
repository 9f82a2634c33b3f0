//! The ceilings: what the same store takes of the same rows through the same seam when nothing else is done. No HTTP, no
//! rendering, no sealing, no rules.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::clock::{Clock as _, SystemClock};
use crate::domain::ids::NotificationId;
use crate::store::rows::{Changes, LogFilter, NotificationRow, StatusSelector, WorkRow};
use crate::store::{Store, StoreError};

use super::histogram::Histogram;
use super::now;
use super::rows::{Admitted, Maker};

/// How fast a bare store was.
#[derive(Clone, Debug, Default)]
pub(super) struct Bare {
    /// Rows, records or reads a second.
    pub rate: f64,
    /// How long each transaction or read took.
    pub took: Histogram,
}

impl Bare {
    /// Of what `took.len()` tasks did side by side; the making of rows is not counted.
    fn new(done: u64, took: &[Histogram]) -> Self {
        let mut all = Histogram::default();
        took.iter().for_each(|one| all.merge(one));
        let time = all.sum().as_secs_f64() / took.len().max(1) as f64;
        Self { rate: done as f64 / time.max(1e-6), took: all }
    }
}

/// The mean of what was measured before and after a figure.
pub(super) fn mean(before: &Bare, after: &Bare) -> f64 {
    f64::midpoint(before.rate, after.rate)
}

/// Inserts rows for `time`, `batch` in each of `writers` transactions that run at once.
pub(super) async fn admit(
    store: &Arc<dyn Store>,
    maker: &Maker,
    (batch, writers): (usize, usize),
    time: Duration,
) -> Result<Bare, StoreError> {
    let began = now();
    let writer = async || {
        let (mut done, mut took) = (0, Histogram::default());
        while now() < began + time {
            let rows = Batch::new(maker, batch);
            let start = now();
            rows.insert(store.as_ref()).await?;
            took.add(now().saturating_sub(start));
            done += batch as u64;
        }
        Ok::<_, StoreError>((done, took))
    };
    let (done, took): (Vec<u64>, Vec<_>) =
        try_join_all((0..writers.max(1)).map(|_| writer())).await?.into_iter().unzip();
    Ok(Bare::new(done.iter().sum(), &took))
}

/// New events, ready to be inserted.
struct Batch {
    notifications: Vec<NotificationRow>,
    rest: Changes,
}

impl Batch {
    fn new(maker: &Maker, count: usize) -> Self {
        let now = SystemClock.now();
        let (mut notifications, mut rest) = (vec![], Changes::default());
        for row in (0..count).map(|_| maker.admitted(now)) {
            notifications.push(row.notification);
            rest.new.push(row.work);
            rest.records.push(row.record);
        }
        Self { notifications, rest }
    }

    async fn insert(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut tx = store.begin().await?;
        tx.insert_notifications(&self.notifications).await?;
        tx.write(&self.rest).await?;
        tx.commit().await
    }
}

/// Inserts `count` new events, in large transactions.
pub(super) async fn waiting(store: &dyn Store, maker: &Maker, count: u64) -> Result<(), StoreError> {
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    while left > 0 {
        let size = left.min(1000);
        Batch::new(maker, size).insert(store).await?;
        left -= size;
    }
    Ok(())
}

/// Inserts `count` events that are finished, with all of their log, in large transactions. Gives the ids of some of
/// them. `tell` hears how many there are.
pub(super) async fn finished(
    store: &dyn Store,
    maker: &Maker,
    count: u64,
    tell: &dyn Fn(u64),
) -> Result<Vec<NotificationId>, StoreError> {
    const BATCH: u64 = 1000;
    const KEPT: usize = 20_000;
    let (mut ids, mut left) = (vec![], count);
    while left > 0 {
        let mut tx = store.begin().await?;
        let (now, size) = (tx.now(), left.min(BATCH));
        let (mut rows, mut records) = (vec![], vec![]);
        for _ in 0..size {
            let Admitted { mut notification, work, record } = maker.admitted(now);
            let (claimed, settled) = (maker.claimed(now, &work), maker.settled(now, &work));
            notification.outcome = settled.0.outcome;
            records.extend([record, claimed.1, settled.1]);
            if ids.len() < KEPT {
                ids.push(notification.id);
            }
            rows.push(notification);
        }
        tx.insert_notifications(&rows).await?;
        tx.write(&Changes { records, ..Changes::default() }).await?;
        tx.commit().await?;
        left -= size;
        tell(count - left);
    }
    Ok(ids)
}

/// Claims and settles all waiting work: each transaction records the outcomes of one batch and claims the next, in each
/// of `writers` at once. One batch is what is under way at a provider that answers at once.
pub(super) async fn drain(
    store: &Arc<dyn Store>,
    maker: &Maker,
    (batch, writers): (u32, usize),
) -> Result<Bare, StoreError> {
    let writer = async || {
        let (mut done, mut took) = (0, Histogram::default());
        let mut under_way: Vec<WorkRow> = vec![];
        loop {
            let start = now();
            let ended = under_way.len() as u64;
            under_way = turn(store.as_ref(), maker, &under_way, batch).await?;
            took.add(now().saturating_sub(start));
            done += ended;
            if under_way.is_empty() {
                return Ok::<_, StoreError>((done, took));
            }
        }
    };
    let (done, took): (Vec<u64>, Vec<_>) =
        try_join_all((0..writers.max(1)).map(|_| writer())).await?.into_iter().unzip();
    Ok(Bare::new(done.iter().sum(), &took))
}

/// Settles `under_way` and claims up to `limit` more, in one transaction.
async fn turn(store: &dyn Store, maker: &Maker, under_way: &[WorkRow], limit: u32) -> Result<Vec<WorkRow>, StoreError> {
    let mut tx = store.begin().await?;
    let now = tx.now();
    let due: Vec<_> = tx.due(&maker.queue(), now, limit).await?.into_iter().map(|due| due.work).collect();
    let mut changes = Changes { over: under_way.iter().map(|work| work.id).collect(), ..Changes::default() };
    for (outcome, record) in under_way.iter().map(|work| maker.settled(now, work)) {
        changes.outcomes.push(outcome);
        changes.records.push(record);
    }
    for (claim, record) in due.iter().map(|work| maker.claimed(now, work)) {
        changes.changed.push(claim);
        changes.records.push(record);
    }
    if !changes.is_empty() {
        tx.write(&changes).await?;
    }
    tx.commit().await?;
    Ok(due)
}

/// Reads statuses for `time` from `readers` tasks at once.
pub(super) async fn statuses(
    store: &Arc<dyn Store>,
    maker: &Maker,
    ids: &[NotificationId],
    readers: usize,
    time: Duration,
) -> Result<Bare, StoreError> {
    let began = now();
    let reader = async |first: usize| {
        let (mut done, mut took) = (0, Histogram::default());
        let chosen = ids.iter().cycle().skip(first * ids.len() / readers.max(1));
        for id in chosen.take_while(|_| now() < began + time) {
            let start = now();
            store.reader().status(maker.tenant(), &StatusSelector::Id(*id)).await?;
            took.add(now().saturating_sub(start));
            done += 1;
        }
        Ok::<_, StoreError>((done, took))
    };
    let (done, took): (Vec<u64>, Vec<_>) = try_join_all((0..readers.max(1)).map(reader)).await?.into_iter().unzip();
    Ok(Bare::new(done.iter().sum(), &took))
}

/// Reads the tenant's whole log, page by page as an export does.
pub(super) async fn log(store: &Arc<dyn Store>, maker: &Maker) -> Result<Bare, StoreError> {
    const PAGE: u32 = 1000;
    let filter = LogFilter { tenant: Some(maker.tenant().clone()), ..LogFilter::default() };
    let (mut took, mut done, mut after) = (Histogram::default(), 0, 0);
    loop {
        let start = now();
        let page = store.reader().log_page(&filter, after, PAGE).await?;
        took.add(now().saturating_sub(start));
        let Some(last) = page.last() else { return Ok(Bare::new(done, &[took])) };
        (after, done) = (last.pos, done + page.len() as u64);
    }
}

/// How long a claim looks for `limit` rows of the due work, `times` times over; nothing is changed.
pub(super) async fn claims(
    store: &Arc<dyn Store>,
    maker: &Maker,
    limit: u32,
    times: usize,
) -> Result<Histogram, StoreError> {
    let mut took = Histogram::default();
    for _ in 0..times {
        let mut tx = store.begin().await?;
        let (at, start) = (tx.now(), now());
        tx.due(&maker.queue(), at, limit).await?;
        took.add(now().saturating_sub(start));
    }
    Ok(took)
}

/// Takes back all live work, with its notifications: what a figure left behind.
pub(super) async fn clear(store: &dyn Store) -> Result<(), StoreError> {
    loop {
        let live = store.reader().live(None, 1000).await?;
        if live.is_empty() {
            return Ok(());
        }
        let mut tx = store.begin().await?;
        tx.write(&Changes { over: live.clone(), ..Changes::default() }).await?;
        tx.delete_notifications(&live).await?;
        tx.commit().await?;
    }
}
