use std::borrow::Cow;
use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroize;

use super::BadAddress;

/// A mailbox, per RFC 5321 section 4.1.2 and RFC 6531 section 3.3. Secret: `Debug` shows the mask, and it is wiped when
/// dropped.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct MailAddress {
    shown: String,
    at: usize,
    domain: String,
}

impl MailAddress {
    /// The longest that an address may be, in octets: a path of 256 (RFC 5321 section 4.5.3.1.3) without its brackets.
    pub const MAX: usize = 254;
    /// The longest that a local part may be, in octets (RFC 5321 section 4.5.3.1.1).
    pub const MAX_LOCAL: usize = 64;
    /// The longest that a domain may be, in octets (RFC 5321 section 4.5.3.1.2).
    pub const MAX_DOMAIN: usize = 255;

    /// Checks `text`, a bare mailbox: no display name, comment or address literal. The domain is mapped and validated per
    /// UTS 46 with `UseSTD3ASCIIRules` and `VerifyDnsLength`, so it may be internationalised.
    ///
    /// # Errors
    /// [`BadAddress::MailForm`], [`BadAddress::LocalPart`], [`BadAddress::Domain`] or [`BadAddress::MailLength`].
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let (local, given) = text.rsplit_once('@').ok_or(BadAddress::MailForm)?;
        if local.len() > Self::MAX_LOCAL || given.len() > Self::MAX_DOMAIN || text.len() > Self::MAX {
            return Err(BadAddress::MailLength);
        }
        if !(is_dot_string(local) || is_quoted_string(local)) {
            return Err(BadAddress::LocalPart);
        }
        let uts46 = Uts46::new();
        let to_ascii = |domain: &str| {
            let ascii =
                uts46.to_ascii(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
            ascii.map(Cow::into_owned).map_err(|_| BadAddress::Domain)
        };
        let domain = to_ascii(given)?;
        // A numeric last label is an IP address, never a name (RFC 3696 section 2).
        if domain.rsplit('.').next().is_none_or(|last| last.bytes().all(|b| b.is_ascii_digit())) {
            return Err(BadAddress::Domain);
        }
        let (unicode, valid) = uts46.to_unicode(domain.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast);
        valid.map_err(|_| BadAddress::Domain)?;
        // A label that decodes to another A-label has no form that reads back, and the store keeps the decoded one.
        if to_ascii(&unicode)? != domain {
            return Err(BadAddress::Domain);
        }
        let shown = format!("{local}@{unicode}");
        let address = Self { shown, at: local.len(), domain };
        let too_long = address.shown.len() > Self::MAX || address.at + 1 + address.domain.len() > Self::MAX;
        if too_long { Err(BadAddress::MailLength) } else { Ok(address) }
    }

    /// The address as people know it: the local part as it was given, the domain in lower-case Unicode.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// What stands before the `@`, as it was given; with its quotes if it is a quoted string.
    pub fn local(&self) -> &str {
        &self.shown[..self.at]
    }

    /// The domain in A-labels and lower case, as DNS knows it (RFC 5890 section 2.3.2.1).
    pub fn domain_ascii(&self) -> &str {
        &self.domain
    }

    /// Only a server with SMTPUTF8 (RFC 6531) can take it, because the local part has no ASCII form.
    pub fn needs_smtputf8(&self) -> bool {
        !self.local().is_ascii()
    }

    /// The address for `RCPT TO` and for headers: the domain in A-labels, so that it is ASCII unless
    /// [`Self::needs_smtputf8`]. Secret.
    pub fn envelope(&self) -> String {
        format!("{}@{}", self.local(), self.domain)
    }

    /// One spelling for all that must reach the same mailbox. The case of the local part counts (RFC 5321 section 2.4).
    /// Secret.
    pub fn canonical(&self) -> String {
        self.envelope()
    }

