//! What tests share: the oracles, which count what they truly received, and the daemon under test.
pub mod api;
