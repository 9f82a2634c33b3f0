//! Points in time, as the store and the wire know them.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Datelike as _, SecondsFormat, Utc};

/// A wall-clock instant in microseconds since the Unix epoch.
///
/// Stored as an integer, because SQLite compares dates as text. Arithmetic saturates: a time far outside any real
/// deadline must not become one by overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Why a text is not a time of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an RFC 3339 time with an offset")]
pub struct NotATime;

impl Timestamp {
    /// The instant `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339 with any offset. A leap second (`:60`) is read as the second that follows it.
    ///
    /// # Errors
    /// [`NotATime`] for anything that RFC 3339 section 5.6 does not allow, and for what its offset carries out of the years
    /// 0000 to 9999, so that it could not be told in that form.
    pub fn parse_rfc3339(text: &str) -> Result<Self, NotATime> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| NotATime)?.to_utc();
        let micros = time.timestamp_micros();
        // A leap second counts as the one after it.
        let year = DateTime::<Utc>::from_timestamp_micros(micros).ok_or(NotATime)?.year();
        if (0..=9999).contains(&year) { Ok(Self(micros)) } else { Err(NotATime) }
    }

    /// This instant moved into the future by `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This instant moved into the past by `by`.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this instant is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_micros(self.0) {
            Some(t) => f.write_str(&t.to_rfc3339_opts(SecondsFormat::Micros, true)),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_as_the_instant_it_names() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-29T14:00:00+14:00", 1_795_910_400_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ] {
            assert_eq!(Timestamp::parse_rfc3339(text).map(Timestamp::micros), Ok(micros), "{text}");
        }
        let beyond = ["9999-12-31T23:59:59-00:01", "9999-12-31T23:59:60Z", "0000-01-01T00:00:00+00:01"];
        for text in
            ["", "tomorrow", "2026-11-29 14:00", "2026-11-29T14:00:00", "2026-13-01T00:00:00Z"].iter().chain(&beyond)
        {
            assert_eq!(Timestamp::parse_rfc3339(text), Err(NotATime), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.plus(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::default().since(end), Duration::ZERO);
    }
}
