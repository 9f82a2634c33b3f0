//! When the next attempt may begin.
//!
//! The arithmetic is that of the `backoff` crate, which the project was asked to use and which is no longer maintained
//! upstream; nothing outside this file knows of it.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;

/// How delays grow between attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Delay after the first failed attempt, before jitter.
    pub first: Duration,
    /// Factor from one delay to the next; at least 1.
    pub factor: f64,
    /// No delay is longer, before jitter.
    pub cap: Duration,
    /// Share of a delay by which it may be shorter or longer, 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_secs(2), factor: 2.0, cap: Duration::from_secs(60), jitter: 0.3 }
    }
}

/// The longest `Retry-After` that is believed.
pub const RETRY_AFTER_CAP: Duration = Duration::from_secs(24 * 60 * 60);

impl RetryPolicy {
    /// The delay after failed attempt number `failed` (from 1), jittered by `random` in `0.0..1.0`; never shorter than
    /// `retry_after`, which is capped at [`RETRY_AFTER_CAP`].
    pub fn delay(&self, failed: u8, retry_after: Option<Duration>, random: f64) -> Duration {
        // The crate draws its own randomness; ours is an argument, so it computes the middle and we place the draw.
        let mut delays = ExponentialBackoff {
            current_interval: self.first,
            multiplier: self.factor.max(1.0),
            max_interval: self.cap,
            randomization_factor: 0.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        let mut middle = self.first;
        for _ in 0..failed.max(1) {
            middle = delays.next_backoff().unwrap_or(self.cap);
        }
        let swing = self.jitter.clamp(0.0, 1.0) * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        let jittered = middle.min(self.cap).mul_f64(1.0 + swing);
        jittered.max(retry_after.unwrap_or(Duration::ZERO).min(RETRY_AFTER_CAP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { first: Duration::from_secs(2), factor: 2.0, cap: Duration::from_secs(10), jitter: 0.5 };

    #[test]
    fn delays_grow_to_the_cap_and_stay_there() {
        let middles: Vec<u64> = [1, 2, 3, 4, 255].iter().map(|&n| POLICY.delay(n, None, 0.5).as_secs()).collect();
        assert_eq!(middles, [2, 4, 8, 10, 10]);
        let patient = RetryPolicy { cap: Duration::from_secs(3600), ..POLICY };
        assert_eq!(patient.delay(255, None, 0.5), patient.cap);
    }

    #[test]
    fn the_draw_moves_a_delay_within_its_jitter_only() {
        assert_eq!(POLICY.delay(1, None, 0.0), Duration::from_secs(1));
        assert_eq!(POLICY.delay(1, None, 1.0), Duration::from_secs(3));
    }

    #[test]
    fn a_providers_wish_lengthens_a_delay_and_never_shortens_it() {
        assert_eq!(POLICY.delay(1, Some(Duration::from_secs(30)), 0.5), Duration::from_secs(30));
        assert_eq!(POLICY.delay(3, Some(Duration::from_secs(1)), 0.5), Duration::from_secs(8));
        assert_eq!(POLICY.delay(1, Some(Duration::MAX), 0.5), Duration::from_secs(86_400), "a day at most");
    }
}
