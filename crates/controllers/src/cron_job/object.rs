//! A `batch/v1` CronJob as its control loop reads and writes it. The Job's template stays JSON.

use std::sync::Arc;

use bayplan_model::api::ObjectReference;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::BATCH_V1;

/// A CronJob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJob {
    /// Always `batch/v1`.
    pub api_version: String,
    /// Always `CronJob`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: CronJobSpec,
    /// What has happened.
    pub status: CronJobStatus,
}

impl Default for CronJob {
    fn default() -> Self {
        CronJob {
            api_version: BATCH_V1.into(),
            kind: "CronJob".into(),
            metadata: ObjectMeta::default(),
            spec: CronJobSpec::default(),
            status: CronJobStatus::default(),
        }
    }
}

impl HasMeta for CronJob {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// `CronJob.spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    /// When Jobs start.
    pub schedule: String,
    /// In which time zone; UTC when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// How late a Job may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting_deadline_seconds: Option<i64>,
    /// `Allow`, `Forbid` or `Replace`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub concurrency_policy: String,
    /// No Job starts while set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What the Jobs look like.
    pub job_template: Arc<Value>,
    /// How many Jobs that succeeded are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successful_jobs_history_limit: Option<i32>,
    /// How many Jobs that failed are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_jobs_history_limit: Option<i32>,
}

/// `CronJob.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobStatus {
    /// The Jobs that run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ObjectReference>,
    /// The last time for which a Job was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Timestamp>,
    /// When a Job last succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Timestamp>,
}

impl CronJob {
    /// Whether a Job is among the active ones.
    pub(super) fn has_active(&self, uid: &str) -> bool {
        self.status.active.iter().any(|job| job.uid == uid)
    }

    pub(super) fn forget_active(&mut self, uid: &str) {
        self.status.active.retain(|job| job.uid != uid);
    }
}
