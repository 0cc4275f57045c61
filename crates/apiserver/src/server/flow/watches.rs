//! How many watches see what a write changes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bayplan_model::field_selector::FieldSelector;

use crate::request::{RequestInfo, Verb};

/// The open watches, by what they watch: as a hash of resource, namespace and name.
#[derive(Default)]
pub(super) struct WatchCounts {
    hasher: RandomState,
    counts: Mutex<HashMap<u64, usize>>,
}

/// A watch that is counted until it is dropped.
pub(crate) struct WatchCount {
    counts: Arc<WatchCounts>,
    key: u64,
}

/// Counts a watch. Watches of the pods of one node are found by their node: as upstream, a write counts none of them.
pub(super) fn register(counts: &Arc<WatchCounts>, info: &RequestInfo, field_selector: &str) -> Option<WatchCount> {
    let of_one_node = || {
        let selector = FieldSelector::parse(field_selector).ok();
        selector.is_some_and(|selector| selector.exact_value("spec.nodeName").is_some_and(|node| !node.is_empty()))
    };
    if info.verb != Verb::Watch || (info.plural == "pods" && of_one_node()) {
        return None;
    }
    let key = counts.key(info, &info.namespace, &info.name);
    *counts.lock().entry(key).or_default() += 1;
    Some(WatchCount { counts: counts.clone(), key })
}

impl WatchCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, info: &RequestInfo, namespace: &str, name: &str) -> u64 {
        self.hasher.hash_one((info.group.as_str(), info.plural.as_str(), namespace, name))
    }

    /// The watches that see what a request changes: those of all objects, of the namespace, and of the object.
    pub(super) fn interested(&self, info: &RequestInfo) -> usize {
        // A token is no event.
        if info.plural == "serviceaccounts" && info.subresource == "token" {
            return 0;
        }
        let mut keys = vec![self.key(info, "", "")];
        if !info.namespace.is_empty() {
            keys.push(self.key(info, &info.namespace, ""));
        }
        if !info.name.is_empty() {
            keys.push(self.key(info, &info.namespace, &info.name));
        }
        let counts = self.lock();
        keys.iter().filter_map(|key| counts.get(key)).sum()
    }
}

impl Drop for WatchCount {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;

    fn info(method: &http::Method, path: &str) -> RequestInfo {
        let uri: http::Uri = path.parse().unwrap();
        RequestInfo::parse(method, uri.path(), &Query::parse(uri.query().unwrap_or_default()))
    }

    #[test]
    fn a_write_is_seen_by_the_watches_of_its_object_of_its_namespace_and_of_all() {
        let counts = Arc::new(WatchCounts::default());
        let watch = |path: &str, selector| register(&counts, &info(&http::Method::GET, path), selector);
        let open = [
            watch("/api/v1/pods?watch=1", ""),
            watch("/api/v1/namespaces/a/pods?watch=1", "spec.nodeName="),
            watch("/api/v1/namespaces/b/pods?watch=1", ""),
            watch("/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dp", "metadata.name=p"),
            watch("/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dq", "metadata.name=q"),
            watch("/api/v1/namespaces/a/configmaps?watch=1", ""),
        ];
        assert!(open.iter().all(Option::is_some));
        assert!(watch("/api/v1/pods?watch=1", "spec.nodeName=n").is_none());
        assert!(watch("/api/v1/pods", "").is_none());
        for (method, path, expected) in [
            (http::Method::PUT, "/api/v1/namespaces/a/pods/p", 3),
            (http::Method::POST, "/api/v1/namespaces/a/pods", 2),
            (http::Method::DELETE, "/api/v1/namespaces/c/pods/p", 1),
            (http::Method::PUT, "/api/v1/namespaces/c/configmaps/p", 0),
        ] {
            assert_eq!(counts.interested(&info(&method, path)), expected, "{path}");
        }
        drop(open);
        assert!(counts.lock().is_empty());
    }
}
