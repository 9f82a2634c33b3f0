//! One provider's lane: takes due work as fast as its bounds allow, and no faster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::Notify;

use crate::ledger::{Claimed, Hold, LedgerError, Room};

use super::breaker::Standing;
use super::shared::Shared;
use super::station::{Promise, Station};
use super::worker;

/// After a claim that took all that was due, the queue is looked at again after this time: something may fall due.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Rows that one step moves to another provider.
const REROUTE_LIMIT: u32 = 200;

/// Claims on their way at a time: one may be in its commit while the next is asked for.
const CLAIMS: usize = 2;

/// Rows that one claim takes at most.
const CLAIM_LIMIT: u32 = 256;

/// Runs the lane until the drain begins.
pub(super) async fn run(shared: Arc<Shared>, station: Arc<Station>) {
    let mut lane = Lane {
        bell: shared.desk.wakes(station.name(), false),
        claims: FuturesUnordered::new(),
        queue: Queue::Unknown,
        shared,
        station,
    };
    let mut failed = 0_u8;
    while !lane.shared.is_draining() {
        if let Err(error) = lane.turn().await {
            failed = failed.saturating_add(1);
            if lane.shared.may_tell() {
                tracing::error!(provider = %lane.station.name(), %error, "due work cannot be taken");
            }
            lane.shared.sleep(lane.shared.store_pause(failed)).await;
        } else {
            failed = 0;
        }
    }
    // What was claimed is begun, and ends as never begun.
    while let Some((promise, claims)) = lane.claims.next().await {
        lane.begin(&promise, claims.unwrap_or_default());
    }
}

/// What the lane knows of its queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Nothing.
    Unknown,
    /// The last claim filled the room that there was, so there may be more.
    More,
    /// The last claim took all that was due.
    Empty,
}

/// What the lane does next.
enum Next {
    /// Another step at once.
    Step,
    /// Nothing may begin for so long, unless an attempt ends.
    Rest(Duration),
    /// Nothing is due for so long, unless a commit makes it so.
    Await(Duration),
}

/// What ended a pause.
enum Woken {
    /// There may be room.
    ByRoom,
    /// There may be work.
    ByWork,
    /// Here is work.
    With(Arc<Promise>, Vec<Claimed>),
}

/// A claim on its way, with the places that it may fill.
type Claiming = BoxFuture<'static, (Arc<Promise>, Result<Vec<Claimed>, LedgerError>)>;

struct Lane {
    shared: Arc<Shared>,
    station: Arc<Station>,
    claims: FuturesUnordered<Claiming>,
    bell: Arc<Notify>,
    queue: Queue,
}

/// Tells how many attempts may begin whenever it is asked; none when nobody waits for the claim any more.
fn room(shared: &Arc<Shared>, promise: &Arc<Promise>) -> Room {
    let (shared, promise) = (shared.clone(), Arc::downgrade(promise));
    Arc::new(move || {
        let most = if shared.may_claim() { CLAIM_LIMIT } else { 0 };
        promise.upgrade().map_or(0, |promise| promise.renew(shared.clock.since_boot(), most))
    })
}

/// How long nothing is due.
async fn due_in(shared: &Shared, station: &Station) -> Result<Duration, LedgerError> {
    let (poll, due) = (shared.settings.poll, shared.desk.next_due(station.name(), false).await?);
    Ok(due.map_or(poll, |due| due.since(shared.clock.now()).min(poll)))
}

impl Lane {
    /// A step, and the pause after it.
    async fn turn(&mut self) -> Result<(), LedgerError> {
        let next = self.step().await?;
        match self.pause(next).await? {
            Woken::With(promise, claims) => self.begin(&promise, claims),
            Woken::ByWork => self.queue = Queue::Unknown,
            Woken::ByRoom => {}
        }
        Ok(())
    }

    /// Where the breaker stands, for the metrics too.
    fn standing(&self) -> Standing {
        self.station.show(&self.shared.metrics, self.shared.clock.since_boot())
    }

    /// Takes what may be taken now.
    async fn step(&mut self) -> Result<Next, LedgerError> {
        if self.claims.is_empty() {
            if let Some(next) = self.look().await? {
                return Ok(next);
            }
            self.claim();
        }
        loop {
            tokio::select! {
                biased;
                Some((promise, claims)) = self.claims.next() => {
                    self.begin(&promise, claims?);
                    return Ok(Next::Step);
                }
                () = self.station.freed.notified() => {}
            }
            if self.claims.len() < CLAIMS && self.queue == Queue::More && self.may_claim_half() {
                self.claim();
            }
        }
    }

