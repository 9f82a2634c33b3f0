//! Durations as text, and the nearness of words.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a whole number and a unit: `ms`, `s`, `m`, `h` or `d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(u, _)| *u == unit)?;
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*millis)?))
}

/// Writes a duration as [`parse_duration`] reads it, in the largest unit that holds it whole; parts of a millisecond are
/// dropped.
pub fn show_duration(d: Duration) -> String {
    let millis = d.as_millis();
    let unit = UNITS.iter().rev().find(|(_, m)| millis > 0 && millis.is_multiple_of(u128::from(*m)));
    let (unit, size) = unit.unwrap_or(&("s", 1000));
    format!("{}{unit}", millis / u128::from(*size))
}

/// Levenshtein's distance; `usize::MAX` for words too long to be worth it.
pub(super) fn distance(a: &str, b: &str) -> usize {
    if a.len() > 40 || b.len() > 40 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back_as_they_are_shown() {
        for (text, millis) in [("0s", 0), ("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        for text in ["", "5", "s", "-1s", "1.5s", "1w", "99999999999999999999s", "5 s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
