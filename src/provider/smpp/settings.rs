//! What the operator says about an SMSC.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::receipt::IdForm;
use crate::domain::address::PhoneNumber;

/// How the remaining time is told to the SMSC, as `validity_period` (SMPP 3.4 section 7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Validity {
    /// So much from the submission on (7.1.1.2): no clock of theirs has to agree with ours.
    #[default]
    Relative,
    /// Up to a moment, in UTC (7.1.1.1), for an SMSC that refuses the other form.
    Absolute,
    /// Not at all: the SMSC's own default holds, and a code may come after it has expired.
    None,
}

impl Validity {
    /// The name that stands in the configuration.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Relative => "relative",
            Self::Absolute => "absolute",
            Self::None => "none",
        }
    }
}

/// The sender that a message shows, with its type of number and numbering plan (SMPP 3.4 sections 5.2.5 and 5.2.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// At most 20 octets.
    pub address: String,
    /// 0 unknown, 1 international, 2 national, 3 network specific, 4 subscriber, 5 alphanumeric, 6 abbreviated.
    pub ton: u8,
    /// 0 unknown, 1 E.164, and so on.
    pub npi: u8,
}

impl Source {
    /// Takes a name or a number as people write it. `+` and digits are an international number, other digits a short
    /// number of whatever type the SMSC takes it for, anything else a name. `ton` and `npi` stand above that.
    pub fn new(text: &str, ton: Option<u8>, npi: Option<u8>) -> Self {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (address, usual) = match text.strip_prefix('+') {
            Some(number) if digits(number) => (number, (1, 1)),
            _ if digits(text) => (text, (0, 0)),
            _ => (text, (5, 0)),
        };
        Self { address: address.to_owned(), ton: ton.unwrap_or(usual.0), npi: npi.unwrap_or(usual.1) }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the name to the bound session: DNS, TCP, TLS, bind. A message waits no longer for the session, or for a place
    /// in its window. Default 5 s; less than the time in which an attempt must begin after its claim.
    pub connect: Duration,
    /// The answer to `enquire_link` and to `unbind`. Default 10 s.
    pub command: Duration,
    /// The answer to `submit_sm`; a shorter wait makes more unknowns. Default 60 s.
    pub response: Duration,
    /// Silence of the SMSC after which it is asked by `enquire_link`. Default 30 s.
    pub enquire: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            command: Duration::from_secs(10),
            response: Duration::from_secs(60),
            enquire: Duration::from_secs(30),
        }
    }
}

/// One account at one SMSC and how we use it.
#[derive(Clone)]
pub struct SmppSettings {
    /// Host name, which is also the name that the certificate must bear; or an IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS from the first octet; SMPP 3.4 itself knows none.
    pub tls: bool,
    /// PEM file with roots to trust besides the system's.
    pub extra_roots: Option<PathBuf>,
    /// At most 15 octets (5.2.1).
    pub system_id: String,
    /// At most 8 octets (5.2.2).
    pub password: SecretString,
    /// At most 12 octets (5.2.3); most SMSCs want none.
    pub system_type: String,
    /// At most 5 octets (5.2.11); most SMSCs want none.
    pub service_type: String,
    /// The sender.
    pub source: Source,
    /// How many submissions may be unanswered at once: not more than the SMSC allows. Default 10.
    pub window: u16,
    /// How the remaining time is told.
    pub validity: Validity,
    /// How the ids in answers and receipts are written.
    pub message_id: IdForm,
    /// The limits.
    pub timeouts: Timeouts,
}

impl SmppSettings {
    /// Settings with TLS on port 3550, a window of 10 and the usual limits.
    pub fn new(host: impl Into<String>, system_id: impl Into<String>, password: SecretString, source: Source) -> Self {
        Self {
            host: host.into(),
            port: 3550,
            tls: true,
            extra_roots: None,
            system_id: system_id.into(),
            password,
            system_type: String::new(),
            service_type: String::new(),
            source,
            window: 10,
            validity: Validity::default(),
            message_id: IdForm::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl fmt::Debug for SmppSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmppSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .field("system_id", &self.system_id)
            .field("source", &self.source)
            .field("window", &self.window)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

/// A phone number as SMPP writes an international one: digits alone (TON 1, NPI 1).
pub(super) fn digits(number: &PhoneNumber) -> &str {
    number.e164().trim_start_matches('+')
}

/// Why settings cannot be used, by the names that they have in the configuration. It never holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmppError {
    /// The host is neither a DNS name nor an IP address.
    #[error("host is neither a host name nor an IP address")]
    Host,
    /// Port 0.
    #[error("port must be 1 to 65535")]
    Port,
    /// Empty, too long or not ASCII.
    #[error("system_id must be 1 to 15 visible ASCII characters (SMPP 3.4 section 5.2.1)")]
    SystemId,
    /// Empty, too long or not ASCII.
    #[error("password must be 1 to 8 visible ASCII characters (SMPP 3.4 section 5.2.2)")]
    Password,
    /// Too long or not ASCII.
    #[error("system_type must be at most 12 visible ASCII characters (SMPP 3.4 section 5.2.3)")]
    SystemType,
    /// Too long or not ASCII.
    #[error("service_type must be at most 5 visible ASCII characters (SMPP 3.4 section 5.2.11)")]
    ServiceType,
    /// Empty, too long or not ASCII.
    #[error("source must be 1 to 20 ASCII characters (SMPP 3.4 section 5.2.8)")]
    Source,
    /// No submission could ever be made.
    #[error("window must be at least 1")]
    Window,
    /// A limit of zero would refuse every message.
    #[error("every time-out must be longer than zero")]
    Timeout,
    /// No root certificate could be read, from the system or from the file.
    #[error("no usable root certificate in the system's store or in ca_file")]
    Roots,
}
