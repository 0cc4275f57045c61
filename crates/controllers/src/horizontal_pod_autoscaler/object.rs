//! A HorizontalPodAutoscaler as its controller reads and writes it.

use bayplan_model::label_selector::LabelSelector;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) const API_VERSION: &str = "autoscaling/v2";
pub(super) const KIND: &str = "HorizontalPodAutoscaler";

/// An `autoscaling/v2` HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Autoscaler {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: Spec,
    /// What was found.
    pub status: Status,
}

impl HasMeta for Autoscaler {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// `spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// What is scaled.
    pub scale_target_ref: Reference,
    /// The fewest replicas, 1 when absent.
    pub min_replicas: Option<i32>,
    /// The most replicas.
    pub max_replicas: i32,
    /// What the number of replicas follows.
    pub metrics: Option<Vec<MetricSpec>>,
    /// How fast it may follow.
    pub behavior: Option<Behavior>,
}

/// A reference to an object of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reference {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Group and version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
}

/// One metric; the source of its type is there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSpec {
    /// `Resource`, `ContainerResource`, `Pods`, `Object` or `External`.
    #[serde(rename = "type")]
    pub source: String,
    /// What pods use of a resource.
    pub resource: Option<ResourceSource>,
    /// What one container of each pod uses.
    pub container_resource: Option<ResourceSource>,
    /// What an adapter says of each pod.
    pub pods: Option<MetricSource>,
    /// What an adapter says of an object.
    pub object: Option<MetricSource>,
    /// What an adapter says of the world.
    pub external: Option<MetricSource>,
}

/// `resource` and `containerResource`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceSource {
    /// The resource.
    pub name: String,
    /// The container, of a container's resource.
    pub container: String,
    /// What is wanted.
    pub target: MetricTarget,
}

/// `pods`, `object` and `external`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricSource {
    /// The object, of an object's metric.
    pub described_object: Reference,
    /// Which metric.
    pub metric: MetricIdentifier,
    /// What is wanted.
    pub target: MetricTarget,
}

/// The name of a metric, and which of its series count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetricIdentifier {
    /// Name.
    pub name: String,
    /// Selects series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// `target`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricTarget {
    /// `Utilization`, `Value` or `AverageValue`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The value itself.
    pub value: Option<Quantity>,
    /// The value per pod.
    pub average_value: Option<Quantity>,
    /// Percent of what pods request.
    pub average_utilization: Option<i32>,
}

/// `behavior`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Behavior {
    /// Rules for growing.
    pub scale_up: Option<ScalingRules>,
    /// Rules for shrinking.
    pub scale_down: Option<ScalingRules>,
}

/// `behavior.scaleUp` and `behavior.scaleDown`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScalingRules {
    /// For how long recommendations count.
    pub stabilization_window_seconds: Option<i32>,
    /// `Max`, `Min` or `Disabled`.
    pub select_policy: Option<String>,
    /// The rates.
    pub policies: Vec<Policy>,
    /// How far from the target a metric may be.
    pub tolerance: Option<Quantity>,
}

/// One rate of change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// `Pods` or `Percent`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many.
    pub value: i32,
    /// In how long.
    pub period_seconds: i32,
}

/// `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// When the target was last rescaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scale_time: Option<Timestamp>,
    /// The replicas that were found.
    pub current_replicas: i32,
    /// The replicas that were asked for.
    pub desired_replicas: i32,
    /// What the metrics were.
    pub current_metrics: Option<Vec<Value>>,
    /// What can be said of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// Since when it has this status.
    pub last_transition_time: Option<Timestamp>,
    /// Why, in a word.
    pub reason: String,
    /// Why.
    pub message: String,
}

impl Status {
    /// Sets a condition; its time changes with its status alone.
    pub(super) fn set(&mut self, kind: &str, status: bool, reason: &str, message: String, now: Timestamp) {
        let status = if status { "True" } else { "False" };
        let index = self.conditions.iter().position(|known| known.kind == kind).unwrap_or_else(|| {
            self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
            self.conditions.len() - 1
        });
        let condition = &mut self.conditions[index];
        if condition.status != status {
            condition.last_transition_time = Some(now);
        }
        condition.status = status.to_owned();
        condition.reason = reason.to_owned();
        condition.message = message;
    }
}
