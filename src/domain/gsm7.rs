//! The GSM 7-bit default alphabet (3GPP TS 23.038 section 6.2.1) and its extension table (section 6.2.1.1).

/// Section 6.2.1 in the order of its codes, without the escape.
pub(crate) const BASIC: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                                ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";

/// Section 6.2.1.1 with its codes: each takes the escape and one more septet.
pub(crate) const EXTENSION: [(char, u8); 10] = [
    ('\u{c}', 0x0a),
    ('^', 0x14),
    ('{', 0x28),
    ('}', 0x29),
    ('\\', 0x2f),
    ('[', 0x3c),
    ('~', 0x3d),
    (']', 0x3e),
    ('|', 0x40),
    ('€', 0x65),
];

const ESCAPE: u8 = 0x1b;

/// How many septets `c` takes; `None` outside the alphabet.
pub fn septets(c: char) -> Option<usize> {
    // Most of any text, and dear to search for in the tables.
    if c.is_ascii_alphanumeric() || c == ' ' || BASIC.contains(c) { Some(1) } else { extended(c).map(|_| 2) }
}

/// `text` with one septet in each octet; `None` when it has a character outside the alphabet.
pub fn octets(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len());
    for c in text.chars() {
        match (basic(c), extended(c)) {
            (Some(code), _) => octets.push(code),
            (None, Some(code)) => octets.extend([ESCAPE, code]),
            (None, None) => return None,
        }
    }
    Some(octets)
}

fn basic(c: char) -> Option<u8> {
    let place = u8::try_from(BASIC.chars().position(|known| known == c)?).ok()?;
    Some(if place < ESCAPE { place } else { place + 1 })
}

fn extended(c: char) -> Option<u8> {
    EXTENSION.iter().find(|(known, _)| *known == c).map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_alphabet_is_the_table_of_the_standard() {
        assert_eq!(BASIC.chars().count(), 127);
        for (code, c) in [
            (0x00, '@'),
            (0x09, 'Ç'),
            (0x0a, '\n'),
            (0x0d, '\r'),
            (0x10, 'Δ'),
            (0x1a, 'Ξ'),
            (0x1c, 'Æ'),
            (0x1f, 'É'),
            (0x20, ' '),
            (0x24, '¤'),
            (0x3f, '?'),
            (0x40, '¡'),
            (0x41, 'A'),
            (0x5b, 'Ä'),
            (0x5f, '§'),
            (0x60, '¿'),
            (0x61, 'a'),
            (0x7b, 'ä'),
            (0x7f, 'à'),
        ] {
            assert_eq!(octets(&c.to_string()), Some(vec![code]), "{c:?}");
        }
        assert_eq!(octets("1€["), Some(vec![0x31, 0x1b, 0x65, 0x1b, 0x3c]));
        assert_eq!(octets("1 ế"), None);
    }

    #[test]
    fn a_text_takes_as_many_octets_as_its_septets_are_counted() {
        for c in BASIC.chars().chain(EXTENSION.iter().map(|(c, _)| *c)) {
            assert_eq!(octets(&c.to_string()).map(|o| o.len()), septets(c), "{c:?}");
        }
    }
}
