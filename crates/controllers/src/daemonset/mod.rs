//! DaemonSets: one pod on every node that should have one.
//!
//! ```text
//!   nodes ──▶ nodes::fit ─┐
//!   pods ──▶ pods::by_node ┴▶ Manage ─▶ Plan ─▶ carry_out        (pods go to their nodes through the scheduler)
//!   revisions ─▶ history ──▶ Rolling ─▶ Plan ─▶ carry_out ─▶ history ─▶ status
//! ```

mod backoff;
mod history;
mod manage;
mod nodes;
mod object;
mod observe;
mod pod_template;
mod pods;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::ObjectReference;
use bayplan_model::keyed::KeyedSet;
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, ControllerKey, Kind};
use crate::claim::Claimant;
use crate::consistency::Consistency;
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::Error;
use crate::expectations::Expectations;
use crate::node::Node;
use crate::pod::Pod;
use crate::pods_by_node::PodsByNode;
use crate::requests::{DAEMON_SETS, PODS};
use crate::workload::{APPS_V1, event_reference};
pub use backoff::FailedPodBackoff;
use history::History;
pub use manage::{Manage, Plan};
pub use nodes::{NodeFit, fit};
pub use object::{DaemonSet, DaemonSetSpec, DaemonSetStatus, Template};
pub use pod_template::PodTemplate;
use rolling::Rolling;

/// The kind of what this controller reconciles.
const KIND: &str = "DaemonSet";

/// A node, and what the DaemonSet wants there.
type NodeWithFit = (Arc<Node>, NodeFit);

/// The DaemonSet controller.
pub struct DaemonSetController {
    cache: Arc<Cache>,
    expectations: Mutex<Expectations>,
    consistency: Mutex<Consistency>,
    backoff: Mutex<FailedPodBackoff>,
    /// The pods of DaemonSets.
    daemons_by_node: Mutex<PodsByNode>,
}

/// How a DaemonSet claims pods.
fn claimant(ds: &DaemonSet) -> Claimant<'_> {
    Claimant {
        kind: KIND,
        api_version: APPS_V1,
        resource: DAEMON_SETS,
        meta: &ds.metadata,
        selector: &ds.spec.selector,
        object_kind: "Pod",
        object_resource: PODS,
    }
}

fn regarding(ds: &DaemonSet) -> ObjectReference {
    event_reference(APPS_V1, KIND, &ds.metadata)
}

