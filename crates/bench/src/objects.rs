//! The objects of a workload, copied from its templates: decoded for the engine, or as JSON for an API server.

use std::sync::Arc;

use bayplan_model::node::{LABEL_HOSTNAME, LABEL_ZONE, Node};
use bayplan_model::pod::{ClaimVolume, Pod, PodResourceClaim, PodResourceClaimStatus, Volume};
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::resource_slice::ResourceSlice;
use bayplan_model::resources::ClaimName;
use bayplan_model::storage::{CsiNode, PersistentVolume, PersistentVolumeClaim};
use bayplan_scheduler::Object;
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::workload::{self, Error, Nodes, PodExtra, Pods, Step, Workload};

const CSI_DRIVER: &str = "ebs.csi.aws.com";
const DEVICE_DRIVER: &str = "test-driver.cdi.k8s.io";

/// One template, as JSON and decoded.
pub(crate) enum Template {
    Pod(Value, Box<Pod>),
    Node(Value, Box<Node>),
    Other(Value),
}

/// The templates a workload names.
pub(crate) struct Templates(FxHashMap<String, Vec<Template>>);

impl Templates {
    pub(crate) fn of(workload: &Workload) -> Result<Self, Error> {
        let mut found = FxHashMap::default();
        for name in names(workload) {
            let missing = || Error::NoTemplate(workload.name.clone(), name.clone());
            let values = workload::templates(&name).ok_or_else(missing)?;
            found.insert(name, values.into_iter().map(decoded).collect());
        }
        Ok(Templates(found))
    }

    /// All templates of these names, to be used in turn; the default one when none is named.
    pub(crate) fn named<'t>(&'t self, names: &'t [String], default: &'t str) -> Vec<&'t Template> {
        let default = [default.to_owned()];
        let names = if names.is_empty() { &default } else { names };
        names.iter().filter_map(|name| self.0.get(name)).flatten().collect()
    }
}

fn names(workload: &Workload) -> Vec<String> {
    let mut names: Vec<String> = vec!["node-default".into(), "pod-default".into()];
    names.extend(workload.measure.templates.iter().cloned());
    for step in &workload.setup {
        match step {
            Step::CreateNodes(nodes) => names.extend(nodes.templates.iter().cloned()),
            Step::CreatePods(pods) => names.extend(pods.templates.iter().cloned()),
            Step::Create(one) => names.push(one.template.clone()),
            Step::CreateNamespaces(_) => {}
        }
    }
    names.extend(workload.churn.iter().flat_map(|churn| churn.recreate.iter().cloned()));
    names
}

fn decoded(value: Value) -> Template {
    match value["kind"].as_str() {
        Some("Pod") => {
            let mut pod: Pod = view(&value);
            // What the API server fills in.
            pod.spec.scheduler_name = "default-scheduler".into();
            pod.status.phase = "Pending".into();
            Template::Pod(value, Box::new(pod))
        }
        Some("Node") => {
            let node = view(&value);
            Template::Node(value, Box::new(node))
        }
        _ => Template::Other(value),
    }
}

fn view<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).expect("templates are ours, and the tests decode all of them")
}

/// A UID of the usual form and length, made from the object's number.
fn uid(kind: u16, number: usize) -> String {
    format!("{number:08x}-{kind:04x}-4000-8000-{number:012x}")
}

/// A node, with its CSINode and ResourceSlice if it has them.
pub(crate) fn node(nodes: &Nodes, template: &Node, number: usize, version: u64) -> Vec<Object> {
    let name = nodes.name.clone().unwrap_or_else(|| format!("node-{number:07}"));
    let mut node = template.clone();
    node.metadata.labels.insert(LABEL_HOSTNAME.into(), name.clone());
    node.metadata.labels.insert(LABEL_ZONE.into(), zone(nodes, number));
    node.metadata.uid = uid(1, number);
    node.metadata.resource_version = version.to_string();
    node.metadata.name = name.clone();
    let mut objects = vec![Object::Node(Arc::new(node))];
    if let Some(count) = nodes.csi_volumes_max {
        let csi: CsiNode = view(&csi_node(&name, count));
        objects.push(Object::CsiNode(Arc::new(csi)));
    }
    if nodes.devices > 0 {
        let slice: ResourceSlice = view(&resource_slice(&name, nodes.devices));
        objects.push(Object::ResourceSlice(Arc::new(slice)));
    }
    objects
}

