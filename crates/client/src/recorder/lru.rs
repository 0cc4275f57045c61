//! A map of bounded size that forgets what was used longest ago.

use std::collections::BTreeMap;
use std::hash::Hash;

use bayplan_model::keyed::KeyedMap;

pub(crate) struct Lru<K, V> {
    capacity: usize,
    entries: KeyedMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Lru { capacity, entries: KeyedMap::default(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// The value of a key, which counts as a use.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (last_use, value) = self.entries.get_mut(key)?;
        self.by_use.remove(last_use);
        self.uses += 1;
        *last_use = self.uses;
        self.by_use.insert(self.uses, key.clone());
        Some(value)
    }

    /// The value of a key, made when there is none, perhaps at the expense of the least used one.
    pub(crate) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        if !self.entries.contains_key(key) {
            if self.entries.len() >= self.capacity
                && let Some((_, oldest)) = self.by_use.pop_first()
            {
                self.entries.remove(&oldest);
            }
            self.entries.insert(key.clone(), (self.uses, make()));
        }
        self.get_mut(key).expect("it is there or was just inserted")
    }

    /// Every entry, in no particular order; this does not count as a use.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, (_, value))| (key, value))
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((last_use, _)) = self.entries.remove(key) {
            self.by_use.remove(&last_use);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_longest_ago_makes_room() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with(&"a", || 1) += 10;
        lru.get_or_insert_with(&"b", || 2);
        lru.get_mut(&"a");
        lru.get_or_insert_with(&"c", || 3);
        assert_eq!((lru.get_mut(&"a").copied(), lru.get_mut(&"b").copied()), (Some(11), None));
        lru.remove(&"a");
        lru.get_or_insert_with(&"d", || 4);
        assert_eq!((lru.get_mut(&"c").copied(), lru.get_mut(&"d").copied()), (Some(3), Some(4)));
    }
}
