//! The node lifecycle: when a kubelet stops posting, its node's conditions become `Unknown`, the node is tainted, and
//! its pods become not ready.
//!
//! ```text
//!   every 5 s: nodes, leases ─▶ health ─▶ conditions Unknown ─▶ pods NotReady
//!                                  └────▶ zones ─(so many at a time)─▶ NoExecute taint ─▶ taint eviction
//!   a node changes: its conditions ─▶ NoSchedule taints
//! ```

mod health;
mod taints;
mod zones;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::ObjectReference;
use bayplan_model::delta::Delta;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::status::reason;
use bayplan_model::timestamp;
use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use serde_json::json;

use self::health::{Grace, Health};
use self::zones::{ClusterHealth, Zones};
use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, not_found};
use crate::node::{NODE_LEASES, Node, Taint, patch_status, swap_taints};
use crate::pod::Pod;
use crate::pods_by_node::PodsByNode;
use crate::requests::{self, NODES, PODS};
use crate::workload::event_reference;

const MONITOR: &str = "monitor";
const TAINT_PASS: &str = "taint-pass";
/// How often the queue of nodes that wait for their NoExecute taint is processed.
const TAINT_PASS_PERIOD: Duration = Duration::from_millis(100);
/// How many nodes are handled at the same time; nearly all of that time is waiting for the API server.
const NODES_AT_ONCE: usize = 8;
/// How often a status update that met a conflict is retried on the newest state.
const CONFLICTS_MAX: usize = 5;

/// Upstream's flags of the node lifecycle controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeLifecycleConfig {
    /// `--node-monitor-period`.
    pub monitor_period: Duration,
    /// `--node-monitor-grace-period`.
    pub monitor_grace_period: Duration,
    /// `--node-startup-grace-period`.
    pub startup_grace_period: Duration,
    /// `--node-eviction-rate`, in nodes a second.
    pub eviction_rate: f64,
    /// `--secondary-node-eviction-rate`, in nodes a second.
    pub secondary_eviction_rate: f64,
    /// `--large-cluster-size-threshold`.
    pub large_cluster_size_threshold: usize,
    /// `--unhealthy-zone-threshold`.
    pub unhealthy_zone_threshold: f64,
}

impl Default for NodeLifecycleConfig {
    fn default() -> Self {
        NodeLifecycleConfig {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}

/// The node lifecycle controller.
pub struct NodeLifecycleController {
    cache: Arc<Cache>,
    config: NodeLifecycleConfig,
    pods: Mutex<PodsByNode>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The nodes of the last pass, with their UIDs.
    known: KeyedMap<String, String>,
    health: KeyedMap<String, Health>,
    zones: Zones,
    /// Nodes whose pods could not all be marked.
    retry: KeyedSet<String>,
}

/// What one pass of the monitor found out about a node.
struct NodeObservation {
    zone: String,
    ready: bool,
    counts: bool,
}

impl NodeLifecycleController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>, config: NodeLifecycleConfig) -> Self {
        NodeLifecycleController { cache, config, pods: Mutex::default(), state: Mutex::default() }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        match split_key(key) {
            ("", MONITOR) => self.monitor(context).await,
            ("", TAINT_PASS) => self.taint_pass(context).await,
            ("node", name) => self.follow_conditions(name, context).await,
            ("pod", pod) => self.mark_bound_pod(pod, context).await,
            _ => Ok(Requeue::OnChange),
        }
    }

    fn grace(&self) -> Grace {
        let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Grace { running: signed(self.config.monitor_grace_period), starting: signed(self.config.startup_grace_period) }
    }

    /// One pass over all nodes; upstream's `monitorNodeHealth`.
    async fn monitor(&self, context: Context<'_>) -> Result<Requeue, Error> {
        let nodes: Vec<Arc<Node>> = self.cache.nodes().all().cloned().collect();
        self.classify(&nodes, context).await;
        let observations: Vec<Option<NodeObservation>> = futures::stream::iter(nodes.iter().cloned())
            .map(|node| self.observe_node(node, context))
            .buffer_unordered(NODES_AT_ONCE)
            .collect()
            .await;
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for look in observations.into_iter().flatten().filter(|look| look.counts) {
            let count = counts.entry(look.zone).or_default();
            *(if look.ready { &mut count.0 } else { &mut count.1 }) += 1;
        }
        let health = lock(&self.state).zones.decide(&counts, &self.config, context.now);
        match health {
            ClusterHealth::FullDisruption => {
                for node in &nodes {
                    self.mark_reachable(node, context).await;
                }
            }
            ClusterHealth::Recovered => {
                lock(&self.state).health.values_mut().for_each(|health| health.restart_grace(context.now));
            }
            ClusterHealth::Normal => {}
        }
        let waiting = lock(&self.state).zones.is_waiting();
        let mut keys = vec![Wakeup::after(MONITOR, self.config.monitor_period)];
        keys.extend(waiting.then(|| Wakeup::now(TAINT_PASS)));
        Ok(Requeue::Keys { keys, again: false })
    }

