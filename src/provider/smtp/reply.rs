//! Replies of an SMTP server (RFC 5321 section 4.2) and their enhanced status codes (RFC 3463).

use std::fmt;

/// One complete reply. Its text may hold addresses, so it has no way out but [`Reply::keywords`] and [`Reply::queue_id`].
pub struct Reply {
    code: u16,
    lines: Vec<String>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({})", self.code)
    }
}

/// What one line says about the reply that it belongs to.
pub(super) enum Line {
    /// The reply goes on.
    More,
    /// That was the last line.
    Last(Reply),
    /// Not a line of a reply.
    Garbled,
}

impl Reply {
    /// Takes one more line (without its end) of a reply whose earlier lines are in `so_far`.
    pub(super) fn take_line(so_far: &mut Vec<String>, code: &mut Option<u16>, line: &[u8]) -> Line {
        let Some((digits, rest)) = line.split_first_chunk::<3>() else { return Line::Garbled };
        if !(b'2'..=b'5').contains(&digits[0]) || !digits.iter().all(u8::is_ascii_digit) {
            return Line::Garbled;
        }
        let this = digits.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'));
        if *code.get_or_insert(this) != this {
            return Line::Garbled;
        }
        let (last, text) = match rest {
            [] => (true, rest),
            [b' ', text @ ..] => (true, text),
            [b'-', text @ ..] => (false, text),
            _ => return Line::Garbled,
        };
        so_far.push(String::from_utf8_lossy(text).into_owned());
        if last { Line::Last(Self { code: this, lines: std::mem::take(so_far) }) } else { Line::More }
    }

    /// The reply code, 200 to 599.
    pub const fn code(&self) -> u16 {
        self.code
    }

    /// Subject and detail of the enhanced status code, when there is one that fits the reply code's class.
    pub fn enhanced(&self) -> Option<(u16, u16)> {
        let word = self.lines.first()?.split_whitespace().next()?;
        let mut parts = word.split('.').map(|p| p.parse::<u16>().ok());
        let (class, subject, detail) = (parts.next()??, parts.next()??, parts.next()??);
        (parts.next().is_none() && class == self.code / 100).then_some((subject, detail))
    }

    /// The keyword lines of an EHLO reply: all after the first (RFC 5321 section 4.1.1.1), in upper case.
    pub(super) fn keywords(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.iter().skip(1).map(|l| l.to_ascii_uppercase())
    }

    /// The word after `queued as`, which is how Postfix and those that follow its habit name the message.
    pub fn queue_id(&self) -> Option<&str> {
        let text = self.lines.last()?;
        let (_, rest) = text.split_once("queued as ")?;
        rest.split_whitespace().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Reply> {
        let (mut lines, mut code) = (vec![], None);
        for line in text.split("\r\n") {
            match Reply::take_line(&mut lines, &mut code, line.as_bytes()) {
                Line::More => {}
                Line::Last(reply) => return Some(reply),
                Line::Garbled => return None,
            }
        }
        None
    }

    #[test]
    fn a_reply_ends_at_the_first_line_without_a_hyphen() {
        let reply = read("250-mx.example.org\r\n250-starttls\r\n250 AUTH PLAIN LOGIN").expect("a reply");
        assert_eq!(reply.code(), 250);
        assert_eq!(reply.keywords().collect::<Vec<_>>(), ["STARTTLS", "AUTH PLAIN LOGIN"]);
        assert_eq!(read("354").map(|r| r.code()), Some(354));
    }

    #[test]
    fn what_is_no_reply_is_never_read_as_one() {
        for text in
            ["", "2", "25", "250x", "650 ok", "150 wait", "2x0 ok", "HTTP/1.1 200 OK", "250-a\r\n550 b", "250-a"]
        {
            assert!(read(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn an_enhanced_code_counts_only_when_it_agrees_with_the_reply() {
        assert_eq!(read("550 5.7.1 no").and_then(|r| r.enhanced()), Some((7, 1)));
        assert_eq!(read("550 2.7.1 no").and_then(|r| r.enhanced()), None);
        assert_eq!(read("550 5.7 no").and_then(|r| r.enhanced()), None);
        assert_eq!(read("550 no such user").and_then(|r| r.enhanced()), None);
    }

    #[test]
    fn the_queue_id_is_found_and_the_text_is_not_printed() {
        let reply = read("250 2.0.0 Ok: queued as 4F1A2B3C").expect("a reply");
        assert_eq!(reply.queue_id(), Some("4F1A2B3C"));
        assert_eq!(format!("{reply:?}"), "Reply(250)");
    }
}
