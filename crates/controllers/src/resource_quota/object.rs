//! A ResourceQuota as the controller reads and writes it.

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::quota::{Scope, Usage, scopes};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuota {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it limits.
    pub spec: QuotaSpec,
    /// What is used.
    pub status: QuotaStatus,
}

/// What a quota limits, and of which objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaSpec {
    /// The most that may be used, by name.
    pub hard: Usage,
    /// `scopes`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub scopes: Value,
    /// `scopeSelector`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub scope_selector: Value,
}

impl QuotaSpec {
    /// The scopes that objects must be in to be counted.
    pub fn scopes(&self) -> Vec<Scope> {
        scopes(&json!({"scopes": self.scopes, "scopeSelector": self.scope_selector}))
    }
}

/// What is used of a quota. Absent differs from empty: nothing was counted yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaStatus {
    /// The limits when it was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard: Option<Usage>,
    /// What is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
}

impl HasMeta for ResourceQuota {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
