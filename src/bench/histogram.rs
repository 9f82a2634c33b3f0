//! Durations in buckets whose width is under one in a hundred of what they hold.

use std::time::Duration;

/// Buckets of one doubling.
const PER_DOUBLING: usize = 128;
/// Doublings above the exact part: up to 2^33 µs, more than two hours.
const DOUBLINGS: usize = 26;

/// Counts of durations, in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: Duration,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; PER_DOUBLING * (DOUBLINGS + 2)], total: 0, sum: Duration::ZERO, max: 0 }
    }
}

/// The bucket of a number; exact below 256.
fn bucket(micros: u64) -> usize {
    let doublings = (u64::BITS - (micros >> 8).leading_zeros()) as usize;
    let within = usize::try_from(micros >> doublings).unwrap_or(usize::MAX);
    (doublings * PER_DOUBLING + within).min(PER_DOUBLING * (DOUBLINGS + 2) - 1)
}

/// The largest number of a bucket.
fn top(bucket: usize) -> u64 {
    let doublings = (bucket / PER_DOUBLING).saturating_sub(1);
    let within = bucket - doublings * PER_DOUBLING;
    ((within as u64 + 1) << doublings) - 1
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)] += 1;
        self.total += 1;
        self.sum += took;
        self.max = self.max.max(micros);
    }

    /// Counts all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// All of them together.
    pub const fn sum(&self) -> Duration {
        self.sum
    }

    /// The duration that a share of all does not exceed, in milliseconds; 0 when nothing was counted.
    pub fn quantile_ms(&self, share: f64) -> f64 {
        let wanted = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0.0, |bucket| top(bucket).min(self.max) as f64 / 1000.0)
    }

    /// The longest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_it_says_within_one_in_a_hundred() {
        for micros in (0..2000).chain([4095, 4096, 65_535, 1_000_000, 123_456_789]) {
            let high = top(bucket(micros));
            assert!(high >= micros && high as f64 <= micros as f64 * 1.01, "{micros}: {high}");
            assert!(bucket(micros) == 0 || top(bucket(micros) - 1) < micros, "{micros}");
        }
        assert_eq!(bucket(u64::MAX), PER_DOUBLING * (DOUBLINGS + 2) - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_counted() {
        let mut one = Histogram::default();
        assert_eq!((one.quantile_ms(0.5), one.max_ms()), (0.0, 0.0));
        let mut other = Histogram::default();
        for ms in 1..=1000 {
            if ms % 2 == 0 { &mut one } else { &mut other }.add(Duration::from_millis(ms));
        }
        one.merge(&other);
        assert_eq!(one.total(), 1000);
        for (share, ms) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert!((one.quantile_ms(share) / ms - 1.0).abs() < 0.01, "{share}: {}", one.quantile_ms(share));
        }
        assert_eq!(one.max_ms(), 1000.0);
    }
}
