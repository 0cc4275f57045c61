//! Objects as text: one per line, as `Kind name {fields}`.

use serde_json::{Map, Value, json};

use crate::cluster::Object;

pub(super) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The manifest of a line `Kind name {fields}`.
pub(super) fn manifest(line: &str) -> Value {
    let mut words = line.splitn(3, ' ');
    let (kind, name) = (words.next().unwrap_or_default(), words.next().expect("a kind and a name"));
    let fields = words.next().map(str::trim).filter(|fields| !fields.is_empty()).map_or(json!({}), yaml);
    expand(kind, name, fields)
}

/// The object of a line `Kind name {fields}`.
pub(super) fn object(line: &str) -> Object {
    let decoded = Object::decode(&manifest(line)).unwrap_or_else(|| panic!("{line}: not a kind the scheduler reads"));
    decoded.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The lines of a text that name objects.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// The API version of a kind, whether its objects have a namespace, and whether they have a `spec`.
fn kind_of(kind: &str) -> (&'static str, bool, bool) {
    match kind {
        "Pod" | "Service" | "ReplicationController" | "PersistentVolumeClaim" => ("v1", true, true),
        "Node" | "Namespace" | "PersistentVolume" => ("v1", false, true),
        "ReplicaSet" | "StatefulSet" => ("apps/v1", true, true),
        "PodDisruptionBudget" => ("policy/v1", true, true),
        "StorageClass" => ("storage.k8s.io/v1", false, false),
        "CSIStorageCapacity" => ("storage.k8s.io/v1", true, false),
        "CSINode" | "CSIDriver" | "VolumeAttachment" => ("storage.k8s.io/v1", false, true),
        "ResourceClaim" => ("resource.k8s.io/v1", true, true),
        "ResourceSlice" | "DeviceClass" => ("resource.k8s.io/v1", false, true),
        other => panic!("{other} is not a kind of these tests"),
    }
}

const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
    "creationTimestamp",
    "resourceVersion",
];

const STATUS: [&str; 13] = [
    "allocatable",
    "allocation",
    "conditions",
    "containerStatuses",
    "declaredFeatures",
    "disruptionsAllowed",
    "images",
    "nominatedNodeName",
    "phase",
    "reservedFor",
    "resourceClaimStatuses",
    "startTime",
    "disruptedPods",
];

/// The whole object: fields of metadata and status go there, all others into the spec.
///
/// `requests` is what the only container of a pod requests, and what a claim on a volume requests.
fn expand(kind: &str, name: &str, fields: Value) -> Value {
    let (api_version, is_namespaced, has_spec) = kind_of(kind);
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let metadata = [("name", name), ("uid", name), ("resourceVersion", "1")];
    let mut metadata: Map<String, Value> =
        metadata.into_iter().map(|(field, value)| (field.to_owned(), json!(value))).collect();
    if is_namespaced {
        metadata.insert("namespace".into(), json!(namespace));
    }
    let (mut spec, mut status, mut rest) = (Map::new(), Map::new(), Map::new());
    if kind == "Pod" {
        spec.insert("schedulerName".into(), json!("default-scheduler"));
    }
    let Value::Object(fields) = fields else { panic!("{kind} {name}: the fields are a map") };
    for (field, value) in fields {
        match (kind, field.as_str()) {
            ("Pod", "requests") => {
                spec.insert("containers".into(), json!([{"name": "c", "resources": {"requests": value}}]));
            }
            ("PersistentVolumeClaim", "requests") => {
                spec.insert("resources".into(), json!({"requests": value}));
            }
            (_, "status") => status.extend(value.as_object().cloned().unwrap_or_default()),
            (_, field) if METADATA.contains(&field) => drop(metadata.insert(field.to_owned(), value)),
            (_, field) if STATUS.contains(&field) => drop(status.insert(field.to_owned(), value)),
            (_, field) if has_spec => drop(spec.insert(field.to_owned(), value)),
            (_, field) => drop(rest.insert(field.to_owned(), value)),
        }
    }
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status,
    });
    object.as_object_mut().expect("an object").extend(rest);
    object
}
