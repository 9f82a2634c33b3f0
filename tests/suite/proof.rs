//! The promise under every fault that can be made here: at every call of the store and of a provider, in random lives
//! against an independent reference, and in every state of a small model.

mod every_step;
mod life;
mod model_check;
mod protocol;
mod random_lives;
mod reference;
mod verdict;

/// A size of a test: `default` unless the environment variable says another number.
fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}
