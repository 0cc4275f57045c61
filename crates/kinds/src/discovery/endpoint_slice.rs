//! EndpointSlices.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::defaulting::{children, default_absent};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::metadata::NameRule;
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, some_and_more, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::{MetadataRecheck, Validation};
use crate::{ip_rules, metadata, names};

pub(crate) static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "endpointslices",
    defaults,
    strategy: Strategy {
        generation: Generation::ContentAndLabels,
        on_create: |object, _now| drop_topology(object, None),
        on_update: |object, old, _subresource, _now| drop_topology(object, Some(old)),
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation { update_metadata: MetadataRecheck::AsNew, rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("AddressType"), string("Ports"), string("Endpoints"), AGE],
        cells: |object, now| {
            vec![
                name_of(object),
                text(object, "addressType").into(),
                shown_ports(object).into(),
                shown_endpoints(object).into(),
                age_of(object, now),
            ]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    for port in children(object, "ports") {
        if port.get("name").is_none_or(Value::is_null) {
            port.insert("name".into(), "".into());
        }
        default_absent(port, "protocol", "TCP");
    }
}

fn shown_ports(object: &Value) -> String {
    let port = |port: &Value| match port["port"].as_i64() {
        Some(number) => number.to_string(),
        None if given(port, "name") => text(port, "name").to_owned(),
        None => "*".to_owned(),
    };
    let all: Vec<String> = list(object, "ports").iter().map(port).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}

fn shown_endpoints(object: &Value) -> String {
    let endpoints = list(object, "endpoints").iter();
    let all: Vec<String> =
        endpoints.flat_map(|e| list(e, "addresses")).filter_map(Value::as_str).map(str::to_owned).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}

const PORTS_MAX: usize = 20_000;
const ENDPOINTS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

/// The labels of a node from before v1 cannot be written. Upstream: `dropTopologyOnV1`.
fn drop_topology(object: &mut Object, old: Option<&Value>) {
    if old.is_some_and(|old| Some(&old["endpoints"]) == object.get("endpoints")) {
        return;
    }
    const HOST: &str = "kubernetes.io/hostname";
    let known: BTreeSet<&str> = old
        .into_iter()
        .flat_map(|old| list(old, "endpoints"))
        .filter_map(|endpoint| endpoint["deprecatedTopology"][HOST].as_str())
        .collect();
    for endpoint in children(object, "endpoints") {
        let topology = endpoint.remove("deprecatedTopology").unwrap_or_default();
        let node = topology[HOST].as_str().filter(|node| known.contains(node) && names::dns_subdomain(node).is_empty());
        if let (false, Some(node)) = (given(endpoint, "nodeName"), node) {
            endpoint.insert("nodeName".into(), node.into());
        }
    }
}

fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let kind = text(object, "addressType");
    errors.one_of(Path::root("addressType"), kind, &["FQDN", "IPv4", "IPv6"]);
    port_rules(errors, Path::root("ports"), list(object, "ports"));
    // Endpoints that were stored before are left alone, whatever they are.
    if !old.is_some_and(|old| old["endpoints"] == object["endpoints"]) {
        endpoint_rules(errors, Path::root("endpoints"), list(object, "endpoints"), kind);
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    errors.immutable(Path::root("addressType"), &new["addressType"], &old["addressType"]);
}

fn port_rules(errors: &mut ErrorList, path: Path<'_>, ports: &[Value]) {
    if ports.len() > PORTS_MAX {
        errors.too_many(path, ports.len(), PORTS_MAX);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (path, name) = (path.index(index), text(port, "name"));
        if !name.is_empty() {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
        let protocol = text(port, "protocol");
        if !given(port, "protocol") {
            errors.required(path.child("protocol"), "");
        } else if !matches!(protocol, "SCTP" | "TCP" | "UDP") {
            errors.not_supported(path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.all_invalid(path.child("appProtocol"), protocol, names::qualified_name(protocol));
        }
    }
}

fn endpoint_rules(errors: &mut ErrorList, path: Path<'_>, endpoints: &[Value], kind: &str) {
    if endpoints.len() > ENDPOINTS_MAX {
        errors.too_many(path, endpoints.len(), ENDPOINTS_MAX);
        return;
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let (addresses_path, addresses) = (path.child("addresses"), list(endpoint, "addresses"));
        if addresses.is_empty() {
            errors.required(addresses_path, "must contain at least 1 address");
        } else if addresses.len() > ADDRESSES_MAX {
            errors.too_many(addresses_path, addresses.len(), ADDRESSES_MAX);
        }
        for (index, address) in addresses.iter().map(|address| address.as_str().unwrap_or_default()).enumerate() {
            address_rules(errors, addresses_path, index, address, kind);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            errors.all_invalid(path.child("nodeName"), node, names::dns_subdomain(node));
        }
        let topology = &endpoint["deprecatedTopology"];
        let count = topology.as_object().map_or(0, |topology| topology.len());
        if count > TOPOLOGY_MAX {
            errors.too_many(path.child("deprecatedTopology"), count, TOPOLOGY_MAX);
        }
        metadata::labels(errors, path.child("deprecatedTopology"), topology);
        if let Some(host) = endpoint["hostname"].as_str() {
            errors.all_invalid(path.child("hostname"), host, names::dns_label(host));
        }
        hint_rules(errors, path.child("hints"), &endpoint["hints"]);
    }
}

fn address_rules(errors: &mut ErrorList, path: Path<'_>, index: usize, address: &str, kind: &str) {
    let own = path.index(index);
    let problems = match kind {
        "IPv4" => ip_rules::legacy_address_problems(address),
        "IPv6" => ip_rules::address_problems(address),
        "FQDN" => return complete_domain(errors, own, address),
        _ => return,
    };
    if !problems.is_empty() {
        errors.all_invalid(own, address, problems);
        return;
    }
    if ip_rules::is_ipv6(address) != (kind == "IPv6") {
        errors.invalid(path, address, &format!("must be an {kind} address"));
    }
    ip_rules::endpoint_address(errors, own, address);
}

/// Upstream: `IsFullyQualifiedDomainName`.
fn complete_domain(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = names::dns_subdomain(name);
    if !problems.is_empty() {
        errors.invalid(path, name, &problems.join(","));
    } else if !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, problems)) =
        name.split('.').map(|label| (label, names::dns_label(label))).find(|(_, problems)| !problems.is_empty())
    {
        errors.invalid(path, label, &problems.join(","));
    }
}

fn hint_rules(errors: &mut ErrorList, path: Path<'_>, hints: &Value) {
    let rules: [(&str, NameRule); 2] = [("forZones", names::label_value), ("forNodes", names::dns_subdomain)];
    for (field, rule) in rules {
        let (path, all) = (path.child(field), list(hints, field));
        if all.len() > HINTS_MAX {
            errors.too_many(path, all.len(), HINTS_MAX);
            return;
        }
        let mut seen = BTreeSet::new();
        for (index, hint) in all.iter().enumerate() {
            let (path, name) = (path.index(index), text(hint, "name"));
            if !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
            errors.all_invalid(path.child("name"), name, rule(name));
        }
    }
}

/// Warns of odd spellings of addresses; the controllers write none.
fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if old.is_none() && text(object, "addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager = &object["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
    if *manager == "endpointslice-controller.k8s.io" || *manager == "endpointslicemirroring-controller.k8s.io" {
        return warnings;
    }
    let root = Path::root("endpoints");
    for (index, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = root.index(index);
        let path = path.child("addresses");
        for (index, address) in list(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate() {
            ip_rules::address_warnings(&mut warnings, path.index(index), address);
        }
    }
    warnings
}
