//! Narrow watchers: those that want one value of one field (a kubelet's pods, one secret) hear of nothing else.
//!
//! ```text
//!   event ─▶ its value of each watched field, before and after ─▶ the mailboxes of that value ─▶ their watchers wake
//! ```
//!
//! Five thousand kubelets would otherwise each look at every pod's every change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::Event;

/// Events that wait for one watcher; one that is slower reads the log again, which has about as many.
const WAITING_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<Arc<Event>>,
    /// Something was left out.
    lost: bool,
}

/// What waits for one narrow watcher.
#[derive(Debug, Default)]
struct Mailbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl Mailbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whole after every single change.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, event: Option<&Arc<Event>>) {
        let mut waiting = self.waiting();
        match event.filter(|_| waiting.events.len() < WAITING_MAX) {
            Some(event) => waiting.events.push(event.clone()),
            None => *waiting = Waiting { events: Vec::new(), lost: true },
        }
        drop(waiting);
        self.filled.notify_one();
    }
}

type Mailboxes = FxHashMap<String, FxHashMap<String, Vec<Arc<Mailbox>>>>;

/// All mailboxes of a cache, by field and value.
#[derive(Debug, Default)]
pub(super) struct Narrow(Mutex<Mailboxes>);

impl Narrow {
    fn mailboxes(&self) -> MutexGuard<'_, Mailboxes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event where it is waited for.
    pub(super) fn deliver(&self, event: &Arc<Event>) {
        for (field, values) in &*self.mailboxes() {
            let before = event.previous().and_then(|item| item.field(field));
            let after = event.current().and_then(|item| item.field(field)).filter(|after| Some(*after) != before);
            let waiting = [before, after].into_iter().flatten().filter_map(|value| values.get(value));
            waiting.flatten().for_each(|mailbox| mailbox.put(Some(event)));
        }
    }

    /// Tells all narrow watchers that they cannot rely on their mailboxes.
    pub(super) fn lose(&self) {
        self.mailboxes().values().flat_map(|values| values.values().flatten()).for_each(|mailbox| mailbox.put(None));
    }
}

/// A narrow watcher's own subscription; ends when it is dropped.
pub struct Subscription {
    narrow: Arc<Narrow>,
    field: String,
    value: String,
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    pub(super) fn new(narrow: &Arc<Narrow>, field: &str, value: &str) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let mut mailboxes = narrow.mailboxes();
        let values = mailboxes.entry(field.to_owned()).or_default();
        values.entry(value.to_owned()).or_default().push(mailbox.clone());
        Subscription { narrow: narrow.clone(), field: field.to_owned(), value: value.to_owned(), mailbox }
    }

    /// What came since, in order; `None` when something was left out.
    pub fn take(&self) -> Option<Vec<Arc<Event>>> {
        let Waiting { events, lost } = std::mem::take(&mut *self.mailbox.waiting());
        (!lost).then_some(events)
    }

    /// Waits until something came.
    pub async fn filled(&self) {
        self.mailbox.filled.notified().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut mailboxes = self.narrow.mailboxes();
        let Some(values) = mailboxes.get_mut(&self.field) else { return };
        if let Some(waiting) = values.get_mut(&self.value) {
            waiting.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if waiting.is_empty() {
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
    use crate::cache::Item;
    use crate::resources;

    fn pod(node: &str, revision: u64) -> Arc<Item> {
        let value = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": node},
        });
        let value = Bytes::from(value.to_string());
        let entry = Entry { key: "/registry/pods/b/a".into(), value, create_revision: 1, mod_revision: revision };
        Arc::new(Item::new(resources::find("", "v1", "pods").unwrap(), &entry).unwrap())
    }

    fn moved(from: Option<&str>, to: Option<&str>, revision: u64) -> Arc<Event> {
        let (from, to) = (from.map(|node| pod(node, revision - 1)), to.map(|node| pod(node, revision)));
        Arc::new(Event::new(revision, "/registry/pods/b/a".into(), to, from))
    }

    fn revisions(subscription: &Subscription) -> Option<Vec<u64>> {
        Some(subscription.take()?.iter().map(|event| event.revision()).collect())
    }

    #[test]
    fn a_watcher_of_one_node_hears_of_pods_that_come_change_and_go_there_and_of_no_others() {
        let narrow = Arc::new(Narrow::default());
        let one = Subscription::new(&narrow, "spec.nodeName", "n1");
        let two = Subscription::new(&narrow, "spec.nodeName", "n2");
        let named = Subscription::new(&narrow, "metadata.name", "a");
        for event in [
            moved(None, Some(""), 1),
            moved(Some(""), Some("n1"), 2),
            moved(Some("n1"), Some("n1"), 3),
            moved(Some("n2"), None, 4),
            moved(Some("n3"), Some("n3"), 5),
        ] {
            narrow.deliver(&event);
        }
        assert_eq!(revisions(&one), Some(vec![2, 3]));
        assert_eq!(revisions(&one), Some(vec![]));
        assert_eq!(revisions(&two), Some(vec![4]));
        assert_eq!(revisions(&named), Some(vec![1, 2, 3, 4, 5]));
        drop((one, two, named));
        assert!(narrow.mailboxes().is_empty());
    }

    #[test]
    fn a_watcher_that_was_too_slow_is_told_so_once() {
        let narrow = Arc::new(Narrow::default());
        let slow = Subscription::new(&narrow, "spec.nodeName", "n1");
        for _ in 0..=WAITING_MAX {
            narrow.deliver(&moved(None, Some("n1"), 7));
        }
        assert_eq!(revisions(&slow), None);
        narrow.deliver(&moved(None, Some("n1"), 8));
        assert_eq!(revisions(&slow), Some(vec![8]));
        narrow.lose();
        assert_eq!(revisions(&slow), None);
    }
}
