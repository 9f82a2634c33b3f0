//! sendonce: a durable dispatcher for password-reset messages by SMS and e-mail.
//!
//! The rooms and what each may use are told in `docs/ARCHITECTURE.md` and held by a test.

pub mod audit;
pub mod bench;
pub mod callback;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dispatch;
pub mod document;
pub mod domain;
pub mod http;
pub mod keys;
pub mod ledger;
pub mod metrics;
pub mod node;
pub mod process;
pub mod provider;
pub mod render;
pub mod statement;
pub mod store;
pub mod telemetry;
pub mod vault;
