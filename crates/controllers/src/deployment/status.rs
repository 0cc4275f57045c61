//! The status of a Deployment.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::arithmetic::{available_replicas, max_unavailable, spec_replicas};
use super::conditions::{self, AVAILABLE, PROGRESSING, REPLICA_FAILURE, condition, progress_deadline, reason};
use super::{Rollout, Sets};
use crate::controller::Requeue;
use crate::error::Error;
use crate::workload::{Condition, Deployment, DeploymentStatus, ReplicaSet};

/// The status that follows from the ReplicaSets.
pub fn calculate(
    d: &Deployment,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    second: Timestamp,
) -> DeploymentStatus {
    let sum = |count: fn(&ReplicaSet) -> i32| all.iter().fold(0i32, |sum, rs| sum.saturating_add(count(rs)));
    let available = available_replicas(all);
    let mut status = DeploymentStatus {
        observed_generation: d.metadata.generation,
        replicas: sum(|rs| rs.status.replicas),
        updated_replicas: new.map_or(0, |rs| rs.status.replicas),
        ready_replicas: sum(|rs| rs.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: spec_replicas(all).saturating_sub(available).max(0),
        terminating_replicas: terminating_replicas(all),
        collision_count: d.status.collision_count,
        conditions: d.status.conditions.clone(),
    };
    let enough = available >= d.spec.replicas.saturating_sub(max_unavailable(d));
    let (truth, why, message) = match enough {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    conditions::set(&mut status, condition(AVAILABLE, truth, why, message.into(), second));
    status
}

/// Unknown when a ReplicaSet that its controller has observed does not report the number.
fn terminating_replicas(all: &[Arc<ReplicaSet>]) -> Option<i32> {
    all.iter().try_fold(0i32, |sum, rs| match rs.status.terminating_replicas {
        Some(count) => Some(sum.saturating_add(count)),
        None if rs.status.observed_generation == 0 => Some(sum),
        None => None,
    })
}

/// Every pod is of the newest template and available, and no other is left.
pub fn is_complete(d: &Deployment, status: &DeploymentStatus) -> bool {
    let replicas = d.spec.replicas;
    status.updated_replicas == replicas
        && status.replicas == replicas
        && status.available_replicas == replicas
        && status.observed_generation >= d.metadata.generation
}

/// Whether the rollout made progress since the last status; upstream's `DeploymentProgressing`.
fn is_progressing(d: &Deployment, new: &DeploymentStatus) -> bool {
    let old = &d.status;
    let outdated = |status: &DeploymentStatus| status.replicas.saturating_sub(status.updated_replicas);
    new.updated_replicas > old.updated_replicas
        || outdated(new) < outdated(old)
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

/// Whether the rollout made no progress within its deadline; upstream's `DeploymentTimedOut`.
fn is_timed_out(d: &Deployment, new: &DeploymentStatus, now: Timestamp) -> bool {
    let Some((deadline, current)) = progress_deadline(d).zip(conditions::get(new, PROGRESSING)) else { return false };
    match current.reason.as_str() {
        reason::NEW_REPLICA_SET_AVAILABLE => false,
        reason::PROGRESS_DEADLINE_EXCEEDED => true,
        _ => left(current, deadline, now) < SignedDuration::ZERO,
    }
}

/// How long until the deadline, counted from the last progress.
fn left(current: &Condition, deadline: i32, now: Timestamp) -> SignedDuration {
    let since = current.last_update_time.unwrap_or(Timestamp::MIN);
    SignedDuration::from_secs(i64::from(deadline)).saturating_sub(now.duration_since(since))
}

impl Rollout<'_> {
    /// Writes the status without a verdict on progress.
    pub(super) async fn sync_status(&mut self, sets: &Sets) -> Result<Requeue, Error> {
        let status = calculate(&self.d, &sets.all(), sets.new.as_deref(), self.context.second());
        if status != self.d.status {
            self.d.status = status;
            self.write_status().await?;
        }
        Ok(Requeue::OnChange)
    }

    /// Writes the status of a rollout that is under way, with its progress.
    pub(super) async fn sync_rollout_status(&mut self, sets: &Sets) -> Result<Requeue, Error> {
        let status = self.rollout_status(sets);
        if status == self.d.status {
            return Ok(self.next_progress_check(&status));
        }
        self.d.status = status;
        self.write_status().await?;
        Ok(Requeue::OnChange)
    }

    fn rollout_status(&self, sets: &Sets) -> DeploymentStatus {
        let (d, second) = (&self.d, self.context.second());
        let all = sets.all();
        let mut status = calculate(d, &all, sets.new.as_deref(), second);
        if progress_deadline(d).is_none() {
            conditions::remove(&mut status, PROGRESSING);
        }
        let current = conditions::get(&d.status, PROGRESSING);
        let was_complete = status.replicas == status.updated_replicas
            && current.is_some_and(|c| c.reason == reason::NEW_REPLICA_SET_AVAILABLE);
        if progress_deadline(d).is_some() && !was_complete {
            let who = match &sets.new {
                Some(rs) => format!("ReplicaSet \"{}\"", rs.metadata.name),
                None => format!("Deployment \"{}\"", d.metadata.name),
            };
            let progress = |truth, why, what: &str| condition(PROGRESSING, truth, why, format!("{who} {what}"), second);
            if is_complete(d, &status) {
                let done = progress("True", reason::NEW_REPLICA_SET_AVAILABLE, "has successfully progressed.");
                conditions::set(&mut status, done);
            } else if is_progressing(d, &status) {
                let mut moving = progress("True", reason::REPLICA_SET_UPDATED, "is progressing.");
                if let Some(current) = current {
                    if current.status == "True" {
                        moving.last_transition_time = current.last_transition_time;
                    }
                    // Removed first, so that the time of the last progress is refreshed each time.
                    conditions::remove(&mut status, PROGRESSING);
                }
                conditions::set(&mut status, moving);
            } else if is_timed_out(d, &status, self.context.now) {
                let stuck = progress("False", reason::PROGRESS_DEADLINE_EXCEEDED, "has timed out progressing.");
                conditions::set(&mut status, stuck);
            }
        }
        match replica_failure(&all, sets.new.as_deref()) {
            Some(failure) => conditions::set(&mut status, failure),
            None => conditions::remove(&mut status, REPLICA_FAILURE),
        }
        status
    }

    /// A rollout without progress causes no event, so the Deployment is requeued for when its deadline has passed.
    fn next_progress_check(&self, status: &DeploymentStatus) -> Requeue {
        let current = conditions::get(&self.d.status, PROGRESSING);
        let Some((deadline, current)) = progress_deadline(&self.d).zip(current) else { return Requeue::OnChange };
        if is_complete(&self.d, status) || current.reason == reason::PROGRESS_DEADLINE_EXCEEDED {
            return Requeue::OnChange;
        }
        let left = left(current, deadline, self.context.now);
        if left < SignedDuration::from_secs(1) {
            return Requeue::RateLimited;
        }
        Requeue::After(left.unsigned_abs() + Duration::from_secs(1))
    }
}

/// Condition `ReplicaFailure` of the new ReplicaSet, or else of any, as the Deployment's own.
fn replica_failure(all: &[Arc<ReplicaSet>], new: Option<&ReplicaSet>) -> Option<Condition> {
    let failure = |rs: &ReplicaSet| rs.status.conditions.iter().find(|c| c.condition_type == REPLICA_FAILURE).cloned();
    let failure = new.and_then(failure).or_else(|| all.iter().find_map(|rs| failure(rs)))?;
    Some(Condition { last_update_time: failure.last_transition_time, ..failure })
}
