//! The daemon is killed, paused, starved and set back, on both stores, and afterwards what it says is held against the
//! providers' own account.

mod copies;
mod disks;
mod pauses;
mod points;
pub mod reckoning;
mod rounds;
mod starts;
pub mod vendor;
