//! A StatefulSet as its control loop reads and writes it.

use std::sync::Arc;

use bayplan_model::meta::{HasMeta, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::workload::{APPS_V1, Selector};

/// How many old revisions are kept when the spec does not say; the API's default.
const REVISION_HISTORY_LIMIT: usize = 10;

/// An `apps/v1` StatefulSet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSet {
    /// Always `apps/v1`.
    pub api_version: String,
    /// Always `StatefulSet`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: StatefulSetSpec,
    /// What is there.
    pub status: StatefulSetStatus,
}

/// `StatefulSet.spec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetSpec {
    /// How many pods.
    pub replicas: i32,
    /// Which pods are its own.
    pub selector: Selector,
    /// What the pods look like.
    pub template: Arc<Value>,
    /// The claims that each pod has of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_claim_templates: Vec<ClaimTemplate>,
    /// The service that gives the pods their names.
    pub service_name: String,
    /// `OrderedReady` or `Parallel`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_management_policy: String,
    /// How old pods are replaced.
    pub update_strategy: UpdateStrategy,
    /// How many old revisions are kept; all of them when negative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// How long a pod must be ready to count as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// What becomes of claims whose pod or set is gone.
    #[serde(rename = "persistentVolumeClaimRetentionPolicy", skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<RetentionPolicy>,
    /// Where the numbers of the pods begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordinals: Option<Ordinals>,
}

/// `StatefulSet.spec.updateStrategy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UpdateStrategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub strategy_type: String,
    /// The bounds of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// `StatefulSet.spec.updateStrategy.rollingUpdate`. Its `maxUnavailable` belongs to a feature that v1.36 leaves off.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many of the first pods stay as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
}

/// `StatefulSet.spec.persistentVolumeClaimRetentionPolicy`: `Retain` or `Delete`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RetentionPolicy {
    /// When the set is deleted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub when_deleted: String,
    /// When the set has fewer pods.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub when_scaled: String,
}

/// `StatefulSet.spec.ordinals`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// The number of the first pod.
    pub start: i32,
}

/// `StatefulSet.status`. Nobody sets conditions, and upstream drops those that somebody did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatefulSetStatus {
    /// The generation this status speaks of.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// The pods that are there.
    pub replicas: i32,
    /// Those that run and are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Those of the revision that an update comes from.
    #[serde(skip_serializing_if = "is_zero")]
    pub current_replicas: i32,
    /// Those of the revision that an update goes to.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// The name of the revision that an update comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The name of the revision that an update goes to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// How often the name of a new revision belonged to another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Those that have been ready for long enough.
    pub available_replicas: i32,
}

/// One of `StatefulSet.spec.volumeClaimTemplates`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Arc<Value>")]
pub struct ClaimTemplate {
    /// The template itself.
    pub value: Arc<Value>,
    /// Its name, which is that of the pods' volume.
    pub name: String,
}

impl From<Arc<Value>> for ClaimTemplate {
    fn from(value: Arc<Value>) -> Self {
        let name = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        ClaimTemplate { value, name }
    }
}

impl Serialize for ClaimTemplate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl StatefulSet {
    /// The number of the first pod.
    pub(super) fn start(&self) -> i64 {
        self.spec.ordinals.as_ref().map_or(0, |ordinals| i64::from(ordinals.start))
    }

    /// How many pods are asked for.
    pub(super) fn replicas(&self) -> i64 {
        i64::from(self.spec.replicas).max(0)
    }

    /// Whether a pod with this number is asked for.
    pub(super) fn has_place_for(&self, ordinal: i64) -> bool {
        (self.start()..self.start() + self.replicas()).contains(&ordinal)
    }

    /// Whether pods are created and deleted one after the other.
    pub(super) fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy != "Parallel"
    }

    /// Whether old pods are replaced without the user's help.
    pub(super) fn rolls(&self) -> bool {
        self.spec.update_strategy.strategy_type == "RollingUpdate"
    }

    /// How many of the first pods an update leaves as they are; none when the strategy has no bounds.
    pub(super) fn partition(&self) -> Option<i64> {
        let rolling_update = self.spec.update_strategy.rolling_update.as_ref()?;
        Some(i64::from(rolling_update.partition.unwrap_or(0)))
    }

    /// How many old revisions are kept; none is deleted when there is no limit.
    pub(super) fn revision_history_limit(&self) -> Option<usize> {
        let limit = self.spec.revision_history_limit;
        limit.map_or(Some(REVISION_HISTORY_LIMIT), |limit| usize::try_from(limit).ok())
    }

    /// Whether claims go with the pod when the set has fewer, and whether they go with the set.
    pub(super) fn deletes_claims(&self) -> (bool, bool) {
        // Upstream treats a pair with an unknown word as Retain.
        let policy = self.spec.retention_policy.as_ref();
        match policy.map(|policy| (policy.when_scaled.as_str(), policy.when_deleted.as_str())) {
            Some(("Retain", "Delete")) => (false, true),
            Some(("Delete", "Retain")) => (true, false),
            Some(("Delete", "Delete")) => (true, true),
            _ => (false, false),
        }
    }
}

impl Default for StatefulSet {
    fn default() -> Self {
        StatefulSet {
            api_version: APPS_V1.into(),
            kind: super::KIND.into(),
            metadata: ObjectMeta::default(),
            spec: StatefulSetSpec::default(),
            status: StatefulSetStatus::default(),
        }
    }
}

impl Default for StatefulSetSpec {
    fn default() -> Self {
        StatefulSetSpec {
            replicas: 1,
            selector: Selector::default(),
            template: Arc::new(Value::Null),
            volume_claim_templates: Vec::new(),
            service_name: String::new(),
            pod_management_policy: String::new(),
            update_strategy: UpdateStrategy::default(),
            revision_history_limit: None,
            min_ready_seconds: 0,
            retention_policy: None,
            ordinals: None,
        }
    }
}

impl HasMeta for StatefulSet {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_i64(number: &i64) -> bool {
    *number == 0
}
