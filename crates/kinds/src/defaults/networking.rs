//! Network policies and ingress classes.

use serde_json::{Value, json};

use super::{Object, child, children, default};

pub(super) fn network_policy(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for (rules, ports) in [("ingress", "ports"), ("egress", "ports")] {
        for rule in children(spec, rules) {
            children(rule, ports).for_each(|port| default(port, "protocol", "TCP"));
        }
    }
    let filled = |spec: &Object, name: &str| spec.get(name).and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if !filled(spec, "policyTypes") {
        let types = if filled(spec, "egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        spec.insert("policyTypes".into(), types);
    }
}

pub(super) fn ingress_class(object: &mut Object) {
    if let Some(parameters) = child(object, "spec").and_then(|spec| child(spec, "parameters")) {
        default(parameters, "scope", "Cluster");
    }
}
