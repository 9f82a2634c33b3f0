//! Whether the wall clock can be believed: expiry and due times hang on it.

use std::time::Duration;

use crate::domain::time::Timestamp;

/// A difference between the wall clock's step and the boot clock's above this is a jump; what NTP slews stays far below.
const JUMP: Duration = Duration::from_secs(30);

/// After a jump the clock must run evenly for so long before it is believed again.
const STEADY_FOR: Duration = Duration::from_secs(60);

/// So far the wall clock may be behind the store's last record: small corrections step it back a little.
const BEHIND: Duration = Duration::from_secs(1);

/// What the wall clock is worth now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// It can be believed.
    Steady,
    /// It has just jumped, or jumped less than a minute ago.
    Jumped,
    /// It is behind what the store has recorded.
    BehindStore,
}

/// Compares the wall clock with the boot clock from one look to the next.
#[derive(Debug, Default)]
pub struct ClockWatch {
    /// Wall minus boot at the last look, in microseconds.
    offset: Option<i64>,
    believed_from: Duration,
}

impl ClockWatch {
    /// One look. `floor` is the time of the store's last record, read before `wall`.
    pub fn look(&mut self, wall: Timestamp, boot: Duration, floor: Option<Timestamp>) -> ClockState {
        let offset = wall.minus(boot).micros();
        let moved = self.offset.map_or(0, |before| before.abs_diff(offset));
        self.offset = Some(offset);
        if u128::from(moved) > JUMP.as_micros() {
            self.believed_from = boot.saturating_add(STEADY_FOR);
        }
        if boot < self.believed_from {
            ClockState::Jumped
        } else if floor.is_some_and(|floor| wall < floor.minus(BEHIND)) {
            ClockState::BehindStore
        } else {
            ClockState::Steady
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, ManualClock};

    const SECOND: Duration = Duration::from_secs(1);

    fn start() -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000)
    }

    #[test]
    fn a_jump_either_way_stops_belief_until_a_minute_has_run_evenly() {
        for forward in [true, false] {
            let clock = ManualClock::at(start());
            let mut watch = ClockWatch::default();
            assert_eq!(watch.look(clock.now(), clock.since_boot(), None), ClockState::Steady);
            clock.advance(SECOND);
            let (now, by) = (clock.now(), Duration::from_secs(31));
            clock.set_wall(if forward { now.plus(by) } else { now.minus(by) });
            for _ in 0..60 {
                assert_eq!(watch.look(clock.now(), clock.since_boot(), None), ClockState::Jumped);
                clock.advance(SECOND);
            }
            assert_eq!(watch.look(clock.now(), clock.since_boot(), None), ClockState::Steady);
        }
    }

    #[test]
    fn slow_drift_and_a_paused_process_are_no_jump() {
        let clock = ManualClock::at(start());
        let mut watch = ClockWatch::default();
        for _ in 0..100 {
            clock.advance(Duration::from_secs(3600));
            clock.set_wall(clock.now().plus(SECOND));
            assert_eq!(watch.look(clock.now(), clock.since_boot(), None), ClockState::Steady);
        }
    }

    #[test]
    fn a_wall_clock_behind_the_store_is_not_believed_however_even_it_runs() {
        let clock = ManualClock::at(start());
        let mut watch = ClockWatch::default();
        let floor = Some(start().plus(Duration::from_secs(100)));
        assert_eq!(watch.look(clock.now(), clock.since_boot(), floor), ClockState::BehindStore);
        clock.advance(Duration::from_secs(100));
        assert_eq!(watch.look(clock.now(), clock.since_boot(), floor), ClockState::Steady);
    }
}
