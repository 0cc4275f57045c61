//! What a simulated kubelet reads of its Node.

use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::resources::{Amounts, ResourceList};
use bayplan_model::taint::Taint;
use serde::{Deserialize, Deserializer};

use crate::annotations::FAIL;
use crate::pod::Condition;
use crate::template::Lacks;

/// The fields of a Node that a simulated kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The deciding part of the spec.
    pub spec: NodeSpec,
    /// The deciding part of the status.
    pub status: NodeStatus,
}

/// The fields of a Node's spec that a simulated kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Where its pods have their addresses.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// What repels pods.
    #[serde(deserialize_with = "null_is_empty")]
    pub taints: Vec<Taint>,
}

/// The fields of a Node's status that a simulated kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Conditions, by type and status.
    pub conditions: Vec<Condition>,
    /// Addresses; which ones does not matter.
    pub addresses: Vec<serde::de::IgnoredAny>,
    /// What the node runs.
    pub node_info: NodeInfo,
    /// What pods may use.
    #[serde(deserialize_with = "amounts")]
    pub allocatable: Amounts,
}

/// The fields of a Node's system information that a simulated kubelet reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The version of its kubelet.
    pub kubelet_version: String,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Taint>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    Ok(Amounts::of(&ResourceList::deserialize(deserializer)?))
}

impl HasMeta for NodeView {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl NodeView {
    pub(crate) fn is_made_to_fail(&self) -> bool {
        let says = |map: &bayplan_model::meta::Map| map.get(FAIL).is_some_and(|value| value == "true");
        says(&self.metadata.annotations) || says(&self.metadata.labels)
    }

    pub(crate) fn lacks(&self) -> Lacks {
        Lacks {
            resources: self.status.allocatable == Amounts::default(),
            addresses: self.status.addresses.is_empty(),
            node_info: self.status.node_info.kubelet_version.is_empty(),
        }
    }

    pub(crate) fn ready(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.r#type == "Ready")
    }
}
