//! Finds out about unknowns: asks the provider, or repeats the request where the provider dedupes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::domain::outcome::LookupAnswer;
use crate::ledger::{Asking, LedgerError, Question};
use crate::metrics::ByProviderResult;

use super::breaker::Standing;
use super::shared::Shared;
use super::station::Station;
use super::worker;

/// After a turn that found nothing to ask, the queue is left alone for at least so long.
const EMPTY_PAUSE: Duration = Duration::from_millis(50);

/// Runs one provider's reconciler until the drain begins.
pub(super) async fn run(shared: Arc<Shared>, station: Arc<Station>) {
    let bell = shared.desk.wakes(station.name(), true);
    let places = Arc::new(Semaphore::new(shared.settings.questions.max(1) as usize));
    let mut draining = shared.draining.subscribe();
    let mut failed = 0_u8;
    while !shared.is_draining() {
        let wait = match step(&shared, &station, &places).await {
            Ok(wait) => {
                failed = 0;
                wait
            }
            Err(error) => {
                failed = failed.saturating_add(1);
                if shared.may_tell() {
                    tracing::error!(provider = %station.name(), %error, "unknowns cannot be asked about");
                }
                shared.sleep(shared.store_pause(failed)).await;
                continue;
            }
        };
        tokio::select! {
            () = bell.notified() => {}
            () = tokio::time::sleep(wait.min(shared.settings.poll)) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }
}

async fn step(shared: &Arc<Shared>, station: &Arc<Station>, places: &Arc<Semaphore>) -> Result<Duration, LedgerError> {
    let name = station.name();
    let poll = shared.settings.poll;
    let asked_at = shared.clock.since_boot();
    // Where there is no look-up every question is a send, and is bound like one.
    let room = match station.abilities.lookup {
        Some(_) => u32::MAX,
        None if station.standing(asked_at) == Standing::Closed => station.budget(asked_at),
        None => 0,
    };
    let limit = u32::try_from(places.available_permits()).unwrap_or(u32::MAX).min(room);
    if !shared.may_claim() || limit == 0 {
        return Ok(poll.min(Duration::from_millis(200)));
    }
    let Some(due) = shared.desk.next_due(name, true).await? else { return Ok(poll) };
    let early = due.since(shared.clock.now());
    if !early.is_zero() {
        return Ok(early);
    }
    let questions = shared.desk.ask(name, limit).await?;
    if questions.is_empty() {
        return Ok(EMPTY_PAUSE);
    }
    for question in questions {
        match question {
            Question::Probe(claimed) => {
                count(shared, station, "probe");
                let slot = station.enter(shared.clock.since_boot());
                worker::spawn(shared, *claimed, asked_at, slot);
            }
            Question::Lookup(asking) => {
                let (shared, station, places) = (shared.clone(), station.clone(), places.clone());
                let place = places.try_acquire_owned().ok();
                tokio::spawn(async move {
                    look_up(&shared, station, asking).await;
                    drop(place);
                });
            }
        }
    }
    Ok(Duration::ZERO)
}

async fn look_up(shared: &Shared, station: Arc<Station>, asking: Asking) {
    let (id, attempt) = (asking.id, asking.attempt);
    let inquiry = asking.inquiry(shared.clock.now());
    let asked = station.clone();
    let looking = tokio::spawn(async move { asked.provider.lookup(&inquiry).await });
    let answer = looking.await.unwrap_or_else(|_panic| {
        tracing::error!(alert = true, provider = %station.name(), notification = %id, "a look-up panicked");
        LookupAnswer::Unreadable
    });
    let found = match &answer {
        LookupAnswer::Found { .. } => "found",
        LookupAnswer::NotFound => "not_found",
        LookupAnswer::Unreadable => "unreadable",
    };
    count(shared, &station, found);
    // An answer that is not stored is no loss: the question comes up again.
    if let Err(error) = shared.desk.answer(id, attempt, answer).await
        && shared.may_tell()
    {
        tracing::error!(%error, "the answer to a look-up cannot be stored; it will be asked again");
    }
}

fn count(shared: &Shared, station: &Station, result: &'static str) {
    let label = ByProviderResult { provider: station.name().to_string(), result };
    shared.metrics.questions.get_or_create(&label).inc();
}
