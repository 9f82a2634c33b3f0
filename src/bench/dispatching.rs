//! What the provider sees: a backlog drained, a rate kept up with, slow answers, and how soon a message is on its way.

use std::sync::Arc;
use std::time::Duration;

use super::admission::{self, account, micros_each};
use super::ceiling::{self, Bare};
use super::figure::{Figure, Report};
use super::load::{Until, closed, open};
use super::site::{Lane, Site};
use super::{BenchError, WARM_UP, broken, now};

/// How long the slow provider takes over an answer.
const SLOW: Duration = Duration::from_millis(50);
/// How many attempts are under way there.
const SLOW_IN_FLIGHT: u32 = 256;
/// No backlog is larger: each event has a number of its own in eight digits.
const MOST: u64 = 10_000_000;

pub(super) async fn run(site: &mut Site, report: &mut Report) -> Result<(), BenchError> {
    let rows = site.plan.rows.unwrap_or(50_000).min(MOST);
    let in_flight = site.plan.in_flight;

    let before = bare(site, rows).await?;
    let drained = drained(site, report, rows, in_flight).await?;
    let after = bare(site, rows).await?;
    let drain = ceiling::mean(&before, &after);
    let name = format!("backlog of {rows} drained, {in_flight} in flight");
    let of = "drains: bare transactions that settle one batch in flight and claim the next";
    report.add(drained.figure(name).under(drain, of));

    let bare_admit = admission::bare(site).await?;
    together(site, report, (bare_admit.rate, drain)).await?;

    site.sink.answer_after(SLOW);
    let bound = f64::from(SLOW_IN_FLIGHT) / SLOW.as_secs_f64();
    let slow_rows = rows.min((bound * site.plan.time.as_secs_f64()) as u64).max(1);
    let slow = self::drained(site, report, slow_rows, SLOW_IN_FLIGHT).await?;
    site.sink.answer_after(Duration::ZERO);
    let name = format!("provider that takes 50 ms, {SLOW_IN_FLIGHT} in flight");
    report.add(slow.figure(name).under(bound, "slow provider: in flight by its time (Little's law)"));

    first_byte(site, report).await
}

async fn bare(site: &mut Site, rows: u64) -> Result<Bare, BenchError> {
    site.tell("bare claims and outcomes");
    site.fresh().await?;
    let store = site.open().await?;
    let measure = async {
        ceiling::waiting(store.as_ref(), &site.maker, rows).await?;
        ceiling::drain(&store, &site.maker, (site.plan.in_flight, site.writers())).await
    };
    let bare = measure.await;
    store.close().await;
    bare.map_err(BenchError::Store)
}

