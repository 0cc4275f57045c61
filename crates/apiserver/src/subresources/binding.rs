//! `pods/binding`: the only write that sets `spec.nodeName` of an existing pod.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use bayplan_model::status::{Details, Status, reason};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Operation;
use crate::registry::{Answer, Call, Registry, SystemWrite, check_preconditions, metadata};
use crate::request::Preconditions;
use crate::status_errors;

/// Binds a pod to the node that a Binding names.
pub(crate) async fn bind(registry: &Registry, call: Call<'_>, mut binding: Value) -> Result<Answer, Status> {
    let name = metadata::text(&binding, "name").to_owned();
    let call = if call.name.is_empty() { Call { name: &name, ..call } } else { call };
    if name != call.name {
        return Err(status_errors::bad_request("name in URL does not match name in Binding object"));
    }
    let target = &binding["target"];
    if !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
        return Err(status_errors::plain(format!(
            "target.kind: Unsupported value: {}: supported values: \"Node\", \"<empty>\"",
            target["kind"]
        )));
    }
    if target["name"].as_str().unwrap_or_default().is_empty() {
        return Err(status_errors::plain("target.name: Required value"));
    }
    let call = Call { subresource: "binding", ..call };
    let context = registry.admission(call, Operation::Create, call.name);
    registry.plugins().admit(&context, &mut binding, None).await?;
    registry.plugins().validate(&context, &binding, None).await?;
    let given = |key: &str| Some(metadata::text(&binding, key).to_owned()).filter(|text| !text.is_empty());
    let preconditions = Preconditions { uid: given("uid"), resource_version: given("resourceVersion") };
    let key = Registry::key(call.resource, call.namespace, call.name);
    let now = registry.now();
    let mut assign = |pod: &mut Value| {
        check_preconditions(&call, &key, &preconditions, pod)?;
        assign(call.name, pod, &binding, now)
    };
    registry.guaranteed_update(SystemWrite::Binding, call, &mut assign).await?;
    Ok(Answer::status(201, status_errors::success(201, None)))
}

fn assign(name: &str, pod: &mut Value, binding: &Value, now: Timestamp) -> Result<(), Status> {
    if metadata::deleting(pod) {
        return Err(refused(name, &format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !node.is_empty() {
        return Err(refused(name, &format!("pod {name} is already assigned to node {node:?}")));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(refused(name, &format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    for part in ["annotations", "labels"] {
        let Some(added) = binding["metadata"][part].as_object().filter(|added| !added.is_empty()) else { continue };
        let of_pod = metadata::of(pod).entry(part).or_insert_with(|| json!({}));
        if let Some(of_pod) = of_pod.as_object_mut() {
            of_pod.extend(added.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
    }
    mark_scheduled(pod, now);
    Ok(())
}

/// Sets the condition PodScheduled to True.
fn mark_scheduled(pod: &mut Value, now: Timestamp) {
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else { return };
    let found = conditions.iter_mut().find(|c| c["type"] == "PodScheduled");
    let mut scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": metadata::time(now),
    });
    match found {
        Some(condition) => {
            if condition["status"] == "True" {
                scheduled["lastTransitionTime"] = condition["lastTransitionTime"].clone();
            }
            if let Some(observed) = condition.get("observedGeneration") {
                scheduled["observedGeneration"] = observed.clone();
            }
            *condition = scheduled;
        }
        None => conditions.push(scheduled),
    }
}

fn refused(name: &str, why: &str) -> Status {
    Status::failure(409, reason::CONFLICT, format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}"))
        .with_details(Details { name: name.to_owned(), kind: "pods/binding".to_owned(), ..Details::default() })
}
