//! A Node manifest as the template of nodes: what it says is laid over what simulated nodes have by themselves.

use serde_json::{Map, Value};

use crate::identity::{INDEX, NodeIdentity, NodeNames, number};

/// What stands for the name of a node in the texts of a manifest.
const NAME: &str = "{name}";

/// What a server writes, or what only one node can have: not for others to repeat.
const METADATA_NOT_REPEATED: [&str; 9] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const SPEC_NOT_REPEATED: [&str; 2] = ["podCIDR", "podCIDRs"];
const NODE_INFO_NOT_REPEATED: [&str; 3] = ["bootID", "machineID", "systemUUID"];
/// What a kubelet finds out by itself.
const STATUS_NOT_REPEATED: [&str; 4] = ["conditions", "volumesInUse", "volumesAttached", "config"];

/// Why a manifest is no template of nodes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is of another kind.
    #[error("it holds a {kind} of {api_version}, not a Node of v1")]
    NotANode {
        /// Its kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// A part of it has another form.
    #[error("its {0} is not a map")]
    NotAMap(&'static str),
}

/// A Node whose name is a pattern, and whose texts may have `{index}` and `{name}` in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeManifest {
    /// The pattern of the names, if it has a name.
    pub names: Option<NodeNames>,
    object: Map<String, Value>,
}

impl NodeManifest {
    /// Takes a Node, of which only one node can have it is left out.
    pub fn new(object: Value) -> Result<Self, ManifestError> {
        let text = |field: &str| object[field].as_str().unwrap_or("nothing").to_owned();
        let (kind, api_version) = (text("kind"), text("apiVersion"));
        let Value::Object(mut object) = object else { return Err(ManifestError::NotAMap("document")) };
        if kind != "Node" || api_version != "v1" {
            return Err(ManifestError::NotANode { kind, api_version });
        }
        for (part, not_repeated) in
            [("metadata", &METADATA_NOT_REPEATED[..]), ("spec", &SPEC_NOT_REPEATED), ("status", &STATUS_NOT_REPEATED)]
        {
            let fields = map_of(&mut object, part, part)?;
            not_repeated.iter().for_each(|field| drop(fields.remove(*field)));
        }
        let metadata = map_of(&mut object, "metadata", "metadata")?;
        let name = metadata.remove("name");
        for (field, path) in [("labels", "metadata.labels"), ("annotations", "metadata.annotations")] {
            map_of(metadata, field, path)?;
        }
        let spec = map_of(&mut object, "spec", "spec")?;
        spec.retain(|field, value| field != "providerID" || differs_by_node(value));
        let status = map_of(&mut object, "status", "status")?;
        for (field, path) in
            [("capacity", "status.capacity"), ("allocatable", "status.allocatable"), ("nodeInfo", "status.nodeInfo")]
        {
            map_of(status, field, path)?;
        }
        status.retain(|field, value| field != "addresses" || differs_by_node(value));
        let info = map_of(status, "nodeInfo", "status.nodeInfo")?;
        NODE_INFO_NOT_REPEATED.iter().for_each(|field| drop(info.remove(*field)));
        let names = name.as_ref().and_then(Value::as_str).filter(|name| !name.is_empty()).map(NodeNames::pattern);
        Ok(NodeManifest { names, object })
    }

    /// Lays the labels, annotations, spec and status of the manifest over those of a node.
    pub(crate) fn lay_over(&self, node: &mut Value, identity: &NodeIdentity) {
        let fill = |text: &str| text.replace(INDEX, &number(identity.index)).replace(NAME, &identity.name);
        for (part, value) in &self.object {
            lay_over(&mut node[part], value, &fill);
        }
        let [capacity, allocatable] = ["capacity", "allocatable"].map(|field| &self.object["status"][field]);
        // A capacity without an allocatable part is all for pods; the other way round, nothing is held back.
        lay_over(&mut node["status"]["allocatable"], capacity, &fill);
        lay_over(&mut node["status"]["allocatable"], allocatable, &fill);
        lay_over(&mut node["status"]["capacity"], allocatable, &fill);
        lay_over(&mut node["status"]["capacity"], capacity, &fill);
    }
}

