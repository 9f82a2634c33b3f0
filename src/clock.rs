//! The only place that reads a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::domain::time::Timestamp;

/// A wall clock and one that never goes back.
pub trait Clock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time since boot, suspended time included (`CLOCK_BOOTTIME`): what a paused process cannot be fooled about.
    fn since_boot(&self) -> Duration;
}

/// A clock that many share.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "the one place that reads a clock")]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let t = clock_gettime(ClockId::Realtime);
        Timestamp::from_micros(t.tv_sec.saturating_mul(1_000_000).saturating_add(t.tv_nsec / 1000))
    }

    fn since_boot(&self) -> Duration {
        let t = clock_gettime(ClockId::Boottime);
        Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
    }
}

/// A clock that stands still until it is moved: for tests of everything that waits.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    boot: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Arc<Self> {
        Arc::new(Self { wall: AtomicI64::new(now.micros()), boot: AtomicI64::new(0) })
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.wall.fetch_add(by, Ordering::SeqCst);
        self.boot.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an administrator or NTP would.
    pub fn set_wall(&self, now: Timestamp) {
        self.wall.store(now.micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_micros(self.boot.load(Ordering::SeqCst).unsigned_abs())
    }
}
