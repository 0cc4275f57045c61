//! Services.

use serde_json::Value;

use super::errors::{Errors, Json};
use super::path::Path;
use super::{given, list, metadata, names, number, text};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn service(errors: &mut Errors, object: &Value) {
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

fn all_ports(errors: &mut Errors, path: Path<'_>, ports: &[Value], headless: bool) {
    let mut names_seen: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(path.child("name"), "");
            }
        } else {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
            if names_seen.contains(&name) {
                errors.duplicate(path.child("name"), name);
            } else {
                names_seen.push(name);
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
        if !headless {
            repeated(errors, path, ports, index);
        }
    }
}

/// Two ports of a service may not be the same one.
fn repeated(errors: &mut Errors, path: Path<'_>, ports: &[Value], index: usize) {
    let port = &ports[index];
    let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
    if ports[..index].iter().any(|other| same(&other)) {
        let shown = format!(
            "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
            port["protocol"], port["port"]
        );
        errors.duplicate(path, Json(shown));
    }
}

pub(super) fn change(errors: &mut Errors, new: &Value, old: &Value) {
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
