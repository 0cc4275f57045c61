//! The rules of services. Upstream: `validateService` and what it calls.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{cluster_ips, externally_accessible, headless, needs_health_check_port};
use crate::field::{ErrorList, GoValue, Path};
use crate::object::{given, list, number, text};
use crate::{ip_rules, metadata, names};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TRAFFIC_POLICIES: [&str; 2] = ["Cluster", "Local"];
const TRAFFIC_DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
/// A day.
const AFFINITY_SECONDS_MAX: i64 = 86_400;

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

pub(super) fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let kind = text(spec, "type");
    topology_annotations(errors, object);
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless(spec) && kind != "ExternalName" {
        errors.required(path.child("ports"), "");
    }
    if headless(spec) && matches!(kind, "LoadBalancer" | "NodePort") {
        let addresses = path.child("clusterIPs");
        errors.invalid(addresses.index(0), "None", &format!("may not be set to 'None' for {kind} services"));
    }
    if kind == "ExternalName" {
        external_name(errors, path, spec);
    }
    all_ports(errors, path.child("ports"), ports, kind == "ClusterIP");
    metadata::labels(errors, path.child("selector"), &spec["selector"]);
    errors.one_of(path.child("sessionAffinity"), text(spec, "sessionAffinity"), &["ClientIP", "None"]);
    session_affinity(errors, path.child("sessionAffinityConfig"), spec);
    let old_spec = old.map(|old| &old["spec"]);
    cluster_ips::rules(errors, spec, old_spec);
    external_ips(errors, path.child("externalIPs"), spec, old_spec);
    errors.one_of(path.child("type"), kind, &TYPES);
    source_ranges(errors, object, old);
    balancer_fields(errors, path, spec);
    external_traffic(errors, path, spec);
    let internal = text(spec, "internalTrafficPolicy");
    if given(spec, "internalTrafficPolicy") {
        if !TRAFFIC_POLICIES.contains(&internal) {
            errors.not_supported(path.child("internalTrafficPolicy"), internal, &TRAFFIC_POLICIES);
        }
    } else if matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        errors.required(path.child("internalTrafficPolicy"), "");
    }
    let distribution = text(spec, "trafficDistribution");
    if given(spec, "trafficDistribution") && !TRAFFIC_DISTRIBUTIONS.contains(&distribution) {
        errors.not_supported(path.child("trafficDistribution"), distribution, &TRAFFIC_DISTRIBUTIONS);
    }
}

fn topology_annotations(errors: &mut ErrorList, object: &Value) {
    let annotations = &object["metadata"]["annotations"];
    if let (Some(hints), Some(mode)) = (annotations[TOPOLOGY_HINTS].as_str(), annotations[TOPOLOGY_MODE].as_str())
        && hints != mode
    {
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        annotation_error(TOPOLOGY_MODE, |path| errors.invalid(path, mode, &detail));
    }
}

fn annotation_error(name: &str, report: impl FnOnce(Path<'_>)) {
    let root = Path::root("metadata");
    let annotations = root.child("annotations");
    report(annotations.key(name));
}

fn external_name(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    for field in ["clusterIPs", "ipFamilies"] {
        if !list(spec, field).is_empty() {
            errors.forbidden(path.child(field), "may not be set for ExternalName services");
        }
    }
    if given(spec, "ipFamilyPolicy") {
        errors.forbidden(path.child("ipFamilyPolicy"), "may not be set for ExternalName services");
    }
    let name = text(spec, "externalName");
    // A dot at its end says that the name is complete.
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required(path.child("externalName"), ""),
        host => errors.all_invalid(path.child("externalName"), host, names::dns_subdomain(host)),
    }
}

