//! Completes objects that do not exist yet as the API server would: defaults, and what admission adds from others.

use std::collections::BTreeMap;

use bayplan_kinds::admission::{add_default_tolerations, limit_range, priority, runtime_class};
use bayplan_kinds::codec::{FieldValidation, canonical};
use bayplan_kinds::{Kind, Scheme};
use bayplan_sources::{Resource, resource_of};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::State;

/// The namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The classes that every API server makes when it starts; a source need not list them.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";
const DEFAULT_CLASS_ANNOTATIONS: [&str; 2] = [
    "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
    "/metadata/annotations/storageclass.beta.kubernetes.io~1is-default-class",
];

/// Why an API server would refuse an object.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {name}: {why}")]
pub struct Refused {
    kind: String,
    name: String,
    why: String,
}

impl Refused {
    /// Why, without the object's name.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// What completes new objects: the classes and limits that are there.
#[derive(Clone, Debug, Default)]
pub struct Completion {
    priority_classes: BTreeMap<String, Value>,
    runtime_classes: BTreeMap<String, Value>,
    storage_classes: BTreeMap<String, Value>,
    /// By namespace and name.
    limit_ranges: BTreeMap<(String, String), Value>,
}

impl Completion {
    /// Collects what completes objects in a state.
    pub fn of(state: &State) -> Self {
        let mut completion = Completion::default();
        for (name, value) in SYSTEM_CLASSES {
            let class = json!({"metadata": {"name": name}, "value": value});
            completion.priority_classes.insert(name.to_owned(), class);
        }
        for (api_version, kind) in [
            ("scheduling.k8s.io/v1", "PriorityClass"),
            ("node.k8s.io/v1", "RuntimeClass"),
            ("storage.k8s.io/v1", "StorageClass"),
            ("v1", "LimitRange"),
        ] {
            let written = resource_of(api_version, kind).map(|resource| state.all_written(resource));
            for (_, _, json) in written.into_iter().flatten() {
                if let Ok(object) = serde_json::from_str(json.get()) {
                    completion.learn(kind, &object);
                }
            }
        }
        completion
    }

    /// Takes in an object that completes others, if it does.
    pub fn learn(&mut self, kind: &str, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        match kind {
            "PriorityClass" => drop(self.priority_classes.insert(name, object.clone())),
            "RuntimeClass" => drop(self.runtime_classes.insert(name, object.clone())),
            "StorageClass" => drop(self.storage_classes.insert(name, object.clone())),
            "LimitRange" => {
                let namespace = text(object, "/metadata/namespace").to_owned();
                self.limit_ranges.insert((namespace, name), object.clone());
            }
            _ => {}
        }
    }

    /// The object as an API server would store it. Kinds that it does not know are left as they are.
    pub fn complete(&self, object: Value, now: Timestamp) -> Result<Value, Refused> {
        let (api_version, kind_name) = (text(&object, "/apiVersion").to_owned(), text(&object, "/kind").to_owned());
        let name = display_name(&object);
        let refused = |why: String| Refused { kind: kind_name.clone(), name: name.clone(), why };
        let Some(kind) = kind_of(&api_version, &kind_name) else { return Ok(object) };
        let decoded = canonical(kind.group_version_kind(), object, FieldValidation::Ignore);
        let mut object = decoded.map_err(|status| refused(status.message))?.object;
        kind.default(&mut object);
        match kind.kind {
            "Pod" => self.admit_pod(&mut object).map_err(&refused)?,
            "PersistentVolumeClaim" => self.admit_claim(&mut object),
            _ => {}
        }
        kind.prepare_for_create(&mut object, now);
        if kind.kind == "Pod" {
            self.check_pod(&object).map_err(&refused)?;
        }
        Ok(object)
    }

    /// What mutating admission does, in its order.
    fn admit_pod(&self, pod: &mut Value) -> Result<(), String> {
        for range in self.limit_ranges_of(pod) {
            limit_range::set_defaults(range, pod)?;
        }
        let class = match text(pod, "/spec/priorityClassName") {
            "" => self.default_priority_class(),
            name => {
                let class = self.priority_classes.get(name);
                Some(class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
            }
        };
        priority::set_priority(pod, class)?;
        add_default_tolerations(pod);
        match text(pod, "/spec/runtimeClassName") {
            "" => Ok(()),
            name => {
                let missing = || format!("pod rejected: RuntimeClass {name:?} not found");
                let class = self.runtime_classes.get(name).ok_or_else(missing)?;
                runtime_class::set_overhead(pod, class)?;
                runtime_class::set_scheduling(pod, class)
            }
        }
    }

    fn check_pod(&self, pod: &Value) -> Result<(), String> {
        let errors: Vec<String> =
            self.limit_ranges_of(pod).flat_map(|range| limit_range::check_pod(range, pod)).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join(", ")) }
    }

    fn limit_ranges_of<'a>(&'a self, object: &Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        let namespace = text(object, "/metadata/namespace").to_owned();
        self.limit_ranges.iter().filter(move |((of, _), _)| *of == namespace).map(|(_, range)| range)
    }

    /// The lowest of the classes that are marked as default.
    fn default_priority_class(&self) -> Option<&Value> {
        let defaults = self.priority_classes.values().filter(|class| class["globalDefault"] == true);
        defaults.min_by_key(|class| class["value"].as_i64())
    }

    /// A claim that says nothing gets the default class; the newest when there are several.
    fn admit_claim(&self, claim: &mut Value) {
        let named = claim.pointer(CLASS_ANNOTATION).or_else(|| claim.pointer("/spec/storageClassName"));
        if named.is_some_and(Value::is_string) {
            return;
        }
        let is_default = |class: &&Value| DEFAULT_CLASS_ANNOTATIONS.iter().any(|key| text(class, key) == "true");
        let newest = self.storage_classes.values().filter(is_default).min_by(|a, b| {
            let (a_created, b_created) =
                (text(a, "/metadata/creationTimestamp"), text(b, "/metadata/creationTimestamp"));
            b_created.cmp(a_created).then_with(|| text(a, "/metadata/name").cmp(text(b, "/metadata/name")))
        });
        if let Some(class) = newest
            && claim["spec"].is_object()
        {
            claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
        }
    }

    /// The value of a priority class.
    pub fn priority(&self, class: &str) -> Option<i32> {
        self.priority_classes.get(class)?["value"].as_i64()?.try_into().ok()
    }
}

/// The kind of the API server that an object is of.
fn kind_of(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Scheme::built_in().by_kind(group, version, kind)
}

/// The resource of an object of a kind that decisions read.
pub(crate) fn resource(object: &Value) -> Option<&'static Resource> {
    resource_of(text(object, "/apiVersion"), text(object, "/kind"))
}

/// The text at a pointer; empty when there is none.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// How a message names an object.
pub(crate) fn display_name(object: &Value) -> String {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}
