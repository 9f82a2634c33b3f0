//! One provider's lane: takes due work as fast as its bounds allow, and no faster.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::ByProvider;

use super::breaker::Standing;
use super::shared::Shared;
use super::station::Station;
use super::worker;

/// After a claim that found nothing, the queue is left alone for at least so long.
const EMPTY_PAUSE: Duration = Duration::from_millis(50);

/// Rows that one step moves to another provider.
const REROUTE_LIMIT: u32 = 200;

/// Rows that one claim takes at most.
const CLAIM_LIMIT: u32 = 256;

/// Runs the lane until the drain begins.
pub(super) async fn run(shared: Arc<Shared>, station: Arc<Station>) {
    let bell = shared.desk.wakes(station.name(), false);
    let label = ByProvider { provider: station.name().to_string() };
    let mut draining = shared.draining.subscribe();
    let (mut failed, mut more) = (0_u8, false);
    while !shared.is_draining() {
        let standing = station.standing(shared.clock.since_boot());
        shared.metrics.breaker_open.get_or_create(&label).set(i64::from(standing != Standing::Closed));
        let wait = match step(&shared, &station, standing, &mut more).await {
            Ok(wait) => {
                failed = 0;
                wait
            }
            Err(error) => {
                failed = failed.saturating_add(1);
                if shared.may_tell() {
                    tracing::error!(provider = %station.name(), %error, "due work cannot be taken");
                }
                shared.sleep(shared.store_pause(failed)).await;
                continue;
            }
        };
        tokio::select! {
            () = bell.notified() => {}
            () = station.freed.notified() => {}
            () = tokio::time::sleep(wait.min(shared.settings.poll)) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }
}

/// Takes what may be taken now; says how long there is nothing to do unless somebody rings. `more`: the last claim was
/// full, so that the next one need not ask first whether anything is due.
async fn step(
    shared: &Arc<Shared>,
    station: &Arc<Station>,
    standing: Standing,
    more: &mut bool,
) -> Result<Duration, crate::ledger::LedgerError> {
    let name = station.name();
    let poll = shared.settings.poll;
    if !shared.may_claim() {
        return Ok(poll);
    }
    if standing == Standing::Open && shared.router.has_alternative(name) {
        let moved = shared.desk.reroute(name, REROUTE_LIMIT).await?;
        return Ok(if moved == REROUTE_LIMIT { Duration::ZERO } else { poll });
    }
    let claimed_at = shared.clock.since_boot();
    let budget = station.budget(claimed_at).min(CLAIM_LIMIT);
    if budget == 0 {
        let closed_for = station.closed_for(claimed_at);
        return Ok(if closed_for.is_zero() { poll } else { closed_for });
    }
    if !std::mem::take(more) {
        let Some(due) = shared.desk.next_due(name, false).await? else { return Ok(poll) };
        let early = due.since(shared.clock.now());
        if !early.is_zero() {
            return Ok(early);
        }
    }
    let claims = shared.desk.claim(name, budget).await?;
    *more = claims.len() == budget as usize;
    if claims.is_empty() {
        return Ok(EMPTY_PAUSE);
    }
    let now = shared.clock.since_boot();
    for claimed in claims {
        worker::spawn(shared, claimed, claimed_at, station.enter(now));
    }
    Ok(Duration::ZERO)
}