fn all_ports(errors: &mut ErrorList, path: Path<'_>, ports: &[Value], inside_only: bool) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
            if !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
        } else if ports.len() > 1 {
            errors.required(path.child("name"), "");
        }
        if let Some(problem) = names::port_number(number(port, "port")) {
            errors.invalid(path.child("port"), number(port, "port"), problem);
        }
        errors.one_of(path.child("protocol"), text(port, "protocol"), &PROTOCOLS);
        target_port(errors, path.child("targetPort"), &port["targetPort"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.all_invalid(path.child("appProtocol"), protocol, names::qualified_name(protocol));
        }
        if inside_only && number(port, "nodePort") != 0 {
            errors.forbidden(path.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    repeated_ports(errors, path, ports);
}

fn target_port(errors: &mut ErrorList, path: Path<'_>, port: &Value) {
    match port {
        Value::String(name) => errors.all_invalid(path, name, names::port_name(name)),
        port => {
            let port = port.as_i64().unwrap_or(0);
            if let Some(problem) = names::port_number(port) {
                errors.invalid(path, port, problem);
            }
        }
    }
}

/// No two ports may have the same number and protocol, inside and on nodes.
fn repeated_ports(errors: &mut ErrorList, path: Path<'_>, ports: &[Value]) {
    let (mut on_nodes, mut inside) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let (protocol, node_port) = (text(port, "protocol"), number(port, "nodePort"));
        if node_port != 0 && !on_nodes.insert((node_port, protocol)) {
            errors.duplicate(path.child("nodePort"), node_port);
        }
        if !inside.insert((number(port, "port"), protocol)) {
            let key = json!({ "protocol": port["protocol"], "port": port["port"] });
            errors.duplicate(path, GoValue("io.k8s.api.core.v1.ServicePort", &key));
        }
    }
}

fn session_affinity(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let config = &spec["sessionAffinityConfig"];
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            const NEEDED: &str = "when session affinity type is ClientIP";
            let client = path.child("clientIP");
            match config["clientIP"]["timeoutSeconds"].as_i64() {
                Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => {
                    let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                    errors.invalid(client.child("timeoutSeconds"), seconds, &detail);
                }
                Some(_) => {}
                None if config.is_null() => errors.required(path, NEEDED),
                None if config["clientIP"].is_null() => errors.required(client, NEEDED),
                None => errors.required(client.child("timeoutSeconds"), NEEDED),
            }
        }
        "None" if !config.is_null() => errors.forbidden(path, "must not be set when session affinity is None"),
        _ => {}
    }
}

fn external_ips(errors: &mut ErrorList, path: Path<'_>, spec: &Value, old: Option<&Value>) {
    let stored = old.map(|old| cluster_ips::texts(old, "externalIPs")).unwrap_or_default();
    for (index, address) in cluster_ips::texts(spec, "externalIPs").into_iter().enumerate() {
        let path = path.index(index);
        if ip_rules::legacy_address(errors, path, address, &stored) {
            ip_rules::endpoint_address(errors, path, address);
        }
    }
}

/// The clients that a load balancer lets in, from the field or the annotation that was there before it.
fn source_ranges(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let spec = &object["spec"];
    let elsewhere = text(spec, "type") != "LoadBalancer";
    let ranges = cluster_ips::texts(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let root = Path::root("spec");
        // The path is spelled as the field is in Go.
        let path = root.child("LoadBalancerSourceRanges");
        if elsewhere {
            errors.forbidden(path, BALANCERS_ONLY);
        }
        let stored = old.map(|old| cluster_ips::texts(&old["spec"], "loadBalancerSourceRanges")).unwrap_or_default();
        let stored: BTreeSet<&str> = stored.into_iter().map(str::trim).collect();
        for (index, range) in ranges.into_iter().map(str::trim).enumerate() {
            if let Some(problem) = ip_rules::legacy_range_problem(range).filter(|_| !stored.contains(range)) {
                errors.invalid(path.index(index), range, &problem);
            }
        }
        return;
    }
    let annotation = |object: &Value| object["metadata"]["annotations"][SOURCE_RANGES].as_str().map(str::to_owned);
    let Some(value) = annotation(object) else { return };
    if elsewhere {
        annotation_error(SOURCE_RANGES, |path| errors.forbidden(path, BALANCERS_ONLY));
    }
    if old.and_then(annotation).as_ref() == Some(&value) || value.trim().is_empty() {
        return;
    }
    for range in value.trim().split(',').map(str::trim) {
        if let Some(problem) = ip_rules::legacy_range_problem(range) {
            annotation_error(SOURCE_RANGES, |path| errors.invalid(path, range, &problem));
        }
    }
}

