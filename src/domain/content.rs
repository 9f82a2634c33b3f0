//! What a message says, rendered once at admission so that every attempt is the same to the byte.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

/// The channel of an address or a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Text message to a phone.
    Sms,
    /// E-mail.
    Email,
}

impl Channel {
    /// The stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Sms => "sms",
            Self::Email => "email",
        }
    }
}

/// The rendered message for each channel that the notification has an address for. Secret: it holds the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The text of the SMS.
    pub sms: Option<String>,
    /// The mail.
    pub mail: Option<Mail>,
}

/// A rendered mail. Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// One line, without control characters.
    pub subject: String,
    /// The plain-text part.
    pub text: String,
    /// The HTML part.
    pub html: String,
}

impl Drop for Mail {
    fn drop(&mut self) {
        self.subject.zeroize();
        self.text.zeroize();
        self.html.zeroize();
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.sms.zeroize();
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content(sealed)")
    }
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mail(sealed)")
    }
}
