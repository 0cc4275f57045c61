//! As many pods as the spec asks for, each with its name: created and deleted in order or at once, and replaced when
//! they are of an old revision; upstream's `updateStatefulSet`.

use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;
use serde_json::Value;

use super::history::Revisions;
use super::identity::{Members, pod_name};
use super::object::{StatefulSet, StatefulSetStatus};
use super::pod_template;
use super::status::{is_ready, revision_of};
use super::writes::Writes;
use crate::error::Error;
use crate::pod::{Phase, Pod};
use crate::revisions::ControllerRevision;
use crate::slow_start::in_batches;

/// At most this many pods are created in one reconcile, as for a ReplicaSet: upstream has no limit here, and a set of
/// two thousand million pods that are created at once would keep a worker for good.
pub(super) const BURST_REPLICAS: usize = 500;

/// Whether the pods after this one are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Stop,
}

/// One reconcile's view of a set.
pub(super) struct Manage<'a> {
    pub(super) writes: Writes<'a>,
    pub(super) revisions: &'a Revisions,
    pub(super) members: Members,
}

/// The template that a revision restores; one that keeps none leaves the set's.
fn template_of(set: &StatefulSet, revision: &ControllerRevision) -> Value {
    match revision.template() {
        Value::Null => (*set.spec.template).clone(),
        template => template,
    }
}

/// Calls in batches that grow, up to the first that fails.
async fn at_once<F: Future<Output = Result<Next, Error>>>(
    count: usize,
    call: impl FnMut(usize) -> F,
) -> Result<(), Error> {
    let (_, errors) = in_batches(count, 1, call).await;
    Error::collect(errors)
}