    /// Whether another claim is worth its commit beside one that is on its way.
    fn may_claim_half(&self) -> bool {
        self.shared.may_claim() && self.station.is_half_free(self.shared.clock.since_boot())
    }

    /// What to do instead of a claim; `None` when work may be claimed.
    async fn look(&mut self) -> Result<Option<Next>, LedgerError> {
        let standing = self.standing();
        let (shared, station) = (&self.shared, &self.station);
        let (name, poll) = (station.name(), shared.settings.poll);
        if !shared.may_claim() {
            return Ok(Some(Next::Rest(poll)));
        }
        if standing == Standing::Open && shared.router.has_alternative(name) {
            let moved = shared.desk.reroute(name, REROUTE_LIMIT).await?;
            return Ok(Some(if moved == REROUTE_LIMIT { Next::Step } else { Next::Rest(poll) }));
        }
        let now = shared.clock.since_boot();
        if station.budget(now) == 0 {
            let closed_for = station.closed_for(now);
            return Ok(Some(Next::Rest(if closed_for.is_zero() { poll } else { closed_for })));
        }
        match self.queue {
            Queue::More => {}
            Queue::Empty => return Ok(Some(Next::Await(LOOK_AGAIN))),
            Queue::Unknown => match due_in(&self.shared, &self.station).await? {
                Duration::ZERO => {}
                early => return Ok(Some(Next::Await(early))),
            },
        }
        Ok(None)
    }

    /// Sends a claim on its way.
    fn claim(&self) {
        let (shared, name) = (self.shared.clone(), self.station.name().clone());
        let promise = Arc::new(self.station.promise());
        let room = room(&shared, &promise);
        self.claims.push(async move { (promise, shared.desk.claim(&name, room).await) }.boxed());
    }

    /// Waits until there is something to do, or takes what a commit brings.
    async fn pause(&mut self, next: Next) -> Result<Woken, LedgerError> {
        let (mut pause, awaits) = match next {
            Next::Step => return Ok(Woken::ByRoom),
            Next::Rest(pause) => (pause.min(self.shared.settings.poll), false),
            Next::Await(pause) => (pause, true),
        };
        let (mut draining, hold) = (self.shared.draining.subscribe(), Hold::default());
        let promise = Arc::new(self.station.promise());
        // Declared before the wish, so that it outlives it.
        let _held;
        let claims = async {
            if awaits {
                self.shared.desk.claim_next(self.station.name(), room(&self.shared, &promise), hold.clone()).await
            } else {
                std::future::pending().await
            }
        };
        tokio::pin!(claims);
        let woken = loop {
            tokio::select! {
                biased;
                claims = &mut claims => return claims.map(|claims| Woken::With(promise.clone(), claims)),
                () = self.bell.notified() => break Ok(Woken::ByWork),
                () = self.station.freed.notified(), if !awaits => break Ok(Woken::ByRoom),
                _ = draining.wait_for(|draining| *draining) => break Ok(Woken::ByRoom),
                () = tokio::time::sleep(pause) => {}
            }
            self.standing();
            if !awaits {
                break Ok(Woken::ByWork);
            }
            // The wish stays while the queue is looked at.
            pause = match due_in(&self.shared, &self.station).await {
                Ok(Duration::ZERO) => break Ok(Woken::ByWork),
                Ok(pause) => pause,
                Err(error) => break Err(error),
            };
        };
        // From here on nothing is taken for us, and what was taken has come.
        _held = hold.lock().await;
        claims.as_mut().now_or_never().map_or(woken, |claims| claims.map(|claims| Woken::With(promise.clone(), claims)))
    }

    /// Begins attempts that were claimed into places that were promised to them.
    fn begin(&mut self, promise: &Promise, claims: Vec<Claimed>) {
        let now = self.shared.clock.since_boot();
        let slots: Vec<_> = claims.iter().map(|_| self.station.enter(now)).collect();
        let places = promise.redeem();
        self.queue = if claims.len() >= places.count as usize { Queue::More } else { Queue::Empty };
        for (claimed, slot) in claims.into_iter().zip(slots) {
            worker::spawn(&self.shared, claimed, places.at, slot);
        }
    }
}
