//! From a kind and its data to the message that every attempt repeats.

mod check;
mod data;
mod kind;
mod source;

pub mod sms;
pub mod templates;

#[cfg(test)]
mod tests;