fn zone(nodes: &Nodes, number: usize) -> String {
    match nodes.zones.len() {
        0 => format!("moon-{}", 1 + number % 3),
        zones => nodes.zones[number % zones].clone(),
    }
}

fn csi_node(name: &str, count: u32) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{"name": CSI_DRIVER, "nodeID": name, "allocatable": {"count": count}}]},
    })
}

fn resource_slice(node: &str, devices: usize) -> Value {
    let devices: Vec<Value> = (0..devices).map(|i| json!({"name": format!("device-{i:02}")})).collect();
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-slice")},
        "spec": {
            "driver": DEVICE_DRIVER, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
        },
    })
}

/// A node as JSON, and its CSI driver if it has one.
pub(crate) fn node_json(nodes: &Nodes, template: &Value, number: usize) -> (Value, Option<Value>) {
    let name = nodes.name.clone().unwrap_or_else(|| format!("node-{number:07}"));
    let mut node = template.clone();
    node["metadata"]["name"] = name.as_str().into();
    node["metadata"]["labels"][LABEL_HOSTNAME] = name.as_str().into();
    node["metadata"]["labels"][LABEL_ZONE] = zone(nodes, number).into();
    (node, nodes.csi_volumes_max.map(|count| csi_node(&name, count)))
}

/// Priorities that templates use. Each needs a PriorityClass, from which the API server takes the priority of a pod.
pub(crate) const PRIORITIES: [i64; 1] = [10];

/// Name of the PriorityClass of a priority.
pub(crate) fn priority_class(value: i64) -> String {
    format!("bench-{value}")
}

/// A pod as JSON, the way a user writes it.
pub(crate) fn pod_json(pods: &Pods, template: &Value, number: usize) -> Value {
    let mut pod = template.clone();
    pod["metadata"]["name"] = format!("pod-{number:08}").into();
    let priority = pod["spec"].as_object_mut().and_then(|spec| spec.remove("priority"));
    if let Some(value) = priority.as_ref().and_then(Value::as_i64) {
        pod["spec"]["priorityClassName"] = priority_class(value).into();
    }
    if pods.with == Some(PodExtra::CsiVolume) {
        let claim = json!({"claimName": format!("pvc-{number:08}")});
        pod["spec"]["volumes"] = json!([{"name": "vol", "persistentVolumeClaim": claim}]);
    }
    pod
}

/// Removes the UIDs, which only a server may set.
pub(crate) fn without_uids(mut object: Value) -> Value {
    for path in ["/metadata", "/spec/claimRef"] {
        if let Some(fields) = object.pointer_mut(path).and_then(Value::as_object_mut) {
            fields.remove("uid");
        }
    }
    object
}

/// A pod and the objects that it needs.
pub(crate) struct PodObjects {
    pub(crate) pod: Arc<Pod>,
    /// Objects that exist before the pod.
    pub(crate) before: Vec<Object>,
    /// ResourceClaim of the pod, as the API server stores it.
    pub(crate) claim: Option<Value>,
}