    /// The first letter and the domain, such as `u•••@example.org`. A local part of one character stays hidden.
    pub fn mask(&self) -> String {
        let first = self.local().chars().next().filter(|c| c.is_alphanumeric() && self.local().len() > c.len_utf8());
        match first {
            Some(c) => format!("{c}•••@{}", self.domain),
            None => format!("•••@{}", self.domain),
        }
    }
}

/// RFC 5321 `Dot-string`, with the UTF-8 of RFC 6531.
fn is_dot_string(local: &str) -> bool {
    local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atext))
}

fn is_atext(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || is_visible_non_ascii(c)
}

/// RFC 5321 `Quoted-string`, with the UTF-8 of RFC 6531.
fn is_quoted_string(local: &str) -> bool {
    let Some(inner) = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let fits = match c {
            '\\' => chars.next().is_some_and(|next| matches!(next, ' '..='~')),
            '"' => false,
            _ => matches!(c, ' '..='~') || is_visible_non_ascii(c),
        };
        if !fits {
            return false;
        }
    }
    true
}

/// RFC 6531 allows any UTF-8. Controls, blanks, and the marks that turn the direction of writing (Unicode `Bidi_Control`)
/// only ever hide what an address says.
fn is_visible_non_ascii(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hidden = matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{fff9}'..='\u{fffd}');
    !c.is_ascii() && !c.is_control() && !c.is_whitespace() && !turns && !hidden
}

impl TryFrom<String> for MailAddress {
    type Error = BadAddress;

    fn try_from(mut text: String) -> Result<Self, BadAddress> {
        let parsed = Self::parse(&text);
        text.zeroize();
        parsed
    }
}

impl Serialize for MailAddress {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.shown)
    }
}

impl fmt::Debug for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mask())
    }
}

