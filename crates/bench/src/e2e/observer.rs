//! Who watches the pods: when each was first seen where it belongs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bayplan_client::{Change, Client, Informer, Scope, informer};
use bayplan_model::api::Resource;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use tokio::sync::watch;

const PODS: Resource = Resource::new("", "v1", "pods");

/// What a pod must be to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// On a node.
    Bound,
    /// Running there.
    Running,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct View {
    metadata: ObjectMeta,
    spec: SpecView,
    status: StatusView,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecView {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusView {
    phase: String,
}

impl HasMeta for View {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl View {
    fn is(&self, wanted: Seen) -> bool {
        match wanted {
            Seen::Bound => !self.spec.node_name.is_empty(),
            Seen::Running => self.status.phase == "Running",
        }
    }
}

/// The watch.
pub(super) struct Observer {
    seen: Arc<Mutex<FxHashMap<String, Instant>>>,
    count: watch::Receiver<usize>,
    _informer: informer::Handle,
}

impl Observer {
    pub(super) async fn start(client: &Client, wanted: Seen) -> Self {
        let seen: Arc<Mutex<FxHashMap<String, Instant>>> = Arc::default();
        let (counted, count) = watch::channel(0);
        let mut informer = Informer::<View>::new(client, Scope::all(&PODS));
        informer.on_change({
            let seen = Arc::clone(&seen);
            move |change| {
                let (Change::Added(pod) | Change::Updated { new: pod, .. }) = change else { return };
                if pod.is(wanted) {
                    // The map is whole after every single insertion.
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.entry(pod.metadata.key()).or_insert_with(Instant::now);
                    let count = seen.len();
                    drop(seen);
                    counted.send_if_modified(|known| std::mem::replace(known, count) != count);
                }
            }
        });
        let informer = informer.spawn();
        informer.synced().await;
        Observer { seen, count, _informer: informer }
    }

    pub(super) fn count(&self) -> usize {
        *self.count.borrow()
    }

    pub(super) fn changes(&self) -> watch::Receiver<usize> {
        self.count.clone()
    }

    pub(super) fn seen_at(&self, key: &str) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }

    /// When the pods were seen, in no order.
    pub(super) fn times(&self) -> Vec<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}
