//! A node and its lease as the control loops read them, and the way taints are written.

use bayplan_model::api::{Api, PatchKind, Request, Verb, encode};
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::quantity::Quantity;
use bayplan_model::status::{Status, reason};
use bayplan_model::{taint, timestamp};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;

use crate::controller::Context;
use crate::requests::{self, NODES};

/// Where kubelets renew the leases by which they are known to live.
pub(crate) const NODE_LEASES: &str = "kube-node-lease";

/// How often a write that lost against another writer is tried on the newest state.
const CONFLICTS_MAX: u32 = 5;

/// The part of a node that decides something in a control loop.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: NodeSpec,
    /// What its kubelet says.
    pub status: NodeStatus,
}

/// `Node.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    pub unschedulable: bool,
    /// What repels pods.
    pub taints: Vec<Taint>,
}

/// `Node.status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The latest observations.
    pub conditions: Vec<NodeCondition>,
    /// What pods may use.
    pub allocatable: Allocatable,
    /// The volumes that are attached, as controllers say.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
    /// The volumes that its kubelet uses.
    #[serde(deserialize_with = "null_is_empty")]
    pub volumes_in_use: Vec<String>,
}

fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A volume that is attached to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachedVolume {
    /// Its name, which begins with that of its plugin.
    pub name: String,
    /// The device; empty of CSI volumes.
    pub device_path: String,
}

/// `Node.status.allocatable`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Allocatable {
    /// Processors.
    pub cpu: Option<Quantity>,
}

/// A taint with the time it was added.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Label-like key, such as `node.kubernetes.io/not-ready`.
    pub key: String,
    /// Empty for taints that need no value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, for taints that controllers add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

impl Taint {
    /// A taint without a value.
    pub fn new(key: &str, effect: &str) -> Self {
        Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
    }

    /// Two taints of one key and effect are the same one, whatever their values.
    pub fn is(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// As tolerations look at it.
    pub fn plain(&self) -> taint::Taint {
        taint::Taint { key: self.key.clone(), value: self.value.clone(), effect: self.effect.clone() }
    }
}

/// One observation of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// What is observed.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the kubelet last said so.
    pub last_heartbeat_time: Option<Timestamp>,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
    /// Why, for a program.
    pub reason: String,
    /// Why, for a person.
    pub message: String,
}

/// A kubelet's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The sign itself.
    pub spec: LeaseSpec,
}

/// `Lease.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// When it was last renewed.
    pub renew_time: Option<Timestamp>,
}

impl HasMeta for Node {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl HasMeta for Lease {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Node {
    /// The condition of this type.
    pub fn condition(&self, condition_type: &str) -> Option<&NodeCondition> {
        self.status.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }

    /// Whether condition `Ready` is `True`.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|condition| condition.status == "True")
    }

    /// Whether it carries this taint, whatever its value.
    pub fn has(&self, taint: &Taint) -> bool {
        self.spec.taints.iter().any(|known| known.is(taint))
    }

    /// The taints that pods must bear to stay.
    pub fn no_execute_taints(&self) -> impl Iterator<Item = &Taint> {
        self.spec.taints.iter().filter(|taint| taint.effect == "NoExecute")
    }

    /// The zone and region of the node as one key, empty when it has neither.
    pub fn zone(&self) -> String {
        let label = |name: &str| self.metadata.labels.get(name).map_or("", String::as_str);
        let (region, zone) = (label(bayplan_model::node::LABEL_REGION), label(bayplan_model::node::LABEL_ZONE));
        if region.is_empty() && zone.is_empty() { String::new() } else { format!("{region}:\u{0}:{zone}") }
    }
}

/// Adds and removes taints; what other writers did meanwhile stays.
pub(crate) async fn swap_taints(
    context: Context<'_>,
    node: &Node,
    add: &[Taint],
    remove: &[Taint],
) -> Result<(), Status> {
    let now = timestamp::seconds(context.now);
    let add: Vec<Taint> = add.iter().map(|taint| Taint { time_added: Some(now.clone()), ..taint.clone() }).collect();
    let mut node = node.clone();
    let mut tries = 0;
    loop {
        let mut taints: Vec<Taint> = node.spec.taints.clone();
        for taint in &add {
            match taints.iter_mut().find(|known| known.is(taint)) {
                Some(known) => *known = taint.clone(),
                None => taints.push(taint.clone()),
            }
        }
        taints.retain(|taint| !remove.iter().any(|removed| removed.is(taint)));
        if taints == node.spec.taints {
            return Ok(());
        }
        let version = &node.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
        match requests::patch(context.api, &NODES, &node.metadata, PatchKind::Merge, &patch).await {
            Err(status) if status.is(reason::CONFLICT) && tries < CONFLICTS_MAX => {
                tries += 1;
                node = requests::get(context.api, &NODES, "", &node.metadata.name).await?;
            }
            answer => return answer.map(drop),
        }
    }
}

/// Changes conditions in the status of an object, pods and nodes for example; others stay.
pub(crate) async fn patch_status(
    api: &dyn Api,
    resource: &bayplan_model::api::Resource,
    meta: &ObjectMeta,
    patch: serde_json::Value,
) -> Result<(), Status> {
    let verb = Verb::Patch(PatchKind::Strategic, encode(&patch));
    let request = Request::object(resource, &meta.namespace, &meta.name, verb).subresource("status");
    api.call(request).await.map(drop)
}
