//! What `autoscaling/v1` has no fields for, as annotations. Upstream writes Go's JSON, in the order of Go's fields.

use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::defaulting::child;
use crate::object::Object;

pub(super) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
pub(super) const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
pub(super) const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
pub(super) const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const SCALE_DOWN_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const SCALE_UP_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";

pub(super) const OF_SPEC: &[&str] = &[METRICS, BEHAVIOR];
pub(super) const OF_STATUS: &[&str] = &[CURRENT_METRICS, CONDITIONS];
pub(super) const ALL: &[&str] =
    &[METRICS, BEHAVIOR, SCALE_DOWN_TOLERANCE, SCALE_UP_TOLERANCE, CURRENT_METRICS, CONDITIONS];

/// Removes annotations; a map of none is no map.
pub(super) fn drop(object: &mut Object, names: &[&str]) {
    let Some(metadata) = child(object, "metadata") else { return };
    let Some(annotations) = child(metadata, "annotations") else { return };
    let before = annotations.len();
    annotations.retain(|name, _| !names.contains(&name.as_str()));
    if annotations.is_empty() && before > 0 {
        metadata.remove("annotations");
    }
}

/// Reads an annotation; nothing when it is not there or cannot be read, which upstream passes over in silence.
pub(super) fn read<T: for<'de> Deserialize<'de>>(object: &Object, name: &str) -> Option<T> {
    let text = object.get("metadata")?.get("annotations")?.get(name)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Writes an annotation.
pub(super) fn write(object: &mut Object, name: &str, value: &impl Serialize) {
    // Plain data with text for keys, which always has a JSON form. Go escapes what HTML would take for its own.
    let text = serde_json::to_string(value).expect("views are plain data");
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let Some(metadata) = crate::defaulting::child_or_new(object, "metadata") else { return };
    if let Some(annotations) = crate::defaulting::child_or_new(metadata, "annotations") {
        annotations.insert(name.to_owned(), text.into());
    }
}

/// A quantity in its one spelling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Amount(pub(super) String);

impl Default for Amount {
    fn default() -> Self {
        Amount("0".to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::Null => "0".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        let quantity: Quantity = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Amount(quantity.to_string()))
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Reference {
    pub(super) kind: String,
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Selector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

/// One metric: what is wanted of it, or what it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metric<O, P, R, C, E> {
    #[serde(rename = "type")]
    pub(super) source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<O>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pods: Option<P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container_resource: Option<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) external: Option<E>,
}

pub(super) type MetricSpec = Metric<ObjectSource, PodsSource, ResourceSource, ContainerResourceSource, ExternalSource>;
pub(super) type MetricStatus =
    Metric<ObjectStatus, PodsStatus, ResourceStatus, ContainerResourceStatus, ExternalStatus>;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectSource {
    pub(super) target: Reference,
    pub(super) metric_name: String,
    pub(super) target_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) average_value: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodsSource {
    pub(super) metric_name: String,
    pub(super) target_average_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<Selector>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourceSource {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_average_value: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerResourceSource {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_average_utilization: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_average_value: Option<Amount>,
    pub(super) container: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExternalSource {
    pub(super) metric_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metric_selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_value: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_average_value: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectStatus {
    pub(super) target: Reference,
    pub(super) metric_name: String,
    pub(super) current_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<Selector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) average_value: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodsStatus {
    pub(super) metric_name: String,
    pub(super) current_average_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selector: Option<Selector>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResourceStatus {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current_average_utilization: Option<i32>,
    pub(super) current_average_value: Amount,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerResourceStatus {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current_average_utilization: Option<i32>,
    pub(super) current_average_value: Amount,
    pub(super) container: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExternalStatus {
    pub(super) metric_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metric_selector: Option<Selector>,
    pub(super) current_value: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current_average_value: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) last_transition_time: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
}

/// Upstream writes its internal type here, whose fields have no JSON names. Go reads names in any case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Behavior {
    #[serde(rename = "ScaleUp", alias = "scaleUp")]
    pub(super) scale_up: Option<Rules>,
    #[serde(rename = "ScaleDown", alias = "scaleDown")]
    pub(super) scale_down: Option<Rules>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Rules {
    #[serde(rename = "StabilizationWindowSeconds", alias = "stabilizationWindowSeconds")]
    pub(super) stabilization_window_seconds: Option<i32>,
    #[serde(rename = "SelectPolicy", alias = "selectPolicy")]
    pub(super) select_policy: Option<String>,
    #[serde(rename = "Policies", alias = "policies")]
    pub(super) policies: Option<Vec<Policy>>,
    #[serde(rename = "Tolerance", alias = "tolerance")]
    pub(super) tolerance: Option<Amount>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    #[serde(rename = "Type", alias = "type")]
    pub(super) kind: String,
    #[serde(rename = "Value", alias = "value")]
    pub(super) value: i32,
    #[serde(rename = "PeriodSeconds", alias = "periodSeconds")]
    pub(super) period_seconds: i32,
}
