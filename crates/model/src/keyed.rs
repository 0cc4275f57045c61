//! Hash maps whose keys clients choose: names, labels, values, expressions.
//!
//! Whoever knows how a map hashes can choose thousands of names that all fall together, and each of them is then
//! compared with all others. These hash with a key that the process draws when it starts and nobody else knows. The
//! core draws nothing itself: the key comes from outside, and without one it is a fixed key, so that tests repeat
//! themselves.
//!
//! Rule: nothing may depend on the order in which such a map is gone through.
//!
//! Maps with keys that clients cannot choose (numbers that we count up, UIDs that the API server drew) may have
//! `rustc_hash`'s, which is a little faster and always the same.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// A map whose keys clients choose.
pub type KeyedMap<K, V> = HashMap<K, V, KeyedState>;
/// A set whose elements clients choose.
pub type KeyedSet<K> = HashSet<K, KeyedState>;

/// The key of the process, in the two parts that the hash takes.
struct ProcessKey(u64, SharedSeed);

static KEY: OnceLock<ProcessKey> = OnceLock::new();
static FIXED: ProcessKey = ProcessKey(0, SharedSeed::from_u64(0));

/// Sets the key of the process: two numbers that nobody can guess. To be called before anything is hashed; a second
/// call changes nothing, and answers false.
pub fn set_process_key(key: [u64; 2]) -> bool {
    KEY.set(ProcessKey(key[0], SharedSeed::from_u64(key[1]))).is_ok()
}

/// Hashes with the key that the process had when this was made.
#[derive(Clone)]
pub struct KeyedState(SeedableRandomState);

impl Default for KeyedState {
    fn default() -> Self {
        let ProcessKey(own, shared) = KEY.get().unwrap_or(&FIXED);
        KeyedState(SeedableRandomState::with_seed(*own, shared))
    }
}

impl std::fmt::Debug for KeyedState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyedState")
    }
}

impl BuildHasher for KeyedState {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_set_once_and_maps_made_before_keep_theirs() {
        let mut before: KeyedMap<&str, i32> = KeyedMap::default();
        before.insert("a", 1);
        let hash_of = |name: &str| KeyedState::default().hash_one(name);
        let hash = hash_of("a");
        assert_eq!(hash, hash_of("a"));
        assert!(set_process_key([7, 8]));
        assert!(!set_process_key([9, 10]));
        assert_ne!(hash, hash_of("a"));
        before.insert("b", 2);
        assert_eq!((before.get("a"), before.get("b"), before.get("c")), (Some(&1), Some(&2), None));
    }
}
