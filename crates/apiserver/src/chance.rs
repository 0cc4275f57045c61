//! Chance: the generator of the process, or of the deterministic world that this thread lives in.

use std::convert::Infallible;

use bayplan_model::simulated;
use rand::rngs::ThreadRng;
use rand::{Rng, TryRng};
use uuid::{Builder, Uuid};

/// A generator of numbers.
pub(crate) struct Chance(ThreadRng);

/// The generator of this thread.
pub(crate) fn rng() -> Chance {
    Chance(rand::rng())
}

/// A random UUID.
pub(crate) fn uuid() -> Uuid {
    let mut bytes = [0; 16];
    rng().fill_bytes(&mut bytes);
    Builder::from_random_bytes(bytes).into_uuid()
}

impl TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|drawn| (drawn >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(simulated::draw().unwrap_or_else(|| self.0.next_u64()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let drawn = self.try_next_u64()?.to_le_bytes();
            chunk.iter_mut().zip(drawn).for_each(|(byte, drawn)| *byte = drawn);
        }
        Ok(())
    }
}
