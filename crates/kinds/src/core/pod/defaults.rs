//! What upstream fills into a pod, beside what every pod spec gets.

use serde_json::{Map, Value};

use crate::admission::pod_resources::container_totals;
use crate::defaulting::{
    child, child_or_new, children, default, default_nonzero, round_requirements, round_resource_list,
};
use crate::object::{Object, text};
use crate::pod_spec;

pub(super) fn pod(object: &mut Object) {
    pod_spec::drop_init_container_annotations(object);
    if let Some(spec) = child(object, "spec") {
        for containers in ["containers", "initContainers"] {
            children(spec, containers).for_each(requests_from_limits);
        }
        pod_level_resources(spec);
        default(spec, "enableServiceLinks", true);
        if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
            for containers in ["containers", "initContainers"] {
                children(spec, containers).for_each(host_ports);
            }
        }
        pod_spec::spec_defaults(spec);
        if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|period| period < 0) {
            spec.insert("terminationGracePeriodSeconds".into(), 1.into());
        }
    }
    if let Some(status) = child(object, "status") {
        pod_status(status);
    }
}

fn requests_from_limits(container: &mut Object) {
    let Some(resources) = child(container, "resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits") else { return };
    let missing: Vec<(String, Value)> = {
        let requests = resources.get("requests").and_then(Value::as_object);
        limits
            .iter()
            .filter(|(name, _)| requests.is_none_or(|requests| !requests.contains_key(*name)))
            .map(|(name, quantity)| (name.clone(), quantity.clone()))
            .collect()
    };
    if missing.is_empty() {
        return;
    }
    if let Some(requests) = child_or_new(resources, "requests") {
        requests.extend(missing);
    }
}

fn host_ports(container: &mut Object) {
    for port in children(container, "ports") {
        let container_port = port.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
        if container_port != 0 {
            default_nonzero(port, "hostPort", container_port);
        }
    }
}

fn pod_status(status: &mut Object) {
    let ip = text(status, "podIP").to_owned();
    let first = status
        .get("podIPs")
        .and_then(Value::as_array)
        .and_then(|ips| ips.first())
        .and_then(|entry| entry.get("ip"))
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    // Older clients only set the single address, so it wins.
    if !ip.is_empty() && ip != first {
        status.insert("podIPs".into(), serde_json::json!([{ "ip": ip }]));
    } else if ip.is_empty() && !first.is_empty() {
        status.insert("podIP".into(), first.into());
    }
    for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        for container in children(status, list) {
            round_resource_list(container, "allocatedResources");
            round_requirements(child(container, "resources"));
        }
    }
    round_resource_list(status, "allocatedResources");
    round_requirements(child(status, "resources"));
}

/// Pod-level requests and huge-page limits that follow from those of the containers (KEP-2837).
fn pod_level_resources(spec: &mut Object) {
    let Some(Value::Object(resources)) = spec.get("resources") else { return };
    let entries = |name: &str| resources.get(name).and_then(Value::as_object).map_or(0, Map::len);
    if entries("limits") == 0 && entries("requests") == 0 {
        return;
    }
    let has = |list: &str, name: &str| resources.get(list).is_some_and(|list| list.get(name).is_some());

    let mut limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, quantity) in container_totals(spec, "limits") {
        if is_huge_page(&name) && !has("requests", &name) && !limits.contains_key(&name) {
            limits.insert(name, quantity.to_string().into());
        }
    }
    let mut requests = resources.get("requests").and_then(Value::as_object).cloned().unwrap_or_default();
    if !limits.is_empty() {
        for (name, quantity) in container_totals(spec, "requests") {
            if matches!(name.as_str(), "cpu" | "memory") && !requests.contains_key(&name) {
                requests.insert(name, quantity.to_string().into());
            }
        }
        for (name, quantity) in &limits {
            if (matches!(name.as_str(), "cpu" | "memory") || is_huge_page(name)) && !requests.contains_key(name) {
                requests.insert(name.clone(), quantity.clone());
            }
        }
    }
    let Some(resources) = child(spec, "resources") else { return };
    for (name, list) in [("limits", limits), ("requests", requests)] {
        if !list.is_empty() {
            resources.insert(name.into(), Value::Object(list));
        }
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::KIND;

    #[test]
    fn defaulting_twice_changes_nothing() {
        let mut once = json!({
            "metadata": {}, "status": {},
            "spec": { "hostNetwork": true, "serviceAccount": "robot", "containers": [
                { "name": "c", "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": "100u" } } },
            ] },
        });
        KIND.default(&mut once);
        assert_eq!(once["spec"]["serviceAccountName"], "robot");
        assert_eq!(once["spec"]["containers"][0]["ports"][0]["hostPort"], 80);
        assert_eq!(once["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1m");
        let mut twice = once.clone();
        KIND.default(&mut twice);
        assert_eq!(once, twice);
    }
}
