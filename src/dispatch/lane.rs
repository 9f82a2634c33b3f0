//! One provider's lane: takes due work as fast as its bounds allow, and no faster.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use crate::ledger::{Claimed, Hold, LedgerError, Room};

use super::breaker::Standing;
use super::shared::Shared;
use super::station::Station;
use super::worker;

/// After a claim that took all that was due, the queue is looked at again after this time: something may fall due.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Rows that one step moves to another provider.
const REROUTE_LIMIT: u32 = 200;

/// Rows that one claim takes at most.
const CLAIM_LIMIT: u32 = 256;

/// Runs the lane until the drain begins.
pub(super) async fn run(shared: Arc<Shared>, station: Arc<Station>) {
    let told = Arc::default();
    let mut lane = Lane {
        bell: shared.desk.wakes(station.name(), false),
        room: room(&shared, &station, &told),
        told,
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
    With(Vec<Claimed>),
}

struct Lane {
    shared: Arc<Shared>,
    station: Arc<Station>,
    room: Room,
    told: Arc<Mutex<Told>>,
    bell: Arc<Notify>,
    queue: Queue,
}

/// The last answer to how many attempts may begin.
#[derive(Clone, Copy, Default)]
struct Told {
    /// By the boot clock; before any claim that came of it.
    at: Duration,
    room: u32,
}

/// Tells how many attempts may begin whenever it is asked.
fn room(shared: &Arc<Shared>, station: &Arc<Station>, told: &Arc<Mutex<Told>>) -> Room {
    let (shared, station, told) = (shared.clone(), station.clone(), told.clone());
    Arc::new(move || {
        let at = shared.clock.since_boot();
        let room = if shared.may_claim() { station.budget(at).min(CLAIM_LIMIT) } else { 0 };
        *told.lock().unwrap_or_else(PoisonError::into_inner) = Told { at, room };
        room
    })
}

impl Lane {
    /// A step, and the pause after it.
    async fn turn(&mut self) -> Result<(), LedgerError> {
        let next = self.step().await?;
        match self.pause(next).await? {
            Woken::With(claims) => self.begin(claims),
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
        let standing = self.standing();
        let (shared, station) = (&self.shared, &self.station);
        let (name, poll) = (station.name(), shared.settings.poll);
        if !shared.may_claim() {
            return Ok(Next::Rest(poll));
        }
        if standing == Standing::Open && shared.router.has_alternative(name) {
            let moved = shared.desk.reroute(name, REROUTE_LIMIT).await?;
            return Ok(if moved == REROUTE_LIMIT { Next::Step } else { Next::Rest(poll) });
        }
        let now = shared.clock.since_boot();
        if station.budget(now) == 0 {
            let closed_for = station.closed_for(now);
            return Ok(Next::Rest(if closed_for.is_zero() { poll } else { closed_for }));
        }
        match self.queue {
            Queue::More => {}
            Queue::Empty => return Ok(Next::Await(LOOK_AGAIN)),
            Queue::Unknown => match self.due_in().await? {
                Duration::ZERO => {}
                early => return Ok(Next::Await(early)),
            },
        }
        let claims = shared.desk.claim(name, self.room.clone()).await?;
        self.begin(claims);
        Ok(Next::Step)
    }

    /// How long nothing is due.
    async fn due_in(&self) -> Result<Duration, LedgerError> {
        let (poll, due) = (self.shared.settings.poll, self.shared.desk.next_due(self.station.name(), false).await?);
        Ok(due.map_or(poll, |due| due.since(self.shared.clock.now()).min(poll)))
    }

    /// Waits until there is something to do, or takes what a commit brings.
    async fn pause(&self, next: Next) -> Result<Woken, LedgerError> {
        let (mut pause, awaits) = match next {
            Next::Step => return Ok(Woken::ByRoom),
            Next::Rest(pause) => (pause.min(self.shared.settings.poll), false),
            Next::Await(pause) => (pause, true),
        };
        let (mut draining, hold) = (self.shared.draining.subscribe(), Hold::default());
        // Declared before the wish, so that it outlives it.
        let _held;
        let claims = async {
            if awaits {
                self.shared.desk.claim_next(self.station.name(), self.room.clone(), hold.clone()).await
            } else {
                std::future::pending().await
            }
        };
        tokio::pin!(claims);
        let woken = loop {
            tokio::select! {
                biased;
                claims = &mut claims => return claims.map(Woken::With),
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
            pause = match self.due_in().await {
                Ok(Duration::ZERO) => break Ok(Woken::ByWork),
                Ok(pause) => pause,
                Err(error) => break Err(error),
            };
        };
        // From here on nothing is taken for us, and what was taken has come.
        _held = hold.lock().await;
        claims.as_mut().now_or_never().map_or(woken, |claims| claims.map(Woken::With))
    }

    /// Begins attempts that were claimed into the room that was told last.
    fn begin(&mut self, claims: Vec<Claimed>) {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue = if claims.len() >= told.room as usize { Queue::More } else { Queue::Empty };
        let now = self.shared.clock.since_boot();
        for claimed in claims {
            worker::spawn(&self.shared, claimed, told.at, self.station.enter(now));
        }
    }
}
