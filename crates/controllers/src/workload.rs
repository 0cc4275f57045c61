//! Deployments and ReplicaSets as the control loops read and write them.
//!
//! Pod templates stay JSON: no control loop reads inside them, and what is not decoded cannot be lost in a write.

use std::sync::Arc;

use bayplan_model::api::ObjectReference;
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::label_selector::{self, LabelSelector};
use bayplan_model::meta::{HasMeta, Map, ObjectMeta, OwnerReference};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `apps/v1`.
pub const APPS_V1: &str = "apps/v1";

/// An `apps/v1` Deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Deployment {
    /// Always `apps/v1`.
    pub api_version: String,
    /// Always `Deployment`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: DeploymentSpec,
    /// What is there.
    pub status: DeploymentStatus,
}

/// `Deployment.spec`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentSpec {
    /// How many pods.
    pub replicas: i32,
    /// Which pods are its own.
    pub selector: Selector,
    /// What the pods look like.
    pub template: Arc<Value>,
    /// How old pods are replaced.
    pub strategy: Strategy,
    /// How long a pod must be ready to count as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old ReplicaSets are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
    /// No rollout while set.
    #[serde(skip_serializing_if = "is_false")]
    pub paused: bool,
    /// How long a rollout may make no progress before it counts as stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
}

/// `Deployment.spec.strategy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// `RollingUpdate` or `Recreate`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub strategy_type: String,
    /// The bounds of a rolling update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// `Deployment.spec.strategy.rollingUpdate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RollingUpdate {
    /// How many pods may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// How many pods may be there in excess.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
}

/// `Deployment.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation this status speaks of.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// Pods of all ReplicaSets.
    #[serde(skip_serializing_if = "is_zero")]
    pub replicas: i32,
    /// Pods of the newest template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_replicas: i32,
    /// Ready pods.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Pods ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Pods still missing.
    #[serde(skip_serializing_if = "is_zero")]
    pub unavailable_replicas: i32,
    /// Pods being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// How often the name with the template's hash belonged to a foreign ReplicaSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// What is going on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An `apps/v1` ReplicaSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSet {
    /// Always `apps/v1`.
    pub api_version: String,
    /// Always `ReplicaSet`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ReplicaSetSpec,
    /// What is there.
    pub status: ReplicaSetStatus,
}

/// `ReplicaSet.spec`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetSpec {
    /// How many pods.
    pub replicas: i32,
    /// How long a pod must be ready to count as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// Which pods are its own.
    pub selector: Selector,
    /// What the pods look like.
    pub template: Arc<Value>,
}

/// A workload's selector, compiled once when the workload is decoded and not for every object it is matched with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "LabelSelector", into = "LabelSelector")]
pub struct Selector {
    source: LabelSelector,
    compiled: Result<label_selector::Selector, label_selector::Error>,
}

impl Selector {
    /// The selector as the workload has it.
    pub fn source(&self) -> &LabelSelector {
        &self.source
    }

    /// Why the selector is invalid, if it is.
    pub fn error(&self) -> Option<&label_selector::Error> {
        self.compiled.as_ref().err()
    }

    /// The compiled form; none of an invalid one, which matches nothing.
    pub fn compiled(&self) -> Option<&label_selector::Selector> {
        self.compiled.as_ref().ok()
    }

    /// Selects everything.
    pub fn is_everything(&self) -> bool {
        self.compiled.as_ref().is_ok_and(label_selector::Selector::is_everything)
    }

    /// Whether these labels match; an invalid selector matches nothing.
    pub fn matches(&self, labels: &Map) -> bool {
        self.compiled.as_ref().is_ok_and(|selector| selector.matches(labels))
    }
}

impl Default for Selector {
    fn default() -> Self {
        LabelSelector::default().into()
    }
}

impl From<LabelSelector> for Selector {
    fn from(source: LabelSelector) -> Self {
        Selector { compiled: source.selector(), source }
    }
}

impl From<Selector> for LabelSelector {
    fn from(selector: Selector) -> Self {
        selector.source
    }
}

/// `ReplicaSet.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplicaSetStatus {
    /// Pods that match the selector.
    pub replicas: i32,
    /// Those that carry every label of the template.
    #[serde(skip_serializing_if = "is_zero")]
    pub fully_labeled_replicas: i32,
    /// Those that are ready.
    #[serde(skip_serializing_if = "is_zero")]
    pub ready_replicas: i32,
    /// Those ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub available_replicas: i32,
    /// Those being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    /// The generation this status speaks of.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// What is going on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One condition of a Deployment or ReplicaSet; ReplicaSets have no `lastUpdateTime`.
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
    pub last_update_time: Option<Timestamp>,
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

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            api_version: APPS_V1.into(),
            kind: "Deployment".into(),
            metadata: ObjectMeta::default(),
            spec: DeploymentSpec::default(),
            status: DeploymentStatus::default(),
        }
    }
}

impl Default for DeploymentSpec {
    fn default() -> Self {
        DeploymentSpec {
            replicas: 1,
            selector: Selector::default(),
            template: Arc::new(Value::Null),
            strategy: Strategy::default(),
            min_ready_seconds: 0,
            revision_history_limit: None,
            paused: false,
            progress_deadline_seconds: None,
        }
    }
}

impl Default for ReplicaSet {
    fn default() -> Self {
        ReplicaSet {
            api_version: APPS_V1.into(),
            kind: "ReplicaSet".into(),
            metadata: ObjectMeta::default(),
            spec: ReplicaSetSpec::default(),
            status: ReplicaSetStatus::default(),
        }
    }
}

impl Default for ReplicaSetSpec {
    fn default() -> Self {
        ReplicaSetSpec {
            replicas: 1,
            min_ready_seconds: 0,
            selector: Selector::default(),
            template: Arc::new(Value::Null),
        }
    }
}

impl HasMeta for Deployment {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl HasMeta for ReplicaSet {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// A map of strings inside a pod template, `/metadata/labels` for example.
pub fn template_map(template: &Value, pointer: &str) -> Map {
    let Some(Value::Object(map)) = template.pointer(pointer) else { return Map::new() };
    map.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The reference by which an object's pods or ReplicaSets name it as their controller.
pub fn controller_reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The reference by which events name an object.
pub fn event_reference(api_version: &str, kind: &str, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

fn is_zero_i64(number: &i64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}
