//! Replaces names by pseudonyms, so that a snapshot can be given to others and still gives the same answers.
//!
//! Equal strings get equal pseudonyms, wherever they stand: a node's name is also a label's value and the value of a
//! node selector. Pseudonyms are in the order of the strings they stand for, because ties may be broken by name.
//! Left as they are: words of the API (operators, effects, phases), numbers and quantities, names of resources, keys of
//! Kubernetes' own labels, and what drivers call their devices, because expressions about devices name it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::fields::{Field, Fields, Meaning, fields_of};
use super::prune::keeps_annotation;

/// Strings that say nothing about anybody, and that the API gives a meaning.
const WELL_KNOWN: &[&str] = &[
    "",
    "true",
    "false",
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "default-scheduler",
    "system-cluster-critical",
    "system-node-critical",
    "metadata.name",
    "metadata.namespace",
    "amd64",
    "arm64",
    "arm",
    "ppc64le",
    "s390x",
    "386",
    "linux",
    "windows",
];

/// What a resource of a device class is called when the class names none.
const DEVICE_CLASS_RESOURCE: &str = "deviceclass.resource.kubernetes.io/";

/// Annotations whose values are names of objects, and not of drivers.
const NAMING_ANNOTATIONS: &[&str] = &[
    "volume.kubernetes.io/selected-node",
    "volume.beta.kubernetes.io/storage-class",
    "resource.kubernetes.io/pod-claim-name",
];

/// What pseudonyms begin with, by the kind of the object that bears the name.
const PREFIXES: &[(&str, &str)] = &[
    ("Node", "node"),
    ("Namespace", "ns"),
    ("Pod", "pod"),
    ("Service", "service"),
    ("Deployment", "deployment"),
    ("ReplicaSet", "replicaset"),
    ("StatefulSet", "statefulset"),
    ("DaemonSet", "daemonset"),
    ("Job", "job"),
    ("PersistentVolume", "volume"),
    ("PersistentVolumeClaim", "claim"),
    ("StorageClass", "class"),
    ("PriorityClass", "priority"),
];

/// Collects all strings before any is replaced: their order gives the pseudonyms.
#[derive(Debug, Default)]
pub(super) struct Names {
    strings: BTreeSet<String>,
    /// The kind that bears a name, as its place in [`PREFIXES`].
    bearers: BTreeMap<String, usize>,
    /// The claims of ephemeral volumes, which are found by the names of pod and volume.
    joined: BTreeMap<String, (String, String)>,
    /// The names of CSI drivers, by which classes and nodes call them.
    drivers: BTreeSet<String>,
}

impl Names {
    /// Collects the strings of a pruned object.
    pub(super) fn collect(&mut self, kind: &str, object: &mut Value) {
        let Some(fields) = fields_of(kind) else { return };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(place) = PREFIXES.iter().position(|(of, _)| *of == kind) {
            let bearer = self.bearers.entry(name.clone()).or_insert(place);
            *bearer = place.min(*bearer);
        }
        if kind == "CSIDriver" {
            self.drivers.insert(name.clone());
        }
        if kind == "Pod" {
            for volume in object["spec"]["volumes"].as_array().into_iter().flatten() {
                let volume_name = volume["name"].as_str().filter(|_| volume["ephemeral"].is_object());
                if let Some(volume) = volume_name {
                    self.joined.insert(format!("{name}-{volume}"), (name.clone(), volume.to_owned()));
                }
            }
        }
        let mut collect = |text: &str| {
            self.strings.insert(text.to_owned());
            text.to_owned()
        };
        walk(object, fields, &mut collect);
    }

    /// A pseudonym for every string.
    pub(super) fn pseudonyms(self) -> Pseudonyms {
        let width = self.strings.len().to_string().len();
        let prefix = |text: &str| self.bearers.get(text).map_or("x", |place| PREFIXES[*place].1);
        let number = |(rank, text): (usize, &String)| (text.clone(), format!("{}-{rank:0width$}", prefix(text)));
        let mut known: BTreeMap<String, String> = self.strings.iter().enumerate().map(number).collect();
        for (claim, (pod, volume)) in &self.joined {
            let shown = |text: &str| name(text, &mut |text| known.get(text).cloned().unwrap_or_default());
            let joined = format!("{}-{}", shown(pod), shown(volume));
            known.insert(claim.clone(), joined);
        }
        known.extend(self.drivers.into_iter().map(|driver| (driver.clone(), driver)));
        Pseudonyms(known)
    }
}

/// The pseudonym of each string.
#[derive(Debug)]
pub(super) struct Pseudonyms(BTreeMap<String, String>);

impl Pseudonyms {
    /// Replaces the names in a pruned object.
    pub(super) fn apply(&self, kind: &str, object: &mut Value) {
        if let Some(fields) = fields_of(kind) {
            // What was not collected cannot be there; should it be, it is not shown.
            walk(object, fields, &mut |text: &str| self.0.get(text).cloned().unwrap_or_else(|| "x".to_owned()));
        }
    }
}

