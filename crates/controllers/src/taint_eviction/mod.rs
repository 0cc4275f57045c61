//! Evicts pods from nodes with NoExecute taints: at once when they do not tolerate the taints, later when they tolerate
//! them for a limited time.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use bayplan_model::api::{DeleteOptions, ObjectReference};
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::taint::Toleration;
use bayplan_model::timestamp;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, not_found};
use crate::node::{Taint, patch_status};
use crate::pod::Pod;
use crate::pods_by_node::PodsByNode;
use crate::requests::{self, PODS};

/// The taint eviction controller.
pub struct TaintEvictionController {
    cache: Arc<Cache>,
    pods: Mutex<PodsByNode>,
    evictions: Mutex<KeyedMap<String, Eviction>>,
}

/// The eviction of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eviction {
    /// The pod is deleted at `at`; the decision was first made at `since`.
    Planned { since: Timestamp, at: Timestamp },
    /// The pod was deleted.
    Done,
}

/// How long a pod tolerates the taints of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tolerated {
    Forever,
    For(SignedDuration),
    /// Some taint is not tolerated.
    No,
}

/// How long tolerations tolerate taints: the shortest `tolerationSeconds` of those that are needed.
fn tolerated(taints: &[Taint], tolerations: &[Toleration]) -> Tolerated {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let taint = taint.plain();
        let Some(toleration) = tolerations.iter().find(|toleration| toleration.tolerates(&taint)) else {
            return Tolerated::No;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
        }
    }
    shortest.map_or(Tolerated::Forever, |seconds| Tolerated::For(SignedDuration::from_secs(seconds.max(0))))
}

impl TaintEvictionController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        TaintEvictionController { cache, pods: Mutex::default(), evictions: Mutex::default() }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        match split_key(key) {
            ("node", name) => Ok(self.node_changed(name, context)),
            ("pod", pod) => Ok(self.pod_changed(pod, context)),
            ("evict", pod) => self.evict(pod, context).await,
            _ => Ok(Requeue::OnChange),
        }
    }

    fn node_changed(&self, name: &str, context: Context<'_>) -> Requeue {
        let Some(node) = self.cache.nodes().get("", name) else { return Requeue::OnChange };
        let taints: Vec<Taint> = node.no_execute_taints().cloned().collect();
        let pods = lock(&self.pods).on(name, &self.cache);
        let keys: Vec<Wakeup> = pods.iter().filter_map(|pod| self.plan(pod, &taints, context)).collect();
        Requeue::Keys { keys, again: false }
    }

    fn pod_changed(&self, key: &str, context: Context<'_>) -> Requeue {
        let (namespace, name) = split_key(key);
        let Some(pod) = self.cache.pods().get(namespace, name) else {
            self.cancel(key, context);
            return Requeue::OnChange;
        };
        let node = self.cache.nodes().get("", &pod.node_name);
        let taints: Vec<Taint> = node.iter().flat_map(|node| node.no_execute_taints()).cloned().collect();
        if taints.is_empty() {
            return Requeue::OnChange;
        }
        Requeue::Keys { keys: self.plan(&pod, &taints, context).into_iter().collect(), again: false }
    }

    /// Decides when a pod is evicted, and returns when to reconcile it again.
    fn plan(&self, pod: &Pod, taints: &[Taint], context: Context<'_>) -> Option<Wakeup> {
        let key = pod.metadata.key();
        let now = context.now;
        let (since, at) = match tolerated(taints, &pod.tolerations) {
            Tolerated::Forever => {
                self.cancel(&key, context);
                return None;
            }
            Tolerated::No => {
                self.cancel(&key, context);
                (now, now)
            }
            Tolerated::For(time) => {
                let at = now.checked_add(time).unwrap_or(Timestamp::MAX);
                let known = lock(&self.evictions).get(&key).copied();
                match known {
                    // Its eviction is scheduled already.
                    Some(Eviction::Planned { since, .. }) if since < now => return None,
                    Some(Eviction::Done) => return None,
                    _ => {}
                }
                self.cancel(&key, context);
                (now, at)
            }
        };
        lock(&self.evictions).insert(key.clone(), Eviction::Planned { since, at });
        Some(Wakeup::after(format!("evict/{key}"), at.duration_since(now).try_into().unwrap_or_default()))
    }

    /// The pod may stay, or no longer exists.
    fn cancel(&self, key: &str, context: Context<'_>) {
        if let Some(Eviction::Planned { .. }) = lock(&self.evictions).remove(key) {
            context.normal(reference(key), "TaintManagerEviction", format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn evict(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let planned = lock(&self.evictions).get(key).copied();
        let Some(Eviction::Planned { at, .. }) = planned else { return Ok(Requeue::OnChange) };
        if at > context.now {
            return Ok(Requeue::After(at.duration_since(context.now).try_into().unwrap_or_default()));
        }
        context.normal(reference(key), "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        delete(key, context).await?;
        if let Some(eviction) = lock(&self.evictions).get_mut(key) {
            *eviction = Eviction::Done;
        }
        Ok(Requeue::OnChange)
    }
}

fn reference(key: &str) -> ObjectReference {
    let (namespace, name) = split_key(key);
    ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: namespace.into(),
        name: name.into(),
        ..ObjectReference::default()
    }
}

/// Records why a pod is evicted, and deletes it, unless it no longer exists.
async fn delete(key: &str, context: Context<'_>) -> Result<(), Error> {
    let (namespace, name) = split_key(key);
    let outcome = async {
        let pod: Value = requests::get(context.api, &PODS, namespace, name).await?;
        let meta =
            bayplan_model::meta::ObjectMeta { namespace: namespace.into(), name: name.into(), ..Default::default() };
        let (reason, message) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let said = conditions.iter().any(|condition| {
            condition["type"] == "DisruptionTarget" && condition["reason"] == reason && condition["status"] == "True"
        });
        if !said {
            let mut condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": timestamp::seconds(context.now),
            });
            if let Some(generation) = pod.pointer("/metadata/generation") {
                condition["observedGeneration"] = generation.clone();
            }
            let patch = json!({
                "metadata": {"uid": pod.pointer("/metadata/uid")},
                "status": {"conditions": [condition]},
            });
            patch_status(context.api, &PODS, &meta, patch).await?;
        }
        requests::delete(context.api, &PODS, &meta, DeleteOptions::default()).await
    };
    match outcome.await {
        Err(status) if not_found(&status) => Ok(()),
        outcome => outcome.map_err(Error::from),
    }
}

impl Controller for TaintEvictionController {
    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Node, Kind::Pod]
    }

    fn workers(&self) -> usize {
        8
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Node(Delta::Added(node)) if node.no_execute_taints().next().is_some() => {
                vec![Wakeup::now(format!("node/{}", node.metadata.name))]
            }
            AnyDelta::Node(Delta::Updated { old, new }) if !old.no_execute_taints().eq(new.no_execute_taints()) => {
                vec![Wakeup::now(format!("node/{}", new.metadata.name))]
            }
            AnyDelta::Pod(delta) => {
                lock(&self.pods).observe(delta);
                let pod = match delta {
                    Delta::Added(pod) if !pod.node_name.is_empty() => pod,
                    Delta::Updated { old, new } if new.node_name != old.node_name => new,
                    Delta::Updated { old, new } if new.tolerations != old.tolerations => new,
                    Delta::Deleted(pod) if lock(&self.evictions).contains_key(&pod.metadata.key()) => pod,
                    _ => return Vec::new(),
                };
                vec![Wakeup::now(format!("pod/{}", pod.metadata.key()))]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
