//! Addresses: phone numbers in E.164, mail addresses per RFC 5321 and RFC 6531.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::content::Channel;

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
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address")
    }
}

/// placeholder
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhoneNumber(String);
/// placeholder
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailAddress(String);
