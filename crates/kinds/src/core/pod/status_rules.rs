//! What `pods/status` may write.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::rules::annotation_changes;
use crate::field::{ErrorList, GoValue, Path};
use crate::ip_rules::{address, legacy_address};
use crate::names;
use crate::object::{given, list, text};
use crate::pod_spec::id_rules;

/// The lists of container statuses, with the containers that they are about.
const STATUSES: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

pub(super) fn rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    annotation_changes(errors, new, old);
    conditions(errors, list(&new["status"], "conditions"));
    let path = Path::root("status");
    let (status, before) = (&new["status"], &old["status"]);
    if text(&new["spec"], "nodeName") != text(&old["spec"], "nodeName") {
        errors.forbidden(path.child("nodeName"), "may not be changed directly");
    }
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() && nominated != text(before, "nominatedNodeName") {
        errors.all_invalid(path.child("nominatedNodeName"), nominated, names::dns_subdomain(nominated));
    }
    if text(status, "qosClass") != text(before, "qosClass") {
        errors.invalid(path.child("qosClass"), text(status, "qosClass"), "field is immutable");
    }
    for (statuses, containers) in STATUSES {
        let path = path.child(statuses);
        stays_terminated(errors, path, list(status, statuses), list(before, statuses), &old["spec"], containers);
        users(errors, path, list(status, statuses), text(&new["spec"]["os"], "name"));
        allocated(errors, path, list(status, statuses), list(&new["spec"], containers), containers);
    }
    claims(errors, path.child("resourceClaimStatuses"), status, &new["spec"]);
    let pod_ips = (&status["podIPs"], list(before, "podIPs"));
    addresses(errors, path.child("podIPs"), pod_ips, "io.k8s.api.core.v1.PodIP");
    let hosts = list(status, "hostIPs");
    if let Some(first) = hosts.first()
        && text(first, "ip") != text(status, "hostIP")
    {
        let path = path.child("hostIPs");
        let path = path.index(0);
        errors.invalid(path.child("ip"), text(first, "ip"), "must be equal to `hostIP`");
    }
    let host_ips = (&status["hostIPs"], list(before, "hostIPs"));
    addresses(errors, path.child("hostIPs"), host_ips, "io.k8s.api.core.v1.HostIP");
}

/// Conditions of others than Kubernetes have qualified names. Upstream reports them under `metadata`.
fn conditions(errors: &mut ErrorList, conditions: &[Value]) {
    let path = Path::root("metadata");
    let path = path.child("conditions");
    for (index, condition) in conditions.iter().enumerate() {
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.all_invalid(path.index(index).child("Type"), kind, names::qualified_name(kind));
        }
    }
}