impl DaemonSetController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        DaemonSetController {
            cache,
            expectations: Mutex::default(),
            consistency: Mutex::default(),
            backoff: Mutex::default(),
            daemons_by_node: Mutex::default(),
        }
    }

    /// Reconciles one DaemonSet; upstream's `syncDaemonSet`.
    pub async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        self.check_consistency(key)?;
        let (namespace, name) = split_key(key);
        let Some(ds) = self.cache.daemon_sets().get(namespace, name) else {
            lock(&self.consistency).forget(key, None);
            lock(&self.expectations).forget(key);
            return Ok(Requeue::OnChange);
        };
        if ds.spec.selector.is_everything() {
            let note = "This daemon set is selecting all pods. A non-empty selector is required.";
            context.warning(regarding(&ds), "SelectingAll", note.into());
            return Ok(Requeue::OnChange);
        }
        // Its revisions may be gone already, and without them neither pods nor status can be told.
        if ds.metadata.deletion_timestamp.is_some() || ds.spec.selector.error().is_some() {
            return Ok(Requeue::OnChange);
        }
        let history = self.history(key, &ds, context).await?;
        let mut pods = self.claim(key, &ds, context).await?;
        let nodes = self.nodes(&ds);
        let acts = lock(&self.expectations).satisfied(key, context.now);
        let (mut retry_after, mut outcome) = (None, Ok(()));
        if acts {
            outcome = self.act(key, &ds, &history, &nodes, &pods, context, &mut retry_after).await;
            pods = self.pods_now(&ds, &pods);
        }
        let written = self.write_status(key, &ds, &history.hash, &nodes, &pods, acts, context).await;
        outcome?;
        let available_after = written?;
        Ok(retry_after.into_iter().chain(available_after).min().map_or(Requeue::OnChange, Requeue::After))
    }

    fn check_consistency(&self, key: &str) -> Result<(), Error> {
        let pods = self.cache.pods().version().to_owned();
        let sets = self.cache.daemon_sets().version().to_owned();
        lock(&self.consistency).check(key, &pods, &sets).map_err(|(read, written, is_pod)| Error::Stale {
            read,
            written,
            resource: if is_pod { "pods" } else { "daemonsets.apps" },
        })
    }

    fn nodes(&self, ds: &DaemonSet) -> Vec<NodeWithFit> {
        self.cache.nodes().all().map(|node| (node.clone(), fit(&ds.spec.template, node))).collect()
    }

    /// The pods that belong to the DaemonSet, after adoption and release.
    async fn claim(&self, key: &str, ds: &DaemonSet, context: Context<'_>) -> Result<Vec<Arc<Pod>>, Error> {
        let selected = |pod: &Arc<Pod>| ds.spec.selector.matches(&pod.metadata.labels);
        let (mut claimed, others) = {
            let pods = self.cache.pods();
            let (claimed, mut others): (Vec<_>, Vec<_>) =
                pods.controlled_by(&ControllerKey::of(KIND, &ds.metadata)).cloned().partition(selected);
            others.extend(pods.orphans(&ds.metadata.namespace).filter(|pod| selected(pod)).cloned());
            (claimed, others)
        };
        let claims = claimant(ds).claim(context.api, others).await;
        let mut consistency = lock(&self.consistency);
        for pod in claims.written.iter().filter(|pod| pod.controller().is_some_and(|o| o.uid == ds.metadata.uid)) {
            consistency.wrote_pod(key, &ds.metadata.uid, &pod.resource_version);
        }
        drop(consistency);
        Error::collect(claims.errors)?;
        claimed.extend(claims.claimed);
        Ok(claimed)
    }

    /// The pods as the cache has them after this reconcile's writes; those that were adopted may still look like
    /// orphans.
    fn pods_now(&self, ds: &DaemonSet, before: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let adopted: KeyedSet<&str> = before
            .iter()
            .filter(|pod| pod.metadata.controller().is_none())
            .map(|pod| pod.metadata.uid.as_str())
            .collect();
        let pods = self.cache.pods();
        let owned = pods.controlled_by(&ControllerKey::of(KIND, &ds.metadata));
        let owned = owned.filter(|pod| ds.spec.selector.matches(&pod.metadata.labels));
        let orphans = pods.orphans(&ds.metadata.namespace).take(if adopted.is_empty() { 0 } else { usize::MAX });
        owned.chain(orphans.filter(|pod| adopted.contains(pod.metadata.uid.as_str()))).cloned().collect()
    }

    /// Creates, deletes and rolls; then old revisions go. Answers in `retry_after` when failed pods are due.
    #[allow(clippy::too_many_arguments, reason = "one reconcile's view of the cluster")]
    async fn act(
        &self,
        key: &str,
        ds: &DaemonSet,
        history: &History,
        nodes: &[NodeWithFit],
        pods: &[Arc<Pod>],
        context: Context<'_>,
        retry_after: &mut Option<Duration>,
    ) -> Result<(), Error> {
        let hash = history.hash.as_str();
        let plan = {
            let manage = Manage { ds, hash, now: context.now };
            manage.all(nodes, &pods::by_node(pods), &mut lock(&self.backoff))
        };
        *retry_after = plan.retry_after;
        plan.record_ended(ds, context);
        self.carry_out(key, ds, hash, plan, context).await?;
        if ds.rolls() && lock(&self.expectations).satisfied(key, context.now) {
            let now = self.pods_now(ds, pods);
            let plan = Rolling { ds, hash, now: context.now }.plan(nodes, &pods::by_node(&now))?;
            self.carry_out(key, ds, hash, plan, context).await?;
        }
        history.clean_up(ds, pods, context).await
    }

    /// Writes the status, and returns when the next pod is to be looked at because it may be available then.
    #[allow(clippy::too_many_arguments, reason = "one reconcile's view of the cluster")]
    async fn write_status(
        &self,
        key: &str,
        ds: &DaemonSet,
        hash: &str,
        nodes: &[NodeWithFit],
        pods: &[Arc<Pod>],
        acted: bool,
        context: Context<'_>,
    ) -> Result<Option<Duration>, Error> {
        let status = status::calculate(ds, hash, nodes, &pods::by_node(pods), context.now);
        let acted_on = acted.then_some(ds.metadata.generation);
        if let Some(stored) = status::write(context.api, ds, &status, acted_on).await? {
            lock(&self.consistency).wrote_owner(key, &ds.metadata.uid, &stored.metadata.resource_version);
        }
        // Upstream asks this of the pods that the status counts. A manager that starts in the middle of an update with
        // surge must look at the new pod beside the old one, too, or nobody wakes it when that one is available.
        let min_ready = ds.spec.min_ready_seconds;
        let waits = min_ready > 0 && pods.iter().any(|pod| pod.ready && !pod.is_available(min_ready, context.now));
        Ok(waits.then(|| Duration::from_secs(ds.spec.min_ready_seconds.unsigned_abs().into())))
    }
}

impl Controller for DaemonSetController {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::DaemonSet, Kind::ControllerRevision, Kind::Pod, Kind::Node]
    }

    fn workers(&self) -> usize {
        2
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::DaemonSet(delta) => self.observe_daemon_set(delta),
            AnyDelta::ControllerRevision(delta) => self.observe_revision(delta),
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            AnyDelta::Node(delta) => self.observe_node(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move {
            // Nodes have no namespace.
            if key.contains('/') { self.reconcile(key, context).await } else { Ok(self.reconcile_node(key)) }
        })
    }
}
