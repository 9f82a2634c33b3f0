//! sendonce: a durable dispatcher for password-reset messages by SMS and e-mail.
//!
//! The rooms and what each may use are told in `docs/ARCHITECTURE.md` and held by a test.

pub mod audit;
pub mod clock;
pub mod domain;
pub mod ledger;
pub mod metrics;
pub mod provider;
pub mod store;
pub mod vault;
