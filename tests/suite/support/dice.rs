//! Chance that can be repeated: a printed seed, and the number of rounds. `SENDONCE_TEST_SEED` and `SENDONCE_TEST_ROUNDS`
//! stand above both.

use std::str::FromStr;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

fn wanted<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// How many rounds are to be played where `few` are enough for every day.
pub fn rounds(few: usize) -> usize {
    wanted("SENDONCE_TEST_ROUNDS").unwrap_or(few)
}

/// Dice whose seed is printed, which a test shows when it fails.
pub fn dice() -> StdRng {
    let seed = wanted("SENDONCE_TEST_SEED").unwrap_or_else(rand::random::<u64>);
    println!("SENDONCE_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