/// Containers that are not to run again stay terminated.
fn stays_terminated(
    errors: &mut ErrorList,
    path: Path<'_>,
    new: &[Value],
    old: &[Value],
    spec: &Value,
    containers: &str,
) {
    let policy = if containers == "ephemeralContainers" { "Never" } else { text(spec, "restartPolicy") };
    if policy == "Always" {
        return;
    }
    let sidecars: BTreeSet<&str> = match containers {
        "initContainers" => list(spec, containers)
            .iter()
            .filter(|container| text(*container, "restartPolicy") == "Always")
            .map(|container| text(container, "name"))
            .collect(),
        _ => BTreeSet::new(),
    };
    let mut going: BTreeMap<&str, usize> = BTreeMap::new();
    for status in new.iter().filter(|status| status["state"]["terminated"].is_null()) {
        *going.entry(text(status, "name")).or_default() += 1;
    }
    for (index, status) in old.iter().enumerate() {
        let terminated = &status["state"]["terminated"];
        let retried = policy == "OnFailure" && terminated["exitCode"].as_i64().unwrap_or(0) != 0;
        if terminated.is_null() || retried || sidecars.contains(text(status, "name")) {
            continue;
        }
        for _ in 0..going.get(text(status, "name")).copied().unwrap_or(0) {
            let path = path.index(index);
            errors.forbidden(path.child("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// Who containers run as; there are users of Linux only.
fn users(errors: &mut ErrorList, path: Path<'_>, statuses: &[Value], system: &str) {
    for (index, status) in statuses.iter().enumerate().filter(|(_, status)| given(&status["user"], "linux")) {
        let path = path.index(index);
        let (path, user) = (path.child("linux"), &status["user"]["linux"]);
        match system {
            "windows" => errors.forbidden(path, "cannot be set for a windows pod"),
            "" | "linux" => {
                id_rules(errors, path.child("uid"), &user["uid"]);
                id_rules(errors, path.child("gid"), &user["gid"]);
                let groups = path.child("supplementalGroups");
                for (index, group) in list(user, "supplementalGroups").iter().enumerate() {
                    id_rules(errors, groups.index(index), group);
                }
            }
            _ => {}
        }
    }
}

/// The health of devices is told of what the container asks for.
fn allocated(errors: &mut ErrorList, path: Path<'_>, statuses: &[Value], containers: &[Value], kind: &str) {
    let asked: BTreeMap<&str, &Value> =
        containers.iter().rev().map(|container| (text(container, "name"), &container["resources"])).collect();
    for (index, status) in statuses.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("allocatedResourcesStatus");
        let entries = list(status, "allocatedResourcesStatus");
        if kind == "ephemeralContainers" {
            if !entries.is_empty() {
                errors.forbidden(path, "must not be specified in container status");
            }
            continue;
        }
        for (index, entry) in entries.iter().enumerate() {
            let path = path.index(index);
            if let Some(resources) = asked.get(text(status, "name")) {
                allocated_name(errors, path.child("name"), text(entry, "name"), resources);
            }
            health(errors, path.child("resources"), list(entry, "resources"));
        }
    }
}

fn allocated_name(errors: &mut ErrorList, path: Path<'_>, name: &str, asked: &Value) {
    match name.strip_prefix("claim:") {
        Some(claim) => {
            let found = list(asked, "claims").iter().any(|entry| match text(entry, "request") {
                "" => text(entry, "name") == claim,
                request => {
                    claim.strip_prefix(text(entry, "name")).and_then(|rest| rest.strip_prefix('/')) == Some(request)
                }
            });
            if !found {
                let detail = "must match one of the container's resource claims in a format \
                    'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
                errors.invalid(path, name, detail);
            }
        }
        None if !given(&asked["requests"], name) => {
            errors.invalid(path, name, "must match one of the container's resource requests");
        }
        None => {}
    }
}

fn health(errors: &mut ErrorList, path: Path<'_>, resources: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, resource) in resources.iter().enumerate() {
        let path = path.index(index);
        let health = text(resource, "health");
        if !matches!(health, "Healthy" | "Unhealthy" | "Unknown") {
            errors.not_supported(path.child("health"), health, &["Healthy", "Unhealthy", "Unknown"]);
        }
        if !seen.insert(text(resource, "resourceID")) {
            errors.duplicate(path.child("resourceID"), text(resource, "resourceID"));
        }
    }
}

fn claims(errors: &mut ErrorList, path: Path<'_>, status: &Value, spec: &Value) {
    let known: BTreeSet<&str> = list(spec, "resourceClaims").iter().map(|claim| text(claim, "name")).collect();
    let mut seen = BTreeSet::new();
    for (index, entry) in list(status, "resourceClaimStatuses").iter().enumerate() {
        let (name, path) = (text(entry, "name"), path.index(index));
        let path = path.child("name");
        if !known.contains(name) {
            errors.invalid(path, name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name) {
            errors.duplicate(path, name);
        }
        if given(entry, "resourceClaimName") {
            let claim = text(entry, "resourceClaimName");
            errors.all_invalid(path, claim, names::dns_subdomain(claim));
        }
    }
}

/// One address of each family, of the type of that name; what was `stored` stays.
fn addresses(errors: &mut ErrorList, path: Path<'_>, (given, stored): (&Value, &[Value]), kind: &'static str) {
    let entries = given.as_array().map_or(&[][..], Vec::as_slice);
    let stored: Vec<&str> = stored.iter().map(|entry| text(entry, "ip")).collect();
    for (index, entry) in entries.iter().enumerate() {
        legacy_address(errors, path.index(index), text(entry, "ip"), &stored);
    }
    if entries.len() < 2 {
        return;
    }
    let parsed: Vec<IpAddr> = entries.iter().filter_map(|entry| address(text(entry, "ip"))).collect();
    let of_both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if let Some(wrong) = entries.iter().find(|entry| address(text(*entry, "ip")).is_none()) {
        let why = format!("invalid IP: {}", text(wrong, "ip"));
        errors
            .add("InternalError", path, || format!("Internal error: failed to check for dual stack with error:{why}"));
    }
    if !of_both || parsed.len() < entries.len() || entries.len() > 2 {
        errors.invalid(path, GoValue(kind, given), "may specify no more than one IP for each IP family");
    }
}
