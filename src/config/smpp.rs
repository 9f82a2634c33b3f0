//! `kind = "smpp"`: an account at an SMSC, by SMPP 3.4.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use super::Context;
use super::provider::{MILLISECOND, MINUTE, SECOND};
use crate::document::Table;

/// How the remaining time is told to the SMSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmppValidity {
    /// From the submission on.
    Relative,
    /// Up to a moment.
    Absolute,
    /// Not at all.
    None,
}

/// How an SMSC writes the ids of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmppIds {
    /// The same in answers and in receipts.
    Same,
    /// Hexadecimal in answers, decimal in receipts.
    HexInResponse,
    /// Decimal in answers, hexadecimal in receipts.
    HexInReceipt,
}

/// An account at an SMSC.
#[derive(Clone, Debug)]
pub struct Smpp {
    /// Name or address of the SMSC. Required.
    pub host: String,
    /// 1 to 65535. Default 3550 with TLS, 2775 without.
    pub port: u16,
    /// `tls = "implicit"` (default) or `"none"`: SMPP itself has no encryption.
    pub tls: bool,
    /// PEM file of the authority that signed the SMSC's certificate. Default none: the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// 1 to 15 characters. Required.
    pub system_id: String,
    /// As `password_file`, `password_env` or `password_credential`; 1 to 8 characters. Required.
    pub password: SecretString,
    /// At most 12 characters. Default empty.
    pub system_type: String,
    /// At most 5 characters. Default empty.
    pub service_type: String,
    /// The sender: a number with `+`, a short number or a name. Required.
    pub source: String,
    /// Type of number, 0 to 6. Default none: what `source` looks like.
    pub source_ton: Option<u8>,
    /// Numbering plan, 0 to 18. Default none: what `source` looks like.
    pub source_npi: Option<u8>,
    /// Unanswered submissions at once, 1 to 1000. Default 10.
    pub window: u16,
    /// `relative`, `absolute` or `none`. Default `relative`.
    pub validity: SmppValidity,
    /// `same`, `hex_in_response` or `hex_in_receipt`. Default `same`.
    pub message_id: SmppIds,
    /// DNS, TCP, TLS and bind together, 100 ms to 1 min. Default 5 s.
    pub connect_timeout: Duration,
    /// The answer to `enquire_link` and `unbind`, 100 ms to 5 min. Default 10 s.
    pub command_timeout: Duration,
    /// The answer to a submission, 1 s to 10 min; a shorter wait makes more unknowns. Default 1 min.
    pub response_timeout: Duration,
    /// Silence after which the SMSC is asked whether it is there, 1 s to 10 min. Default 30 s.
    pub enquire_link: Duration,
}

impl Smpp {
    pub(super) fn read(t: &mut Table, context: &Context<'_>) -> Self {
        let tls = t.one_of("tls", &[("implicit", true), ("none", false)]).unwrap_or(true);
        let validity =
            [("relative", SmppValidity::Relative), ("absolute", SmppValidity::Absolute), ("none", SmppValidity::None)];
        let ids = [
            ("same", SmppIds::Same),
            ("hex_in_response", SmppIds::HexInResponse),
            ("hex_in_receipt", SmppIds::HexInReceipt),
        ];
        let smpp = Self {
            host: t.need_str("host"),
            port: t.int("port", 1..=65535).unwrap_or(if tls { 3550 } else { 2775 }),
            tls,
            ca_file: context.path(t, "ca_file"),
            system_id: t.need_str("system_id"),
            password: context.need_secret(t, "password"),
            system_type: t.str("system_type").unwrap_or_default(),
            service_type: t.str("service_type").unwrap_or_default(),
            source: t.need_str("source"),
            source_ton: t.int("source_ton", 0..=6),
            source_npi: t.int("source_npi", 0..=18),
            window: t.int("window", 1..=1000).unwrap_or(10),
            validity: t.one_of("validity", &validity).unwrap_or(SmppValidity::Relative),
            message_id: t.one_of("message_id", &ids).unwrap_or(SmppIds::Same),
            connect_timeout: t.duration("connect_timeout", 100 * MILLISECOND..=MINUTE).unwrap_or(5 * SECOND),
            command_timeout: t.duration("command_timeout", 100 * MILLISECOND..=5 * MINUTE).unwrap_or(10 * SECOND),
            response_timeout: t.duration("response_timeout", SECOND..=10 * MINUTE).unwrap_or(MINUTE),
            enquire_link: t.duration("enquire_link", SECOND..=10 * MINUTE).unwrap_or(30 * SECOND),
        };
        if smpp.ca_file.as_ref().is_some_and(|f| !f.is_file()) {
            t.wrong("ca_file", "is not a file that can be read");
        }
        smpp
    }
}
