//! Rolling update: scales the new ReplicaSet up as far as `maxSurge` allows, and old ones down as far as
//! `maxUnavailable` allows.

use std::sync::Arc;

use super::arithmetic::{available_replicas, max_unavailable, new_replicas, spec_replicas};
use super::scale::active_by_age;
use super::status::is_complete;
use super::{Rollout, Sets};
use crate::controller::Requeue;
use crate::error::Error;
use crate::workload::ReplicaSet;

impl Rollout<'_> {
    /// One step of a rolling update.
    pub(super) async fn roll(&mut self) -> Result<Requeue, Error> {
        let sets = self.sets(true).await?;
        if self.scale_new(&sets).await? {
            return self.sync_rollout_status(&sets).await;
        }
        // What cannot be scaled down now is scaled down by a later sync; the status is written either way.
        if self.scale_down_old(&sets).await.unwrap_or(false) {
            return self.sync_rollout_status(&sets).await;
        }
        if is_complete(&self.d, &self.d.status) {
            self.cleanup(&sets.old).await?;
        }
        self.sync_rollout_status(&sets).await
    }

    async fn scale_new(&mut self, sets: &Sets) -> Result<bool, Error> {
        let Some(new) = &sets.new else { return Ok(false) };
        let desired = self.d.spec.replicas;
        let size = match new.spec.replicas > desired {
            true => desired,
            false => new_replicas(&self.d, &sets.all(), new)?,
        };
        Ok(new.spec.replicas != desired && self.scale_to(new, size).await?.0)
    }

    async fn scale_down_old(&mut self, sets: &Sets) -> Result<bool, Error> {
        let mut old = active_by_age(&sets.old);
        let Some(new) = sets.new.as_ref().filter(|_| !old.is_empty()) else { return Ok(false) };
        let min_available = self.d.spec.replicas.saturating_sub(max_unavailable(&self.d));
        let new_unavailable = new.spec.replicas.saturating_sub(new.status.available_replicas);
        let budget = spec_replicas(&sets.all()).saturating_sub(min_available).saturating_sub(new_unavailable);
        if budget <= 0 {
            return Ok(false);
        }
        let unhealthy = self.remove_unhealthy(&mut old, budget).await?;
        let available = available_replicas(old.iter().chain([new]));
        let healthy = self.remove_healthy(&mut old, available.saturating_sub(min_available)).await?;
        Ok(unhealthy || healthy)
    }

    /// Scales down pods that are not available first: that lowers no availability.
    async fn remove_unhealthy(&mut self, old: &mut [Arc<ReplicaSet>], budget: i32) -> Result<bool, Error> {
        let mut removed = 0;
        for rs in old {
            let surplus = rs.spec.replicas.saturating_sub(rs.status.available_replicas);
            if removed >= budget {
                break;
            }
            if surplus == 0 {
                continue;
            }
            let count = surplus.min(budget - removed);
            if count < 0 {
                let (name, from) = (&rs.metadata.name, rs.spec.replicas);
                return Err(Error::Invalid(format!("{name} has more available replicas than its {from}")));
            }
            *rs = self.scale_to(rs, rs.spec.replicas - count).await?.1;
            removed += count;
        }
        Ok(removed > 0)
    }

    async fn remove_healthy(&mut self, old: &mut [Arc<ReplicaSet>], budget: i32) -> Result<bool, Error> {
        let mut removed = 0;
        for rs in old {
            if removed >= budget {
                break;
            }
            if rs.spec.replicas == 0 {
                continue;
            }
            let count = rs.spec.replicas.min(budget - removed);
            *rs = self.scale_to(rs, rs.spec.replicas - count).await?.1;
            removed += count;
        }
        Ok(removed > 0)
    }
}
