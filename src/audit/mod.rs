//! What auditors take away: exports of the log, and the proof that the accounting closes.
//!
//! A record is exported as one canonical line (`record_line.rs`): always the same fields in the same order, nothing
//! optional in its form. A sealer that chains the records of a tenant and signs the chain can later hash exactly these
//! lines, and a verifier can check an exported file without the store.

pub mod account;
pub mod export;
pub mod record_line;

pub use account::{Account, account};
pub use export::{Format, LogPages, stream};
