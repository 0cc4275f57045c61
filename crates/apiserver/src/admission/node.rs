//! TaintNodesByCondition: a new node takes no pods until the node lifecycle controller finds it ready.

use serde_json::{Value, json};

use super::{AdmissionContext, list, list_mut};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn admit(context: &AdmissionContext<'_>, node: &mut Value) {
    if !context.is_new("", "nodes") {
        return;
    }
    let tainted = list(node, "/spec/taints").any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if tainted || super::map_mut(node, "spec").is_none() {
        return;
    }
    if let Some(taints) = list_mut(&mut node["spec"], "taints") {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
