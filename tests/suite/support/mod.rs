//! What tests share: the oracles, which count what they truly received, and the daemon under test.

pub mod api;
pub mod bench;
#[allow(dead_code, reason = "the harness offers more than each topic uses")]
pub mod daemon;
pub mod desk;
pub mod dice;
pub mod disk;
pub mod faulty_provider;
pub mod faulty_store;
#[allow(dead_code, reason = "the app offers more than each topic uses")]
pub mod hook;
#[allow(dead_code, reason = "the oracle offers more than each topic uses")]
pub mod http_oracle;
pub mod listener;
pub mod pki;
pub mod port;
#[allow(dead_code, reason = "the cluster offers more than each topic uses")]
pub mod postgres;
pub mod sample;
#[allow(dead_code, reason = "the oracle offers more than each topic uses")]
pub mod smsc_oracle;
pub mod smsc_script;
pub mod smtp_oracle;
pub mod smtp_script;
pub mod smtp_words;
