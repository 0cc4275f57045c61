//! The conditions of a Job: what it is heading for, and what it has become.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// It has succeeded, and its pods are gone or going.
pub(crate) const COMPLETE: &str = "Complete";
/// It has failed, and its pods are gone or going.
pub(crate) const FAILED: &str = "Failed";
/// It will fail as soon as its pods have ended.
pub(super) const FAILURE_TARGET: &str = "FailureTarget";
/// It will be complete as soon as its pods have ended.
pub(super) const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
pub(super) const SUSPENDED: &str = "Suspended";

/// One condition of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When it was last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    /// When `status` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// Why, for a program.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why, for a person.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    pub(super) fn new(condition_type: &str, status: &str, reason: &str, message: &str, second: Timestamp) -> Self {
        Condition {
            condition_type: condition_type.into(),
            status: status.into(),
            last_probe_time: Some(second),
            last_transition_time: Some(second),
            reason: reason.into(),
            message: message.into(),
        }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == "True"
    }
}

/// Where a Job is heading: the condition that is written first, and the one that follows when its pods have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether the Job succeeds.
    pub(super) success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// Whether the interim condition is in the status already.
    pub(super) announced: bool,
}

impl Verdict {
    pub(super) fn success(reason: &str, message: impl Into<String>) -> Self {
        Verdict { success: true, reason: reason.into(), message: message.into(), announced: false }
    }

    pub(super) fn failure(reason: &str, message: impl Into<String>) -> Self {
        Verdict { success: false, reason: reason.into(), message: message.into(), announced: false }
    }

    /// The verdict that the conditions already announce: an earlier reconcile is not overruled.
    pub(super) fn announced(conditions: &[Condition]) -> Option<Self> {
        let find = |wanted: &str| conditions.iter().find(|c| c.condition_type == wanted && c.is_true());
        let (success, condition) = match find(SUCCESS_CRITERIA_MET) {
            Some(condition) => (true, condition),
            None => (false, find(FAILURE_TARGET)?),
        };
        let Condition { reason, message, .. } = condition.clone();
        Some(Verdict { success, reason, message, announced: true })
    }

    /// The condition that announces it.
    pub(super) fn interim(&self, second: Timestamp) -> Condition {
        let condition_type = if self.success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET };
        Condition::new(condition_type, "True", &self.reason, &self.message, second)
    }

    /// The condition that ends the Job.
    pub(super) fn last(&self, second: Timestamp) -> Condition {
        let condition_type = if self.success { COMPLETE } else { FAILED };
        Condition::new(condition_type, "True", &self.reason, &self.message, second)
    }
}

/// Adds a condition or changes the one of its type in its place; answers whether anything changed. One that is false
/// is not added: nothing becomes false that was never true.
pub(super) fn set(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    match conditions.iter_mut().find(|known| known.condition_type == new.condition_type) {
        Some(known) if (&known.status, &known.reason, &known.message) == (&new.status, &new.reason, &new.message) => {
            false
        }
        Some(known) => {
            *known = new;
            true
        }
        None if new.status == "False" => false,
        None => {
            conditions.push(new);
            true
        }
    }
}
