//! What tests share: the oracles, which count what they truly received, and the daemon under test.

#[allow(dead_code, reason = "the oracle offers more than each topic uses")]
pub mod http_oracle;
