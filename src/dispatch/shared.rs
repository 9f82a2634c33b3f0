//! What all tasks of the dispatcher share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::{Quiet, SharedClock};
use crate::domain::ids::{AttemptNumber, NotificationId};
use crate::domain::outcome::Outcome;
use crate::metrics::Metrics;
use crate::store;

use super::desk::Desk;
use super::router::Router;

/// The dispatcher's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// An attempt must begin so soon after its claim, by the boot clock, or never begins.
    pub start_by: Duration,
    /// Time between two sweeps; stretched where a sweep takes long.
    pub sweep_every: Duration,
    /// The longest that a lane sleeps without looking at its queue.
    pub poll: Duration,
    /// Look-ups under way at a time, of one provider.
    pub questions: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            start_by: Duration::from_secs(10),
            sweep_every: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            questions: 8,
        }
    }
}

pub(super) type AttemptKey = (NotificationId, AttemptNumber);

pub(super) struct Shared {
    pub desk: Arc<dyn Desk>,
    pub router: Arc<Router>,
    pub clock: SharedClock,
    pub metrics: Metrics,
    pub settings: Settings,
    /// Draws in `0.0..1.0`, for jitter.
    pub draw: fn() -> f64,
    pub draining: watch::Sender<bool>,
    /// The wall clock can be believed.
    pub clock_steady: AtomicBool,
    /// Results that could not be stored yet.
    pub unstored: AtomicUsize,
    pub running: Running,
    quiet: Quiet,
}

impl Shared {
    pub(super) fn new(
        desk: Arc<dyn Desk>,
        router: Arc<Router>,
        clock: SharedClock,
        metrics: Metrics,
        settings: Settings,
        draw: fn() -> f64,
    ) -> Self {
        Self {
            desk,
            router,
            clock,
            metrics,
            settings,
            draw,
            draining: watch::channel(false).0,
            // Until the first look nobody knows.
            clock_steady: AtomicBool::new(false),
            unstored: AtomicUsize::new(0),
            running: Running::default(),
            quiet: Quiet::default(),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// New attempts may be claimed: their results can be stored, the clock is believed, no other node takes us for dead,
    /// nobody stops us.
    pub(super) fn may_claim(&self) -> bool {
        !self.is_draining()
            && self.clock_steady.load(Ordering::SeqCst)
            && self.unstored.load(Ordering::SeqCst) == 0
            && self.desk.holds_lease()
    }

    /// Sleeps, but not into the drain.
    pub(super) async fn sleep(&self, time: Duration) {
        let mut draining = self.draining.subscribe();
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            _ = draining.wait_for(|draining| *draining) => {}
        }
    }

    /// The pause before try `tries + 1` to reach the store.
    pub(super) fn store_pause(&self, tries: u8) -> Duration {
        store::RETRY.delay(tries, None, (self.draw)())
    }

    /// Whether a fault of the store may be told: one line per period, whoever meets it.
    pub(super) fn may_tell(&self) -> bool {
        self.quiet.may_tell(self.clock.since_boot())
    }
}

/// Attempts that are claimed and not settled, with the outcome where it is known but not stored.
#[derive(Default)]
pub(super) struct Running {
    attempts: Mutex<HashMap<AttemptKey, Option<Outcome>>>,
    emptied: Notify,
}

impl Running {
    fn attempts(&self) -> MutexGuard<'_, HashMap<AttemptKey, Option<Outcome>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, key: AttemptKey) {
        self.attempts().insert(key, None);
    }

    /// The outcome is known.
    pub(super) fn ended(&self, key: AttemptKey, outcome: &Outcome) {
        self.attempts().insert(key, Some(outcome.clone()));
    }

    /// The outcome is stored.
    pub(super) fn settled(&self, key: AttemptKey) {
        let mut attempts = self.attempts();
        attempts.remove(&key);
        if attempts.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    pub(super) fn all(&self) -> Vec<(AttemptKey, Option<Outcome>)> {
        self.attempts().iter().map(|(key, outcome)| (*key, outcome.clone())).collect()
    }

    /// Waits until nothing runs.
    pub(super) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.attempts().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}
