//! Services change type without leaving what no longer applies behind.

use jiff::Timestamp;
use serde_json::{Map, Value};

fn service_type(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("")
}

fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(service_type(spec), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn needs_node_port(spec: &Value) -> bool {
    service_type(spec) == "NodePort"
        || (service_type(spec) == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"].as_bool() != Some(false))
}

fn needs_health_check_port(spec: &Value) -> bool {
    service_type(spec) == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn externally_accessible(spec: &Value) -> bool {
    matches!(service_type(spec), "LoadBalancer" | "NodePort")
        || (service_type(spec) == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()))
}

fn node_ports(spec: &Value) -> Vec<i64> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let mut ports: Vec<i64> = ports.filter_map(|port| port["nodePort"].as_i64()).filter(|port| *port != 0).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Clears what the new type has no use for, where the user did not change it too.
pub(super) fn on_update(object: &mut Map<String, Value>, old: &Value, subresource: &str, _now: Timestamp) {
    if !subresource.is_empty() {
        return;
    }
    let old = &old["spec"];
    let Some(spec) = object.get_mut("spec") else { return };
    let same = |spec: &Value, name: &str| spec[name] == old[name];
    let mut clear = Vec::new();
    if needs_cluster_ip(old) && !needs_cluster_ip(spec) {
        if same(spec, "clusterIP") && same(spec, "clusterIPs") {
            clear.extend(["clusterIP", "clusterIPs"]);
        }
        clear.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|name| same(spec, name)));
    }
    let clear_node_ports = needs_node_port(old) && !needs_node_port(spec) && node_ports(old) == node_ports(spec);
    if needs_health_check_port(old) && !needs_health_check_port(spec) && same(spec, "healthCheckNodePort") {
        clear.push("healthCheckNodePort");
    }
    let was_balancer = service_type(old) == "LoadBalancer" && service_type(spec) != "LoadBalancer";
    if was_balancer {
        clear
            .extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"].into_iter().filter(|name| same(spec, name)));
    }
    if externally_accessible(old) && !externally_accessible(spec) && same(spec, "externalTrafficPolicy") {
        clear.push("externalTrafficPolicy");
    }
    let is_balancer = service_type(spec) == "LoadBalancer";
    if let Value::Object(spec) = spec {
        for name in clear {
            spec.remove(name);
        }
        if clear_node_ports {
            for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                port.as_object_mut().map(|port| port.remove("nodePort"));
            }
        }
    }
    if !is_balancer && let Some(Value::Object(status)) = object.get_mut("status") {
        status.insert("loadBalancer".into(), Value::Object(Map::new()));
    }
}

/// Fields that are kept but mean nothing.
pub(super) fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let spec = &object["spec"];
    let mut warnings = Vec::new();
    let is_external_name = service_type(spec) == "ExternalName";
    if !is_external_name && !spec["externalName"].as_str().unwrap_or("").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if service_type(spec) != "LoadBalancer" && !spec["loadBalancerIP"].as_str().unwrap_or("").is_empty() {
        warnings.push("spec.loadBalancerIP is ignored when spec.type is not \"LoadBalancer\"".to_owned());
    }
    if spec["clusterIP"] == "None" {
        if spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()) {
            warnings.push("spec.externalIPs is ignored when spec.clusterIP is \"None\"".to_owned());
        }
        if spec["sessionAffinity"].as_str().is_some_and(|affinity| affinity != "None") {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    warnings
}
