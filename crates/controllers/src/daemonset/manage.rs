//! One pod on every node that should have one, and none elsewhere; upstream's `manage`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::encode;
use futures::future::join_all;
use jiff::Timestamp;

use super::backoff::FailedPodBackoff;
use super::nodes::NodeFit;
use super::object::DaemonSet;
use super::pod_template::PodTemplate;
use super::pods::{PodsByNode, sort};
use super::{DaemonSetController, NodeWithFit, regarding};
use crate::controller::{Context, lock};
use crate::error::{Error, namespace_terminating, not_found};
use crate::pod::{Phase, Pod};
use crate::pod_control::{create_pod, delete_pod};
use crate::revisions::REVISION_LABEL;
use crate::slow_start::slow_start;

/// At most this many pods are created, and as many deleted, in one reconcile, so that one DaemonSet of a large cluster
/// cannot keep a worker and the API server busy while the others wait.
pub(super) const BURST_REPLICAS: usize = 250;

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// The nodes to create a pod for.
    pub create: Vec<String>,
    /// The pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// The pods among them that have ended, with their nodes.
    pub ended: Vec<(Arc<Pod>, String)>,
    /// When a failed pod that may not be replaced yet is to be looked at again.
    pub retry_after: Option<Duration>,
}

impl Plan {
    fn delete(&mut self, pods: &[&Arc<Pod>]) {
        self.delete.extend(pods.iter().map(|pod| Arc::clone(pod)));
    }

    /// Tells the user why pods that have ended are deleted.
    pub fn record_ended(&self, ds: &DaemonSet, context: Context<'_>) {
        for (pod, node) in &self.ended {
            let key = pod.metadata.key();
            if pod.phase == Phase::Failed {
                let note = format!("Found failed daemon pod {key} on node {node}, will try to kill it");
                context.warning(regarding(ds), "FailedDaemonPod", note);
            } else {
                let note = format!("Found succeeded daemon pod {key} on node {node}, will try to delete it");
                context.normal(regarding(ds), "SucceededDaemonPod", note);
            }
        }
    }
}

/// The view of one reconcile that decides what a node's pods should be.
pub struct Manage<'a> {
    /// The DaemonSet.
    pub ds: &'a DaemonSet,
    /// The hash of its current revision.
    pub hash: &'a str,
    /// The time.
    pub now: Timestamp,
}

impl Manage<'_> {
    /// Plans for one node and its pods; upstream's `podsShouldBeOnNode`.
    pub fn node(&self, name: &str, fit: NodeFit, pods: &[&Arc<Pod>], backoff: &mut FailedPodBackoff, plan: &mut Plan) {
        if fit.should_run && pods.is_empty() {
            plan.create.push(name.into());
            return;
        }
        let live: Vec<&Arc<Pod>> = pods.iter().copied().filter(|pod| !is_deleted(pod)).collect();
        if !fit.should_continue {
            plan.delete(&live);
            return;
        }
        let mut running = self.replace_ended(name, &live, backoff, plan);
        if !self.ds.allows_surge() {
            sort(&mut running);
            plan.delete(running.get(1..).unwrap_or_default());
        } else if running.is_empty() {
            // The pod may be on its way out: two on one node are allowed.
            if fit.should_run {
                plan.create.push(name.into());
            }
        } else {
            self.keep_old_and_new(running, plan);
        }
    }

    /// Plans to delete the pods that have ended, and returns the others.
    fn replace_ended<'p>(
        &self,
        node: &str,
        live: &[&'p Arc<Pod>],
        backoff: &mut FailedPodBackoff,
        plan: &mut Plan,
    ) -> Vec<&'p Arc<Pod>> {
        let mut running = Vec::new();
        for pod in live {
            if !pod.is_terminal() {
                running.push(*pod);
                continue;
            }
            if pod.phase == Phase::Failed {
                let key = format!("{}/{}/{node}", self.ds.metadata.uid, self.ds.status.observed_generation);
                if let Some(pause) = backoff.pause(&key, self.now) {
                    plan.retry_after = Some(plan.retry_after.map_or(pause, |known| known.min(pause)));
                    continue;
                }
                backoff.next(key, self.now);
            }
            plan.delete(&[pod]);
            plan.ended.push((Arc::clone(pod), node.into()));
        }
        running
    }

    /// During an update with surge a node keeps the oldest pod of the current revision and the oldest of all others,
    /// until the new one is available or the old one is of no use any more.
    fn keep_old_and_new(&self, mut running: Vec<&Arc<Pod>>, plan: &mut Plan) {
        sort(&mut running);
        let (mut new, mut old) = (None, None);
        for pod in running {
            let is_new = pod.metadata.labels.get(REVISION_LABEL).map_or("", String::as_str) == self.hash;
            let kept = if is_new { &mut new } else { &mut old };
            match kept {
                None => *kept = Some(pod),
                Some(_) => plan.delete(&[pod]),
            }
        }
        let (Some(new), Some(old)) = (new, old) else { return };
        if !old.ready || new.is_available(self.ds.spec.min_ready_seconds, self.now) {
            plan.delete(&[old]);
        }
    }

    /// Plans for all nodes.
    pub(super) fn all(&self, nodes: &[NodeWithFit], pods: &PodsByNode<'_>, backoff: &mut FailedPodBackoff) -> Plan {
        let mut plan = Plan::default();
        for (node, fit) in nodes {
            let name = node.metadata.name.as_str();
            self.node(name, *fit, pods.get(name).map_or(&[], Vec::as_slice), backoff, &mut plan);
        }
        // Nobody else would: no scheduler binds them, and the pod garbage collector looks at bound pods only.
        let known: BTreeSet<&str> = nodes.iter().map(|(node, _)| node.metadata.name.as_str()).collect();
        let nowhere = pods.iter().filter(|(node, _)| !known.contains(*node)).flat_map(|(_, pods)| pods);
        plan.delete.extend(nowhere.filter(|pod| pod.node_name.is_empty()).map(|pod| Arc::clone(pod)));
        plan
    }
}

fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

impl DaemonSetController {
    /// Creates and deletes, a burst of each at most; upstream's `syncNodes`.
    pub(super) async fn carry_out(
        &self,
        key: &str,
        ds: &DaemonSet,
        hash: &str,
        plan: Plan,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let Plan { mut create, mut delete, .. } = plan;
        create.truncate(BURST_REPLICAS);
        delete.truncate(BURST_REPLICAS);
        let doomed = delete.iter().map(|pod| pod.metadata.key());
        lock(&self.expectations).expect(key, create.len(), doomed, context.now);
        let created = self.create(key, ds, hash, &create, context).await;
        let deleted = self.delete(key, ds, &delete, context).await;
        match (created, deleted) {
            (Err(one), Err(other)) => Err(Error::Several(vec![one, other])),
            (created, deleted) => created.and(deleted),
        }
    }

    async fn create(
        &self,
        key: &str,
        ds: &DaemonSet,
        hash: &str,
        nodes: &[String],
        context: Context<'_>,
    ) -> Result<(), Error> {
        if nodes.is_empty() {
            return Ok(());
        }
        let regarding = regarding(ds);
        let template = PodTemplate::new(ds, hash);
        let (successes, outcome) = slow_start(nodes.len(), 1, |at| {
            let body = match &template {
                Ok(template) => Ok(encode(&template.for_node(&nodes[at]))),
                Err(error) => Err(error.clone()),
            };
            let regarding = &regarding;
            async move {
                match create_pod(context, &ds.metadata.namespace, body?, regarding).await {
                    Ok(pod) => lock(&self.consistency).wrote_pod(key, &ds.metadata.uid, &pod.resource_version),
                    // Counted as done: the namespace is deleted with the DaemonSet, so a retry is pointless.
                    Err(status) if namespace_terminating(&status) => {}
                    Err(status) => return Err(Error::Api(status)),
                }
                Ok(())
            }
        })
        .await;
        let mut expectations = lock(&self.expectations);
        for _ in successes..nodes.len() {
            expectations.creation_observed(key);
        }
        outcome
    }

    async fn delete(&self, key: &str, ds: &DaemonSet, pods: &[Arc<Pod>], context: Context<'_>) -> Result<(), Error> {
        let regarding = regarding(ds);
        let answers = join_all(pods.iter().map(|pod| async {
            let deleted = delete_pod(context, &pod.metadata, &regarding).await;
            if deleted.is_err() {
                lock(&self.expectations).deletion_observed(key, &pod.metadata.key());
            }
            deleted
        }))
        .await;
        let failed = answers.into_iter().filter_map(Result::err).find(|status| !not_found(status));
        failed.map_or(Ok(()), |status| Err(Error::DeletePod(status)))
    }
}
