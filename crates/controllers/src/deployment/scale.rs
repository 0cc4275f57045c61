//! Scales ReplicaSets: one at a time, or all of them in proportion when the Deployment is scaled during a rollout.

use std::sync::Arc;

use super::annotations::{self, DESIRED_REPLICAS, non_negative};
use super::arithmetic::{
    active_or_latest, by_age, is_rolling_update, is_saturated, max_replicas, proportion, spec_replicas,
};
use super::{Rollout, Sets, active};
use crate::controller::Requeue;
use crate::error::Error;
use crate::workload::ReplicaSet;

impl Rollout<'_> {
    /// Scales, cleans up and reports, without a rollout: the path of Deployments that are paused or were scaled.
    pub(super) async fn sync_scale(&mut self) -> Result<Requeue, Error> {
        let sets = self.sets(false).await?;
        self.scale(&sets).await?;
        if self.d.spec.paused && self.rollback_to().is_none() {
            self.cleanup(&sets.old).await?;
        }
        self.sync_status(&sets).await
    }

    /// Whether some ReplicaSet was scaled for another size of the Deployment; upstream's `isScalingEvent`.
    pub(super) async fn is_scaling_event(&mut self) -> Result<bool, Error> {
        let sets = self.sets(false).await?;
        let resized = |rs: &&Arc<ReplicaSet>| {
            non_negative(&rs.metadata.annotations, DESIRED_REPLICAS).is_some_and(|size| size != self.d.spec.replicas)
        };
        Ok(active(&sets.all()).iter().any(|rs| resized(&rs)))
    }

    async fn scale(&mut self, sets: &Sets) -> Result<(), Error> {
        if let Some(only) = active_or_latest(sets.new.as_ref(), &sets.old) {
            return self.scale_to(&only, self.d.spec.replicas).await.map(|_| ());
        }
        let mut old = active_by_age(&sets.old);
        old.reverse();
        if is_saturated(&self.d, sets.new.as_deref()) {
            for old in old {
                self.scale_to(&old, 0).await?;
            }
            return Ok(());
        }
        if is_rolling_update(&self.d) {
            old.extend(sets.new.iter().filter(|new| new.spec.replicas > 0).cloned());
            self.scale_in_proportion(old).await?;
        }
        Ok(())
    }

    /// Spreads the difference over the active ReplicaSets, so that a rollout keeps the share it has reached.
    async fn scale_in_proportion(&mut self, mut sets: Vec<Arc<ReplicaSet>>) -> Result<(), Error> {
        let allowed = if self.d.spec.replicas > 0 { max_replicas(&self.d) } else { 0 };
        let to_add = allowed.saturating_sub(spec_replicas(&sets));
        match to_add.signum() {
            1 => sets.sort_by(|a, b| b.spec.replicas.cmp(&a.spec.replicas).then_with(|| by_age(b, a))),
            -1 => sets.sort_by(|a, b| b.spec.replicas.cmp(&a.spec.replicas).then_with(|| by_age(a, b))),
            _ => {}
        }
        let mut added = 0i32;
        let mut sizes: Vec<i32> = Vec::with_capacity(sets.len());
        for rs in &sets {
            let share = proportion(rs, &self.d, to_add, added);
            added = added.saturating_add(share);
            sizes.push(rs.spec.replicas.saturating_add(share));
        }
        if let Some(largest) = sizes.first_mut().filter(|_| to_add != 0) {
            *largest = largest.saturating_add(to_add.saturating_sub(added)).max(0);
        }
        for (rs, size) in sets.iter().zip(sizes) {
            self.resize(rs, size).await?;
        }
        Ok(())
    }

    /// Scales a ReplicaSet unless it has that size; returns whether it was scaled, and the ReplicaSet as stored.
    pub(super) async fn scale_to(&mut self, rs: &Arc<ReplicaSet>, size: i32) -> Result<(bool, Arc<ReplicaSet>), Error> {
        if rs.spec.replicas == size {
            return Ok((false, rs.clone()));
        }
        self.resize(rs, size).await
    }

    /// Scales a ReplicaSet and annotates it with the size of the Deployment.
    async fn resize(&mut self, rs: &Arc<ReplicaSet>, size: i32) -> Result<(bool, Arc<ReplicaSet>), Error> {
        let before = rs.spec.replicas;
        let mut changed = ReplicaSet::clone(rs);
        if !annotations::set_sizes(&self.d, &mut changed) && before == size {
            return Ok((false, rs.clone()));
        }
        changed.spec.replicas = size;
        let stored = Arc::new(self.update_replica_set(&changed).await?);
        if before != size {
            let direction = if size > before { "up" } else { "down" };
            let name = &rs.metadata.name;
            let note = format!("Scaled {direction} replica set {name} from {before} to {size}");
            self.context.normal(self.regarding(), "ScalingReplicaSet", note);
        }
        Ok((before != size, stored))
    }

    /// Deletes old ReplicaSets beyond `revisionHistoryLimit`.
    pub(super) async fn cleanup(&mut self, old: &[Arc<ReplicaSet>]) -> Result<(), Error> {
        let Some(limit) = self.d.spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return Ok(()) };
        let mut cleanable: Vec<_> = old.iter().filter(|rs| rs.metadata.deletion_timestamp.is_none()).collect();
        let surplus = cleanable.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        cleanable.sort_by(|a, b| match (annotations::revision(a), annotations::revision(b)) {
            (Some(x), Some(y)) if x != y => x.cmp(&y),
            _ => by_age(a, b),
        });
        for rs in cleanable.into_iter().take(surplus) {
            let idle = rs.status.replicas == 0 && rs.spec.replicas == 0;
            if idle && rs.metadata.generation <= rs.status.observed_generation {
                self.delete_replica_set(rs).await?;
            }
        }
        Ok(())
    }
}

/// The active ReplicaSets by age, oldest first.
pub(super) fn active_by_age(sets: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let mut active = active(sets);
    active.sort_by(by_age);
    active
}
