//! PDUs (SMPP 3.4 sections 3 to 5).
//!
//! What we write is built by `rusmpp`. What we read is read here: `rusmpp` (0.4) refuses a whole PDU for a slip in a field
//! that does not matter to us, such as a `receipted_message_id` without its final NUL, and a receipt would be lost by it.

use std::str::FromStr as _;

use bytes::{Buf as _, BytesMut};
use rusmpp::encode::{Encode as _, Length as _};
use rusmpp::pdus::{BindTransceiver, SubmitSm};
use rusmpp::tlvs::MessageSubmissionRequestTlvValue;
use rusmpp::types::{AnyOctetString, COctetString, EmptyOrFullCOctetString, OctetString};
use rusmpp::values::{
    DataCoding, EsmClass, InterfaceVersion, MessagePayload, Npi, RegisteredDelivery, ServiceType, Ton,
};
use rusmpp::{Command, CommandStatus, Pdu};
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::settings::{SmppError, SmppSettings};
use super::text::Text;

/// `command_id` (section 5.1.2.1). A response has the highest bit set.
pub mod command {
    #![expect(missing_docs, reason = "they are the names of the standard")]
    pub const RESPONSE: u32 = 0x8000_0000;
    pub const GENERIC_NACK: u32 = 0x8000_0000;
    pub const SUBMIT_SM: u32 = 0x0000_0004;
    pub const DELIVER_SM: u32 = 0x0000_0005;
    pub const UNBIND: u32 = 0x0000_0006;
    pub const BIND_TRANSCEIVER: u32 = 0x0000_0009;
    pub const ENQUIRE_LINK: u32 = 0x0000_0015;
}

/// The header of every PDU (section 3.2): length, command, status, sequence number.
const HEADER: usize = 16;

/// The longest PDU that is read, in octets: a `message_payload` holds at most 64 KiB (section 5.3.2.32).
pub const MAX_PDU: usize = 66 * 1024;

/// The `command_length` cannot be that of a PDU: from here on nobody knows where one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// One PDU as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// `command_id`.
    pub command: u32,
    /// `command_status`.
    pub status: u32,
    /// `sequence_number`.
    pub sequence: u32,
    /// What follows the header.
    pub body: BytesMut,
}

impl Frame {
    /// Takes the first PDU from what has arrived; `None` when it is not there as a whole yet.
    ///
    /// # Errors
    /// [`BadLength`].
    pub fn take(arrived: &mut BytesMut) -> Result<Option<Self>, BadLength> {
        let Some(length) = arrived.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadLength)?;
        if !(HEADER..=MAX_PDU).contains(&length) {
            return Err(BadLength);
        }
        if arrived.len() < length {
            return Ok(None);
        }
        let mut body = arrived.split_to(length);
        body.advance(4);
        let (command, status, sequence) = (body.get_u32(), body.get_u32(), body.get_u32());
        Ok(Some(Self { command, status, sequence, body }))
    }

    /// The `message_id` of a `submit_sm_resp`.
    pub(super) fn message_id(&self) -> String {
        until_nul(&self.body)
    }
}

/// The text up to the first NUL, or all of it.
pub(super) fn until_nul(octets: &[u8]) -> String {
    let end = octets.iter().position(|b| *b == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).into_owned()
}

/// A PDU without a body, or the answer to `deliver_sm`, whose `message_id` is unused and empty (section 4.6.2).
pub(super) fn short(command: u32, status: u32, sequence: u32) -> Vec<u8> {
    let body: &[u8] = if command == command::DELIVER_SM | command::RESPONSE { &[0] } else { &[] };
    let length: u32 = if body.is_empty() { 16 } else { 17 };
    let mut pdu = vec![];
    for word in [length, command, status, sequence] {
        pdu.extend(word.to_be_bytes());
    }
    pdu.extend(body);
    pdu
}