fn balancer_fields(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let balancer = text(spec, "type") == "LoadBalancer";
    match (balancer, given(spec, "allocateLoadBalancerNodePorts")) {
        (false, true) => errors.forbidden(path.child("allocateLoadBalancerNodePorts"), BALANCERS_ONLY),
        (true, false) => errors.required(Path::root("allocateLoadBalancerNodePorts"), ""),
        _ => {}
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        let path = path.child("loadBalancerClass");
        match balancer {
            true => errors.all_invalid(path, class, names::qualified_name(class)),
            false => errors.forbidden(path, BALANCERS_ONLY),
        }
    }
}

fn external_traffic(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let policy_path = path.child("externalTrafficPolicy");
    match (externally_accessible(spec), text(spec, "externalTrafficPolicy")) {
        (true, policy) => errors.one_of(policy_path, policy, &TRAFFIC_POLICIES),
        (false, "") => {}
        (false, policy) => {
            errors.invalid(policy_path, policy, "may only be set for externally-accessible services");
        }
    }
    let port_path = path.child("healthCheckNodePort");
    match (needs_health_check_port(spec), number(spec, "healthCheckNodePort")) {
        (true, 0) => errors.required(port_path, ""),
        (true, port) => {
            if let Some(problem) = names::port_number(port) {
                errors.invalid(port_path, port, problem);
            }
        }
        (false, 0) => {}
        (false, port) => {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(port_path, port, detail);
        }
    }
}

pub(super) fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let path = Path::root("spec");
    cluster_ips::change_rules(errors, new, old);
    let both = |holds: fn(&Value) -> bool| holds(new) && holds(old);
    if both(|spec| text(spec, "type") == "LoadBalancer") && new["loadBalancerClass"] != old["loadBalancerClass"] {
        errors.invalid(path.child("loadBalancerClass"), &new["loadBalancerClass"], "may not change once set");
    }
    // Upstream checks the class once more here; equal errors count once.
    if both(needs_health_check_port) && number(new, "healthCheckNodePort") != number(old, "healthCheckNodePort") {
        errors.forbidden(path.child("healthCheckNodePort"), "field is immutable");
    }
}

/// The addresses of a load balancer. Upstream: `ValidateLoadBalancerStatus`.
pub(super) fn status_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let root = Path::root("status");
    let balancer = root.child("loadBalancer");
    balancer_status(errors, balancer, &new["status"]["loadBalancer"], &old["status"]["loadBalancer"], &new["spec"]);
}

fn balancer_status(errors: &mut ErrorList, path: Path<'_>, status: &Value, old: &Value, spec: &Value) {
    let path = path.child("ingress");
    let ingress = list(status, "ingress");
    if text(spec, "type") != "LoadBalancer" && !ingress.is_empty() {
        errors.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let stored: Vec<&str> =
        list(old, "ingress").iter().map(|entry| text(entry, "ip")).filter(|ip| !ip.is_empty()).collect();
    for (index, entry) in ingress.iter().enumerate() {
        let path = path.index(index);
        let (ip, mode_path) = (text(entry, "ip"), path.child("ipMode"));
        if !ip.is_empty() {
            ip_rules::legacy_address(errors, path.child("ip"), ip, &stored);
        }
        match (ip.is_empty(), entry["ipMode"].as_str()) {
            (false, None) => errors.required(mode_path, "must be specified when `ip` is set"),
            (true, Some(_)) => errors.forbidden(mode_path, "may not be specified when `ip` is not set"),
            (false, Some(mode)) if !matches!(mode, "Proxy" | "VIP") => {
                errors.not_supported(mode_path, mode, &["Proxy", "VIP"]);
            }
            _ => {}
        }
        let host = text(entry, "hostname");
        if !host.is_empty() {
            errors.all_invalid(path.child("hostname"), host, names::dns_subdomain(host));
            if ip_rules::address(host).is_some() {
                errors.invalid(path.child("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}
