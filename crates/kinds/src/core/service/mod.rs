//! Services.

mod cluster_ips;
mod rules;
mod warnings;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, children, default, default_absent};
use crate::field::{ErrorList, FieldError};
use crate::kind::{Kind, PROXY_VERBS, STANDARD_VERBS, Scope, Subresource};
use crate::names;
use crate::object::{Object, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, labels_of, name_of, or, string, wide};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataCheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "Service",
    plural: "services",
    singular: "service",
    scope: Scope::Namespaced,
    short_names: &["svc"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[
        Subresource::passed_on("proxy", "ServiceProxyOptions", PROXY_VERBS),
        Subresource::status("Service"),
    ],
    storage_prefix: "services/specs",
    defaults,
    strategy: Strategy {
        allow_create_on_update: true,
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        selectable: SelectableFields::texts(&["spec.clusterIP", "spec.type"]),
        on_create: |object, _now| drop_unused_policy(object),
        on_update,
        warnings: warnings::warnings,
        status_warnings: warnings::status_warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        // Since KEP-5311 a name may begin with a digit.
        metadata: MetadataCheck::First(names::dns_label),
        rules: rules::rules,
        change_rules: rules::change_rules,
        status_rules: rules::status_rules,
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
                default_absent(ingress, "ipMode", "VIP");
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
        default_absent(spec, "internalTrafficPolicy", "Cluster");
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
    service_type(spec) != "ExternalName"
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(service_type(spec), "NodePort" | "LoadBalancer")
}

fn needs_health_check_port(spec: &Value) -> bool {
    service_type(spec) == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn externally_accessible(spec: &Value) -> bool {
    has_node_ports(spec) || (service_type(spec) == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}

/// Whether a service has no address of its own.
fn headless(spec: &Value) -> bool {
    matches!(list(spec, "clusterIPs"), [only] if only == "None")
}

/// What is wrong with the addresses and families of a service, which an allocator must know before it allocates.
pub fn service_address_errors(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    cluster_ips::rules(&mut errors, &service["spec"], old.map(|old| &old["spec"]));
    errors.into_vec()
}

fn node_ports(spec: &Value) -> BTreeSet<i64> {
    list(spec, "ports").iter().map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Drops what upstream leaves out whenever it reads a service without endpoints of its own; what is wrong stays, and is
/// refused.
fn drop_unused_policy(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    if text(&*spec, "type") == "ExternalName" && matches!(text(&*spec, "internalTrafficPolicy"), "Cluster" | "Local") {
        spec.remove("internalTrafficPolicy");
    }
}

/// Clears fields that the new type does not use, unless the user changed them too. Upstream: `dropTypeDependentFields`.
fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    if !subresource.is_empty() {
        return;
    }
    drop_unused_policy(object);
    let old = &old["spec"];
    let Some(spec) = object.get_mut("spec") else { return };
    let mut clear: Vec<&str> = Vec::new();
    {
        let same = |name: &str| spec[name] == old[name];
        let loses = |needs: fn(&Value) -> bool| needs(old) && !needs(spec);
        if loses(needs_cluster_ip) {
            if same("clusterIP") && same("clusterIPs") {
                clear.extend(["clusterIP", "clusterIPs"]);
            }
            clear.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|name| same(name)));
        }
        if loses(needs_health_check_port) {
            clear.extend(["healthCheckNodePort"].into_iter().filter(|name| same(name)));
        }
        if loses(|spec| service_type(spec) == "LoadBalancer") {
            let own = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
            clear.extend(own.into_iter().filter(|name| same(name)));
        }
        if loses(externally_accessible) {
            clear.extend(["externalTrafficPolicy"].into_iter().filter(|name| same(name)));
        }
    }
    let clear_node_ports =
        has_node_ports(old) && !has_node_ports(spec) && node_ports(old).is_superset(&node_ports(spec));
    let is_balancer = service_type(spec) == "LoadBalancer";
    if let Value::Object(spec) = spec {
        for name in clear {
            spec.remove(name);
        }
        if clear_node_ports {
            for port in children(spec, "ports") {
                port.remove("nodePort");
            }
        }
    }
    if !is_balancer && let Some(Value::Object(status)) = object.get_mut("status") {
        status.insert("loadBalancer".into(), Value::Object(Object::new()));
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
