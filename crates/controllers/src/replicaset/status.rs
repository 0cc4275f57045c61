//! The status of a ReplicaSet, and how it is written.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::Api;
use bayplan_model::status::Status;
use jiff::{SignedDuration, Timestamp};

use super::owner::Owner;
use crate::error::Error;
use crate::pod::Pod;
use crate::workload::{Condition, ReplicaSet, ReplicaSetStatus, template_map};

const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The status that follows from the pods; `failure` is the error of creating or deleting pods.
pub fn calculate(
    rs: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: Option<usize>,
    failure: Option<&Error>,
    now: Timestamp,
    second: Timestamp,
) -> ReplicaSetStatus {
    let template_labels = template_map(&rs.spec.template, "/metadata/labels");
    let replicas = saturate(active.len());
    let labelled = |pod: &Pod| template_labels.iter().all(|(key, value)| pod.metadata.labels.get(key) == Some(value));
    let [mut fully_labeled, mut ready, mut available] = [0; 3];
    for pod in active {
        fully_labeled += usize::from(labelled(pod));
        ready += usize::from(pod.ready);
        available += usize::from(pod.is_available(rs.spec.min_ready_seconds, now));
    }
    let mut conditions = rs.status.conditions.clone();
    let failing = conditions.iter().any(|c| c.condition_type == REPLICA_FAILURE);
    match failure {
        Some(error) if !failing => {
            let reason = if replicas < rs.spec.replicas { "FailedCreate" } else { "FailedDelete" };
            conditions.push(Condition {
                condition_type: REPLICA_FAILURE.into(),
                status: "True".into(),
                last_update_time: None,
                last_transition_time: Some(second),
                reason: reason.into(),
                message: error.to_string(),
            });
        }
        None if failing => conditions.retain(|c| c.condition_type != REPLICA_FAILURE),
        _ => {}
    }
    ReplicaSetStatus {
        replicas,
        fully_labeled_replicas: saturate(fully_labeled),
        ready_replicas: saturate(ready),
        available_replicas: saturate(available),
        terminating_replicas: terminating.map(saturate),
        observed_generation: rs.status.observed_generation,
        conditions,
    }
}

fn saturate(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Writes the status if it changed; returns the ReplicaSet as stored.
pub(super) async fn write(
    api: &dyn Api,
    owner: Owner,
    rs: &ReplicaSet,
    mut status: ReplicaSetStatus,
) -> Result<Option<ReplicaSet>, Status> {
    if status == rs.status && rs.metadata.generation == rs.status.observed_generation {
        return Ok(None);
    }
    // The generation that was acted on, also when a newer object has to be read for the second attempt.
    status.observed_generation = rs.metadata.generation;
    let first = ReplicaSet { status, ..rs.clone() };
    let status = first.status.clone();
    if let Ok(stored) = owner.write_status(api, first).await {
        return Ok(Some(stored));
    }
    let fresh = owner.read(api, &rs.metadata).await?;
    owner.write_status(api, ReplicaSet { status, ..fresh }).await.map(Some)
}

/// When the next ready pod becomes available, if one waits for `minReadySeconds`.
pub fn next_availability(min_ready_seconds: i32, waits: bool, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 || !waits {
        return None;
    }
    let wait = active
        .iter()
        .filter_map(|pod| pod.available_at(min_ready_seconds))
        .filter(|at| *at > now)
        .min()
        .map_or(SignedDuration::from_secs(i64::from(min_ready_seconds)), |at| at.duration_since(now));
    Some(wait.unsigned_abs())
}
