//! What a pod takes over from its PriorityClass.

use serde_json::Value;

use crate::object::text;

/// Without any class.
const PRIORITY: i64 = 0;
const POLICY: &str = "PreemptLowerPriority";
const FROM_CLASS: &str = "from the given PriorityClass name";

/// Gives a new pod the priority and the preemption policy of its class, or of none; refuses others. A pod that names no
/// class gets the name of the default class it is given here.
pub fn set_priority(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let priority = class.and_then(|class| class["value"].as_i64()).unwrap_or(PRIORITY);
    let policy = class.and_then(|class| class["preemptionPolicy"].as_str()).unwrap_or(POLICY);
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; \
             priority admission controller computed {priority} {FROM_CLASS}"
        ));
    }
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} {FROM_CLASS}"
        ));
    }
    let unnamed = text(&pod["spec"], "priorityClassName").is_empty();
    let spec = &mut pod["spec"];
    spec["priority"] = priority.into();
    spec["preemptionPolicy"] = policy.into();
    if let (true, Some(class)) = (unnamed, class) {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    Ok(())
}

/// Keeps what a client that does not know these fields left out of an update.
pub fn keep_priority(pod: &mut Value, old: &Value) {
    for key in ["priority", "preemptionPolicy"] {
        if pod["spec"][key].is_null()
            && let Some(kept) = old["spec"].get(key)
        {
            pod["spec"][key] = kept.clone();
        }
    }
}
