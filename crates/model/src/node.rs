//! The Node as the scheduler reads it.

use std::sync::Arc;

use crate::meta::ObjectMeta;
use crate::resources::ResourceList;
use crate::taint::Taint;
use crate::view::{has_meta, views};

/// The label every node carries with its own name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// The label of a node's zone.
pub const LABEL_ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a node's region.
pub const LABEL_REGION: &str = "topology.kubernetes.io/region";
/// The former label of a node's zone.
pub const LABEL_ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
/// The former label of a node's region.
pub const LABEL_REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";

has_meta!(Node);

views! {
    /// A Node, without the parts only a kubelet needs.
    struct Node {
        /// Name, labels and the like.
        metadata: ObjectMeta,
        /// The desired state.
        spec: NodeSpec,
        /// The observed state.
        status: NodeStatus,
        /// The whole object as JSON, kept only for extenders.
        #[serde(skip)]
        manifest: Option<Arc<str>>,
    }

    /// The desired state of a node.
    struct NodeSpec {
        /// True while the node is cordoned.
        unschedulable: bool,
        /// Taints, which repel pods without matching tolerations.
        taints: Vec<Taint>,
    }

    /// The state that a kubelet reports.
    struct NodeStatus {
        /// What pods may use.
        allocatable: ResourceList,
        /// The latest observations.
        conditions: Vec<NodeCondition>,
        /// Images present.
        images: Vec<ContainerImage>,
        /// Features the kubelet declares.
        declared_features: Vec<String>,
    }

    /// One observation of a node.
    struct NodeCondition {
        /// What is observed.
        #[serde(rename = "type")]
        kind: String,
        /// `True`, `False` or `Unknown`.
        status: String,
    }

    /// An image present on a node.
    struct ContainerImage {
        /// All its names.
        names: Vec<String>,
        size_bytes: i64,
    }
}

impl Node {
    /// The zone and region of the node as one key, empty when it has neither.
    pub fn zone_key(&self) -> String {
        let label = |beta: &str, stable: &str| {
            let labels = &self.metadata.labels;
            labels.get(beta).or_else(|| labels.get(stable)).map_or("", String::as_str)
        };
        let region = label(LABEL_REGION_BETA, LABEL_REGION);
        let zone = label(LABEL_ZONE_BETA, LABEL_ZONE);
        if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\u{0}:{zone}") }
    }
}
