//! Receipts: `deliver_sm` (SMPP 3.4 section 4.6) with the TLVs of sections 5.3.2.12 and 5.3.2.35, or the text of appendix B.

use super::pdu::{Fields, until_nul};
use crate::domain::receipt::ReceiptStatus;

/// How an SMSC writes the id of a message in its answer to `submit_sm` and, later, in the receipt. Appendix B leaves the
/// text's form to the vendor, and many write one number in two bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IdForm {
    /// The same text in both.
    #[default]
    Same,
    /// Hexadecimal in the answer, decimal in the receipt.
    HexInResponse,
    /// Decimal in the answer, hexadecimal in the receipt.
    HexInReceipt,
}

impl IdForm {
    /// The name that stands in the configuration.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::HexInResponse => "hex_in_response",
            Self::HexInReceipt => "hex_in_receipt",
        }
    }

    /// The id of an answer as it is kept: the number in decimal where the bases differ.
    pub fn of_response(self, raw: &str) -> String {
        match self {
            Self::Same => raw.trim().to_owned(),
            Self::HexInResponse => number(raw, 16),
            Self::HexInReceipt => number(raw, 10),
        }
    }

    /// The id of a receipt as it is kept.
    pub fn of_receipt(self, raw: &str) -> String {
        match self {
            Self::Same => raw.trim().to_owned(),
            Self::HexInResponse => number(raw, 10),
            Self::HexInReceipt => number(raw, 16),
        }
    }
}

/// The number in decimal and without zeros in front; what is none stays as it is.
fn number(raw: &str, base: u32) -> String {
    let raw = raw.trim();
    let digits = raw.chars().all(|c| c.is_digit(base));
    let number = digits.then(|| u128::from_str_radix(raw, base).ok()).flatten();
    number.map_or_else(|| raw.to_owned(), |number| number.to_string())
}

/// What a `deliver_sm` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// A word on the message with this id, as the SMSC writes it.
    Receipt {
        /// Not empty.
        id: String,
        /// What it says.
        status: ReceiptStatus,
    },
    /// No receipt, such as a message from a phone.
    Other,
    /// A receipt without an id or a state, or no `deliver_sm` at all.
    Unreadable,
}

/// Bits 5 to 2 of `esm_class` (section 5.2.12): the type of the message.
const TYPE: u8 = 0b0011_1100;
const RECEIPT: u8 = 0b0000_0100;
const INTERMEDIATE: u8 = 0b0010_0000;

const RECEIPTED_MESSAGE_ID: u16 = 0x001e;
const MESSAGE_STATE: u16 = 0x0427;
const MESSAGE_PAYLOAD: u16 = 0x0424;

/// Reads the body of a `deliver_sm`. The parameters stand above the text, whose form is the vendor's.
pub fn read(body: &[u8]) -> Reading {
    let Some((class, mut text, mut rest)) = mandatory(body) else { return Reading::Unreadable };
    let (mut id, mut state) = (None, None);
    while let Some((tag, value)) = rest.parameter() {
        match tag {
            RECEIPTED_MESSAGE_ID => id = Some(until_nul(value)).filter(|id| !id.trim().is_empty()),
            // One octet; some write a whole word.
            MESSAGE_STATE => state = value.last().copied(),
            MESSAGE_PAYLOAD => text = value,
            _ => {}
        }
    }
    let kind = class & TYPE;
    if kind != RECEIPT && kind != INTERMEDIATE && id.is_none() {
        return Reading::Other;
    }
    let text = String::from_utf8_lossy(text);
    let Some(id) = id.or_else(|| field(&text, "id:")) else { return Reading::Unreadable };
    let status = match (state, field(&text, "stat:")) {
        // Whatever it says, the end is yet to come.
        _ if kind == INTERMEDIATE => ReceiptStatus::Progress,
        (Some(state), _) => by_state(state),
        (None, Some(word)) => by_word(&word),
        (None, None) => return Reading::Unreadable,
    };
    Reading::Receipt { id, status }
}

/// `esm_class`, `short_message`, and what follows the mandatory fields.
fn mandatory(body: &[u8]) -> Option<(u8, &[u8], Fields<'_>)> {
    let mut fields = Fields::of(body);
    fields.skip_text()?;
    for _address in 0..2 {
        fields.octets(2)?;
        fields.skip_text()?;
    }
    let class = fields.octet()?;
    fields.octets(2)?;
    fields.skip_text()?;
    fields.skip_text()?;
    fields.octets(4)?;
    let length = fields.octet()?;
    let text = fields.octets(length.into())?;
    Some((class, text, fields))
}

/// What follows `key` in the text of appendix B, before the message's own beginning is repeated.
fn field(text: &str, key: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace().take_while(|word| !starts_with(word, "text:"));
    let word = words.find(|word| starts_with(word, key))?;
    let value = word.get(key.len()..).filter(|value| !value.is_empty()).or_else(|| words.next())?;
    Some(value.to_owned())
}

fn starts_with(word: &str, key: &str) -> bool {
    word.get(..key.len()).is_some_and(|start| start.eq_ignore_ascii_case(key))
}

/// Section 5.2.28. `UNKNOWN` and `ACCEPTED` say no more than that the SMSC has, or had, the message.
const fn by_state(state: u8) -> ReceiptStatus {
    match state {
        2 => ReceiptStatus::Delivered,
        // EXPIRED, DELETED, UNDELIVERABLE, REJECTED.
        3 | 4 | 5 | 8 => ReceiptStatus::Undelivered,
        _ => ReceiptStatus::Progress,
    }
}

/// Appendix B, the same states.
fn by_word(word: &str) -> ReceiptStatus {
    match word.to_ascii_uppercase().as_str() {
        "DELIVRD" => ReceiptStatus::Delivered,
        "EXPIRED" | "DELETED" | "UNDELIV" | "REJECTD" => ReceiptStatus::Undelivered,
        _ => ReceiptStatus::Progress,
    }
}
