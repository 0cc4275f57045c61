//! How much a patch may go over the same lists.

use serde_json::{Map, Value};

use super::Error;

/// How often a patch may go over what the object and the patch hold. Merged lists stand at most four deep in each other
/// in the API's types, and each is read a few times; only a patch that names one element again and again, and so has
/// its lists merged again and again, takes more.
pub(super) const PASSES_MAX: usize = 16;

/// Lists may always cost this much, so that short patches never fail: a fraction of a second.
const FREE: usize = 100_000;

/// A unit of cost for each value, and for each so many bytes of text.
const TEXT_BYTES: usize = 16;

/// What a patch may still spend on merging lists.
pub(super) struct Budget {
    left: usize,
}

impl Budget {
    pub(super) fn new(original: &Map<String, Value>, patch: &Map<String, Value>) -> Budget {
        let held = weight(original.values().chain(patch.values()));
        Budget { left: held.saturating_mul(PASSES_MAX).saturating_add(FREE) }
    }

    /// Takes what a pass over these elements costs.
    pub(super) fn pass<'v>(&mut self, elements: impl Iterator<Item = &'v Value>) -> Result<(), Error> {
        self.left = self.left.checked_sub(weight(elements)).ok_or(Error::TooManyPasses)?;
        Ok(())
    }
}

fn weight<'v>(values: impl Iterator<Item = &'v Value>) -> usize {
    values
        .map(|value| {
            let inner = match value {
                Value::Array(list) => weight(list.iter()),
                Value::Object(map) => {
                    map.keys().map(|key| key.len() / TEXT_BYTES).sum::<usize>().saturating_add(weight(map.values()))
                }
                Value::String(text) => text.len() / TEXT_BYTES,
                _ => 0,
            };
            inner.saturating_add(1)
        })
        .fold(0, usize::saturating_add)
}
