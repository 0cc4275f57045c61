//! Tells kubelets by an annotation of their node how long they may keep what they read of secrets and config maps: the
//! larger the cluster, the longer.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayplan_model::api::PatchKind;
use bayplan_model::delta::Delta;
use futures::future::BoxFuture;
use serde_json::json;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, not_found};
use crate::requests::{self, NODES};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// A size of clusters: from how many nodes it shrinks to the one before, to how many it stays, and the seconds.
const SIZES: [(usize, usize, u32); 6] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, 10_000, 300), (9000, usize::MAX, 600)];

/// The controller.
pub struct NodeTtlController {
    cache: Arc<Cache>,
    /// Which of the sizes the cluster has. It moves only past the edges, so that it does not swing.
    size: AtomicUsize,
}

impl NodeTtlController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        NodeTtlController { cache, size: AtomicUsize::new(0) }
    }

    fn resize(&self) {
        let nodes = self.cache.nodes().count("");
        let mut size = self.size.load(Ordering::Relaxed);
        while nodes > SIZES[size].1 {
            size += 1;
        }
        while nodes < SIZES[size].0 {
            size -= 1;
        }
        self.size.store(size, Ordering::Relaxed);
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(node) = self.cache.nodes().get("", name) else { return Ok(Requeue::OnChange) };
        let seconds = SIZES[self.size.load(Ordering::Relaxed)].2.to_string();
        if node.metadata.annotations.get(ANNOTATION).is_some_and(|known| *known == seconds) {
            return Ok(Requeue::OnChange);
        }
        let patch = json!({"metadata": {"annotations": {ANNOTATION: seconds}}});
        match requests::patch(context.api, &NODES, &node.metadata, PatchKind::Strategic, &patch).await {
            Err(status) if not_found(&status) => Ok(Requeue::OnChange),
            answer => answer.map(|_| Requeue::OnChange).map_err(Error::from),
        }
    }
}

impl Controller for NodeTtlController {
    fn name(&self) -> &'static str {
        "ttl-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Node]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        let AnyDelta::Node(delta) = delta else { return Vec::new() };
        if !matches!(delta, Delta::Updated { .. }) {
            self.resize();
        }
        match delta {
            Delta::Added(node) | Delta::Updated { new: node, .. } => vec![Wakeup::now(node.metadata.name.clone())],
            Delta::Deleted(_) => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