impl Drop for MailAddress {
    fn drop(&mut self) {
        self.shown.zeroize();
        self.domain.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mailbox_is_taken_and_told_in_both_its_forms() {
        for (text, shown, envelope, utf8) in [
            ("user@example.org", "user@example.org", "user@example.org", false),
            ("User.Name+tag@Example.ORG", "User.Name+tag@example.org", "User.Name+tag@example.org", false),
            ("o'brien@example.org", "o'brien@example.org", "o'brien@example.org", false),
            ("\"john doe\"@example.org", "\"john doe\"@example.org", "\"john doe\"@example.org", false),
            ("\"a@b\\\"c\"@example.org", "\"a@b\\\"c\"@example.org", "\"a@b\\\"c\"@example.org", false),
            ("u@bücher.example", "u@bücher.example", "u@xn--bcher-kva.example", false),
            ("u@xn--bcher-kva.example", "u@bücher.example", "u@xn--bcher-kva.example", false),
            ("nguyễn@ví-dụ.vn", "nguyễn@ví-dụ.vn", "nguyễn@xn--v-d-rma6749a.vn", true),
            ("root@localhost", "root@localhost", "root@localhost", false),
        ] {
            let mail = MailAddress::parse(text).expect(text);
            assert_eq!(mail.as_str(), shown);
            assert_eq!(mail.envelope(), envelope);
            assert_eq!(Some((mail.local(), mail.domain_ascii())), envelope.rsplit_once('@'));
            assert_eq!(mail.needs_smtputf8(), utf8, "{text}");
        }
    }

    #[test]
    fn what_is_no_bare_mailbox_is_refused() {
        for (text, why) in [
            ("", BadAddress::MailForm),
            ("user", BadAddress::MailForm),
            ("@example.org", BadAddress::LocalPart),
            ("user@", BadAddress::Domain),
            ("a b@example.org", BadAddress::LocalPart),
            (".a@example.org", BadAddress::LocalPart),
            ("a..b@example.org", BadAddress::LocalPart),
            ("a.@example.org", BadAddress::LocalPart),
            ("a@b@example.org", BadAddress::LocalPart),
            ("User <user@example.org>", BadAddress::LocalPart),
            ("user(comment)@example.org", BadAddress::LocalPart),
            ("user@example.org(comment)", BadAddress::Domain),
            ("user@example.org,other@example.org", BadAddress::LocalPart),
            ("user\r\nBcc: x@example.org", BadAddress::LocalPart),
            ("user@example.org\r\n", BadAddress::Domain),
            ("user@example.org\0", BadAddress::Domain),
            ("\"a\r\n\"@example.org", BadAddress::LocalPart),
            ("\"a\"b\"@example.org", BadAddress::LocalPart),
            ("\"a\\\"@example.org", BadAddress::LocalPart),
            ("\"@example.org", BadAddress::LocalPart),
            ("u\u{202e}ser@example.org", BadAddress::LocalPart),
            ("u\u{85}ser@example.org", BadAddress::LocalPart),
            ("user@[127.0.0.1]", BadAddress::Domain),
            ("user@[IPv6:::1]", BadAddress::Domain),
            ("user@127.0.0.1", BadAddress::Domain),
            ("user@-example.org", BadAddress::Domain),
            ("user@exa_mple.org", BadAddress::Domain),
            ("user@example..org", BadAddress::Domain),
            ("user@example.org.", BadAddress::Domain),
            ("user@xn--zzzzzz99999.org", BadAddress::Domain),
            ("user@xn--xn--bcher-kva.example", BadAddress::Domain),
        ] {
            assert_eq!(MailAddress::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn lengths_are_counted_in_octets_up_to_the_limit() {
        let long = |local: usize, label: usize, n: usize| {
            format!("{}@{}org", "x".repeat(local), format!("{}.", "y".repeat(label)).repeat(n))
        };
        assert!(MailAddress::parse(&long(64, 61, 3)).is_ok());
        assert_eq!(long(64, 61, 3).len(), 254);
        assert_eq!(MailAddress::parse(&long(65, 1, 1)), Err(BadAddress::MailLength));
        assert_eq!(MailAddress::parse(&long(64, 62, 3)), Err(BadAddress::MailLength));
        assert_eq!(MailAddress::parse(&long(1, 64, 1)), Err(BadAddress::Domain));
        assert_eq!(MailAddress::parse(&format!("{}@example.org", "ễ".repeat(22))), Err(BadAddress::MailLength));
        // Three octets of `ü.` are eight of `xn--tda.`.
        let unicode = |last: usize| format!("{}@{}{}", "x".repeat(64), "ü.".repeat(23), "y".repeat(last));
        assert_eq!(MailAddress::parse(&unicode(5)).map(|mail| mail.envelope().len()), Ok(254));
        assert_eq!(MailAddress::parse(&unicode(6)), Err(BadAddress::MailLength));
        assert_eq!(unicode(6).len(), 140);
    }

    #[test]
    fn a_mask_hides_the_local_part() {
        for (text, mask) in [
            ("user@example.org", "u•••@example.org"),
            ("u@example.org", "•••@example.org"),
            ("\"john doe\"@example.org", "•••@example.org"),
            ("ễm@bücher.example", "ễ•••@xn--bcher-kva.example"),
        ] {
            assert_eq!(MailAddress::parse(text).expect(text).mask(), mask);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,80}@?.{0,80}") {
            let _ = MailAddress::parse(&text);
        }

        #[test]
        fn what_is_taken_reads_back_the_same(local in "(\\PC{1,20}|\"\\PC{0,20}\")", domain in "(\\PC{1,12}\\.)?\\PC{1,12}") {
            if let Ok(mail) = MailAddress::parse(&format!("{local}@{domain}")) {
                prop_assert_eq!(MailAddress::parse(mail.as_str()), Ok(mail.clone()));
                prop_assert_eq!(MailAddress::parse(&mail.envelope()), Ok(mail.clone()));
                prop_assert_eq!(mail.local(), &local);
                prop_assert!(mail.domain_ascii().is_ascii());
                prop_assert!(!mail.as_str().contains(char::is_control));
            }
        }
    }
}
