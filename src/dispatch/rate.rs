//! How fast a lane may go: the generic cell rate algorithm (ITU-T I.371 appendix), with time as an argument.

use std::time::Duration;

/// A pause where the provider named none: long enough to matter, short enough not to be noticed.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause of a whole lane. A message keeps its own `Retry-After`; a lane that believed hours would hold up what
/// could still be sent, or take another provider, before it expires.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The limit of one lane. Times are since boot.
#[derive(Debug)]
pub struct Rate {
    /// Time that one message takes of the limit; zero for no limit.
    interval: Duration,
    burst: u32,
    /// Theoretical arrival time of the next message.
    tat: Duration,
    paused_until: Duration,
}

impl Rate {
    /// `per_second` messages a second (`None`: no limit; else finite and above zero), `burst` (at least 1) at once.
    pub fn new(per_second: Option<f64>, burst: u32) -> Self {
        let seconds = per_second.filter(|rate| rate.is_finite() && *rate > 0.0).map_or(0.0, |rate| 1.0 / rate);
        let interval = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Self { interval, burst: burst.max(1), tat: Duration::ZERO, paused_until: Duration::ZERO }
    }

    /// How many messages may leave at `now`.
    pub fn available(&self, now: Duration) -> u32 {
        if now < self.paused_until {
            return 0;
        }
        if self.interval.is_zero() {
            return u32::MAX;
        }
        let room = self.interval.saturating_mul(self.burst).saturating_sub(self.tat.saturating_sub(now));
        u32::try_from(room.as_nanos() / self.interval.as_nanos()).unwrap_or(u32::MAX)
    }

    /// `count` messages leave at `now`.
    pub fn spend(&mut self, now: Duration, count: u32) {
        self.tat = self.tat.max(now).saturating_add(self.interval.saturating_mul(count));
    }

    /// When at least one message may leave; not before `now`.
    pub fn ready_at(&self, now: Duration) -> Duration {
        let spare = self.interval.saturating_mul(self.burst - 1);
        let by_rate = self.tat.saturating_sub(spare);
        now.max(by_rate).max(self.paused_until)
    }

    /// The provider limits us: nothing leaves for `retry_after`, at most a minute, or for a moment where it did not say.
    pub fn pause(&mut self, now: Duration, retry_after: Option<Duration>) {
        let until = now.saturating_add(retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE));
        self.paused_until = self.paused_until.max(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Duration = Duration::from_secs(500);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        let mut rate = Rate::new(Some(10.0), 3);
        assert_eq!(rate.available(T0), 3);
        rate.spend(T0, 3);
        assert_eq!(rate.available(T0), 0);
        assert_eq!(rate.ready_at(T0), T0 + 100 * MS);
        assert_eq!(rate.available(T0 + 99 * MS), 0);
        assert_eq!(rate.available(T0 + 100 * MS), 1);
        assert_eq!(rate.available(T0 + 250 * MS), 2);
        assert_eq!(rate.available(T0 + 100 * Duration::from_secs(1)), 3, "never more than the burst");
    }

    #[test]
    fn what_was_sent_beyond_the_limit_is_paid_back() {
        let mut rate = Rate::new(Some(1.0), 1);
        rate.spend(T0, 3);
        assert_eq!(rate.available(T0 + Duration::from_secs(2)), 0);
        assert_eq!(rate.available(T0 + Duration::from_secs(3)), 1);
    }

    #[test]
    fn a_providers_pause_is_kept_and_a_shorter_one_does_not_shorten_it() {
        let mut rate = Rate::new(None, 1);
        assert_eq!(rate.available(T0), u32::MAX);
        rate.pause(T0, Some(Duration::from_secs(30)));
        rate.pause(T0, None);
        assert_eq!(rate.available(T0 + Duration::from_secs(29)), 0);
        assert_eq!(rate.ready_at(T0), T0 + Duration::from_secs(30));
        assert_eq!(rate.available(T0 + Duration::from_secs(30)), u32::MAX);
    }

    #[test]
    fn an_absurd_pause_does_not_silence_the_lane_beyond_a_minute() {
        let mut rate = Rate::new(None, 1);
        rate.pause(T0, Some(Duration::from_secs(24 * 60 * 60)));
        assert_eq!(rate.ready_at(T0), T0 + Duration::from_secs(60));
        rate.pause(T0, Some(Duration::MAX));
        assert_eq!(rate.available(T0 + Duration::from_secs(60)), u32::MAX);
    }
}
