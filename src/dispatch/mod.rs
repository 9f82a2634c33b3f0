//! The dispatcher: sends what is due, finds out about what is unknown, and keeps house.
//!
//! Each configured provider has a lane of its own, with its own bounds and breaker, so that one that hangs holds no
//! other up. An attempt runs in a task that nobody drops; its result is stored before anything else is claimed into a
//! store that cannot be written.

pub mod breaker;
pub mod clockwatch;
pub mod desk;
mod lane;
pub mod rate;
mod reconciler;
pub mod router;
mod shared;
mod station;
mod sweeper;
mod worker;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::clock::SharedClock;
use crate::domain::content::Channel;
use crate::domain::ids::ProviderName;
use crate::domain::outcome::{Outcome, Reason};
use crate::metrics::Metrics;

pub use router::{RouteError, Router};
pub use shared::Settings;
pub use station::LaneSettings;

use breaker::Standing;
use desk::Desk;
use shared::{AttemptKey, Shared};

/// At the end of a drain the store gets so long to take what was given up.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// A task that panicked is started again after this time.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What a dispatcher is made of.
pub struct Parts {
    /// The ledger.
    pub desk: Arc<dyn Desk>,
    /// The providers and the routes to them; the ledger asks the same one.
    pub router: Arc<Router>,
    /// The process's clock.
    pub clock: SharedClock,
    /// Where numbers are counted.
    pub metrics: Metrics,
    /// The numbers.
    pub settings: Settings,
    /// Draws in `0.0..1.0`, for jitter.
    pub draw: fn() -> f64,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every attempt ended and is stored as it ended.
    pub complete: bool,
    /// Attempts that were still running, or whose outcome was not stored, at the end of the time.
    pub given_up: u64,
    /// Of those, how many could not even be stored as unknown; the next start will.
    pub unstored: u64,
}

/// How a lane does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneView {
    /// The provider.
    pub provider: ProviderName,
    /// Its channel.
    pub channel: Channel,
    /// Its breaker.
    pub breaker: Standing,
    /// Attempts that may be under way at a time: none at an open breaker, and fewer than configured after it has closed.
    pub permits: u32,
    /// Attempts under way.
    pub in_flight: u32,
    /// How long its rate limit or its breaker lets nothing begin.
    pub closed_for: Duration,
}

/// How the dispatcher does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The lanes, in the order of their names.
    pub lanes: Vec<LaneView>,
    /// The wall clock can be believed; else nothing is sent or expired.
    pub clock_steady: bool,
    /// The node's lease runs; else nothing is sent.
    pub lease_held: bool,
    /// Results that wait for the store; while there are any nothing is claimed.
    pub unstored: usize,
    /// It is stopping.
    pub draining: bool,
}

impl View {
    /// Work is taken as it should be.
    pub fn is_ready(&self) -> bool {
        self.clock_steady && self.lease_held && self.unstored == 0 && !self.draining
    }
}

/// The running dispatcher.
pub struct Dispatcher {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Dispatcher {
    /// Starts the lanes, the reconcilers, the sweeper and the clock watch. Must be called within a Tokio runtime.
    pub fn start(parts: Parts) -> Self {
        let Parts { desk, router, clock, metrics, settings, draw } = parts;
        let shared = Arc::new(Shared::new(desk, router, clock, metrics, settings, draw));
        let mut tasks = vec![
            supervise("clock watch", shared.clone(), sweeper::watch_clocks),
            supervise("sweeper", shared.clone(), sweeper::run),
        ];
        for station in shared.router.stations() {
            let of_lane = station.clone();
            tasks.push(supervise("lane", shared.clone(), move |shared| lane::run(shared, of_lane.clone())));
            if station.abilities.lookup.is_some() || station.abilities.dedupe.is_some() {
                let of_asking = station.clone();
                let run = move |shared| reconciler::run(shared, of_asking.clone());
                tasks.push(supervise("reconciler", shared.clone(), run));
            }
        }
        Self { shared, tasks: Mutex::new(tasks) }
    }

    /// How it does, for readiness and for people.
    pub fn view(&self) -> View {
        View {
            lanes: self.shared.router.lanes(),
            clock_steady: self.shared.clock_steady.load(Ordering::SeqCst),
            lease_held: self.shared.desk.holds_lease(),
            unstored: self.shared.unstored.load(Ordering::SeqCst),
            draining: self.shared.is_draining(),
        }
    }

    /// Stops claiming at once and lets what runs end within `timeout`. What still runs then is stored as unknown before
    /// this returns. A second call finds nothing left to do.
    pub async fn drain(&self, timeout: Duration) -> Drained {
        self.shared.draining.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = async {
            // The tasks first: one of them may hold a claim that is only now becoming an attempt.
            join_all(tasks).await;
            self.shared.running.emptied().await;
        };
        if tokio::time::timeout(timeout, ended).await.is_ok() {
            return Drained { complete: true, given_up: 0, unstored: 0 };
        }
        let rest = self.shared.running.all();
        let stored = join_all(rest.iter().map(|(key, outcome)| give_up(&self.shared, *key, outcome.clone()))).await;
        let given_up = rest.len() as u64;
        let unstored = stored.iter().filter(|stored| !**stored).count() as u64;
        tracing::warn!(given_up, unstored, "the drain time is over");
        Drained { complete: false, given_up, unstored }
    }
}

/// Stores an attempt that is given up: as it ended where that is known, else as unknown. Says whether it was stored.
async fn give_up(shared: &Shared, key: AttemptKey, outcome: Option<Outcome>) -> bool {
    let outcome = outcome.unwrap_or(Outcome::unknown(Reason::ProcessDied));
    let write = async {
        let mut tries = 0_u8;
        while shared.desk.settle(key.0, key.1, outcome.clone()).await.is_err() {
            tries = tries.saturating_add(1);
            tokio::time::sleep(shared.store_pause(tries)).await;
        }
    };
    let stored = tokio::time::timeout(LAST_WRITES, write).await.is_ok();
    if stored {
        shared.running.settled(key);
    }
    stored
}

/// Runs a task that should only end with the drain, and starts it again when it panics.
fn supervise<F>(
    name: &'static str,
    shared: Arc<Shared>,
    run: impl Fn(Arc<Shared>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(async move {
        while tokio::spawn(run(shared.clone())).await.is_err() {
            tracing::error!(alert = true, task = name, "a task of the dispatcher panicked; it starts again");
            shared.sleep(RESTART_AFTER).await;
        }
    })
}
