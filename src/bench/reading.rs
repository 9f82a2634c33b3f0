//! Reading: how notifications stand, and the whole log.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::domain::ids::NotificationId;

use super::ceiling::{self, Bare};
use super::daemon::Daemon;
use super::figure::{Figure, Report};
use super::load::{Load, Maker, Until, closed};
use super::site::{Lane, Site};
use super::wire::Wire;
use super::{BenchError, WARM_UP, broken, now};

const MIB: f64 = 1024.0 * 1024.0;
/// Statuses that are asked for with the tag that they have.
const TAGGED: usize = 1000;

/// What the bare store reads.
struct Bares {
    statuses: Bare,
    log: Bare,
}

pub(super) async fn run(site: &mut Site, report: &mut Report, status: bool, export: bool) -> Result<(), BenchError> {
    let rows = site.plan.rows.unwrap_or(20_000);
    site.tell(&format!("{rows} finished rows"));
    site.fresh().await?;
    let store = site.open().await?;
    let made = ceiling::finished(store.as_ref(), &site.maker, rows, &|_| {}).await;
    store.close().await;
    let ids = made.map_err(BenchError::Store)?;

    let before = bare(site, &ids, (status, export)).await?;
    let daemon = site.daemon(Lane::Held).await?;
    let mut figures = vec![];
    if status {
        figures.extend(statuses(site, report, &daemon, &ids).await?);
    }
    let exported = if export { Some(exported(site, &daemon).await?) } else { None };
    daemon.stop().await?;
    let after = bare(site, &ids, (status, export)).await?;

    let ceiling = ceiling::mean(&before.statuses, &after.statuses);
    for figure in figures {
        report.add(figure.under(ceiling, "statuses: the same reads of the bare store"));
    }
    if let Some((figure, records)) = exported {
        // An export may tell of itself; a database may hold what an earlier run left.
        let exported = if site.is_embedded() { records - records % 3 } else { rows * 3 };
        report.agree("records made and exported", rows * 3, exported);
        let ceiling = ceiling::mean(&before.log, &after.log);
        report.add(figure.under(ceiling, "export: the same pages of the bare store"));
    }
    Ok(())
}

async fn bare(site: &Site, ids: &[NotificationId], wanted: (bool, bool)) -> Result<Bares, BenchError> {
    site.tell("bare reads");
    let store = site.open().await?;
    let measure = async {
        let time = site.plan.time.min(std::time::Duration::from_secs(2));
        let statuses = match wanted.0 {
            true => ceiling::statuses(&store, &site.maker, ids, site.plan.connections, time).await?,
            false => Bare::default(),
        };
        let log = if wanted.1 { ceiling::log(&store, &site.maker).await? } else { Bare::default() };
        Ok(Bares { statuses, log })
    };
    let bare = measure.await;
    store.close().await;
    bare.map_err(BenchError::Store)
}

/// Requests from a list, over and over.
fn cycle(requests: Vec<String>) -> Maker {
    let count = requests.len().max(1) as u64;
    Arc::new(move |number, out| {
        let next = usize::try_from(number % count).ok().and_then(|place| requests.get(place));
        out.extend_from_slice(next.map(String::as_bytes).unwrap_or_default());
    })
}

async fn statuses(
    site: &Site,
    report: &mut Report,
    daemon: &Daemon,
    ids: &[NotificationId],
) -> Result<Vec<Figure>, BenchError> {
    let path = |id: &NotificationId| format!("/v1/notifications/{id}");
    let mut wire = Wire::connect(daemon.port).await.map_err(broken)?;
    let mut tagged = vec![];
    for id in ids.iter().take(TAGGED) {
        wire.exchange(site.reading(&path(id), "").as_bytes()).await.map_err(broken)?;
        let tag = wire.header("etag").ok_or(BenchError::Answer("a status"))?;
        tagged.push(site.reading(&path(id), &format!("if-none-match: {tag}\r\n")));
    }
    let plain = ids.iter().map(|id| site.reading(&path(id), "")).collect();
    let mut figures = vec![];
    for (name, status, requests) in [("statuses", 200, plain), ("statuses unchanged (304)", 304, tagged)] {
        site.tell(name);
        let (port, connections) = (daemon.port, site.plan.connections);
        let load = Load { port, connections, maker: cycle(requests), numbers: Arc::new(AtomicU64::new(0)) };
        let answered = closed(&load, Until::Time(WARM_UP, site.plan.time)).await.map_err(broken)?;
        report.agree(&format!("{name}: other answers"), answered.other_than(status), 0);
        figures.push(
            Figure::new(format!("{name}, {connections} connections"), answered.rate(), "/s").took(&answered.took),
        );
    }
    Ok(figures)
}

/// The export as a client reads it, and how many records came.
async fn exported(site: &Site, daemon: &Daemon) -> Result<(Figure, u64), BenchError> {
    site.tell("an export");
    let began = now();
    let mut response = site.stream(daemon, "/v1/audit?format=ndjson").await?;
    let (mut bytes, mut records, mut resident, mut looked) = (0_usize, 0_u64, 0.0_f64, began);
    while let Some(chunk) = response.chunk().await.map_err(|_| BenchError::Answer("the export"))? {
        bytes += chunk.len();
        records += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        if now() > looked + std::time::Duration::from_millis(20) {
            looked = now();
            resident = resident.max(daemon.usage().resident);
        }
    }
    let time = now().saturating_sub(began).as_secs_f64().max(1e-6);
    let figure = Figure::new("export, records", records as f64 / time, "/s")
        .fact("records", records as f64)
        .fact("MiB a second", bytes as f64 / MIB / time)
        .fact("MiB resident meanwhile", resident.max(daemon.usage().resident));
    Ok((figure, records))
}
