//! Records when a watch first shows each object in the wanted state.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bayplan_client::{Client, Informer, Scope, informer};
use bayplan_model::api::Resource;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

const PODS: Resource = Resource::new("", "v1", "pods");

pub(super) fn pods() -> Scope {
    Scope::all(&PODS)
}

/// The fields of a pod that are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Pod {
    metadata: ObjectMeta,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
}

impl HasMeta for Pod {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// A watch, and the time at which it showed each object.
pub(super) struct Observer {
    seen: Arc<Mutex<FxHashMap<String, Instant>>>,
    count: watch::Receiver<usize>,
    _informer: informer::RunningInformer,
}

impl Observer {
    /// Watches for objects in the wanted state.
    pub(super) async fn start<V: HasMeta + DeserializeOwned + Send + Sync + 'static>(
        client: &Client,
        scope: Scope,
        wanted: impl Fn(&V) -> bool + Send + 'static,
    ) -> Self {
        let seen: Arc<Mutex<FxHashMap<String, Instant>>> = Arc::default();
        let (counted, count) = watch::channel(0);
        let mut informer = Informer::<V>::new(client, scope);
        informer.on_delta({
            let seen = Arc::clone(&seen);
            move |delta| {
                let Some(object) = delta.current() else { return };
                if wanted(object) {
                    // The map is whole after every single insertion.
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.entry(object.meta().key()).or_insert_with(Instant::now);
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

    /// Times at which objects were seen, in no order.
    pub(super) fn times(&self) -> Vec<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }
}
