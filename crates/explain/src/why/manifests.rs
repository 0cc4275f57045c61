//! The pods of manifests that do not exist yet: pods as they are, workloads as one pod of their template.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::{Object, PodInfo};
use bayplan_sources::resource_of;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::State;
use crate::state::with_uid;

/// Why manifests cannot be asked about.
#[derive(Debug, thiserror::Error)]
pub enum NotPods {
    /// There is neither a pod nor a workload.
    #[error("there is neither a pod nor a workload with a pod template in it")]
    None,
    /// An object cannot be read.
    #[error("{kind} {name}: {why}")]
    Unreadable {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A pod that does not exist yet.
#[derive(Clone, Debug)]
pub struct NewPod {
    /// The pod as it is decided.
    pub info: Arc<PodInfo>,
    /// The pod as it was written, or as its workload's template has it.
    pub written: Value,
}

/// Reads manifests. Objects that are no pods enter the state, as if they had been created before. A pod takes the place
/// of one of the same name. `complete` makes of an object what an API server would.
pub fn pods_of_manifests(
    state: &mut State,
    objects: Vec<Value>,
    namespace: &str,
    mut complete: impl FnMut(Value) -> Result<Value, String>,
) -> Result<Vec<NewPod>, NotPods> {
    let mut templates = Vec::new();
    for mut object in objects {
        set_namespace(&mut object, namespace);
        if text(&object, "/kind") == "Pod" {
            templates.push(object);
            continue;
        }
        if let Some(pod) = pod_of_template(state, &object) {
            templates.push(pod);
        }
        let unreadable = unreadable(&object);
        let object = complete(object).map_err(&unreadable)?;
        if let Some(object) = Object::decode(&object) {
            state.put(object.map_err(|error| unreadable(error.to_string()))?);
        }
    }
    let mut pods = Vec::new();
    for template in templates {
        let unreadable = unreadable(&template);
        let completed = complete(template.clone()).map_err(&unreadable)?;
        let mut pod = Pod::deserialize(&completed).map_err(|error| unreadable(error.to_string()))?;
        if pod.metadata.name.is_empty() {
            pod.metadata.name = format!("{}new", pod.metadata.generate_name);
        }
        if let Some(resource) = resource_of("v1", "Pod") {
            // For good: the question is about the pod of the file.
            let _ = state.remove(resource, &pod.metadata.namespace, &pod.metadata.name);
        }
        pods.push(NewPod { info: Arc::new(PodInfo::new(with_uid(Arc::new(pod)))), written: template });
    }
    if pods.is_empty() { Err(NotPods::None) } else { Ok(pods) }
}

fn unreadable(object: &Value) -> impl Fn(String) -> NotPods + use<> {
    let (kind, name) = (text(object, "/kind").to_owned(), text(object, "/metadata/name").to_owned());
    move |why| NotPods::Unreadable { kind: kind.clone(), name: name.clone(), why }
}

/// Objects of namespaced kinds that name no namespace are in the one of the question.
fn set_namespace(object: &mut Value, namespace: &str) {
    let is_workload = template_of(object).is_some();
    let resource = resource_of(text(object, "/apiVersion"), text(object, "/kind"));
    let namespaced = is_workload || resource.is_some_and(|resource| resource.namespaced);
    if namespaced && text(object, "/metadata/namespace").is_empty() && object["metadata"].is_object() {
        object["metadata"]["namespace"] = namespace.into();
    }
}

fn template_of(object: &Value) -> Option<&Value> {
    let template = object.pointer("/spec/template").or_else(|| object.pointer("/spec/jobTemplate/spec/template"));
    template.filter(|template| template["spec"].is_object())
}

/// A pod of a workload's template, as the workload's controller would make it.
fn pod_of_template(state: &mut State, workload: &Value) -> Option<Value> {
    let template = template_of(workload)?;
    let (kind, name) = (text(workload, "/kind"), text(workload, "/metadata/name"));
    let namespace = text(workload, "/metadata/namespace");
    let mut owner = json!({
        "apiVersion": workload["apiVersion"], "kind": kind, "name": name, "uid": format!("{namespace}/{name}"),
        "controller": true,
    });
    let mut pod_name = format!("{name}-0");
    if kind == "Deployment" {
        // Its pods belong to a ReplicaSet, whose selector default spreading looks up.
        let replica_set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"namespace": namespace, "name": format!("{name}-new")},
            "spec": {"selector": workload["spec"]["selector"]},
        });
        if let Some(Ok(object)) = Object::decode(&replica_set) {
            state.put(object);
        }
        owner["kind"] = "ReplicaSet".into();
        owner["name"] = format!("{name}-new").into();
        pod_name = format!("{name}-new-0");
    }
    Some(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name, "namespace": namespace, "ownerReferences": [owner],
            "labels": template["metadata"]["labels"].as_object().cloned().unwrap_or_default(),
            "annotations": template["metadata"]["annotations"].as_object().cloned().unwrap_or_default(),
        },
        "spec": template["spec"],
    }))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(objects: Value) -> Result<Vec<String>, String> {
        let objects = objects.as_array().unwrap().clone();
        let pods = pods_of_manifests(&mut State::default(), objects, "here", Ok);
        let describe = |NewPod { info: pod, .. }: &NewPod| {
            let owner = pod.metadata.controller().map_or_else(String::new, |owner| format!(" of {}", owner.kind));
            format!("{}{owner}", pod.key())
        };
        pods.map(|pods| pods.iter().map(describe).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn pods_are_taken_as_they_are_and_workloads_as_one_pod_of_their_template() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
        let workload = |api: &str, kind: &str, spec: Value| {
            let metadata = json!({"name": "w"});
            json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
        };
        assert_eq!(
            pods(json!([
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "there"}},
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}},
                workload("apps/v1", "Deployment", json!({"template": template})),
                workload("apps/v1", "StatefulSet", json!({"template": template})),
                workload("batch/v1", "CronJob", json!({"jobTemplate": {"spec": {"template": template}}})),
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
            ])),
            Ok([
                "there/p",
                "here/p-new",
                "here/w-new-0 of ReplicaSet",
                "here/w-0 of StatefulSet",
                "here/w-0 of CronJob"
            ]
            .map(str::to_owned)
            .into())
        );
    }

    #[test]
    fn a_file_without_pods_and_an_object_that_cannot_be_read_are_named() {
        let none = pods(json!([{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}]));
        assert_eq!(none, Err("there is neither a pod nor a workload with a pod template in it".into()));
        let odd = pods(json!([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": 7}]));
        assert!(odd.unwrap_err().starts_with("Pod p: invalid type"));
    }
}