/// The map under a key, made if there is none.
fn map_of<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
    path: &'static str,
) -> Result<&'a mut Map<String, Value>, ManifestError> {
    let value = object.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or(ManifestError::NotAMap(path))
}

fn differs_by_node(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(INDEX) || text.contains(NAME),
        Value::Array(values) => values.iter().any(differs_by_node),
        Value::Object(fields) => fields.values().any(differs_by_node),
        _ => false,
    }
}

/// Maps are merged, everything else is replaced; `fill` completes the texts.
fn lay_over(into: &mut Value, from: &Value, fill: &impl Fn(&str) -> String) {
    match from {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = Value::Object(Map::new());
            }
            for (field, value) in fields {
                lay_over(&mut into[fill(field)], value, fill);
            }
        }
        Value::Array(values) => {
            let filled = |value: &Value| {
                let mut filled = Value::Null;
                lay_over(&mut filled, value, fill);
                filled
            };
            *into = values.iter().map(filled).collect();
        }
        Value::String(text) => *into = fill(text).into(),
        other => *into = other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_node_is_refused_by_name() {
        for (manifest, expected) in [
            (json!({ "apiVersion": "v1", "kind": "Pod" }), "it holds a Pod of v1, not a Node of v1"),
            (json!({}), "it holds a nothing of nothing, not a Node of v1"),
            (json!([1]), "its document is not a map"),
            (json!({ "apiVersion": "v1", "kind": "Node", "metadata": [] }), "its metadata is not a map"),
            (
                json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "labels": "a=b" } }),
                "its metadata.labels is not a map",
            ),
            (
                json!({ "apiVersion": "v1", "kind": "Node", "status": { "capacity": 8 } }),
                "its status.capacity is not a map",
            ),
        ] {
            assert_eq!(NodeManifest::new(manifest).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_node_taken_from_a_cluster_passes_on_nothing_that_only_one_node_has() {
        let manifest = NodeManifest::new(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "worker", "uid": "u", "resourceVersion": "7", "labels": { "pool": "big" } },
            "spec": { "podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24"], "providerID": "cloud://1" },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "10.9.9.9" }],
                "conditions": [{ "type": "Ready", "status": "False" }],
                "nodeInfo": { "machineID": "m", "kubeletVersion": "v1.30.0" },
            },
        }));
        let manifest = manifest.unwrap();
        let identity = NodeIdentity::new(manifest.names.as_ref().unwrap(), 6);
        let mut node = json!({ "metadata": {}, "spec": {}, "status": {} });
        manifest.lay_over(&mut node, &identity);
        assert_eq!(identity.name, "worker-0007");
        assert_eq!(
            node,
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "labels": { "pool": "big" }, "annotations": {} },
                "spec": {},
                "status": { "nodeInfo": { "kubeletVersion": "v1.30.0" }, "capacity": {}, "allocatable": {} },
            })
        );
    }

    #[test]
    fn capacity_and_allocatable_complete_each_other_and_texts_name_the_node() {
        let manifest = NodeManifest::new(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "labels": { "rack": "rack-{index}" } },
            "spec": { "providerID": "cloud://{name}", "taints": [{ "key": "gpu", "effect": "NoSchedule" }] },
            "status": { "capacity": { "cpu": "64", "memory": "1Ti" }, "allocatable": { "cpu": "60", "gpu": "8" } },
        }));
        let resources = json!({ "cpu": "8", "pods": "110" });
        let mut node = json!({ "status": { "capacity": resources, "allocatable": resources } });
        manifest.unwrap().lay_over(&mut node, &NodeIdentity::new(&NodeNames::prefixed("gpu-"), 0));
        let status = &node["status"];
        assert_eq!(status["capacity"], json!({ "cpu": "64", "memory": "1Ti", "pods": "110", "gpu": "8" }));
        assert_eq!(status["allocatable"], json!({ "cpu": "60", "memory": "1Ti", "pods": "110", "gpu": "8" }));
        assert_eq!(node["metadata"]["labels"]["rack"], "rack-0001");
        assert_eq!(node["spec"]["providerID"], "cloud://gpu-0001");
        assert_eq!(node["spec"]["taints"][0]["key"], "gpu");
    }
}