/// Gives every string that is a name to `replace`, and puts the answer in its place.
fn walk(value: &mut Value, fields: &Fields, replace: &mut dyn FnMut(&str) -> String) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|element| walk(element, fields, replace)),
        Value::Object(object) => {
            for (name, below) in object.iter_mut() {
                match fields.get(name) {
                    Some(Field::Part(fields)) => walk(below, fields, replace),
                    Some(Field::Whole(meaning)) => walk_leaf(below, *meaning, replace),
                    None => *below = Value::Null,
                }
            }
        }
        _ => {}
    }
}

fn walk_leaf(value: &mut Value, meaning: Meaning, replace: &mut dyn FnMut(&str) -> String) {
    match meaning {
        Meaning::Words => {}
        Meaning::Message => *value = Value::Null,
        Meaning::Names => each_string(value, &mut |text| name(text, replace)),
        Meaning::LabelKeys => each_string(value, &mut |text| key(text, replace)),
        Meaning::Images => each_string(value, &mut |text| image(text, replace)),
        Meaning::JoinedNames => each_string(value, &mut |text| {
            text.split('/').map(|part| name(part, replace)).collect::<Vec<_>>().join("/")
        }),
        Meaning::Labels => each_entry(value, &mut |label, value| {
            each_string(value, &mut |text| name(text, replace));
            key(label, replace)
        }),
        Meaning::ByName => each_entry(value, &mut |bearer, _| name(bearer, replace)),
        Meaning::Quantities => {
            each_entry(value, &mut |resource, _| match resource.strip_prefix(DEVICE_CLASS_RESOURCE) {
                Some(class) => format!("{DEVICE_CLASS_RESOURCE}{}", name(class, replace)),
                None => resource.to_owned(),
            })
        }
        Meaning::Annotations => annotations(value, replace),
    }
}

/// Only annotations that are read are there. Of their values, those that name objects are replaced.
fn annotations(value: &mut Value, replace: &mut dyn FnMut(&str) -> String) {
    let Value::Object(annotations) = value else { return };
    annotations.retain(|key, _| keeps_annotation(key));
    for (key, value) in annotations.iter_mut() {
        if NAMING_ANNOTATIONS.contains(&key.as_str()) {
            each_string(value, &mut |text| name(text, replace));
        }
    }
}

fn each_string(value: &mut Value, replace: &mut dyn FnMut(&str) -> String) {
    match value {
        Value::String(text) => *text = replace(text),
        Value::Array(list) => list.iter_mut().for_each(|element| each_string(element, replace)),
        Value::Object(object) => object.values_mut().for_each(|element| each_string(element, replace)),
        _ => {}
    }
}

/// Replaces the keys of a map by what `rekey` gives for each.
fn each_entry(value: &mut Value, rekey: &mut dyn FnMut(&str, &mut Value) -> String) {
    if let Value::Object(entries) = value {
        let renamed = std::mem::take(entries).into_iter().map(|(key, mut value)| (rekey(&key, &mut value), value));
        *entries = renamed.collect::<Map<String, Value>>();
    }
}

/// Numbers stay: node affinity compares labels with `Gt` and `Lt`.
fn name(text: &str, replace: &mut dyn FnMut(&str) -> String) -> String {
    if WELL_KNOWN.contains(&text) || text.parse::<i64>().is_ok() {
        return text.to_owned();
    }
    // The label of a volume names several zones with two underscores between them.
    if text.contains("__") {
        return text.split("__").map(|part| name(part, replace)).collect::<Vec<_>>().join("__");
    }
    // What is not a valid label stays invalid, because the scheduler answers that with an error.
    let valid = text.len() <= 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let is_long_name =
        text.len() > 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    match valid || is_long_name {
        true => replace(text),
        false => format!("{}!", replace(text)),
    }
}

/// Kubernetes' own keys stay.
fn key(text: &str, replace: &mut dyn FnMut(&str) -> String) -> String {
    match text.split_once('/') {
        Some((domain, _)) if is_ours(domain) => text.to_owned(),
        Some((domain, rest)) => format!("{}/{}", name(domain, replace), name(rest, replace)),
        None => name(text, replace),
    }
}

fn is_ours(domain: &str) -> bool {
    ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|ours| domain.strip_suffix(ours).is_some_and(|before| before.is_empty() || before.ends_with('.')))
}

/// An image without a tag is one with the tag `latest`, and must stay equal to it.
fn image(text: &str, replace: &mut dyn FnMut(&str) -> String) -> String {
    if text.is_empty() {
        return String::new();
    }
    let has_tag = text.rfind(':') > text.rfind('/');
    let whole = if has_tag { text.to_owned() } else { format!("{text}:latest") };
    format!("{}:x", replace(&whole))
}
