//! Deletes pods that no kubelet deletes: terminated ones beyond a threshold, those bound to nodes that no longer exist,
//! and terminating ones on nodes that are out of service.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::DeleteOptions;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::timestamp;
use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock};
use crate::error::{Error, not_found};
use crate::node::{Node, patch_status};
use crate::pod::{Phase, Pod};
use crate::requests::{self, NODES, PODS};

/// Upstream's `--terminated-pod-gc-threshold`: how many terminated pods are kept.
pub const TERMINATED_PODS_MAX: usize = 12_500;

/// How often the collector runs.
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be missing: the watch of pods may be ahead of the watch of nodes.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// How many pods are deleted at the same time.
const PODS_AT_ONCE: usize = 20;
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const LOOK: &str = "look";

/// The pod garbage collector.
pub struct PodGcController {
    cache: Arc<Cache>,
    /// None for no limit.
    terminated_pods_max: Option<usize>,
    /// Since when nodes that pods are bound to are missing.
    missing: Mutex<KeyedMap<String, Timestamp>>,
}

impl PodGcController {
    /// A collector that keeps at most this many terminated pods; 0 keeps all.
    pub fn new(cache: Arc<Cache>, terminated_pods_max: usize) -> Self {
        let terminated_pods_max = (terminated_pods_max > 0).then_some(terminated_pods_max);
        PodGcController { cache, terminated_pods_max, missing: Mutex::default() }
    }

    async fn collect(&self, context: Context<'_>) -> Requeue {
        let pods: Vec<Arc<Pod>> = self.cache.pods().all().cloned().collect();
        self.remove(self.terminated(&pods), false, context).await;
        self.remove(self.out_of_service(&pods), false, context).await;
        self.remove(self.orphaned(&pods, context).await, true, context).await;
        let unscheduled = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_some() && pod.node_name.is_empty();
        self.remove(pods.iter().filter(unscheduled).cloned().collect(), false, context).await;
        Requeue::After(PERIOD)
    }

    /// Deletes terminated pods beyond the threshold, evicted ones first, then the oldest.
    fn terminated(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(max) = self.terminated_pods_max else { return Vec::new() };
        let ended = |pod: &&Arc<Pod>| !matches!(pod.phase, Phase::Pending | Phase::Running | Phase::Unknown);
        let mut ended: Vec<Arc<Pod>> = pods.iter().filter(ended).cloned().collect();
        let excess = ended.len().saturating_sub(max);
        if excess > 0 {
            ended.sort_by(|a, b| {
                let key = |pod: &Pod| (Reverse(pod.evicted), pod.metadata.creation_timestamp);
                key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
            });
        }
        ended.truncate(excess);
        ended
    }

    /// Deletes terminating pods on nodes with the out-of-service taint.
    fn out_of_service(&self, pods: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let nodes = self.cache.nodes();
        let dead = |node: &Node| !node.is_ready() && node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
        let lost = |pod: &&Arc<Pod>| {
            pod.metadata.deletion_timestamp.is_some() && nodes.get("", &pod.node_name).is_some_and(|node| dead(&node))
        };
        pods.iter().filter(lost).cloned().collect()
    }

    /// Deletes pods bound to nodes that have been missing for long enough.
    async fn orphaned(&self, pods: &[Arc<Pod>], context: Context<'_>) -> Vec<Arc<Pod>> {
        let absent: KeyedSet<&str> = {
            let nodes = self.cache.nodes();
            let absent = |pod: &&Arc<Pod>| !pod.node_name.is_empty() && nodes.get("", &pod.node_name).is_none();
            pods.iter().filter(absent).map(|pod| pod.node_name.as_str()).collect()
        };
        let due: Vec<String> = {
            let mut missing = lock(&self.missing);
            missing.retain(|node, _| absent.contains(node.as_str()));
            for node in &absent {
                missing.entry((*node).to_owned()).or_insert(context.now);
            }
            let long = |since: &Timestamp| context.now.duration_since(*since) >= QUARANTINE;
            missing.extract_if(|_, since| long(since)).map(|(node, _)| node).collect()
        };
        let mut gone = KeyedSet::default();
        for node in due {
            // The cache may lag; only the API server knows that a node does not exist.
            let answer: Result<PartialObjectMetadata, _> = requests::get(context.api, &NODES, "", &node).await;
            if answer.is_err_and(|status| not_found(&status)) {
                gone.insert(node);
            }
        }
        pods.iter().filter(|pod| gone.contains(&pod.node_name)).cloned().collect()
    }

    /// Deletes pods; what fails is found again by the next run.
    async fn remove(&self, pods: Vec<Arc<Pod>>, orphaned: bool, context: Context<'_>) {
        futures::stream::iter(pods)
            .for_each_concurrent(PODS_AT_ONCE, |pod| async move {
                let _ = remove(&pod, orphaned, context).await;
            })
            .await;
    }
}

/// Marks a pod as failed and deletes it without grace: no kubelet is there to stop it.
async fn remove(pod: &Pod, orphaned: bool, context: Context<'_>) -> Result<(), Error> {
    if !pod.is_terminal() {
        let mut status = json!({"phase": "Failed"});
        if orphaned {
            status["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": timestamp::seconds(context.now),
            }]);
            if pod.metadata.generation > 0 {
                status["conditions"][0]["observedGeneration"] = pod.metadata.generation.into();
            }
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        patch_status(context.api, &PODS, &pod.metadata, patch).await?;
    }
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    Ok(requests::delete(context.api, &PODS, &pod.metadata, options).await?)
}

impl Controller for PodGcController {
    fn name(&self) -> &'static str {
        "pod-garbage-collector-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::Node]
    }

    fn workers(&self) -> usize {
        1
    }

    fn start(&self) -> Vec<Wakeup> {
        vec![Wakeup::now(LOOK)]
    }

    fn observe(&self, _: &AnyDelta) -> Vec<Wakeup> {
        Vec::new()
    }

    fn sync<'a>(&'a self, _: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move { Ok(self.collect(context).await) })
    }
}
