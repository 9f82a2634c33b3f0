//! How much is asked of a target that does not do well: one notification that it cannot take holds up no other, and a
//! target that takes none is tried with one at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::domain::ids::NotificationId;
use crate::domain::retry::RetryPolicy;

/// So many notifications in a row that are not taken, and it is the target.
const MANY: usize = 5;

/// Pauses between single tries of a target that takes nothing.
const PAUSE: RetryPolicy =
    RetryPolicy { first: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(60), jitter: 0.3 };

/// The longest that a target is left alone as a whole because it asks for it.
const WISH_MAX: Duration = Duration::from_secs(60 * 60);

/// What is remembered of a target's last answers. Times are since boot.
#[derive(Debug, Default)]
pub(super) struct Pace {
    failing: BTreeSet<NotificationId>,
    pauses: u8,
    closed_until: Duration,
}

impl Pace {
    /// How many requests may be under way, of at most `concurrency`.
    pub(super) fn room(&self, now: Duration, concurrency: usize) -> usize {
        if now < self.closed_until {
            0
        } else if self.failing.len() >= MANY {
            1
        } else {
            concurrency
        }
    }

    /// How long there is no room.
    pub(super) fn closed_for(&self, now: Duration) -> Duration {
        self.closed_until.saturating_sub(now)
    }

    /// The target took one, or refused one for what is in it: it is there.
    pub(super) fn alive(&mut self) {
        self.failing.clear();
        self.pauses = 0;
    }

    /// The target did not take one.
    pub(super) fn failed(&mut self, id: NotificationId, now: Duration, draw: f64) {
        if self.failing.len() < MANY {
            self.failing.insert(id);
        }
        if self.failing.len() >= MANY {
            self.pauses = self.pauses.saturating_add(1);
            self.close(now, PAUSE.delay(self.pauses, None, draw));
        }
    }

    /// The target wants to be left alone.
    pub(super) fn wish(&mut self, now: Duration, wish: Duration) {
        self.close(now, wish.min(WISH_MAX));
    }

    fn close(&mut self, now: Duration, rest: Duration) {
        self.closed_until = self.closed_until.max(now.saturating_add(rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> NotificationId {
        NotificationId::from_bytes([n; 16])
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn one_notification_that_fails_for_ever_slows_no_other() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.failed(id(1), NOW, 0.5);
        }
        assert_eq!(pace.room(NOW, 8), 8);
    }

    #[test]
    fn a_target_that_takes_nothing_is_tried_with_one_and_after_growing_pauses() {
        let mut pace = Pace::default();
        (1..=5).for_each(|n| pace.failed(id(n), NOW, 0.5));
        assert_eq!((pace.room(NOW, 8), pace.closed_for(NOW)), (0, Duration::from_secs(1)));
        let later = NOW + Duration::from_secs(1);
        assert_eq!(pace.room(later, 8), 1);
        pace.failed(id(6), later, 0.5);
        assert_eq!(pace.closed_for(later), Duration::from_secs(2));
        (0..200).for_each(|_| pace.failed(id(6), later, 1.0));
        assert!(pace.closed_for(later) <= Duration::from_secs(78));
        pace.alive();
        assert_eq!(pace.room(later + Duration::from_secs(78), 8), 8);
    }

    #[test]
    fn a_wish_is_heeded_for_an_hour_at_most() {
        let mut pace = Pace::default();
        pace.wish(NOW, Duration::from_secs(7));
        assert_eq!((pace.room(NOW, 8), pace.closed_for(NOW)), (0, Duration::from_secs(7)));
        pace.wish(NOW, Duration::MAX);
        assert_eq!(pace.closed_for(NOW), Duration::from_secs(3600));
    }
}