/// A pod of a template, with the objects that it needs.
pub(crate) fn pod(pods: &Pods, template: &Pod, number: usize, version: u64) -> PodObjects {
    let mut pod = template.clone();
    pod.metadata.name = format!("pod-{number:08}");
    pod.metadata.namespace = pods.namespace_of(number);
    pod.metadata.uid = uid(2, number);
    pod.metadata.resource_version = version.to_string();
    let (mut before, mut claim) = (Vec::new(), None);
    match pods.with {
        None => {}
        Some(PodExtra::CsiVolume) => {
            let (volume, volume_claim) = bound_volume(&pod.metadata.namespace, number);
            before.push(Object::PersistentVolume(Arc::new(view::<PersistentVolume>(&volume))));
            before.push(Object::PersistentVolumeClaim(Arc::new(view::<PersistentVolumeClaim>(&volume_claim))));
            let claim_name = format!("pvc-{number:08}");
            let source = Some(ClaimVolume { claim_name, read_only: false });
            let volume = Volume { name: "vol".into(), persistent_volume_claim: source, ..Volume::default() };
            pod.spec.volumes.push(volume);
        }
        Some(PodExtra::ResourceClaim) => {
            let json = resource_claim(&pod, number);
            before.push(Object::ResourceClaim(Arc::new(view::<ResourceClaim>(&json))));
            claim_devices(&mut pod, &json);
            claim = Some(json);
        }
    }
    PodObjects { pod: Arc::new(pod), before, claim }
}

/// A volume and its claim, bound to each other.
pub(crate) fn bound_volume(namespace: &str, number: usize) -> (Value, Value) {
    let (volume, claim) = (format!("pv-{number:08}"), format!("pvc-{number:08}"));
    let volume_json = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume, "uid": uid(3, number)},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadOnlyMany"], "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": CSI_DRIVER, "volumeHandle": volume},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim,
                "uid": uid(4, number),
            },
        },
        "status": {"phase": "Bound"},
    });
    let claim_json = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim, "namespace": namespace, "uid": uid(4, number),
            "annotations": {"pv.kubernetes.io/bind-completed": "true"},
        },
        "spec": {
            "accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume,
        },
        "status": {"phase": "Bound"},
    });
    (volume_json, claim_json)
}

/// The ResourceClaim that the controller would make from the template for one pod.
fn resource_claim(pod: &Pod, number: usize) -> Value {
    let meta = &pod.metadata;
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": format!("{}-resource", meta.name), "namespace": meta.namespace, "uid": uid(5, number),
            "resourceVersion": "1", "annotations": {"resource.kubernetes.io/pod-claim-name": "resource"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"devices": {"requests": [{
            "name": "req-0",
            "exactly": {"deviceClassName": "test-class", "allocationMode": "ExactCount", "count": 1},
        }]}},
    })
}

fn claim_devices(pod: &mut Pod, claim: &Value) {
    let template = Some("test-claim-template".into());
    pod.spec.resource_claims.push(PodResourceClaim {
        name: "resource".into(),
        resource_claim_template_name: template,
        ..PodResourceClaim::default()
    });
    for container in &mut pod.spec.containers {
        container.resources.claims.push(ClaimName { name: "resource".into(), ..ClaimName::default() });
    }
    pod.status.resource_claim_statuses.push(PodResourceClaimStatus {
        name: "resource".into(),
        resource_claim_name: claim["metadata"]["name"].as_str().map(str::to_owned),
    });
}

/// An object of any kind, decoded.
pub(crate) fn one(template: &Value, namespace: &str, version: u64) -> Object {
    let mut value = template.clone();
    let name = value["metadata"]["name"].as_str().map_or_else(|| format!("one-{version}"), str::to_owned);
    value["metadata"]["name"] = name.into();
    value["metadata"]["uid"] = uid(6, version as usize).into();
    value["metadata"]["resourceVersion"] = version.to_string().into();
    if !namespace.is_empty() {
        value["metadata"]["namespace"] = namespace.into();
    }
    Object::decode(&value).and_then(Result::ok).expect("templates are ours, and the tests decode all of them")
}

pub(crate) fn namespace(name: &str, labels: &std::collections::BTreeMap<String, String>) -> Object {
    one(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}), "", 1)
}

/// The pod on its node, as a watch shows it after the binding.
pub(crate) fn assigned(pod: &Pod, node: String, version: u64) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.spec.node_name = node;
    pod.metadata.resource_version = version.to_string();
    Arc::new(pod)
}