    /// Notes which nodes are new and which are gone.
    async fn classify(&self, nodes: &[Arc<Node>], context: Context<'_>) {
        let mut added = Vec::new();
        let mut gone = Vec::new();
        {
            let mut state = lock(&self.state);
            for node in nodes {
                state.zones.add(&node.zone(), &self.config);
                if !state.known.contains_key(&node.metadata.name) {
                    state.known.insert(node.metadata.name.clone(), node.metadata.uid.clone());
                    added.push(node.clone());
                }
            }
            if state.known.len() != nodes.len() {
                let here: KeyedSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
                gone.extend(state.known.extract_if(|name, _| !here.contains(name.as_str())));
                for (name, _) in &gone {
                    state.health.remove(name);
                    state.retry.remove(name);
                }
            }
        }
        for node in &added {
            let name = &node.metadata.name;
            self.record_event(
                name,
                &node.metadata.uid,
                "RegisteredNode",
                format!("Registered Node {name} in Controller"),
                context,
            );
            self.mark_reachable(node, context).await;
        }
        for (name, uid) in &gone {
            self.record_event(name, uid, "RemovingNode", format!("Removing Node {name} from Controller"), context);
        }
    }

    fn record_event(&self, name: &str, uid: &str, reason: &'static str, what: String, context: Context<'_>) {
        context.normal(reference(name, uid), reason, format!("Node {name} event: {what}"));
    }

    /// Observes one node; none when the API server refuses.
    async fn observe_node(&self, node: Arc<Node>, context: Context<'_>) -> Option<NodeObservation> {
        let (node, was, is) = self.probe(node, context).await?;
        let look = NodeObservation {
            zone: node.zone(),
            ready: is == Some(true),
            counts: !node.metadata.labels.contains_key("node.kubernetes.io/exclude-disruption"),
        };
        let Some(is) = is else { return Some(look) };
        self.queue_taint(&node, was, context).await;
        let name = &node.metadata.name;
        let fell = !is && was == Some(true);
        if fell {
            let note = format!("Node {name} status is now: NodeNotReady");
            context.normal(reference(name, &node.metadata.uid), "NodeNotReady", note);
        }
        let again = was != Some(true) && lock(&self.state).retry.contains(name);
        if fell || again {
            let pods = lock(&self.pods).on(name, &self.cache);
            let marked = mark_not_ready(&pods, context).await.is_ok();
            let mut state = lock(&self.state);
            if marked {
                state.retry.remove(name)
            } else {
                state.retry.insert(name.clone())
            };
        }
        Some(look)
    }

