//! What history costs: the claim's look for due work, and admissions, beside more and more finished rows.

use std::time::Duration;

use super::admission::account;
use super::ceiling;
use super::figure::{Figure, Report};
use super::histogram::Histogram;
use super::load::{Answered, Until, closed};
use super::site::{Lane, Site};
use super::{BenchError, WARM_UP, broken};

/// Waiting rows while claims are looked at, and how often they are.
const WAITING: u64 = 5000;
const LOOKS: usize = 300;

/// What was seen beside one length of history.
struct Seen {
    finished: u64,
    /// Of the store's file, each finished row with its log.
    bytes_each: Option<f64>,
    claims: Histogram,
    answered: Answered,
}

pub(super) async fn run(site: &mut Site, report: &mut Report) -> Result<(), BenchError> {
    let most = site.plan.rows.unwrap_or(100_000);
    let mut sizes: Vec<u64> = [0, 1000, 100_000].into_iter().filter(|size| *size < most).collect();
    sizes.push(most);
    site.fresh().await?;
    let (mut made, mut seen) = (0, vec![]);
    for size in sizes {
        seen.push(at(site, report, size, size - made).await?);
        made = size;
    }
    // The machine may have changed meanwhile; a database keeps what it has, so that it cannot be asked again.
    let mut empty = seen.first().map_or(0.0, |first| first.answered.rate());
    if site.is_embedded() {
        site.fresh().await?;
        empty = f64::midpoint(empty, at(site, report, 0, 0).await?.answered.rate());
    }
    // By the median: a single stall of the disk would outweigh what is looked for here.
    let a_second = |claims: &Histogram| 1000.0 / claims.quantile_ms(0.5).max(1e-3);
    let first = seen.first().map_or(0.0, |first| a_second(&first.claims));
    for Seen { finished, bytes_each, claims, .. } in &seen {
        let name = format!("claims beside {finished} finished");
        let figure = Figure::new(name, a_second(claims), "/s").under(first, "beside history: the same without it");
        let figure = bytes_each.iter().fold(figure, |figure, bytes| figure.fact("store bytes each", *bytes));
        report.add(figure.took(claims));
    }
    for Seen { finished, answered, .. } in &seen {
        let name = format!("admissions beside {finished} finished");
        let figure = Figure::new(name, answered.rate(), "/s").under(empty, "beside history: the same without it");
        report.add(figure.took(&answered.took));
    }
    Ok(())
}

/// Adds `more` finished rows to make `size`, then looks at claims and admissions.
async fn at(site: &Site, report: &mut Report, size: u64, more: u64) -> Result<Seen, BenchError> {
    let told = format!("{size} finished rows");
    site.tell(&told);
    let store = site.open().await?;
    let measure = async {
        let tell = |made: u64| site.tell(&format!("{told}: {} made", size - more + made));
        ceiling::finished(store.as_ref(), &site.maker, more, &tell).await?;
        ceiling::waiting(store.as_ref(), &site.maker, WAITING.min(size.max(1000))).await?;
        site.tell(&format!("claims beside {told}"));
        let claims = ceiling::claims(&store, &site.maker, site.plan.in_flight, LOOKS).await?;
        ceiling::clear(store.as_ref()).await?;
        let counts = store.reader().account_counts(Some(site.maker.tenant())).await?;
        // A database may hold what an earlier run left; what a held lane let through is not worth telling.
        Ok((claims, if site.is_embedded() { size } else { counts.finished }))
    };
    let measured = measure.await;
    store.close().await;
    let (claims, finished) = measured.map_err(BenchError::Store)?;
    // A short history would be charged with the room that the waiting rows took.
    let bytes_each = site.file_size().filter(|_| finished > 10 * WAITING).map(|size| size as f64 / finished as f64);

    site.tell(&format!("admissions beside {told}"));
    let daemon = site.daemon(Lane::Held).await?;
    site.count_anew();
    let time = site.plan.time.min(Duration::from_secs(10));
    let answered = closed(&site.posting(&daemon), Until::Time(WARM_UP, time)).await.map_err(broken)?;
    report.agree("admissions refused", answered.other_than(202), 0);
    let _closes = account(site, &daemon, report).await?;
    daemon.stop().await?;
    // What was admitted is no part of the history that comes next.
    let store = site.open().await?;
    let cleared = ceiling::clear(store.as_ref()).await;
    store.close().await;
    cleared.map_err(BenchError::Store)?;
    Ok(Seen { finished, bytes_each, claims, answered })
}
