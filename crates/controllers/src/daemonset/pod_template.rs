//! What is added to the template for a pod: the node it is for, what it bears, and of which revision it is.

use serde_json::{Value, json};

use super::claimant;
use super::object::DaemonSet;
use crate::error::Error;
use crate::pod_control::pod_object;
use crate::revisions::REVISION_LABEL;

/// The label that told the pods of different templates apart before there were revisions; pods still get it.
pub(super) const POD_GENERATION: &str = "pod-template-generation";

/// Daemons stay on nodes in trouble: these conditions neither evict them nor keep them away.
const BORNE: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// A daemon on the host's network may be what brings up the pods' one.
const BORNE_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The tolerations of a pod with this template's spec. One that the template has already loses its
/// `tolerationSeconds`: daemons are not evicted after a while either.
pub(super) fn daemon_tolerations(spec: &Value) -> Vec<Value> {
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let on_host_network = (spec["hostNetwork"] == true).then_some(BORNE_ON_HOST_NETWORK);
    for (key, effect) in BORNE.into_iter().chain(on_host_network) {
        let plain = json!({"key": key, "operator": "Exists", "effect": effect});
        let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
        let same = |known: &Value| {
            ["key", "effect", "operator", "value"].iter().all(|field| text(known, field) == text(&plain, field))
        };
        let mut found = false;
        for known in tolerations.iter_mut().filter(|known| same(known)) {
            known.clone_from(&plain);
            found = true;
        }
        if !found {
            tolerations.push(plain);
        }
    }
    tolerations
}

/// The pods of one revision, each to be completed with its node.
pub struct PodTemplate {
    pod: Value,
}

impl PodTemplate {
    /// The pods that a DaemonSet creates with this revision's hash.
    pub fn new(ds: &DaemonSet, hash: &str) -> Result<Self, Error> {
        let mut pod = pod_object(&ds.spec.template.value, &claimant(ds).owner_reference())?;
        pod["spec"]["tolerations"] = Value::Array(daemon_tolerations(&pod["spec"]));
        if let Some(generation) = ds.template_generation() {
            pod["metadata"]["labels"][POD_GENERATION] = json!(generation.to_string());
        }
        if !hash.is_empty() {
            pod["metadata"]["labels"][REVISION_LABEL] = json!(hash);
        }
        Ok(PodTemplate { pod })
    }

    /// The pod for a node: the scheduler can bind it to no other.
    pub fn for_node(&self, node: &str) -> Value {
        let mut pod = self.pod.clone();
        let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let required = json!({"nodeSelectorTerms": [{"matchFields": [name]}]});
        let mut affinity = pod["spec"]["affinity"].take();
        if !affinity.is_object() {
            affinity = json!({});
        }
        if !affinity["nodeAffinity"].is_object() {
            affinity["nodeAffinity"] = json!({});
        }
        affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
        pod["spec"]["affinity"] = affinity;
        pod
    }
}
