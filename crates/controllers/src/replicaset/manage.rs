//! Creates missing pods and deletes surplus ones; upstream's `manageReplicas`.

use std::sync::Arc;

use futures::future::join_all;

use super::ReplicaSetController;
use super::ranking::first_to_delete;
use super::selectors::Selectors;
use crate::cache::ControllerKey;
use crate::controller::{Context, lock};
use crate::error::{Error, namespace_terminating, not_found};
use crate::pod::Pod;
use crate::pod_control::{create_pod, delete_pod, pod_body};
use crate::slow_start::slow_start;
use crate::workload::{ReplicaSet, event_reference};

impl ReplicaSetController {
    /// Brings the number of active pods to what the spec asks for, at most a burst at a time.
    pub(super) async fn manage(
        &self,
        key: &str,
        rs: &ReplicaSet,
        active: &[Arc<Pod>],
        context: Context<'_>,
    ) -> Result<(), Error> {
        let desired = usize::try_from(rs.spec.replicas).unwrap_or(0);
        match active.len() {
            have if have < desired => self.create(key, rs, (desired - have).min(self.burst), context).await,
            have if have > desired => self.delete(key, rs, active, (have - desired).min(self.burst), context).await,
            _ => Ok(()),
        }
    }

    async fn create(&self, key: &str, rs: &ReplicaSet, count: usize, context: Context<'_>) -> Result<(), Error> {
        lock(&self.expectations).expect_creations(key, count, context.now);
        let owner = self.owner.claimant(rs).owner_reference();
        let regarding = event_reference(self.owner.api_version(), self.owner.kind(), &rs.metadata);
        let body = pod_body(&rs.spec.template, &owner);
        let (successes, outcome) = slow_start(count, 1, |_| async {
            let created = create_pod(context, &rs.metadata.namespace, body.clone()?, &regarding).await;
            match created {
                Ok(pod) => lock(&self.consistency).wrote_pod(key, &rs.metadata.uid, &pod.resource_version),
                // Counted as done: the namespace is deleted with the ReplicaSet, so a retry is pointless.
                Err(status) if namespace_terminating(&status) => {}
                Err(status) => return Err(Error::Api(status)),
            }
            Ok(())
        })
        .await;
        let mut expectations = lock(&self.expectations);
        for _ in successes..count {
            expectations.creation_observed(key);
        }
        outcome
    }

    async fn delete(
        &self,
        key: &str,
        rs: &ReplicaSet,
        active: &[Arc<Pod>],
        count: usize,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let victims = self.victims(rs, active, count, context);
        lock(&self.expectations).expect_deletions(key, victims.iter().map(|pod| pod.metadata.key()), context.now);
        let regarding = event_reference(self.owner.api_version(), self.owner.kind(), &rs.metadata);
        let answers = join_all(victims.iter().map(|pod| async {
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

    fn victims(&self, rs: &ReplicaSet, active: &[Arc<Pod>], count: usize, context: Context<'_>) -> Vec<Arc<Pod>> {
        if count == active.len() {
            return active.to_vec();
        }
        let related = self.related_pods(rs);
        first_to_delete(active, &related, count, context.now)
    }

    /// The pods selected by any ReplicaSet of the same owner: a rolling update takes pods from crowded nodes first.
    pub(super) fn related_pods(&self, rs: &ReplicaSet) -> Vec<Arc<Pod>> {
        let Some(owner) = rs.metadata.controller() else { return Vec::new() };
        let above = ControllerKey::named_in(&rs.metadata.namespace, owner);
        let siblings = self.owner.controlled_by(&self.cache, &above);
        let pods = self.cache.pods();
        let selectors = Selectors::new(siblings.iter().filter_map(|sibling| sibling.spec.selector.compiled()));
        let selected = |pod: &&Arc<Pod>| selectors.select(&pod.metadata.labels);
        let own = siblings.iter().flat_map(|sibling| pods.controlled_by(&self.owner.key(sibling)));
        own.chain(pods.orphans(&rs.metadata.namespace)).filter(selected).cloned().collect()
    }
}
