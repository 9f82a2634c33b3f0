//! Addresses: phone numbers in E.164, mail addresses per RFC 5321 and RFC 6531.

mod mailbox;
mod phone;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::content::Channel;

pub use mailbox::MailAddress;
pub use phone::PhoneNumber;

/// Why a text is not an address. It never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Not `+` and 7 to 15 digits (ITU-T E.164 section 6).
    #[error("is not a phone number in E.164 form: + and 7 to 15 digits")]
    PhoneForm,
    /// No country or service has its calling code.
    #[error("has a calling code that is not assigned")]
    CallingCode,
    /// No number under its calling code has that length.
    #[error("has a length that no phone number under its calling code has")]
    PhoneLength,
    /// It has no `@`.
    #[error("is not a mail address of the form local@domain")]
    MailForm,
    /// The local part is no dot-atom and no quoted string (RFC 5321 section 4.1.2, RFC 6531 section 3.3).
    #[error("has a local part that is neither a dot-atom nor a quoted string")]
    LocalPart,
    /// The domain is no host name that DNS could hold; address literals are not taken.
    #[error("has a domain that is not a valid host name")]
    Domain,
    /// Longer than RFC 5321 section 4.5.3.1 allows.
    #[error("is longer than 64 octets before the @, 255 after it, or 254 in all")]
    MailLength,
}

/// Where a message goes. Secret: it has no `Display`, and its `Debug` shows the mask.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// A phone.
    Sms(PhoneNumber),
    /// A mailbox.
    Email(MailAddress),
}

impl Address {
    /// The channel that reaches it.
    pub const fn channel(&self) -> Channel {
        match self {
            Self::Sms(_) => Channel::Sms,
            Self::Email(_) => Channel::Email,
        }
    }

    /// What people may see of it, such as `+84•••••567` or `u•••@example.org`.
    pub fn mask(&self) -> String {
        match self {
            Self::Sms(phone) => phone.mask(),
            Self::Email(mail) => mail.mask(),
        }
    }

    /// One spelling for all that reach the same person, as far as it can be told: what limits are counted by. Secret.
    pub fn canonical(&self) -> String {
        match self {
            Self::Sms(phone) => phone.canonical(),
            Self::Email(mail) => mail.canonical(),
        }
    }

    /// The country of a phone number (ISO 3166-1 alpha-2), where it can be told.
    pub fn country(&self) -> Option<[u8; 2]> {
        match self {
            Self::Sms(phone) => phone.country(),
            Self::Email(_) => None,
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mask())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sms(text: &str) -> Address {
        Address::Sms(PhoneNumber::parse(text).expect("a phone number"))
    }

    fn email(text: &str) -> Address {
        Address::Email(MailAddress::parse(text).expect("a mail address"))
    }

    #[test]
    fn an_address_survives_storage_and_a_broken_one_does_not() {
        for address in [sms("+84901234567"), email("user@example.org")] {
            let stored = serde_json::to_string(&address).expect("serialises");
            assert_eq!(serde_json::from_str::<Address>(&stored).expect("reads back"), address);
        }
        assert_eq!(serde_json::to_string(&sms("+84901234567")).expect("serialises"), r#"{"sms":"+84901234567"}"#);
        for broken in [r#"{"sms":"0901234567"}"#, r#"{"email":"a\r\nb@example.org"}"#, r#"{"fax":"+84901234567"}"#] {
            assert!(serde_json::from_str::<Address>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn debug_output_shows_the_mask_only() {
        assert_eq!(format!("{:?}", sms("+84901234567")), "+84•••••567");
        assert_eq!(format!("{:?}", email("user@example.org")), "u•••@example.org");
    }

    #[test]
    fn limits_count_spellings_of_one_address_together() {
        assert_eq!(sms("+4407911123456").canonical(), sms("+447911123456").canonical());
        assert_eq!(sms("+54006291512345").canonical(), sms("+546291512345").canonical());
        assert_eq!(email("u@BÜCHER.example").canonical(), email("u@xn--bcher-kva.example").canonical());
        assert_ne!(email("User@example.org").canonical(), email("user@example.org").canonical());
    }

    #[test]
    fn only_a_phone_tells_a_country() {
        assert_eq!(sms("+84901234567").country(), Some(*b"VN"));
        assert_eq!(email("user@example.vn").country(), None);
    }
}
