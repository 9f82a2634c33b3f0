//! The text as SMPP carries it, and how long it stays of use.

use std::time::Duration;

use chrono::DateTime;
use zeroize::Zeroizing;

use super::settings::Validity;
use crate::domain::gsm7;
use crate::domain::time::Timestamp;

/// The short message and its `data_coding` (SMPP 3.4 section 5.2.19).
///
/// What fits one message on the air stands in `short_message`. What does not goes as a whole in `message_payload` (section
/// 5.3.2.32), and the SMSC cuts it: so one attempt is one `submit_sm` with one answer. Parts of our own (a user data header
/// or `sar_*`) would be several submissions, of which some can be lost while others arrive.
pub(super) struct Text {
    pub(super) octets: Zeroizing<Vec<u8>>,
    /// UCS-2, big-endian (`data_coding` 8); else the SMSC's default alphabet (0), which is taken to be GSM 7-bit with a
    /// septet in each octet.
    pub(super) ucs2: bool,
}

/// 3GPP TS 23.040 section 9.2.3.16: 160 septets, or 140 octets.
const ONE_GSM7: usize = 160;
const ONE_UCS2: usize = 140;

impl Text {
    /// One character outside the GSM 7-bit alphabet makes it UCS-2.
    pub(super) fn new(text: &str) -> Self {
        match gsm7::octets(text) {
            Some(octets) => Self { octets: Zeroizing::new(octets), ucs2: false },
            None => {
                Self { octets: Zeroizing::new(text.encode_utf16().flat_map(u16::to_be_bytes).collect()), ucs2: true }
            }
        }
    }

    /// It needs one short message.
    pub(super) fn fits_one(&self) -> bool {
        self.octets.len() <= if self.ucs2 { ONE_UCS2 } else { ONE_GSM7 }
    }
}

/// The longest relative time that is told: more days than two digits hold would need months, whose length varies.
const LONGEST: Duration = Duration::from_secs(99 * 24 * 3600);

/// `validity_period` for a message that is of use for `remaining` from `now` on, at least a second, rounded down.
pub(super) fn validity(form: Validity, now: Timestamp, remaining: Duration) -> String {
    let remaining = remaining.clamp(Duration::from_secs(1), LONGEST);
    match form {
        Validity::None => String::new(),
        // YYMMDDhhmmss, and 000R.
        Validity::Relative => {
            let seconds = remaining.as_secs();
            let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
            format!("0000{days:02}{hours:02}{minutes:02}{:02}000R", seconds % 60)
        }
        // The same, with tenths of a second, and no quarter of an hour ahead of UTC.
        Validity::Absolute => DateTime::from_timestamp_micros(now.plus(remaining).micros())
            .map(|until| until.format("%y%m%d%H%M%S000+").to_string())
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_short_message_up_to_the_border_of_its_alphabet() {
        for (text, ucs2, octets, one) in [
            ("a".repeat(160), false, 160, true),
            ("a".repeat(161), false, 161, false),
            ("€".repeat(80), false, 160, true),
            ("ế".repeat(70), true, 140, true),
            ("ế".repeat(71), true, 142, false),
            ("😀".repeat(35), true, 140, true),
        ] {
            let read = Text::new(&text);
            assert_eq!((read.ucs2, read.octets.len(), read.fits_one()), (ucs2, octets, one), "{text}");
        }
        assert_eq!(Text::new("ế1").octets.as_slice(), [0x1e, 0xbf, 0x00, 0x31]);
    }

    #[test]
    fn the_remaining_time_is_told_in_the_two_forms_of_the_standard() {
        let now = Timestamp::parse_rfc3339("2026-11-30T23:59:30.9Z").expect("a time");
        let seconds = Duration::from_secs;
        for (form, remaining, wanted) in [
            (Validity::Relative, seconds(600), "000000001000000R"),
            (Validity::Relative, Duration::from_millis(59_999), "000000000059000R"),
            (Validity::Relative, Duration::ZERO, "000000000001000R"),
            (Validity::Relative, seconds(86_400 * 3 + 3_661), "000003010101000R"),
            (Validity::Relative, seconds(86_400 * 1000), "000099000000000R"),
            (Validity::Absolute, seconds(60), "261201000030000+"),
            (Validity::None, seconds(60), ""),
        ] {
            assert_eq!(validity(form, now, remaining), wanted, "{form:?} {remaining:?}");
        }
    }
}