impl Manage<'_> {
    /// Brings the pods closer to what the spec asks for, and the counts of `status` up to date.
    pub(super) async fn run(&self, pods: &[Arc<Pod>], status: &mut StatefulSetStatus) -> Result<(), Error> {
        let set = self.set();
        let (min_ready, now) = (set.spec.min_ready_seconds, self.writes.context.now);
        if set.metadata.deletion_timestamp.is_some() {
            status.count(pods.iter().map(|pod| &**pod), min_ready, now);
            return Ok(());
        }
        status.count(self.members.pods().map(|pod| &**pod), min_ready, now);
        let unhealthy = self.members.condemned.iter().rfind(|(_, pod)| self.is_unavailable(pod)).map(|(at, _)| *at);
        if self.replicas().await? == Next::Go
            && self.each_condemned(|at| self.keep_or_give_claims(at)).await? == Next::Go
            && self.each_condemned(|at| self.delete_condemned(at, unhealthy)).await? == Next::Go
            && set.spec.update_strategy.strategy_type != "OnDelete"
        {
            self.roll(status).await?;
        }
        Ok(())
    }

    fn set(&self) -> &StatefulSet {
        self.writes.set
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.set().spec.min_ready_seconds, self.writes.context.now)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        pod.metadata.deletion_timestamp.is_some() || !self.is_available(pod)
    }

    /// The revision that a new pod is of: the first ones of a partition, or of an update under way, are as they were.
    fn revision_for(&self, ordinal: i64) -> &ControllerRevision {
        let set = self.set();
        let unchanged = match set.partition() {
            Some(partition) => partition,
            None if set.rolls() => i64::from(set.status.current_replicas),
            None => 0,
        };
        if ordinal < set.start() + unchanged { &self.revisions.current } else { &self.revisions.update }
    }

    /// Each pod that is asked for, from the first to the last.
    async fn replicas(&self) -> Result<Next, Error> {
        let wanted = self.set().replicas();
        let known = &self.members.replicas;
        if self.set().is_ordered() {
            // Ends at the first that is missing, so that the pods that are there bound it.
            for index in 0..wanted {
                if self.replica(index).await? == Next::Stop {
                    return Ok(Next::Stop);
                }
            }
            return Ok(Next::Go);
        }
        let missing = (0..wanted).filter(|index| !known.contains_key(index));
        let mut indexes: Vec<i64> = missing.take(BURST_REPLICAS + 1).collect();
        let too_many = indexes.len() > BURST_REPLICAS;
        indexes.truncate(BURST_REPLICAS);
        indexes.extend(known.keys());
        indexes.sort_unstable();
        at_once(indexes.len(), |at| self.replica(indexes[at])).await?;
        // The next reconcile goes on, woken by the pods of this one.
        Ok(if too_many { Next::Stop } else { Next::Go })
    }

    async fn replica(&self, index: i64) -> Result<Next, Error> {
        let ordinal = self.set().start() + index;
        let Some(pod) = self.members.replicas.get(&index) else { return self.create(ordinal).await };
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        if pod.is_terminal() {
            // Whatever its exit code, its name is used again once it is gone.
            if !is_deleted {
                self.writes.delete(&pod.metadata).await?;
            }
            return Ok(Next::Stop);
        }
        if pod.phase == Phase::Pending {
            self.writes.complete_claims(pod, ordinal).await?;
        }
        if self.set().is_ordered() && (is_deleted || !is_ready(pod) || !self.is_available(pod)) {
            return Ok(Next::Stop);
        }
        if !self.writes.is_intact(pod, ordinal) {
            self.writes.restore(pod, ordinal).await?;
        }
        Ok(Next::Go)
    }

    async fn create(&self, ordinal: i64) -> Result<Next, Error> {
        if self.writes.waits_for_old_claims(ordinal) {
            return Ok(Next::Stop);
        }
        let revision = self.revision_for(ordinal);
        let template = template_of(self.set(), revision);
        let pod = pod_template::pod(self.set(), &template, &revision.metadata.name, ordinal)?;
        self.writes.create(&pod, ordinal).await?;
        Ok(if self.set().is_ordered() { Next::Stop } else { Next::Go })
    }

    /// The claims of a pod that is too many may have to go with it.
    async fn keep_or_give_claims(&self, at: usize) -> Result<Next, Error> {
        let (ordinal, pod) = &self.members.condemned[at];
        if !self.writes.owners_are_right(&pod.metadata, *ordinal) {
            self.writes.correct_owners(&pod.metadata, *ordinal).await?;
        }
        Ok(Next::Go)
    }

    /// Deletes a pod that is too many. In order, it must be available, or else the first of them that is not.
    async fn delete_condemned(&self, at: usize, unhealthy: Option<i64>) -> Result<Next, Error> {
        let (ordinal, pod) = &self.members.condemned[at];
        let is_ordered = self.set().is_ordered();
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let blocks = !(is_ready(pod) && self.is_available(pod)) && unhealthy != Some(*ordinal);
        if is_deleted || (is_ordered && blocks) {
            return Ok(if is_ordered { Next::Stop } else { Next::Go });
        }
        self.writes.delete(&pod.metadata).await?;
        Ok(Next::Stop)
    }

    /// Each pod that is too many, the last first.
    async fn each_condemned<F: Future<Output = Result<Next, Error>>>(
        &self,
        call: impl Fn(usize) -> F,
    ) -> Result<Next, Error> {
        let count = self.members.condemned.len();
        if !self.set().is_ordered() {
            return at_once(count, call).await.map(|()| Next::Go);
        }
        for at in 0..count {
            if call(at).await? == Next::Stop {
                return Ok(Next::Stop);
            }
        }
        Ok(Next::Go)
    }

    /// Replaces the last pod that is of an old revision, if all after it are available.
    async fn roll(&self, status: &mut StatefulSetStatus) -> Result<(), Error> {
        let set = self.set();
        let update = self.revisions.update.metadata.name.as_str();
        for index in (set.partition().unwrap_or(0).max(0)..set.replicas()).rev() {
            let ordinal = set.start() + index;
            let pod = self.members.replicas.get(&index);
            let revision =
                pod.map_or_else(|| self.revision_for(ordinal).metadata.name.as_str(), |pod| revision_of(pod));
            let is_deleted = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
            if revision != update && !is_deleted {
                let name = pod.map_or_else(|| pod_name(set, ordinal), |pod| pod.metadata.name.clone());
                let namespace = set.metadata.namespace.clone();
                self.writes.delete(&ObjectMeta { name, namespace, ..ObjectMeta::default() }).await?;
                status.current_replicas -= 1;
                return Ok(());
            }
            // One that was created just now is not available either.
            if pod.is_none_or(|pod| self.is_unavailable(pod)) {
                return Ok(());
            }
        }
        Ok(())
    }
}
