//! Watchers of one value of one field (a kubelet's pods, one secret) get the events of that value only.
//!
//! ```text
//!   event ─▶ its value of each watched field, before and after ─▶ the mailboxes of that value ─▶ their watchers wake
//! ```
//!
//! Without it, five thousand kubelets would each look at every change of every pod. Upstream's cacher does the same
//! with the value watchers of its trigger functions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::CacheEvent;

/// How many events wait for one watcher; a slower watcher reads the log instead, which keeps about as many.
const MAILBOX_EVENTS_MAX: usize = 1024;

#[derive(Debug, Default)]
struct PendingEvents {
    events: Vec<Arc<CacheEvent>>,
    /// Events were dropped, so the watcher must read the log.
    incomplete: bool,
}

/// The events that wait for one watcher.
#[derive(Debug, Default)]
struct Mailbox {
    pending: Mutex<PendingEvents>,
    filled: Notify,
}

impl Mailbox {
    fn pending(&self) -> MutexGuard<'_, PendingEvents> {
        // Every single change leaves the value whole, so a poisoned lock does no harm.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; `None`, or one event too many, makes the mailbox incomplete.
    fn put(&self, event: Option<&Arc<CacheEvent>>) {
        let mut pending = self.pending();
        match event.filter(|_| pending.events.len() < MAILBOX_EVENTS_MAX) {
            Some(event) => pending.events.push(event.clone()),
            None => *pending = PendingEvents { events: Vec::new(), incomplete: true },
        }
        drop(pending);
        self.filled.notify_one();
    }
}

type Mailboxes = HashMap<String, HashMap<String, Vec<Arc<Mailbox>>>>;

/// The mailboxes of a cache by field and value.
#[derive(Debug, Default)]
pub(super) struct ValueWatchers(Mutex<Mailboxes>);

impl ValueWatchers {
    fn mailboxes(&self) -> MutexGuard<'_, Mailboxes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event into the mailboxes of its old and its new values.
    pub(super) fn deliver(&self, event: &Arc<CacheEvent>) {
        for (field, values) in &*self.mailboxes() {
            let before = event.previous().and_then(|object| object.field(field));
            let after = event.current().and_then(|object| object.field(field)).filter(|after| Some(*after) != before);
            let watched = [before, after].into_iter().flatten().filter_map(|value| values.get(value));
            watched.flatten().for_each(|mailbox| mailbox.put(Some(event)));
        }
    }

    /// Makes every mailbox incomplete: the cache has lost events.
    pub(super) fn invalidate(&self) {
        self.mailboxes().values().flat_map(|values| values.values().flatten()).for_each(|mailbox| mailbox.put(None));
    }
}

/// The subscription of one watcher to one value; dropping it ends it.
pub(crate) struct Subscription {
    watchers: Arc<ValueWatchers>,
    field: String,
    value: String,
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    pub(super) fn new(watchers: &Arc<ValueWatchers>, field: &str, value: &str) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let mut mailboxes = watchers.mailboxes();
        let values = mailboxes.entry(field.to_owned()).or_default();
        values.entry(value.to_owned()).or_default().push(mailbox.clone());
        Subscription { watchers: watchers.clone(), field: field.to_owned(), value: value.to_owned(), mailbox }
    }

    /// Takes the events that arrived, in order; `None` if some were dropped.
    pub(crate) fn take(&self) -> Option<Vec<Arc<CacheEvent>>> {
        let PendingEvents { events, incomplete } = std::mem::take(&mut *self.mailbox.pending());
        (!incomplete).then_some(events)
    }

    /// Waits until the mailbox was filled.
    pub(crate) async fn filled(&self) {
        self.mailbox.filled.notified().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut mailboxes = self.watchers.mailboxes();
        let Some(values) = mailboxes.get_mut(&self.field) else { return };
        if let Some(watching) = values.get_mut(&self.value) {
            watching.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if watching.is_empty() {
                values.remove(&self.value);
            }
        }
        if values.is_empty() {
            mailboxes.remove(&self.field);
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_store::Entry;
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::watch_cache::CachedObject;

    fn pod(node: &str, revision: u64) -> Arc<CachedObject> {
        let value = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": node},
        });
        let value = Bytes::from(value.to_string());
        let entry = Entry { key: "/registry/pods/b/a".into(), value, create_revision: 1, mod_revision: revision };
        Arc::new(CachedObject::new(bayplan_kinds::find("", "v1", "pods").unwrap(), &entry).unwrap())
    }

    fn moved(from: Option<&str>, to: Option<&str>, revision: u64) -> Arc<CacheEvent> {
        let (from, to) = (from.map(|node| pod(node, revision - 1)), to.map(|node| pod(node, revision)));
        Arc::new(CacheEvent::new(revision, "/registry/pods/b/a".into(), to, from))
    }

    fn revisions(subscription: &Subscription) -> Option<Vec<u64>> {
        Some(subscription.take()?.iter().map(|event| event.revision()).collect())
    }

    #[test]
    fn a_watcher_of_one_node_gets_the_events_of_its_pods_only() {
        let watchers = Arc::new(ValueWatchers::default());
        let one = Subscription::new(&watchers, "spec.nodeName", "n1");
        let two = Subscription::new(&watchers, "spec.nodeName", "n2");
        let named = Subscription::new(&watchers, "metadata.name", "a");
        for event in [
            moved(None, Some(""), 1),
            moved(Some(""), Some("n1"), 2),
            moved(Some("n1"), Some("n1"), 3),
            moved(Some("n2"), None, 4),
            moved(Some("n3"), Some("n3"), 5),
        ] {
            watchers.deliver(&event);
        }
        assert_eq!(revisions(&one), Some(vec![2, 3]));
        assert_eq!(revisions(&one), Some(vec![]));
        assert_eq!(revisions(&two), Some(vec![4]));
        assert_eq!(revisions(&named), Some(vec![1, 2, 3, 4, 5]));
        drop((one, two, named));
        assert!(watchers.mailboxes().is_empty());
    }

    #[test]
    fn a_watcher_that_was_too_slow_learns_it_once() {
        let watchers = Arc::new(ValueWatchers::default());
        let slow = Subscription::new(&watchers, "spec.nodeName", "n1");
        for _ in 0..=MAILBOX_EVENTS_MAX {
            watchers.deliver(&moved(None, Some("n1"), 7));
        }
        assert_eq!(revisions(&slow), None);
        watchers.deliver(&moved(None, Some("n1"), 8));
        assert_eq!(revisions(&slow), Some(vec![8]));
        watchers.invalidate();
        assert_eq!(revisions(&slow), None);
    }
}
