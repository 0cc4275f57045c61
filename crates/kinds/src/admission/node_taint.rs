//! TaintNodesByCondition: a new node takes no pods until the node lifecycle controller finds it ready.

use serde_json::{Value, json};

use crate::defaulting::{child_or_new, list_or_new};
use crate::object::list;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints a new node as not ready.
pub fn taint_until_ready(node: &mut Value) {
    let is_taint = |taint: &Value| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule";
    if list(&node["spec"], "taints").iter().any(is_taint) {
        return;
    }
    let Some(node) = node.as_object_mut() else { return };
    if let Some(spec) = child_or_new(node, "spec")
        && let Some(taints) = list_or_new(spec, "taints")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