/// A backlog that is gone.
struct Drained {
    rate: f64,
    facts: Vec<(&'static str, f64)>,
}

impl Drained {
    fn figure(self, name: String) -> Figure {
        Figure { facts: self.facts, ..Figure::new(name, self.rate, "/s") }
    }
}

/// Admits `rows` while nothing is sent, stops the daemon, and starts it again to send: from the first byte of the first
/// message to the last stored outcome.
async fn drained(site: &mut Site, report: &mut Report, rows: u64, in_flight: u32) -> Result<Drained, BenchError> {
    site.tell(&format!("a backlog of {rows}"));
    site.fresh().await?;
    let daemon = site.daemon(Lane::Held).await?;
    let base = site.next_number();
    site.count_anew();
    let answered = closed(&site.posting(&daemon), Until::Count(rows)).await.map_err(broken)?;
    report.agree("admissions refused", answered.other_than(202), 0);
    daemon.stop().await?;
    let (early, admitted) = (site.sink.messages(), answered.of(202));
    // What a held lane let through is sent, and does not come again.
    site.sink.reset(base);
    site.tell(&format!("draining {rows}, {in_flight} in flight"));
    let daemon = site.daemon(Lane::Open(in_flight)).await?;
    let idle = daemon.usage();
    site.recorded(&daemon, admitted - early, in_flight).await?;
    let end = now();
    let (received, full) = (site.sink.received(), daemon.usage());
    report.agree("messages waiting and received", admitted - early, received.messages);
    report.agree("messages received twice", received.twice, 0);
    account(site, &daemon, report).await?;
    daemon.stop().await?;
    let time = end.saturating_sub(received.first).as_secs_f64().max(1e-6);
    let facts = vec![
        ("received", received.messages as f64),
        ("daemon processor µs each", micros_each(idle, full, received.messages)),
        ("MiB at most", full.peak),
    ];
    Ok(Drained { rate: received.messages as f64 / time, facts })
}

/// Events come at a rate and are sent meanwhile: does the backlog grow?
async fn together(site: &mut Site, report: &mut Report, bare: (f64, f64)) -> Result<(), BenchError> {
    let rate = site.plan.rate.unwrap_or(8000);
    site.tell(&format!("admitting and sending at {rate}/s"));
    site.fresh().await?;
    let daemon = site.daemon(Lane::Open(site.plan.in_flight)).await?;
    let (base, sink, time) = (site.next_number(), site.sink.clone(), site.plan.time);
    site.count_anew();
    let posted = {
        let sink = sink.clone();
        Arc::new(move |number, at| sink.posted(number, at))
    };
    let load = site.posting(&daemon);
    let idle = daemon.usage();
    let began = now();
    let loading = tokio::spawn(async move { open(&load, rate, (WARM_UP, time), posted).await });
    // (since the start, messages received, events posted and not received)
    let mut seen: Vec<(Duration, u64, f64)> = vec![];
    while !loading.is_finished() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let received = sink.messages();
        let waiting = site.next_number().saturating_sub(base).saturating_sub(received);
        seen.push((now().saturating_sub(began), received, waiting as f64));
    }
    let answered = loading.await.map_err(|_| BenchError::Answer("the load"))?.map_err(broken)?;
    site.recorded(&daemon, answered.of(202), site.plan.in_flight).await?;
    let (received, full) = (sink.received(), daemon.usage());
    report.agree("messages admitted and received", answered.of(202), received.messages);
    report.agree("messages received twice", received.twice, 0);
    report.agree("admissions refused", answered.other_than(202), 0);
    account(site, &daemon, report).await?;
    daemon.stop().await?;

    seen.retain(|(at, ..)| *at >= WARM_UP);
    let (Some(first), Some(last)) = (seen.first(), seen.last()) else { return Err(BenchError::TimedOut("the load")) };
    let span = last.0.saturating_sub(first.0).as_secs_f64().max(1e-6);
    let half = &seen[seen.len() / 2..];
    let mean = |part: &[(Duration, u64, f64)]| part.iter().map(|s| s.2).sum::<f64>() / part.len().max(1) as f64;
    let (third, fourth) = half.split_at(half.len() / 2);
    let growth = (mean(fourth) - mean(third)) / (span / 4.0);
    let ceiling = 1.0 / (1.0 / bare.0 + 1.0 / bare.1);
    let of = "together: the two bare ceilings taken in turn";
    let value = (last.1 - first.1) as f64 / span;
    report.add(
        Figure::new(format!("admitted and sent together at {rate}/s"), value, "/s")
            .under(ceiling, of)
            .took(&answered.took)
            .fact("admitted a second", answered.rate())
            .fact("waiting in the middle", mean(third))
            .fact("waiting at the end", mean(fourth))
            .fact("growth a second", growth)
            .fact("daemon processor µs each", micros_each(idle, full, received.messages)),
    );
    Ok(())
}

/// From the moment at which an event was due to be posted to the first byte at the provider.
async fn first_byte(site: &mut Site, report: &mut Report) -> Result<(), BenchError> {
    let rate = site.plan.rate.unwrap_or(1000);
    site.tell(&format!("from post to provider at {rate}/s"));
    site.fresh().await?;
    let daemon = site.daemon(Lane::Open(site.plan.in_flight)).await?;
    site.count_anew();
    let sink = site.sink.clone();
    let posted = Arc::new(move |number, at| sink.posted(number, at));
    let answered = open(&site.posting(&daemon), rate, (WARM_UP, site.plan.time), posted).await.map_err(broken)?;
    site.recorded(&daemon, answered.of(202), site.plan.in_flight).await?;
    let received = site.sink.received();
    report.agree("messages admitted and received", answered.of(202), received.messages);
    report.agree("messages received twice", received.twice, 0);
    account(site, &daemon, report).await?;
    daemon.stop().await?;
    let figure = Figure::new(format!("post to first byte at the provider, {rate}/s"), answered.rate(), "/s");
    report.add(figure.under(f64::from(rate), "at a rate: that rate").took(&received.from_post));
    Ok(())
}
