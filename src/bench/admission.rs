//! Durable admissions: as fast as they are answered, and at a rate.

use std::sync::Arc;

use super::ceiling::{self, Bare};
use super::daemon::Daemon;
use super::figure::{Figure, Report};
use super::load::{Answered, Until, closed, open};
use super::site::{Lane, Site};
use super::{BenchError, WARM_UP, broken};

/// What the ceiling of admissions is.
pub(super) const CEILING: &str = "admissions: a bare group commit of as many such rows as there are connections";

/// How many notifications the daemon's accounting has, and whether it closes.
pub(super) async fn account(site: &Site, daemon: &Daemon, report: &mut Report) -> Result<u64, BenchError> {
    let account = site.read(daemon, "/v1/audit/account").await?;
    if account["closes"] != true {
        report.faults.push("the daemon's accounting does not close".to_owned());
    }
    account["counts"]["notifications"].as_u64().ok_or(BenchError::Answer("the accounting"))
}

/// The bare store alone.
pub(super) async fn bare(site: &mut Site) -> Result<Bare, BenchError> {
    site.tell("bare inserts");
    site.fresh().await?;
    let store = site.open().await?;
    let shape = (site.plan.connections.div_ceil(site.writers()), site.writers());
    let time = site.plan.time.min(std::time::Duration::from_secs(3));
    let bare = ceiling::admit(&store, &site.maker, shape, time).await;
    store.close().await;
    bare.map_err(BenchError::Store)
}

pub(super) async fn run(site: &mut Site, report: &mut Report) -> Result<(), BenchError> {
    let before = bare(site).await?;
    let (answered, facts) = saturated(site, report).await?;
    let after = bare(site).await?;
    let ceiling = ceiling::mean(&before, &after);
    let batch = site.plan.connections.div_ceil(site.writers());
    let mut took = before.took.clone();
    took.merge(&after.took);
    report.add(Figure::new(format!("bare group commit of {batch}"), ceiling, "/s").took(&took));
    let name = format!("admissions, {} connections", site.plan.connections);
    let mut figure = Figure::new(name, answered.rate(), "/s").under(ceiling, CEILING).took(&answered.took);
    figure.facts = facts;
    report.add(figure);
    for lane in [Lane::Held, Lane::Open(site.plan.in_flight)] {
        let rates = match (site.plan.rate, lane) {
            (Some(rate), _) => vec![rate],
            (None, Lane::Held) => vec![1000],
            (None, Lane::Open(_)) => vec![1000, 5000],
        };
        for rate in rates {
            at_rate(site, report, lane, rate).await?;
        }
    }
    Ok(())
}

/// The closed loop, and what it cost.
async fn saturated(site: &mut Site, report: &mut Report) -> Result<(Answered, Vec<(&'static str, f64)>), BenchError> {
    site.tell("admissions, as fast as they are answered");
    site.fresh().await?;
    let daemon = site.daemon(Lane::Held).await?;
    let (known, idle) = (account(site, &daemon, report).await?, daemon.usage());
    site.count_anew();
    let answered = closed(&site.posting(&daemon), Until::Time(WARM_UP, site.plan.time)).await.map_err(broken)?;
    let full = daemon.usage();
    let accounted = account(site, &daemon, report).await?.saturating_sub(known);
    report.agree("admissions answered and accounted for", answered.of(202), accounted);
    report.agree("admissions refused", answered.other_than(202), 0);
    report.add(Figure::new("start to ready", daemon.started_in.as_secs_f64() * 1000.0, "ms"));
    report.add(Figure::new("resident memory, idle", idle.resident, "MiB"));
    report.add(Figure::new("resident memory, saturated", full.peak, "MiB"));
    let facts = vec![("daemon processor µs each", micros_each(idle, full, answered.of(202)))];
    daemon.stop().await?;
    Ok((answered, facts))
}

/// Processor time of the daemon for each message, in microseconds.
pub(super) fn micros_each(before: super::daemon::Usage, after: super::daemon::Usage, messages: u64) -> f64 {
    let spent = after.processor.saturating_sub(before.processor);
    spent.as_secs_f64() * 1e6 / messages.max(1) as f64
}

async fn at_rate(site: &mut Site, report: &mut Report, lane: Lane, rate: u32) -> Result<(), BenchError> {
    let sending = matches!(lane, Lane::Open(_));
    let name = format!("admissions at {rate}/s, {}", if sending { "sending too" } else { "not sending" });
    site.tell(&name);
    site.fresh().await?;
    let daemon = site.daemon(lane).await?;
    site.count_anew();
    let sink = site.sink.clone();
    let posted = Arc::new(move |number, at| sink.posted(number, at));
    let answered = open(&site.posting(&daemon), rate, (WARM_UP, site.plan.time), posted).await.map_err(broken)?;
    if sending {
        site.recorded(&daemon, answered.of(202), site.plan.in_flight).await?;
        let received = site.sink.received();
        report.agree("messages admitted and received", answered.of(202), received.messages);
        report.agree("messages received twice", received.twice, 0);
    }
    report.agree("admissions refused", answered.other_than(202), 0);
    account(site, &daemon, report).await?;
    daemon.stop().await?;
    let figure = Figure::new(name, answered.rate(), "/s").under(f64::from(rate), "at a rate: that rate");
    report.add(figure.took(&answered.took));
    Ok(())
}