    /// Compares a node with the health remembered of it, and writes `Unknown` conditions when its grace period is over.
    /// Returns whether it was ready before and is ready now; none where the condition is `Unknown`.
    async fn probe(
        &self,
        mut node: Arc<Node>,
        context: Context<'_>,
    ) -> Option<(Arc<Node>, Option<bool>, Option<bool>)> {
        let name = node.metadata.name.clone();
        for _ in 0..CONFLICTS_MAX {
            let renewed = self.cache.leases().get(NODE_LEASES, &name).and_then(|lease| lease.spec.renew_time);
            let before = lock(&self.state).health.get(&name).cloned();
            let mut health = Health::observe(before, &node, renewed, context.now);
            let was = health.is_ready();
            let conditions = health
                .is_unresponsive(self.grace(), context.now)
                .then(|| health::unknown(&node, context.second()))
                .flatten();
            let Some(conditions) = conditions else {
                lock(&self.state).health.insert(name, health);
                return Some((node, was, was));
            };
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "status": {"conditions": conditions},
            });
            match patch_status(context.api, &NODES, &node.metadata, patch).await {
                Ok(()) => {
                    health.written(&conditions, renewed);
                    lock(&self.state).health.insert(name, health);
                    return Some((node, was, Some(false)));
                }
                Err(status) if status.is(reason::CONFLICT) => {
                    lock(&self.state).health.insert(name.clone(), health);
                    node = Arc::new(requests::get(context.api, &NODES, "", &name).await.ok()?);
                }
                Err(_) => return None,
            }
        }
        None
    }

    /// Queues a node that is not ready for its NoExecute taint; swaps the taint at once when the node has the other
    /// one; removes both from a node that is ready.
    async fn queue_taint(&self, node: &Node, was: Option<bool>, context: Context<'_>) {
        let status = node.condition("Ready").map_or("Unknown", |ready| ready.status.as_str());
        let (wanted, opposite) = match (was, status) {
            (Some(true), _) => return self.mark_reachable(node, context).await,
            (_, "False") => (taints::not_ready(), taints::unreachable()),
            _ => (taints::unreachable(), taints::not_ready()),
        };
        if node.has(&opposite) {
            // Retried in the next pass.
            let _ = swap_taints(context, node, &[wanted], &[opposite]).await;
        } else {
            lock(&self.state).zones.enqueue(&node.zone(), &node.metadata.name, node.has(&wanted));
        }
    }

    async fn mark_reachable(&self, node: &Node, context: Context<'_>) {
        let both = [taints::unreachable(), taints::not_ready()];
        if both.iter().any(|taint| node.has(taint)) && swap_taints(context, node, &[], &both).await.is_err() {
            return; // Tried again at the next look.
        }
        lock(&self.state).zones.forget(&node.zone(), &node.metadata.name);
    }

    /// Adds the NoExecute taint to the nodes whose turn it is.
    async fn taint_pass(&self, context: Context<'_>) -> Result<Requeue, Error> {
        let due = lock(&self.state).zones.due(context.now);
        for name in due {
            let Some(node) = self.cache.nodes().get("", &name) else { continue };
            let (add, remove): (Taint, Taint) = match node.condition("Ready").map(|ready| ready.status.as_str()) {
                Some("False") => (taints::not_ready(), taints::unreachable()),
                Some("Unknown") => (taints::unreachable(), taints::not_ready()),
                Some(_) => continue,
                None => {
                    lock(&self.state).zones.enqueue(&node.zone(), &name, false);
                    continue;
                }
            };
            if swap_taints(context, &node, &[add], &[remove]).await.is_err() {
                lock(&self.state).zones.enqueue(&node.zone(), &name, false);
            }
        }
        let waiting = lock(&self.state).zones.is_waiting();
        Ok(if waiting { Requeue::After(TAINT_PASS_PERIOD) } else { Requeue::OnChange })
    }

    /// Keeps a node's NoSchedule taints in step with its conditions, and its deprecated labels with the present ones.
    async fn follow_conditions(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(node) = self.cache.nodes().get("", name) else { return Ok(Requeue::OnChange) };
        let (add, remove) = taints::by_condition(&node);
        if !add.is_empty() || !remove.is_empty() {
            settled(swap_taints(context, &node, &add, &remove).await)?;
        }
        let labels = taints::deprecated_labels(&node);
        if !labels.is_empty() {
            let patch = json!({"metadata": {"labels": labels}});
            let kind = bayplan_model::api::PatchKind::Strategic;
            settled(requests::patch(context.api, &NODES, &node.metadata, kind, &patch).await.map(drop))?;
        }
        Ok(Requeue::OnChange)
    }

    /// A pod that was bound to a node that is not ready is not ready either.
    async fn mark_bound_pod(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(pod) = self.cache.pods().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let ready = lock(&self.state).health.get(&pod.node_name).and_then(Health::is_ready);
        if ready == Some(false) {
            mark_not_ready(&[pod], context).await?;
        }
        Ok(Requeue::OnChange)
    }
}

/// A node that no longer exists needs nothing.
fn settled(outcome: Result<(), bayplan_model::status::Status>) -> Result<(), Error> {
    match outcome {
        Err(status) if not_found(&status) => Ok(()),
        outcome => outcome.map_err(Error::from),
    }
}

fn reference(name: &str, uid: &str) -> ObjectReference {
    let (name, uid) = (name.to_owned(), uid.to_owned());
    ObjectReference { api_version: "v1".into(), kind: "Node".into(), name, uid, ..ObjectReference::default() }
}

/// Marks the pods of an unresponsive node as not ready.
async fn mark_not_ready(pods: &[Arc<Pod>], context: Context<'_>) -> Result<(), Error> {
    let mut errors = Vec::new();
    for pod in pods.iter().filter(|pod| pod.ready) {
        let since = timestamp::seconds(context.now);
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]},
        });
        match patch_status(context.api, &PODS, &pod.metadata, patch).await {
            Ok(()) => {
                let regarding = event_reference("v1", "Pod", &pod.metadata);
                context.warning(regarding, "NodeNotReady", "Node is not ready".into());
            }
            Err(status) if not_found(&status) => {}
            Err(status) => errors.push(status.into()),
        }
    }
    Error::collect(errors)
}

impl Controller for NodeLifecycleController {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    /// Events carry upstream's older name of the controller.
    fn component(&self) -> &'static str {
        "node-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Node, Kind::Lease, Kind::Pod]
    }

    fn workers(&self) -> usize {
        NODES_AT_ONCE
    }

    fn start(&self) -> Vec<Wakeup> {
        vec![Wakeup::now(MONITOR)]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Node(Delta::Added(node) | Delta::Updated { new: node, .. }) => {
                vec![Wakeup::now(format!("node/{}", node.metadata.name))]
            }
            AnyDelta::Pod(delta) => {
                lock(&self.pods).observe(delta);
                match delta {
                    Delta::Added(pod) if !pod.node_name.is_empty() => pod_key(pod),
                    Delta::Updated { old, new } if !new.node_name.is_empty() && old.node_name != new.node_name => {
                        pod_key(new)
                    }
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

fn pod_key(pod: &Pod) -> Vec<Wakeup> {
    vec![Wakeup::now(format!("pod/{}", pod.metadata.key()))]
}
