//! What a pod takes over from its RuntimeClass: overhead, node selector and tolerations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod_resources::amounts;
use crate::defaulting::{child_or_new, list_or_new};
use crate::object::list;

/// Gives the pod the overhead of its class; refuses another one.
pub fn set_overhead(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(overhead) = class["overhead"].get("podFixed") else { return Ok(()) };
    let given = &pod["spec"]["overhead"];
    if !given.is_null() && amounts(given) != amounts(overhead) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
    }
    pod["spec"]["overhead"] = overhead.clone();
    Ok(())
}

/// Whether a pod states an overhead that its class does not have.
pub fn has_unfounded_overhead(pod: &Value, class: Option<&Value>) -> bool {
    let has = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
    has(&pod["spec"]["overhead"]) && !class.is_some_and(|class| has(&class["overhead"]["podFixed"]))
}

/// Sends the pod where its class runs; refuses a node selector that says otherwise.
pub fn set_scheduling(pod: &mut Value, class: &Value) -> Result<(), String> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let given = spec.get("nodeSelector").and_then(|selector| selector.get(key));
        if let Some(given) = given.filter(|given| !given.is_null() && *given != value) {
            let (value, given) = (value.as_str().unwrap_or_default(), given.as_str().unwrap_or_default());
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; \
                 pod.spec.nodeSelector[{key}] = {given}"
            ));
        }
        if let Some(selector) = child_or_new(spec, "nodeSelector") {
            selector.insert(key.clone(), value.clone());
        }
    }
    let given = list(scheduling, "tolerations");
    if !given.is_empty()
        && let Some(tolerations) = list_or_new(spec, "tolerations")
    {
        let mut known: BTreeSet<String> = tolerations.iter().map(Value::to_string).collect();
        tolerations.extend(given.iter().filter(|toleration| known.insert(toleration.to_string())).cloned());
    }
    Ok(())
}
