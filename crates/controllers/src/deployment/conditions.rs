//! The conditions of a Deployment, and how they replace one another.

use jiff::Timestamp;

use crate::workload::{Condition, Deployment, DeploymentStatus};

/// Whether the rollout makes progress.
pub const PROGRESSING: &str = "Progressing";
/// Whether enough pods are available.
pub const AVAILABLE: &str = "Available";
/// Whether pods could not be created or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of condition `Progressing`.
pub mod reason {
    #![allow(missing_docs)]
    pub const NEW_REPLICA_SET_CREATED: &str = "NewReplicaSetCreated";
    pub const FOUND_NEW_REPLICA_SET: &str = "FoundNewReplicaSet";
    pub const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
    pub const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
    pub const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";
    pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    pub const DEPLOYMENT_PAUSED: &str = "DeploymentPaused";
    pub const DEPLOYMENT_RESUMED: &str = "DeploymentResumed";
}

/// A condition as of now.
pub fn condition(kind: &str, status: &str, reason: &str, message: String, second: Timestamp) -> Condition {
    Condition {
        condition_type: kind.into(),
        status: status.into(),
        last_update_time: Some(second),
        last_transition_time: Some(second),
        reason: reason.into(),
        message,
    }
}

/// One condition, if it is there.
pub fn get<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.condition_type == kind)
}

/// Puts a condition at the end of the list, unless it has the same status and reason as the present one.
pub fn set(status: &mut DeploymentStatus, mut condition: Condition) {
    if let Some(current) = get(status, &condition.condition_type) {
        if current.status == condition.status && current.reason == condition.reason {
            return;
        }
        if current.status == condition.status {
            condition.last_transition_time = current.last_transition_time;
        }
    }
    remove(status, &condition.condition_type.clone());
    status.conditions.push(condition);
}

/// Removes a condition.
pub fn remove(status: &mut DeploymentStatus, kind: &str) {
    status.conditions.retain(|c| c.condition_type != kind);
}

/// After how many seconds without progress a rollout counts as stuck, if ever.
pub fn progress_deadline(d: &Deployment) -> Option<i32> {
    d.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)
}
