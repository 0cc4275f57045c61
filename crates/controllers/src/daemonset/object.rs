//! DaemonSets as they are read and written.

use std::sync::Arc;

use bayplan_model::affinity::{Affinity, RequiredNodeAffinity};
use bayplan_model::int_or_string::IntOrString;
use bayplan_model::meta::{HasMeta, Map, ObjectMeta};
use bayplan_model::taint::{Toleration, Tolerations};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pod_template::daemon_tolerations;
use crate::error::Error;
use crate::workload::{APPS_V1, Selector, Strategy};

/// The annotation in which the server counts the changes of the template, since before there were revisions.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// How many old revisions are kept when the spec does not say; the API's default.
const REVISION_HISTORY_LIMIT: usize = 10;

/// An `apps/v1` DaemonSet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSet {
    /// Always `apps/v1`.
    pub api_version: String,
    /// Always `DaemonSet`.
    pub kind: String,
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: DaemonSetSpec,
    /// What is there.
    pub status: DaemonSetStatus,
}

/// `DaemonSet.spec`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetSpec {
    /// Which pods are its own.
    pub selector: Selector,
    /// What the pods look like.
    pub template: Template,
    /// How old pods are replaced.
    pub update_strategy: Strategy,
    /// How long a pod must be ready to count as available.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,
    /// How many old revisions are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,
}

/// `DaemonSet.status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonSetStatus {
    /// Nodes that should run a pod and have one.
    pub current_number_scheduled: i32,
    /// Nodes that should not run a pod and have one.
    pub number_misscheduled: i32,
    /// Nodes that should run a pod.
    pub desired_number_scheduled: i32,
    /// Those whose pod is ready.
    pub number_ready: i32,
    /// The generation this status speaks of.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub observed_generation: i64,
    /// Those whose pod is of the newest template.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_number_scheduled: i32,
    /// Those whose pod has been ready for long enough.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_available: i32,
    /// Those without an available pod.
    #[serde(skip_serializing_if = "is_zero")]
    pub number_unavailable: i32,
    /// How often the name with the template's hash belonged to a foreign revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// Nobody sets any; what somebody did is kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Value>,
}

/// A pod template, and what it says about nodes: read once, and not for every node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Arc<Value>")]
pub struct Template {
    /// The template itself.
    pub value: Arc<Value>,
    /// What decides on nodes; none of a template that cannot be read, which runs nowhere.
    pub(super) demands: Option<Demands>,
}

/// What a pod of the template demands of its node, and what it bears.
#[derive(Clone, Debug)]
pub(super) struct Demands {
    pub(super) node_name: String,
    pub(super) affinity: RequiredNodeAffinity,
    pub(super) tolerations: Tolerations,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    node_name: String,
    node_selector: Option<Map>,
    affinity: Option<Affinity>,
}

impl From<Arc<Value>> for Template {
    fn from(value: Arc<Value>) -> Self {
        let demands = Demands::read(value.get("spec").unwrap_or(&Value::Null));
        Template { value, demands }
    }
}

impl Serialize for Template {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Demands {
    fn read(spec: &Value) -> Option<Self> {
        let TemplateSpec { node_name, node_selector, affinity } = Option::deserialize(spec).ok()?.unwrap_or_default();
        let tolerations: Vec<Toleration> = Deserialize::deserialize(Value::Array(daemon_tolerations(spec))).ok()?;
        let affinity = RequiredNodeAffinity::new(node_selector.unwrap_or_default(), affinity.as_ref());
        Some(Demands { node_name, affinity, tolerations: tolerations.into() })
    }
}

impl DaemonSet {
    /// How often the template changed, if the server says so.
    pub(super) fn template_generation(&self) -> Option<i64> {
        self.metadata.annotations.get(TEMPLATE_GENERATION)?.parse().ok()
    }

    /// Whether old pods are replaced without the user's help.
    pub(super) fn rolls(&self) -> bool {
        self.spec.update_strategy.strategy_type == "RollingUpdate"
    }

    /// How many of so many nodes may have a second pod during an update.
    pub fn max_surge(&self, nodes: usize) -> Result<usize, Error> {
        self.share(nodes, self.spec.update_strategy.rolling_update.as_ref().and_then(|r| r.max_surge.as_ref()))
    }

    /// How many of so many nodes may be without an available pod during an update.
    pub fn max_unavailable(&self, nodes: usize) -> Result<usize, Error> {
        self.share(nodes, self.spec.update_strategy.rolling_update.as_ref().and_then(|r| r.max_unavailable.as_ref()))
    }

    fn share(&self, nodes: usize, value: Option<&IntOrString>) -> Result<usize, Error> {
        let Some(value) = value.filter(|_| self.rolls()) else { return Ok(0) };
        let share = value.scaled(i64::try_from(nodes).unwrap_or(i64::MAX), true)?;
        Ok(usize::try_from(share).unwrap_or(0))
    }

    /// Whether a node may have two pods for a while.
    pub(super) fn allows_surge(&self) -> bool {
        self.max_surge(1).is_ok_and(|surge| surge > 0)
    }

    /// How many old revisions are kept.
    pub(super) fn revision_history_limit(&self) -> usize {
        let limit = self.spec.revision_history_limit;
        limit.map_or(REVISION_HISTORY_LIMIT, |limit| usize::try_from(limit).unwrap_or(0))
    }
}

impl Default for DaemonSet {
    fn default() -> Self {
        DaemonSet {
            api_version: APPS_V1.into(),
            kind: super::KIND.into(),
            metadata: ObjectMeta::default(),
            spec: DaemonSetSpec::default(),
            status: DaemonSetStatus::default(),
        }
    }
}

impl HasMeta for DaemonSet {
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
