//! Services.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, children, default};
use crate::field::{ErrorList, Json, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, labels_of, name_of, or, string, wide};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataCheck, Validation};
use crate::{metadata, names};

pub(crate) static KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    scope: Scope::Namespaced,
    short_names: &["svc"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("Service")],
    storage_prefix: "services/specs",
    defaults,
    strategy: Strategy {
        allow_create_on_update: true,
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        selectable: SelectableFields::texts(&["spec.clusterIP", "spec.type"]),
        on_update,
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        metadata: MetadataCheck::First(names::dns_1035_label),
        rechecks_metadata: true,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            string("Type"),
            string("Cluster-IP"),
            string("External-IP"),
            string("Port(s)"),
            AGE,
            wide("Selector"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The default session affinity: three hours.
const CLIENT_IP_AFFINITY_SECONDS: i64 = 10_800;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

fn defaults(object: &mut Object) {
    let service_type = match child(object, "spec") {
        Some(spec) => spec_defaults(spec),
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

fn spec_defaults(spec: &mut Object) -> String {
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

/// Clears fields that the new type does not use, unless the user changed them too.
fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
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
        status.insert("loadBalancer".into(), Value::Object(Object::new()));
    }
}

/// Warns of fields that are kept but ignored.
fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
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

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = list(spec, "ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required(path.child("ports"), "");
    }
    if kind == "ExternalName" {
        let name = text(spec, "externalName");
        if name.is_empty() {
            errors.required(path.child("externalName"), "");
        } else {
            let host = name.strip_suffix('.').unwrap_or(name);
            errors.all_invalid(path.child("externalName"), name, names::dns_subdomain(host));
        }
    }
    all_ports(errors, path.child("ports"), ports, headless);
    if given(spec, "selector") {
        metadata::labels(errors, path.child("selector"), &spec["selector"]);
    }
    errors.one_of(path.child("sessionAffinity"), text(spec, "sessionAffinity"), &["ClientIP", "None"]);
    if !TYPES.contains(&kind) {
        errors.not_supported(path.child("type"), kind, &TYPES);
    }
    let internal = text(spec, "internalTrafficPolicy");
    if given(spec, "internalTrafficPolicy") && !matches!(internal, "Cluster" | "Local") {
        errors.not_supported(path.child("internalTrafficPolicy"), internal, &["Cluster", "Local"]);
    }
    if kind == "ClusterIP" {
        let list_path = path.child("ports");
        for (index, port) in ports.iter().enumerate() {
            if number(port, "nodePort") != 0 {
                let port_path = list_path.index(index);
                errors.forbidden(port_path.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
}

fn all_ports(errors: &mut ErrorList, path: Path<'_>, ports: &[Value], headless: bool) {
    let (mut names_seen, mut ports_seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(path.child("name"), "");
            }
        } else {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
            if !names_seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
        }
        if let Some(problem) = names::port_number(number(port, "port")) {
            errors.invalid(path.child("port"), number(port, "port"), problem);
        }
        errors.one_of(path.child("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
        match &port["targetPort"] {
            Value::String(name) => errors.all_invalid(path.child("targetPort"), name, names::port_name(name)),
            number => {
                let number = number.as_i64().unwrap_or(0);
                if let Some(problem) = names::port_number(number) {
                    errors.invalid(path.child("targetPort"), number, problem);
                }
            }
        }
        // No two ports may have the same number and protocol.
        if !headless && !ports_seen.insert((number(port, "port"), text(port, "protocol"))) {
            let shown = || {
                format!(
                    "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\
                     \"NodePort\":0}}",
                    port["protocol"], port["port"]
                )
            };
            errors.duplicate(path, Json(shown));
        }
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    if !external(new) && !external(old) {
        let before = text(old, "clusterIP");
        if !before.is_empty() && text(new, "clusterIP") != before {
            let ips = path.child("clusterIPs");
            errors.invalid(ips.index(0), &new["clusterIPs"], "may not change once set");
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let ports: Vec<String> = list(spec, "ports")
        .iter()
        .map(|port| match number(port, "nodePort") {
            node_port if node_port > 0 => format!("{}:{node_port}/{}", number(port, "port"), text(port, "protocol")),
            _ => format!("{}/{}", number(port, "port"), text(port, "protocol")),
        })
        .collect();
    let cluster_ip = spec["clusterIPs"][0].as_str().unwrap_or("<none>");
    vec![
        name_of(object),
        text(spec, "type").into(),
        cluster_ip.into(),
        external_ips(object).into(),
        or(&ports.join(","), "<none>").into(),
        age_of(object, now),
        labels_of(&spec["selector"]),
    ]
}

fn external_ips(object: &Value) -> String {
    let spec = &object["spec"];
    let external: Vec<&str> = list(spec, "externalIPs").iter().filter_map(Value::as_str).collect();
    match text(spec, "type") {
        "ClusterIP" | "NodePort" => or(&external.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let ingress = list(&object["status"]["loadBalancer"], "ingress").iter();
            let given: BTreeSet<&str> = ingress
                .map(|entry| or(text(entry, "ip"), text(entry, "hostname")))
                .filter(|at| !at.is_empty())
                .collect();
            let all: Vec<&str> = given.into_iter().chain(external).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(spec, "externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}
