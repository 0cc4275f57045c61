//! The state of the cluster in the form of the recordings: nothing that chance or the clock decides.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::cluster::Cluster;
use super::action::{is_ready, is_terminating};
use super::names::Names;

/// What the recordings leave out of metadata.
const LEFT_OUT: [&str; 6] = ["uid", "resourceVersion", "managedFields", "creationTimestamp", "namespace", "selfLink"];

impl Cluster {
    /// The objects, and the events of this step.
    pub(super) async fn snapshot(&self) -> Result<Value, String> {
        let mut snapshot = json!({
            "deployments": self.objects("deployments").await?,
            "replicaSets": self.objects("replicasets").await?,
            "configMaps": self.objects("configmaps").await?,
            "pods": pods(&self.list("pods").await?),
        });
        let names = Names::of(self);
        names.shown_in(&mut snapshot);
        let pods = snapshot["pods"].as_array_mut().map(std::mem::take).unwrap_or_default();
        snapshot["pods"] = counted(pods);
        let events: BTreeSet<String> = self.new_events().map(|event| shown_event(event, &names).to_string()).collect();
        let events: Vec<Value> = events.iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
        snapshot["newEvents"] = json!(events);
        Ok(snapshot)
    }

    async fn objects(&self, plural: &str) -> Result<Vec<Value>, String> {
        let objects = self.list(plural).await?;
        Ok(objects.into_iter().map(without_accidents).collect())
    }
}

fn shown_event(event: &Value, names: &Names) -> Value {
    let mut shown = json!({
        "kind": event["involvedObject"]["kind"],
        "name": event["involvedObject"]["name"],
        "type": event["type"],
        "reason": event["reason"],
        "message": event["message"],
    });
    names.shown_in(&mut shown);
    shown
}

fn without_accidents(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
        if let Some(time) = metadata.get_mut("deletionTimestamp") {
            *time = json!("$TIME");
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner["uid"] = json!(format!("$UID({})", owner["kind"].as_str().unwrap_or_default().to_lowercase()));
        }
    }
    if let Some(Value::Object(template)) = object.pointer_mut("/spec/template/metadata") {
        template.remove("creationTimestamp");
    }
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.retain(|field, _| !field.ends_with("Time"));
        }
    }
    object
}

fn pods(pods: &[Value]) -> Vec<Value> {
    pods.iter().map(pod).collect()
}

/// What a pod is grouped by. Only names that were not generated are compared.
fn pod(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = owners.iter().find(|owner| owner["controller"] == true);
    let mut shown = json!({
        "finalizers": metadata.get("finalizers").cloned().unwrap_or_else(|| json!([])),
        "image": pod["spec"]["containers"][0]["image"],
        "labels": metadata.get("labels").cloned().unwrap_or_else(|| json!({})),
        "owner": owner.map(|owner| format!("{}/{}", text(&owner["kind"]), text(&owner["name"]))),
        "ownerReferences": owners.len(),
        "phase": pod["status"]["phase"],
        "ready": is_ready(pod),
        "terminating": is_terminating(pod),
    });
    if metadata.get("generateName").is_none() {
        shown["name"] = metadata["name"].clone();
    }
    shown
}

/// Equal pods once, with their number.
fn counted(pods: Vec<Value>) -> Value {
    let mut counts: BTreeMap<String, (Map<String, Value>, usize)> = BTreeMap::new();
    for pod in pods {
        let key = pod.to_string();
        let Value::Object(pod) = pod else { continue };
        counts.entry(key).or_insert((pod, 0)).1 += 1;
    }
    let group = |(mut pod, count): (Map<String, Value>, usize)| {
        pod.insert("count".into(), json!(count));
        Value::Object(pod)
    };
    counts.into_values().map(group).collect()
}