fn encoded(pdu: impl Into<Pdu>) -> Zeroizing<Vec<u8>> {
    let command = Command::new(CommandStatus::EsmeRok, 0, pdu);
    let length = command.length() + 4;
    let mut octets = Zeroizing::new(vec![0; length]);
    octets[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    command.encode(&mut octets[4..]);
    octets
}

/// Gives a PDU its sequence number.
pub(super) fn number(pdu: &mut [u8], sequence: u32) {
    if let Some(place) = pdu.get_mut(12..HEADER) {
        place.copy_from_slice(&sequence.to_be_bytes());
    }
}

/// The PDUs of one account, checked once.
pub(super) struct Requests {
    bind: Zeroizing<Vec<u8>>,
    submit: SubmitSm,
}

fn c_octets<const MAX: usize>(text: &str, wrong: SmppError) -> Result<COctetString<1, MAX>, SmppError> {
    let visible = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    COctetString::from_str(text).ok().filter(|_| visible).ok_or(wrong)
}

fn filled<const MAX: usize>(text: &str, wrong: SmppError) -> Result<COctetString<1, MAX>, SmppError> {
    if text.is_empty() { Err(wrong) } else { c_octets(text, wrong) }
}

impl Requests {
    /// # Errors
    /// [`SmppError`] names the setting that does not fit its field.
    pub(super) fn build(settings: &SmppSettings) -> Result<Self, SmppError> {
        let bind = BindTransceiver {
            system_id: filled(&settings.system_id, SmppError::SystemId)?,
            password: filled(settings.password.expose_secret(), SmppError::Password)?,
            system_type: c_octets(&settings.system_type, SmppError::SystemType)?,
            interface_version: InterfaceVersion::Smpp3_4,
            ..BindTransceiver::default()
        };
        let submit = SubmitSm::builder()
            .service_type(ServiceType::new(c_octets(&settings.service_type, SmppError::ServiceType)?))
            .source_addr_ton(Ton::from(settings.source.ton))
            .source_addr_npi(Npi::from(settings.source.npi))
            .source_addr(filled(&settings.source.address, SmppError::Source)?)
            .dest_addr_ton(Ton::International)
            .dest_addr_npi(Npi::Isdn)
            // The crate's default would be that of an acknowledgement between handsets.
            .esm_class(EsmClass::from(0))
            // Section 5.2.17: a receipt for the final outcome, good or bad.
            .registered_delivery(RegisteredDelivery::from(1))
            .build();
        Ok(Self { bind: encoded(bind), submit })
    }

    /// `bind_transceiver` (section 4.1.5).
    pub(super) fn bind(&self, sequence: u32) -> Zeroizing<Vec<u8>> {
        let mut pdu = self.bind.clone();
        number(&mut pdu, sequence);
        pdu
    }

    /// `submit_sm` (section 4.4.1), still without a sequence number. `None` when a value does not fit its field.
    pub(super) fn submit(&self, digits: &str, text: &Text, validity: &str) -> Option<Zeroizing<Vec<u8>>> {
        let mut submit = self.submit.clone();
        submit.destination_addr = COctetString::from_str(digits).ok()?;
        submit.validity_period = EmptyOrFullCOctetString::from_str(validity).ok()?;
        submit.data_coding = if text.ucs2 { DataCoding::Ucs2 } else { DataCoding::McSpecific };
        if text.fits_one() {
            submit.set_short_message(OctetString::from_slice(&text.octets).ok()?);
        } else {
            let payload = MessagePayload::new(AnyOctetString::from_slice(&text.octets));
            submit.push_tlv(MessageSubmissionRequestTlvValue::MessagePayload(payload));
        }
        Some(encoded(submit))
    }
}

/// Reads a body field by field.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) const fn of(body: &'a [u8]) -> Self {
        Self(body)
    }

    pub(super) fn octets(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn octet(&mut self) -> Option<u8> {
        self.octets(1)?.first().copied()
    }

    fn word(&mut self) -> Option<u16> {
        self.octets(2)?.first_chunk().map(|word| u16::from_be_bytes(*word))
    }

    /// Passes over a C-octet string, however long it is.
    pub(super) fn skip_text(&mut self) -> Option<()> {
        let end = self.0.iter().position(|b| *b == 0)?;
        self.octets(end + 1).map(drop)
    }

    /// The next optional parameter (section 3.2.4.1): its tag and its value. One that is cut short is none.
    pub(super) fn parameter(&mut self) -> Option<(u16, &'a [u8])> {
        let (tag, length) = (self.word()?, self.word()?);
        Some((tag, self.octets(usize::from(length))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdu_is_taken_when_it_is_whole_and_not_before() {
        let pdu = short(command::DELIVER_SM | command::RESPONSE, 0x64, 7);
        for cut in 0..pdu.len() {
            assert_eq!(Frame::take(&mut BytesMut::from(&pdu[..cut])), Ok(None), "{cut}");
        }
        let mut arrived = BytesMut::from(&[pdu.clone(), pdu[..5].to_vec()].concat()[..]);
        let frame = Frame::take(&mut arrived).expect("a length").expect("a PDU");
        assert_eq!((frame.command, frame.status, frame.sequence), (0x8000_0005, 0x64, 7));
        assert_eq!((&frame.body[..], &arrived[..]), (&[0][..], &pdu[..5]));
    }

    #[test]
    fn a_length_that_no_pdu_has_is_refused_before_anything_is_kept_for_it() {
        for length in [0, 4, 15, u32::try_from(MAX_PDU + 1).expect("a length"), u32::MAX] {
            let mut arrived = BytesMut::from(&length.to_be_bytes()[..]);
            assert_eq!(Frame::take(&mut arrived), Err(BadLength), "{length}");
        }
    }
}
