//! StatefulSets: pods with names that stay, claims of their own, and an order.
//!
//! ```text
//!   revisions ─▶ history::current_and_update ─┐
//!   pods ──▶ claim ──▶ identity::Members ─────┴▶ Manage: replicas ─▶ condemned ─▶ roll ─▶ status ─▶ truncate
//!                                                   └▶ Writes: pods, claims (owners by retention), events
//! ```

mod history;
mod identity;
mod manage;
mod object;
mod observe;
mod pod_template;
mod retention;
mod status;
#[cfg(test)]
mod tests;
mod writes;

use std::sync::{Arc, Mutex};

use bayplan_model::api::ObjectReference;
use bayplan_model::keyed::KeyedMap;
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, ControllerKey, Kind};
use crate::claim::Claimant;
use crate::consistency::Consistency;
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::Error;
use crate::pod::Pod;
use crate::replicaset::status::next_availability;
use crate::requests::{PODS, STATEFUL_SETS};
use crate::revisions::ControllerRevision;
use crate::workload::{APPS_V1, event_reference};
use history::{Revisions, SameMeaning};
use identity::Members;
use manage::Manage;
use writes::Writes;

pub use history::proposed;
pub use object::{StatefulSet, StatefulSetSpec, StatefulSetStatus};
pub use pod_template::pod;

/// The kind of what this controller reconciles.
const KIND: &str = "StatefulSet";

/// The StatefulSet controller.
pub struct StatefulSetController {
    cache: Arc<Cache>,
    consistency: Mutex<Consistency>,
    /// What was found out about revisions that are written otherwise than this version would, by key.
    same_meaning: Mutex<KeyedMap<String, SameMeaning>>,
}

/// How a StatefulSet claims pods.
fn claimant(set: &StatefulSet) -> Claimant<'_> {
    Claimant {
        kind: KIND,
        api_version: APPS_V1,
        resource: STATEFUL_SETS,
        meta: &set.metadata,
        selector: &set.spec.selector,
        object_kind: "Pod",
        object_resource: PODS,
    }
}

fn regarding(set: &StatefulSet) -> ObjectReference {
    event_reference(APPS_V1, KIND, &set.metadata)
}

impl StatefulSetController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        StatefulSetController { cache, consistency: Mutex::default(), same_meaning: Mutex::default() }
    }

    /// Reconciles one StatefulSet; upstream's `sync`.
    pub async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        self.check_consistency(key)?;
        let (namespace, name) = split_key(key);
        let Some(set) = self.cache.stateful_sets().get(namespace, name) else {
            lock(&self.consistency).forget(key, None);
            lock(&self.same_meaning).remove(key);
            return Ok(Requeue::OnChange);
        };
        if set.spec.selector.error().is_some() {
            return Ok(Requeue::OnChange);
        }
        self.adopt_revisions(&set, context).await?;
        let pods = self.claim(key, &set, context).await?;
        let revisions = self.revisions(&set);
        let (known, outcome) = match self.current_and_update(&set, &revisions, context).await {
            Ok(known) => {
                let outcome = self.update(key, &set, &known, &pods, context).await;
                (Some(known), outcome)
            }
            Err(error) => (None, Err(error)),
        };
        let truncated = history::truncate(&set, &revisions, known.as_ref(), &pods, context).await;
        let status = match (outcome, truncated) {
            (Err(error), Err(other)) => return Err(Error::Several(vec![error, other])),
            (outcome, truncated) => truncated.and(outcome)?,
        };
        let waits = status.ready_replicas != status.available_replicas;
        let wait = next_availability(set.spec.min_ready_seconds, waits, &pods, context.now);
        Ok(wait.map_or(Requeue::OnChange, Requeue::After))
    }

    /// Acts on the pods and writes the status, even after a failure.
    async fn update(
        &self,
        key: &str,
        set: &StatefulSet,
        revisions: &Revisions,
        pods: &[Arc<Pod>],
        context: Context<'_>,
    ) -> Result<StatefulSetStatus, Error> {
        let name = |revision: &ControllerRevision| revision.metadata.name.clone();
        let mut status = StatefulSetStatus {
            observed_generation: set.metadata.generation,
            current_revision: name(&revisions.current),
            update_revision: name(&revisions.update),
            collision_count: Some(revisions.collision_count),
            ..StatefulSetStatus::default()
        };
        let writes = Writes { controller: self, key, set, context };
        let manage = Manage { writes, revisions, members: Members::new(set, pods) };
        let managed = manage.run(pods, &mut status).await;
        let written = self.write_status(key, set, &mut status, context).await;
        managed?;
        written?;
        Ok(status)
    }

    fn check_consistency(&self, key: &str) -> Result<(), Error> {
        let pods = self.cache.pods().version().to_owned();
        let claims = self.cache.volume_claims().version().to_owned();
        let sets = self.cache.stateful_sets().version().to_owned();
        let mut consistency = lock(&self.consistency);
        consistency.check_claims(key, &claims).map_err(|(read, written)| Error::Stale {
            read,
            written,
            resource: "persistentvolumeclaims",
        })?;
        consistency.check(key, &pods, &sets).map_err(|(read, written, is_pod)| Error::Stale {
            read,
            written,
            resource: if is_pod { "pods" } else { "statefulsets.apps" },
        })
    }

    /// The pods that belong to the set, after adoption and release: those that it selects and that are named like it.
    async fn claim(&self, key: &str, set: &StatefulSet, context: Context<'_>) -> Result<Vec<Arc<Pod>>, Error> {
        let ours = |pod: &Arc<Pod>| {
            set.spec.selector.matches(&pod.metadata.labels) && identity::is_member(&set.metadata, &pod.metadata)
        };
        let (mut claimed, others) = {
            let pods = self.cache.pods();
            let (claimed, mut others): (Vec<_>, Vec<_>) =
                pods.controlled_by(&ControllerKey::of(KIND, &set.metadata)).cloned().partition(ours);
            others.extend(pods.orphans(&set.metadata.namespace).filter(|pod| ours(pod)).cloned());
            (claimed, others)
        };
        let claims = claimant(set)
            .claim_those(context.api, others, |meta| {
                set.spec.selector.matches(&meta.labels) && identity::is_member(&set.metadata, meta)
            })
            .await;
        let mut consistency = lock(&self.consistency);
        for pod in claims.written.iter().filter(|pod| pod.controller().is_some_and(|o| o.uid == set.metadata.uid)) {
            consistency.wrote_pod(key, &set.metadata.uid, &pod.resource_version);
        }
        drop(consistency);
        Error::collect(claims.errors)?;
        claimed.extend(claims.claimed);
        Ok(claimed)
    }
}

impl Controller for StatefulSetController {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::StatefulSet, Kind::ControllerRevision, Kind::Pod, Kind::VolumeClaim]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::StatefulSet(delta) => self.observe_stateful_set(delta),
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            AnyDelta::VolumeClaim(delta) => self.observe_claim(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
