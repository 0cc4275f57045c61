//! Deployments: one ReplicaSet for each template, and the rollout from the old ones to the new one.

pub mod annotations;
pub mod arithmetic;
pub mod conditions;
mod observe;
mod recreate;
pub mod revision;
mod rollback;
mod rolling;
mod scale;
pub mod status;
pub mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::api::{DeleteOptions, ObjectReference};
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, ControllerKey, Kind};
use crate::claim::Claimant;
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::requests::{self, DEPLOYMENTS, REPLICA_SETS};
use crate::workload::{APPS_V1, Deployment, ReplicaSet, event_reference};

/// After this many failures in a row a Deployment waits for its next change.
pub const MAX_RETRIES: u32 = 15;

const KIND: &str = "Deployment";

/// The Deployment controller.
pub struct DeploymentController {
    cache: Arc<Cache>,
}

/// One reconcile of one Deployment: its own copy, and the ReplicaSets that belong to it.
struct Rollout<'a> {
    context: Context<'a>,
    cache: &'a Cache,
    d: Deployment,
    owned: Vec<Arc<ReplicaSet>>,
}

/// The ReplicaSets of a Deployment: the one of its present template, and the others.
struct Sets {
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> Vec<Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new).cloned().collect()
    }
}

/// How pods name a ReplicaSet as their controller.
fn replica_set_key(rs: &ReplicaSet) -> ControllerKey {
    ControllerKey::of("ReplicaSet", &rs.metadata)
}

/// The ReplicaSets with `spec.replicas` above 0.
fn active(sets: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    sets.iter().filter(|rs| rs.spec.replicas > 0).cloned().collect()
}

impl DeploymentController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        DeploymentController { cache }
    }

    /// Reconciles one Deployment; upstream's `syncDeployment`.
    pub async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(d) = self.cache.deployments().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let mut rollout = Rollout { context, cache: &self.cache, d: Deployment::clone(&d), owned: Vec::new() };
        if d.spec.selector.is_everything() {
            return rollout.refuse_selecting_all().await;
        }
        if let Some(error) = d.spec.selector.error() {
            return Err(Error::Invalid(format!("deployment {key} has invalid label selector: {error}")));
        }
        let claims = claimant(&d).claim(context.api, self.candidates(&d)).await;
        Error::collect(claims.errors)?;
        rollout.owned = claims.claimed;
        rollout.run().await
    }

    /// The ReplicaSets that the Deployment owns and those without an owner, by name. Those of other owners are never
    /// claimed, and there may be thousands of them.
    fn candidates(&self, d: &Deployment) -> Vec<Arc<ReplicaSet>> {
        let sets = self.cache.replica_sets();
        let own = sets.controlled_by(&ControllerKey::of(KIND, &d.metadata));
        let mut candidates: Vec<_> = own.chain(sets.orphans(&d.metadata.namespace)).cloned().collect();
        candidates.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        candidates
    }
}

/// How a Deployment claims ReplicaSets.
pub fn claimant(d: &Deployment) -> Claimant<'_> {
    Claimant {
        kind: KIND,
        api_version: APPS_V1,
        resource: DEPLOYMENTS,
        meta: &d.metadata,
        selector: &d.spec.selector,
        object_kind: "ReplicaSet",
        object_resource: REPLICA_SETS,
    }
}

impl Rollout<'_> {
    async fn run(&mut self) -> Result<Requeue, Error> {
        if self.d.metadata.deletion_timestamp.is_some() {
            let sets = self.sets(false).await?;
            return self.sync_status(&sets).await;
        }
        self.check_paused().await?;
        if self.d.spec.paused {
            return self.sync_scale().await;
        }
        if let Some(revision) = self.rollback_to() {
            return self.rollback(revision).await;
        }
        if self.is_scaling_event().await? {
            return self.sync_scale().await;
        }
        match self.d.spec.strategy.strategy_type.as_str() {
            "Recreate" => self.recreate().await,
            "RollingUpdate" => self.roll().await,
            other => Err(Error::Invalid(format!("unexpected deployment strategy type: {other}"))),
        }
    }

    async fn refuse_selecting_all(&mut self) -> Result<Requeue, Error> {
        let note = "This deployment is selecting all pods. A non-empty selector is required.";
        self.context.warning(self.regarding(), "SelectingAll", note.into());
        if self.d.status.observed_generation < self.d.metadata.generation {
            self.d.status.observed_generation = self.d.metadata.generation;
            self.write_status().await?;
        }
        Ok(Requeue::OnChange)
    }

    /// Sets condition `Progressing` when a rollout is paused or resumed: the progress deadline stops meanwhile.
    async fn check_paused(&mut self) -> Result<(), Error> {
        use conditions::reason::{DEPLOYMENT_PAUSED, DEPLOYMENT_RESUMED, PROGRESS_DEADLINE_EXCEEDED};
        if conditions::progress_deadline(&self.d).is_none() {
            return Ok(());
        }
        let current = conditions::get(&self.d.status, conditions::PROGRESSING).map(|c| c.reason.as_str());
        let (why, message) = match (self.d.spec.paused, current) {
            (_, Some(PROGRESS_DEADLINE_EXCEEDED)) | (true, Some(DEPLOYMENT_PAUSED)) => return Ok(()),
            (true, _) => (DEPLOYMENT_PAUSED, "Deployment is paused"),
            (false, Some(DEPLOYMENT_PAUSED)) => (DEPLOYMENT_RESUMED, "Deployment is resumed"),
            (false, _) => return Ok(()),
        };
        self.set_progressing("Unknown", why, message.into());
        self.write_status().await
    }

    /// Writes status and revision annotation; both go through the status endpoint, as upstream's do.
    async fn write_status(&mut self) -> Result<(), Error> {
        let stored: Deployment =
            requests::update_status(self.context.api, &DEPLOYMENTS, &self.d.metadata, &self.d).await?;
        self.d.metadata.resource_version = stored.metadata.resource_version;
        Ok(())
    }

    /// Writes a ReplicaSet; the later steps of this sync see what the server stored.
    async fn update_replica_set(&mut self, rs: &ReplicaSet) -> Result<ReplicaSet, Error> {
        Ok(requests::update(self.context.api, &REPLICA_SETS, &rs.metadata, rs).await?)
    }

    async fn delete_replica_set(&mut self, rs: &ReplicaSet) -> Result<(), Error> {
        match requests::delete(self.context.api, &REPLICA_SETS, &rs.metadata, DeleteOptions::default()).await {
            Err(status) if !not_found(&status) => Err(status.into()),
            _ => Ok(()),
        }
    }

    fn regarding(&self) -> ObjectReference {
        event_reference(APPS_V1, KIND, &self.d.metadata)
    }
}

impl Controller for DeploymentController {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Deployment, Kind::ReplicaSet, Kind::Pod]
    }

    fn max_retries(&self) -> u32 {
        MAX_RETRIES
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Deployment(delta) => self.observe_deployment(delta),
            AnyDelta::ReplicaSet(delta) => self.observe_replica_set(delta),
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
