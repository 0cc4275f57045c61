//! The objects that a step has recorded, in the form of the recordings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::cluster::Cluster;
use super::placeholders::Shown;
use super::{NAMESPACE, Scenario};

/// The keys of a recorded state, with the plural and the kind of their objects.
const KINDS: &[(&str, &str, &str)] = &[
    ("certificateSigningRequests", "certificatesigningrequests", "CertificateSigningRequest"),
    ("clusterRoles", "clusterroles", "ClusterRole"),
    ("controllerRevisions", "controllerrevisions", "ControllerRevision"),
    ("cronJobs", "cronjobs", "CronJob"),
    ("daemonSets", "daemonsets", "DaemonSet"),
    ("endpointSlices", "endpointslices", "EndpointSlice"),
    ("endpoints", "endpoints", "Endpoints"),
    ("horizontalPodAutoscalers", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("jobs", "jobs", "Job"),
    ("persistentVolumeClaims", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("persistentVolumes", "persistentvolumes", "PersistentVolume"),
    ("pods", "pods", "Pod"),
    ("resourceQuotas", "resourcequotas", "ResourceQuota"),
    ("secrets", "secrets", "Secret"),
    ("serviceAccounts", "serviceaccounts", "ServiceAccount"),
    ("services", "services", "Service"),
    ("statefulSets", "statefulsets", "StatefulSet"),
];

/// What the recordings leave out of metadata.
const LEFT_OUT: [&str; 5] = ["uid", "resourceVersion", "managedFields", "creationTimestamp", "namespace"];

/// The present objects of the kinds that `expect` has, and the events of this step.
pub(super) async fn take(cluster: &Cluster, expect: &Value, scenario: &Scenario) -> Result<Value, String> {
    let mut listed = Vec::new();
    for key in expect.as_object().into_iter().flat_map(Map::keys).filter(|key| *key != "newEvents") {
        let known = KINDS.iter().find(|(known, _, _)| known == key);
        let (key, plural, kind) = known.ok_or_else(|| format!("unknown kind {key:?}"))?;
        let mut objects = cluster.list(plural).await?;
        if !cluster.api_resource(plural)?.namespaced {
            objects
                .retain(|object| object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(NAMESPACE)));
        }
        listed.push((*key, *kind, objects));
    }
    let recorded: Vec<&str> = listed.iter().map(|(_, kind, _)| *kind).collect();
    let shown = Shown::of(cluster, &recorded);
    let nodes: Vec<&Value> = cluster.created.iter().filter(|c| c.kind == "Node").map(|c| &c.metadata["name"]).collect();
    let mut state = json!({"newEvents": events(cluster, &shown, scenario.repeat_events)});
    for (key, kind, objects) in &listed {
        let mut objects = objects.clone();
        for object in &mut objects {
            without_accidents(object, kind, cluster);
            shown.value(object);
            if scenario.anon_nodes && *kind == "Pod" {
                without_nodes(object, &nodes);
            }
        }
        state[key] = json!(objects);
    }
    Ok(state)
}

fn without_accidents(object: &mut Value, kind: &str, cluster: &Cluster) {
    if let Some(object) = object.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !LEFT_OUT.contains(&field.as_str()));
    }
    match kind {
        "CertificateSigningRequest" => {
            replace_pem(&mut object["spec"], "request", "CERTIFICATE REQUEST", "$CSR");
            replace_pem(&mut object["status"], "certificate", "CERTIFICATE", "$CERT");
        }
        "Job" => {
            let uncounted = object.pointer_mut("/status/uncountedTerminatedPods").and_then(Value::as_object_mut);
            for (_, uids) in uncounted.into_iter().flatten() {
                *uids = json!(uids.as_array().map_or(0, Vec::len));
            }
        }
        "Pod" => {
            if let Some(status) = object["status"].as_object_mut() {
                status.remove("startTime");
            }
        }
        "Secret" => {
            for (key, value) in object["data"].as_object_mut().into_iter().flatten() {
                *value = json!(secret_content(key, value, cluster));
            }
        }
        _ => {}
    }
}

fn replace_pem(part: &mut Value, field: &str, label: &str, placeholder: &str) {
    let bytes = part[field].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    if bytes.starts_with(format!("-----BEGIN {label}-----").as_bytes()) {
        part[field] = json!(placeholder);
    }
}

/// The content of a secret's key: a placeholder when it is what the key promises, else the text itself.
fn secret_content(key: &str, value: &Value, cluster: &Cluster) -> String {
    let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match key {
        "ca.crt" if text == cluster.pki.authority.certificate => "$CA_CRT".into(),
        "token" if text.split('.').count() == 3 => "$TOKEN".into(),
        "ca.crt" | "token" | "namespace" => text,
        _ => format!("${}", key.to_uppercase()),
    }
}

fn without_nodes(value: &mut Value, nodes: &[&Value]) {
    match value {
        Value::String(_) if nodes.iter().any(|node| **node == *value) => *value = json!("$NODE"),
        Value::Array(items) => items.iter_mut().for_each(|item| without_nodes(item, nodes)),
        Value::Object(map) => map.values_mut().for_each(|item| without_nodes(item, nodes)),
        _ => {}
    }
}

/// The events of this step; those that look the same are counted together.
fn events(cluster: &Cluster, shown: &Shown, repeated: bool) -> Vec<Value> {
    let mut events: Vec<(Value, i64)> = Vec::new();
    for (event, count) in cluster.counted_events() {
        let mut event = json!({
            "component": event["source"]["component"],
            "kind": event["involvedObject"]["kind"],
            "name": event["involvedObject"]["name"],
            "type": event["type"],
            "reason": event["reason"],
            "message": event["message"],
        });
        shown.value(&mut event);
        match events.iter_mut().find(|(known, _)| *known == event) {
            Some((_, counted)) => *counted += count,
            None => events.push((event, count)),
        }
    }
    let with_count = |(mut event, count): (Value, i64)| {
        if !repeated {
            event["count"] = json!(count);
        }
        event
    };
    events.into_iter().map(with_count).collect()
}
