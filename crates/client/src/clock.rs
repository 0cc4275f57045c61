//! The clock on the wall and chance, as shells read them: the real ones, or those of a deterministic world.

use bayplan_model::simulated;
use jiff::Timestamp;

/// The time.
pub fn now() -> Timestamp {
    simulated::now().unwrap_or_else(Timestamp::now)
}

/// A number in `0.0..1.0`.
pub fn fraction() -> f64 {
    simulated::draw().map_or_else(rand::random, |drawn| (drawn >> 11) as f64 / (1u64 << 53) as f64)
}

/// Some number.
pub(crate) fn number() -> u128 {
    let half = || u128::from(simulated::draw().unwrap_or_else(rand::random));
    half() << 64 | half()
}
