//! Services and their endpoints.

use serde_json::{Value, json};

use super::{Object, child, children, default, text};

/// How long a client stays with its pod when it asked to: three hours.
const CLIENT_IP_AFFINITY_SECONDS: i64 = 10_800;

pub(super) fn service(object: &mut Object) {
    let service_type = match child(object, "spec") {
        Some(spec) => service_spec(spec),
        None => return,
    };
    if service_type == "LoadBalancer"
        && let Some(status) = child(object, "status")
        && let Some(balancer) = child(status, "loadBalancer")
    {
        for ingress in children(balancer, "ingress") {
            if !text(ingress, "ip").is_empty() {
                default(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn service_spec(spec: &mut Object) -> String {
    default(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = spec.get("sessionAffinityConfig").map(|config| &config["clientIP"]["timeoutSeconds"]);
            if timeout.is_none_or(Value::is_null) {
                let config = json!({ "clientIP": { "timeoutSeconds": CLIENT_IP_AFFINITY_SECONDS } });
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    default(spec, "type", "ClusterIP");
    for port in children(spec, "ports") {
        default(port, "protocol", "TCP");
        let unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number.as_i64() == Some(0),
        };
        if unset {
            let number = port.get("port").cloned().unwrap_or(0.into());
            port.insert("targetPort".into(), number);
        }
    }
    let service_type = text(spec, "type").to_owned();
    let has_external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let externally_accessible = matches!(service_type.as_str(), "LoadBalancer" | "NodePort")
        || (service_type == "ClusterIP" && has_external_ips);
    if externally_accessible {
        default(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(service_type.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if service_type == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
    }
    service_type
}

pub(super) fn endpoints(object: &mut Object) {
    for subset in children(object, "subsets") {
        children(subset, "ports").for_each(|port| default(port, "protocol", "TCP"));
    }
}

pub(super) fn endpoint_slice(object: &mut Object) {
    for port in children(object, "ports") {
        if port.get("name").is_none_or(Value::is_null) {
            port.insert("name".into(), "".into());
        }
        default(port, "protocol", "TCP");
    }
}
