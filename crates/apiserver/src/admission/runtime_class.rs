//! RuntimeClass: a pod takes over its class's overhead, node selector and tolerations.

use std::sync::Arc;

use bayplan_model::status::Status;
use serde_json::Value;

use super::pod_resources::amounts;
use super::{AdmissionContext, list, list_mut, map_mut, row, text};

const GROUP: &str = "node.k8s.io";

pub(super) async fn admit(context: &AdmissionContext<'_>, pod: &mut Value) -> Result<(), Status> {
    let Some(class) = class_of(context, pod).await? else { return Ok(()) };
    set_overhead(context, pod, &class)?;
    set_scheduling(context, pod, &class)
}

pub(super) async fn validate(context: &AdmissionContext<'_>, pod: &Value) -> Result<(), Status> {
    if !context.is_new("", "pods") {
        return Ok(());
    }
    let class = class_of(context, pod).await?;
    let has = |value: Option<&Value>| value.and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if has(pod.pointer("/spec/overhead"))
        && !has(class.as_deref().and_then(|class| class.pointer("/overhead/podFixed")))
    {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(context.refuse(pod, why));
    }
    Ok(())
}

async fn class_of(context: &AdmissionContext<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
    let name = text(pod, "/spec/runtimeClassName");
    if !context.is_new("", "pods") || name.is_empty() {
        return Ok(None);
    }
    match context.objects.get(row(GROUP, "runtimeclasses")?, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => Err(context.refuse(pod, format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

fn set_overhead(context: &AdmissionContext<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let Some(overhead) = class.pointer("/overhead/podFixed") else { return Ok(()) };
    let given = &pod["spec"]["overhead"];
    if !given.is_null() && amounts(given) != amounts(overhead) {
        let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(context.refuse(pod, why));
    }
    pod["spec"]["overhead"] = overhead.clone();
    Ok(())
}

fn set_scheduling(context: &AdmissionContext<'_>, pod: &mut Value, class: &Value) -> Result<(), Status> {
    let wanted = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object);
    for (key, value) in wanted.into_iter().flatten() {
        let given = &pod["spec"]["nodeSelector"][key];
        if !given.is_null() && given != value {
            let (value, given) = (value.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given}"
            );
            return Err(context.refuse(pod, why));
        }
        if let Some(selector) = map_mut(&mut pod["spec"], "nodeSelector") {
            selector.insert(key.clone(), value.clone());
        }
    }
    for toleration in list(class, "/scheduling/tolerations") {
        if let Some(tolerations) = list_mut(&mut pod["spec"], "tolerations")
            && !tolerations.contains(toleration)
        {
            tolerations.push(toleration.clone());
        }
    }
    Ok(())
}
