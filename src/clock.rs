//! The only place that reads a clock.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::domain::time::Timestamp;

/// A wall clock and one that never goes back.
pub trait Clock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> Timestamp;

    /// Time since boot, suspended time included (`CLOCK_BOOTTIME`): what a paused process cannot be fooled about.
    fn since_boot(&self) -> Duration;

    /// Takes in what the store's clock showed at some moment between two times since boot. Nothing happens where the
    /// store's clock is this one.
    fn follow(&self, _shown: Timestamp, _asked: Duration, _answered: Duration) {}
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

/// One line in this time about a fault that goes on.
const QUIET: Duration = Duration::from_secs(30);

/// Lets a fault that goes on be told once per 30 s, whoever meets it.
#[derive(Debug, Default)]
pub struct Quiet {
    until: Mutex<Duration>,
}

impl Quiet {
    /// Whether it may be told at `now`, by the boot clock.
    pub fn may_tell(&self, now: Duration) -> bool {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = now >= *until;
        if tell {
            *until = now.saturating_add(QUIET);
        }
        tell
    }
}

/// Slower answers say too little about the time.
const USEFUL: Duration = Duration::from_secs(2);

/// The clock of a store on another machine, as it is known here: the boot clock, and how far the store's is ahead of it.
///
/// The store is asked with every heartbeat. What it showed was true at some moment between question and answer, so that
/// this clock is off by no more than the time that the last answer took and what the two clocks drift apart between two
/// answers (at 100 parts in a million, half a millisecond in 5 s). A reading moves it no further than it must, so it
/// does not jitter; and a step of this machine's own wall clock does not move it at all.
#[derive(Debug)]
pub struct FollowingClock<C> {
    own: C,
    /// Store minus boot, in microseconds.
    ahead: AtomicI64,
    followed: AtomicBool,
}

impl<C: Clock> FollowingClock<C> {
    /// A clock that shows `own`'s wall clock until the store was asked for the first time.
    pub fn new(own: C) -> Self {
        let ahead = own.now().minus(own.since_boot()).micros();
        Self { own, ahead: AtomicI64::new(ahead), followed: AtomicBool::new(false) }
    }
}

impl<C: Clock> Clock for FollowingClock<C> {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.ahead.load(Ordering::SeqCst)).plus(self.own.since_boot())
    }

    fn since_boot(&self) -> Duration {
        self.own.since_boot()
    }

    fn follow(&self, shown: Timestamp, asked: Duration, answered: Duration) {
        let followed = self.followed.load(Ordering::SeqCst);
        if followed && answered.saturating_sub(asked) > USEFUL {
            return;
        }
        let (least, most) = (shown.minus(answered).micros(), shown.minus(asked).micros());
        let ahead = if followed { self.ahead.load(Ordering::SeqCst) } else { least.midpoint(most) };
        self.ahead.store(ahead.clamp(least, most.max(least)), Ordering::SeqCst);
        self.followed.store(true, Ordering::SeqCst);
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    impl Clock for Arc<ManualClock> {
        fn now(&self) -> Timestamp {
            self.as_ref().now()
        }

        fn since_boot(&self) -> Duration {
            self.as_ref().since_boot()
        }
    }

    #[test]
    fn the_stores_clock_is_known_to_within_the_time_of_one_answer_however_wrong_our_own_is() {
        let own = ManualClock::at(Timestamp::from_micros(0));
        let clock = FollowingClock::new(own.clone());
        let store = |boot: Duration| Timestamp::from_micros(1_700_000_000_000_000).plus(boot);
        for (asked, shown, answered) in [(1, 3, 5), (8, 8, 10), (20, 21, 21), (30, 30, 30)] {
            let [asked, shown, answered] = [asked, shown, answered].map(|ms| SECOND + Duration::from_millis(ms));
            own.advance(answered.saturating_sub(own.since_boot()));
            own.set_wall(Timestamp::from_micros(7));
            clock.follow(store(shown), asked, answered);
            let truth = store(own.since_boot());
            let off = clock.now().since(truth).max(truth.since(clock.now()));
            assert!(off <= answered - asked, "{off:?}");
        }
        assert_eq!(clock.now(), store(own.since_boot()));
    }

    #[test]
    fn a_step_of_the_stores_clock_is_followed_and_a_slow_answer_is_not() {
        let own = ManualClock::at(Timestamp::from_micros(0));
        let clock = FollowingClock::new(own.clone());
        own.advance(SECOND);
        let start = Timestamp::from_micros(1_700_000_000_000_000);
        clock.follow(start, SECOND, SECOND);
        clock.follow(start.plus(60 * SECOND), Duration::ZERO, 3 * SECOND);
        assert_eq!(clock.now(), start);
        clock.follow(start.plus(60 * SECOND), SECOND, SECOND);
        assert_eq!(clock.now(), start.plus(60 * SECOND));
    }
}
