//! Recreate: all old pods are deleted before the first new one is created.

use std::sync::Arc;

use super::status::is_complete;
use super::{Rollout, Sets, active, replica_set_key};
use crate::controller::Requeue;
use crate::error::Error;
use crate::workload::ReplicaSet;

impl Rollout<'_> {
    /// One step of a recreation.
    pub(super) async fn recreate(&mut self) -> Result<Requeue, Error> {
        let mut sets = self.sets(false).await?;
        let mut scaled = false;
        for old in active(&sets.old) {
            scaled |= self.scale_to(&old, 0).await?.0;
        }
        if scaled || self.old_pods_running(&sets) {
            return self.sync_rollout_status(&sets).await;
        }
        if sets.new.is_none() {
            sets = self.sets(true).await?;
        }
        if let Some(new) = &sets.new {
            self.scale_to(new, self.d.spec.replicas).await?;
        }
        if is_complete(&self.d, &self.d.status) {
            self.cleanup(&sets.old).await?;
        }
        self.sync_rollout_status(&sets).await
    }

    fn old_pods_running(&self, sets: &Sets) -> bool {
        let is_new = |rs: &ReplicaSet| sets.new.as_ref().is_some_and(|new| new.metadata.uid == rs.metadata.uid);
        let pods = self.cache.pods();
        let running = |rs: &Arc<ReplicaSet>| pods.controlled_by(&replica_set_key(rs)).any(|pod| !pod.is_terminal());
        sets.old.iter().any(|rs| rs.status.replicas > 0) || self.owned.iter().any(|rs| !is_new(rs) && running(rs))
    }
}
