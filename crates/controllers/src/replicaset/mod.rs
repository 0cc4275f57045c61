//! ReplicaSets: as many active pods as the spec asks for, no more and no fewer.

mod manage;
mod observe;
mod owner;
pub mod ranking;
mod selectors;
pub mod status;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::consistency::Consistency;
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::Error;
use crate::expectations::Expectations;
use crate::pod::Pod;
use crate::workload::ReplicaSet;
use owner::Owner;
pub use owner::ReplicationController;

/// At most this many pods are created or deleted in one reconcile, so that one ReplicaSet cannot keep a worker and
/// the API server busy while the others wait.
pub const BURST_REPLICAS: usize = 500;

/// The ReplicaSet controller, and the one of ReplicationControllers.
pub struct ReplicaSetController {
    cache: Arc<Cache>,
    owner: Owner,
    burst: usize,
    expectations: Mutex<Expectations>,
    consistency: Mutex<Consistency>,
}

impl ReplicaSetController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self::with_burst(cache, BURST_REPLICAS)
    }

    /// A controller that creates or deletes at most `burst` pods in one reconcile.
    pub fn with_burst(cache: Arc<Cache>, burst: usize) -> Self {
        Self::of(Owner::ReplicaSet, cache, burst)
    }

    /// The same controller for ReplicationControllers.
    pub fn of_replication_controllers(cache: Arc<Cache>) -> Self {
        Self::of(Owner::ReplicationController, cache, BURST_REPLICAS)
    }

    fn of(owner: Owner, cache: Arc<Cache>, burst: usize) -> Self {
        ReplicaSetController { cache, owner, burst, expectations: Mutex::default(), consistency: Mutex::default() }
    }

    /// Reconciles one ReplicaSet; upstream's `syncReplicaSet`.
    pub async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        self.check_consistency(key)?;
        let (namespace, name) = split_key(key);
        let Some(rs) = self.owner.get(&self.cache, namespace, name) else {
            lock(&self.consistency).forget(key, None);
            lock(&self.expectations).forget(key);
            return Ok(Requeue::OnChange);
        };
        if rs.spec.selector.error().is_some() {
            return Ok(Requeue::OnChange);
        }
        let adjust = rs.metadata.deletion_timestamp.is_none() && lock(&self.expectations).satisfied(key, context.now);
        let (active, terminating) = self.pods(key, &rs, context).await?;
        let managed = if adjust { self.manage(key, &rs, &active, context).await } else { Ok(()) };
        let failure = managed.as_ref().err();
        // ReplicationControllers have no field for it.
        let terminating = (self.owner == Owner::ReplicaSet).then_some(terminating);
        let status = status::calculate(&rs, &active, terminating, failure, context.now, context.second());
        if let Some(stored) = status::write(context.api, self.owner, &rs, status.clone()).await? {
            lock(&self.consistency).wrote_owner(key, &rs.metadata.uid, &stored.metadata.resource_version);
        }
        managed?;
        let waits = status.ready_replicas != status.available_replicas;
        let wait = status::next_availability(rs.spec.min_ready_seconds, waits, &active, context.now);
        Ok(wait.map_or(Requeue::OnChange, Requeue::After))
    }

    fn check_consistency(&self, key: &str) -> Result<(), Error> {
        let pods = self.cache.pods().version().to_owned();
        let owner = self.owner.version(&self.cache);
        lock(&self.consistency).check(key, &pods, &owner).map_err(|(read, written, is_pod)| Error::Stale {
            read,
            written,
            resource: if is_pod { "pods" } else { self.owner.group_resource() },
        })
    }

    /// The active pods that belong to the ReplicaSet, after adoption and release, and the number of its terminating
    /// ones.
    async fn pods(&self, key: &str, rs: &ReplicaSet, context: Context<'_>) -> Result<(Vec<Arc<Pod>>, usize), Error> {
        let by_name = |a: &Arc<Pod>, b: &Arc<Pod>| a.metadata.name.cmp(&b.metadata.name);
        let (mut active, others, terminating) = {
            let pods = self.cache.pods();
            let selected = |pod: &Arc<Pod>| rs.spec.selector.matches(&pod.metadata.labels);
            let (mut active, mut others, mut terminating) = (Vec::new(), Vec::new(), 0);
            // Each change of one pod visits thousands: once each, and those that need no write are taken as they are.
            for pod in pods.controlled_by(&self.owner.key(rs)) {
                match pod.is_active() {
                    true if selected(pod) => active.push(pod.clone()),
                    true => others.push(pod.clone()),
                    false if pod.is_terminating() && selected(pod) => terminating += 1,
                    false => {}
                }
            }
            let orphans = pods.orphans(&rs.metadata.namespace).filter(|pod| pod.is_active() && selected(pod));
            others.extend(orphans.cloned());
            others.sort_by(by_name);
            (active, others, terminating)
        };
        let claims = self.owner.claimant(rs).claim(context.api, others).await;
        let mut consistency = lock(&self.consistency);
        for pod in claims.written.iter().filter(|pod| pod.controller().is_some_and(|o| o.uid == rs.metadata.uid)) {
            consistency.wrote_pod(key, &rs.metadata.uid, &pod.resource_version);
        }
        drop(consistency);
        Error::collect(claims.errors)?;
        if !claims.claimed.is_empty() {
            active.extend(claims.claimed);
            active.sort_by(by_name);
        }
        Ok((active, terminating))
    }
}

impl Controller for ReplicaSetController {
    fn name(&self) -> &'static str {
        match self.owner {
            Owner::ReplicaSet => "replicaset-controller",
            Owner::ReplicationController => "replicationcontroller-controller",
        }
    }

    fn component(&self) -> &'static str {
        match self.owner {
            Owner::ReplicaSet => "replicaset-controller",
            Owner::ReplicationController => "replication-controller",
        }
    }

    fn watches(&self) -> &'static [Kind] {
        self.owner.watches()
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::ReplicaSet(delta) => self.observe_replica_set(delta),
            AnyDelta::ReplicationController(delta) => self.observe_replica_set(&owner::as_replica_set(delta)),
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
