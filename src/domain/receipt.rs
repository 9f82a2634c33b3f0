//! A provider's later word on a message.

use super::ids::{ProviderMessageId, ProviderName, Reference};
use super::outcome::codes;

codes!(
    /// What a receipt says, mapped from the provider's own words by its manifest.
    ReceiptStatus {
        /// The provider has it and works on it: proof that it was taken, nothing more.
        Progress = "progress",
        /// It reached the recipient's phone or mail server.
        Delivered = "delivered",
        /// It did not and will not.
        Undelivered = "undelivered",
    }
);

/// Which part of a message in several parts a receipt speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Counted from 0.
    pub index: u8,
    /// How many there are; 1 to [`Part::MAX`].
    pub of: u8,
}

impl Part {
    /// The most parts that are told apart.
    pub const MAX: u8 = 32;
    /// The part of a message that is in one piece.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// A part, when `index < of <= MAX`.
    pub fn new(index: u64, of: u64) -> Option<Self> {
        (index < of && of <= u64::from(Self::MAX)).then_some(())?;
        Some(Self { index: u8::try_from(index).ok()?, of: u8::try_from(of).ok()? })
    }
}

/// One receipt with verified origin, in closed fields. Names at least one of `reference` and `message_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The configured provider that it came from.
    pub provider: ProviderName,
    /// Our reference, where the receipt carried one with a good MAC.
    pub reference: Option<Reference>,
    /// The provider's id of the message.
    pub message_id: Option<ProviderMessageId>,
    /// What it says.
    pub status: ReceiptStatus,
    /// Which part of the message it speaks of.
    pub part: Part,
}
