//! A small map by name, in one sorted row.
//!
//! Labels, annotations and resource lists have a handful of entries, are kept by the million, read all the time and
//! hardly ever changed. A B-tree takes room for eleven entries with the first one; a row takes what its entries need.

use std::fmt;
use std::iter;
use std::marker::PhantomData;
use std::slice;
use std::vec;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// From this many entries on a map takes spare room when it grows: otherwise many entries, one after the other, would
/// cost the square of their number.
const LARGE: usize = 16;

/// A small map by name. Its entries are in the order of their names.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SortedMap<V>(Vec<(String, V)>);

impl<V> SortedMap<V> {
    /// A map without entries.
    pub const fn new() -> Self {
        SortedMap(Vec::new())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(own, _)| own.as_str().cmp(name))
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&V> {
        self.position(name).ok().map(|at| &self.0[at].1)
    }

    /// The value of a name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.position(name).ok().map(|at| &mut self.0[at].1)
    }

    /// Whether there is a value for a name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.position(name).is_ok()
    }

    /// Sets a value and returns the former one.
    pub fn insert(&mut self, name: String, value: V) -> Option<V> {
        match self.position(&name) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                // Moving a few entries costs as much as a new allocation; spare capacity would be wasted.
                if self.0.len() < LARGE {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (name, value));
                None
            }
        }
    }

    /// Drops an entry and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<V> {
        self.position(name).ok().map(|at| self.0.remove(at).1)
    }

    /// Keeps only the entries for which the function returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&String, &mut V) -> bool) {
        self.0.retain_mut(|(name, value)| keep(name, value));
    }

    /// All entries.
    pub fn iter(&self) -> Iter<'_, V> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// All names.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &String> + ExactSizeIterator {
        self.0.iter().map(|(name, _)| name)
    }

    /// All values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.0.iter().map(|(_, value)| value)
    }
}

/// The entries of a [`SortedMap`].
pub type Iter<'a, V> = iter::Map<slice::Iter<'a, (String, V)>, fn(&'a (String, V)) -> (&'a String, &'a V)>;

impl<V> Default for SortedMap<V> {
    fn default() -> Self {
        SortedMap::new()
    }
}

impl<V: fmt::Debug> fmt::Debug for SortedMap<V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self).finish()
    }
}

impl<V> FromIterator<(String, V)> for SortedMap<V> {
    fn from_iter<I: IntoIterator<Item = (String, V)>>(entries: I) -> Self {
        let mut row: Vec<_> = entries.into_iter().collect();
        // Of equal names the first of the row stays: the one that came last.
        row.reverse();
        row.sort_by(|a, b| a.0.cmp(&b.0));
        row.dedup_by(|a, b| a.0 == b.0);
        row.shrink_to_fit();
        SortedMap(row)
    }
}

impl<V, const N: usize> From<[(String, V); N]> for SortedMap<V> {
    fn from(entries: [(String, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<V> Extend<(String, V)> for SortedMap<V> {
    fn extend<I: IntoIterator<Item = (String, V)>>(&mut self, entries: I) {
        *self = std::mem::take(self).into_iter().chain(entries).collect();
    }
}

impl<V> IntoIterator for SortedMap<V> {
    type Item = (String, V);
    type IntoIter = vec::IntoIter<(String, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, V> IntoIterator for &'a SortedMap<V> {
    type Item = (&'a String, &'a V);
    type IntoIter = Iter<'a, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<V: Serialize> Serialize for SortedMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for SortedMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = SortedMap<V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<SortedMap<V>, A::Error> {
        iter::from_fn(|| entries.next_entry().transpose()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(String, u8),
        Remove(String),
        Retain(u8),
        Extend(Vec<(String, u8)>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let name = || "[a-e]{0,2}";
        let step = prop_oneof![
            (name(), any::<u8>()).prop_map(|(name, value)| Step::Insert(name, value)),
            name().prop_map(Step::Remove),
            any::<u8>().prop_map(Step::Retain),
            prop::collection::vec((name(), any::<u8>()), 0..6).prop_map(Step::Extend),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn it_is_the_map_that_a_b_tree_is(steps in steps(), asked in "[a-e]{0,2}") {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Insert(name, value) => {
                        prop_assert_eq!(map.insert(name.clone(), value), tree.insert(name, value));
                    }
                    Step::Remove(name) => prop_assert_eq!(map.remove(&name), tree.remove(&name)),
                    Step::Retain(least) => {
                        map.retain(|_, value| *value >= least);
                        tree.retain(|_, value| *value >= least);
                    }
                    Step::Extend(entries) => {
                        map.extend(entries.clone());
                        tree.extend(entries);
                    }
                }
                prop_assert!(map.iter().eq(&tree) && map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
                prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert_eq!(map.get(&asked), tree.get(&asked));
            prop_assert_eq!(map.contains_key(&asked), tree.contains_key(&asked));
                prop_assert_eq!(map.get_mut(&asked), tree.get_mut(&asked));
            }
            let json = serde_json::to_string(&map).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&tree).unwrap());
            prop_assert_eq!(serde_json::from_str::<SortedMap<u8>>(&json).unwrap(), map.clone());
            prop_assert_eq!(format!("{map:?}"), format!("{tree:?}"));
        }
    }

    #[test]
    fn of_equal_names_the_last_one_counts() {
        let map: SortedMap<u8> = serde_json::from_str(r#"{"b": 1, "a": 2, "b": 3}"#).unwrap();
        assert!(map.into_iter().eq([("a".to_owned(), 2), ("b".to_owned(), 3)]));
        assert!(serde_json::from_str::<SortedMap<u8>>("null").is_err());
    }
}
