//! The last known state of a resource, shared between an informer that writes it and anyone who reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::HasMeta;

/// The values of an index under which an object is found.
pub(crate) type IndexFn<V> = fn(&V) -> Vec<String>;

/// The cache; clones share one state. Readers see each change before subscribers are called.
pub struct Cache<V>(Arc<RwLock<Inner<V>>>);

struct Inner<V> {
    /// By key; `namespace/name` keys of one namespace are neighbours.
    objects: BTreeMap<Arc<str>, Arc<V>>,
    indexes: Vec<Index<V>>,
    synced: bool,
}

struct Index<V> {
    name: &'static str,
    values_of: IndexFn<V>,
    keys: KeyedMap<String, BTreeSet<Arc<str>>>,
}

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Cache(Arc::clone(&self.0))
    }
}

impl<V: HasMeta> Cache<V> {
    /// An empty cache with named indexes.
    pub fn new(indexes: &[(&'static str, IndexFn<V>)]) -> Self {
        let indexes =
            indexes.iter().map(|&(name, values_of)| Index { name, values_of, keys: KeyedMap::default() }).collect();
        Cache(Arc::new(RwLock::new(Inner { objects: BTreeMap::new(), indexes, synced: false })))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<V>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with this key: `namespace/name`, or the name of a cluster-scoped object.
    pub fn get(&self, key: &str) -> Option<Arc<V>> {
        self.read().objects.get(key).cloned()
    }

    /// Every object, in the order of their keys.
    pub fn list(&self) -> Vec<Arc<V>> {
        self.read().objects.values().cloned().collect()
    }

    /// Every object of a namespace, in the order of their names.
    pub fn list_namespace(&self, namespace: &str) -> Vec<Arc<V>> {
        let first = format!("{namespace}/");
        let inner = self.read();
        let from_first = inner.objects.range::<str, _>((Bound::Included(first.as_str()), Bound::Unbounded));
        from_first.take_while(|(key, _)| key.starts_with(&first)).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects an index knows under a value, in the order of their keys; none when there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<V>> {
        let inner = self.read();
        let keys = inner.indexes.iter().find(|i| i.name == index).and_then(|i| i.keys.get(value));
        keys.into_iter().flatten().filter_map(|key| inner.objects.get(key).cloned()).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// True when there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True once the first complete state has arrived.
    pub fn is_synced(&self) -> bool {
        self.read().synced
    }

    /// Follows a change of an object.
    pub(crate) fn apply(&self, delta: &Delta<Arc<V>>) {
        let mut inner = self.write();
        match delta {
            Delta::Added(object) | Delta::Updated { new: object, .. } => inner.insert(object),
            Delta::Deleted(object) => inner.remove(&object.meta().key()),
        }
    }

    /// Notes that the first complete state has arrived.
    pub(crate) fn set_synced(&self) {
        self.write().synced = true;
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<V>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: HasMeta> Inner<V> {
    fn insert(&mut self, object: &Arc<V>) {
        let key: Arc<str> = object.meta().key().into();
        self.remove(&key);
        for index in &mut self.indexes {
            for value in (index.values_of)(object) {
                index.keys.entry(value).or_default().insert(Arc::clone(&key));
            }
        }
        self.objects.insert(key, Arc::clone(object));
    }

    fn remove(&mut self, key: &str) {
        let Some(old) = self.objects.remove(key) else { return };
        for index in &mut self.indexes {
            for value in (index.values_of)(&old) {
                if let Some(keys) = index.keys.get_mut(&value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.keys.remove(&value);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};

    use super::*;

    fn object(namespace: &str, name: &str, owner: &str) -> Arc<PartialObjectMetadata> {
        let owner = OwnerReference { uid: owner.into(), controller: Some(true), ..Default::default() };
        let metadata = ObjectMeta {
            namespace: namespace.into(),
            name: name.into(),
            owner_references: vec![owner],
            ..Default::default()
        };
        Arc::new(PartialObjectMetadata { metadata })
    }

    fn names(objects: Vec<Arc<PartialObjectMetadata>>) -> Vec<String> {
        objects.iter().map(|o| o.metadata.key()).collect()
    }

    fn by_owner(object: &PartialObjectMetadata) -> Vec<String> {
        object.metadata.controller().map(|owner| owner.uid.clone()).into_iter().collect()
    }

    #[test]
    fn lists_and_indexes_follow_every_change() {
        let cache = Cache::new(&[("owner", by_owner)]);
        for (namespace, name, owner) in [("b", "2", "x"), ("a", "1", "x"), ("a-b", "1", "y"), ("b", "1", "y")] {
            cache.apply(&Delta::Added(object(namespace, name, owner)));
        }
        assert_eq!(names(cache.list_namespace("b")), ["b/1", "b/2"]);
        assert_eq!(names(cache.list_namespace("a")), ["a/1"]);
        assert_eq!(names(cache.by_index("owner", "x")), ["a/1", "b/2"]);

        cache.apply(&Delta::Updated { old: object("b", "2", "x"), new: object("b", "2", "y") });
        assert_eq!(names(cache.by_index("owner", "x")), ["a/1"]);
        cache.apply(&Delta::Deleted(object("a", "1", "x")));
        assert!(cache.by_index("owner", "x").is_empty());
        assert_eq!(names(cache.by_index("owner", "y")), ["a-b/1", "b/1", "b/2"]);
        assert!(cache.by_index("no such index", "y").is_empty());
        assert_eq!((cache.len(), cache.get("b/1").is_some(), cache.is_synced()), (3, true, false));
        cache.set_synced();
        assert!(cache.is_synced());
    }
}
