//! How many messages an SMS text becomes.

use crate::domain::gsm7;

/// The alphabet that a text is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The GSM 7-bit default alphabet with its extension table (3GPP TS 23.038 sections 6.2.1 and 6.2.1.1).
    Gsm7,
    /// UCS-2 (3GPP TS 23.038 section 6.2.3), in practice UTF-16: one character outside GSM-7 is enough.
    Ucs2,
}

/// What a text takes on the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The alphabet.
    pub encoding: Encoding,
    /// How many short messages it is split into; an empty text is one.
    pub parts: usize,
}

/// A message holds 140 octets, 6 of which a concatenated one spends on its header (3GPP TS 23.040 section 9.2.3.24.1).
const GSM7: (usize, usize) = (160, 153);
const UCS2: (usize, usize) = (70, 67);

/// Counts the parts of `text`. Neither an escape pair nor a surrogate pair is split between two parts.
pub fn segments(text: &str) -> Segments {
    let septets: Option<Vec<usize>> = text.chars().map(gsm7::septets).collect();
    match septets {
        Some(units) => Segments { encoding: Encoding::Gsm7, parts: parts(units, GSM7) },
        None => Segments { encoding: Encoding::Ucs2, parts: parts(text.chars().map(char::len_utf16).collect(), UCS2) },
    }
}

fn parts(units: Vec<usize>, (single, joined): (usize, usize)) -> usize {
    if units.iter().sum::<usize>() <= single {
        return 1;
    }
    let mut parts = 1;
    let mut used = 0;
    for unit in units {
        if used + unit > joined {
            parts += 1;
            used = 0;
        }
        used += unit;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_outside_the_alphabet_makes_it_ucs2() {
        for c in gsm7::BASIC.chars().chain(gsm7::EXTENSION.iter().map(|(c, _)| *c)) {
            assert_eq!(segments(&c.to_string()).encoding, Encoding::Gsm7, "{c:?}");
        }
        for c in ['`', 'ç', 'á', 'ế', 'đ', '\t', '’', '–', '\u{a0}', '😀'] {
            assert_eq!(segments(&format!("code {c}")).encoding, Encoding::Ucs2, "{c:?}");
        }
    }

    #[test]
    fn parts_change_exactly_at_their_borders() {
        for (text, parts) in [
            (String::new(), 1),
            ("a".repeat(160), 1),
            ("a".repeat(161), 2),
            ("a".repeat(306), 2),
            ("a".repeat(307), 3),
            ("€".repeat(80), 1),
            ("€".repeat(81), 2),
            // An odd 153rd septet cannot take half of a pair.
            ("€".repeat(152), 2),
            ("€".repeat(153), 3),
            (format!("{}€{}", "a".repeat(152), "a".repeat(151)), 2),
            (format!("{}€{}", "a".repeat(152), "a".repeat(152)), 3),
            ("ế".repeat(70), 1),
            ("ế".repeat(71), 2),
            ("ế".repeat(134), 2),
            ("ế".repeat(135), 3),
            ("😀".repeat(35), 1),
            ("😀".repeat(36), 2),
            ("😀".repeat(66), 2),
            ("😀".repeat(67), 3),
        ] {
            assert_eq!(segments(&text).parts, parts, "{} characters", text.chars().count());
        }
    }
}
