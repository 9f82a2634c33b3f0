//! The rules, without I/O: what a notification is, how its life may go, what an outcome means.
//!
//! Nothing here reads a clock, draws a random number, opens a file or logs. Time and randomness are arguments.

pub mod address;
pub mod audit;
pub mod callback;
pub mod content;
pub mod delivery;
pub mod event;
pub mod gsm7;
pub mod hook;
pub mod ids;
pub mod lifecycle;
pub mod outcome;
pub mod receipt;
pub mod retry;
pub mod role;
pub mod route;
pub mod strict_json;
pub mod time;
pub mod uri;
