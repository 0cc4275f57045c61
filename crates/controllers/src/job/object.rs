//! A `batch/v1` Job as the control loops read and write it. The pod template stays JSON, as in [`crate::workload`].

use std::sync::Arc;

use bayplan_model::meta::{HasMeta, ObjectMeta};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::{self, Condition};
use crate::workload::Selector;

/// `batch/v1`.
pub const BATCH_V1: &str = "batch/v1";

/// The finalizer that keeps a pod until its Job has counted it.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Who manages a Job that names nobody else.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// What the API server would set; only Jobs that did not go through one lack it.
const BACKOFF_LIMIT: i32 = 6;

/// A Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Job {
    /// Always `batch/v1`.
    pub api_version: String,
    /// Always `Job`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: JobSpec,
    /// What has happened.
    pub status: JobStatus,
}

impl Default for Job {
    fn default() -> Self {
        Job {
            api_version: BATCH_V1.into(),
            kind: "Job".into(),
            metadata: ObjectMeta::default(),
            spec: JobSpec::default(),
            status: JobStatus::default(),
        }
    }
}

impl HasMeta for Job {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// `Job.spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// How many pods run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i32>,
    /// How many pods have to succeed; without it one success ends the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<i32>,
    /// How long the Job may be active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Which failures count, and which end the Job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_failure_policy: Option<Arc<PodFailurePolicy>>,
    /// Which successes are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success_policy: Option<SuccessPolicy>,
    /// How many failures are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// How many failures of one index are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit_per_index: Option<i32>,
    /// How many failed indexes are tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failed_indexes: Option<i32>,
    /// Which pods are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Whether the user chose the selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manual_selector: Option<bool>,
    /// What the pods look like.
    pub template: Arc<Value>,
    /// When a finished Job is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// `NonIndexed` or `Indexed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_mode: Option<String>,
    /// No pods run while set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// `TerminatingOrFailed` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_replacement_policy: Option<String>,
    /// Which controller manages it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

/// `Job.spec.podFailurePolicy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The first that matches decides.
    pub rules: Vec<PodFailureRule>,
}

/// One rule of a pod failure policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodFailureRule {
    /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
    pub action: String,
    /// Exit codes that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exit_codes: Option<OnExitCodes>,
    /// Pod conditions that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_pod_conditions: Option<Vec<OnPodCondition>>,
}

/// Which exit codes of which container match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnExitCodes {
    /// Any container when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// `In` or `NotIn`.
    pub operator: String,
    /// The exit codes.
    pub values: Vec<i32>,
}

/// A pod condition that matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// Its status.
    pub status: String,
}

/// `Job.spec.successPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// Any that matches is enough.
    pub rules: Vec<SuccessRule>,
}

/// One rule of a success policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// The indexes that have to succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_indexes: Option<String>,
    /// How many of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub succeeded_count: Option<i32>,
}

/// `Job.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// What is going on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Since when the Job is active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// When it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Timestamp>,
    /// Pods that neither ended nor are being deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub active: i32,
    /// Pods counted as succeeded.
    #[serde(skip_serializing_if = "is_zero")]
    pub succeeded: i32,
    /// Pods counted as failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub failed: i32,
    /// Pods being deleted that have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    /// The indexes that succeeded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_indexes: String,
    /// The indexes that failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<String>,
    /// Pods that ended and are not in the counters yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<Uncounted>,
    /// Ready pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
}

/// `Job.status.uncountedTerminatedPods`: the UIDs of pods that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Those that succeeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<String>,
    /// Those that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl Job {
    /// Whether each pod has an index of its own.
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// Whether the completion mode is one this version does not know.
    pub(super) fn has_unknown_mode(&self) -> bool {
        !matches!(self.spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed"))
    }

    /// Whether another controller manages it.
    pub(super) fn is_managed_elsewhere(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|manager| manager != JOB_CONTROLLER)
    }

    /// Complete or failed.
    pub fn is_finished(&self) -> bool {
        self.finished_condition().is_some()
    }

    /// The condition that says that it is complete or failed.
    pub fn finished_condition(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| {
            matches!(condition.condition_type.as_str(), conditions::COMPLETE | conditions::FAILED)
                && condition.is_true()
        })
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub(super) fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT)
    }

    pub(super) fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1)
    }

    /// The number of indexes of an Indexed Job.
    pub fn index_count(&self) -> i64 {
        i64::from(self.spec.completions.unwrap_or(0))
    }

    /// Whether a pod is replaced only when it has ended, and not while it is being deleted.
    pub fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed") || self.spec.pod_failure_policy.is_some()
    }
}
