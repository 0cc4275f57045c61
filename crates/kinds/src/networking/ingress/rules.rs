//! The rules of the spec and of the status.

use serde_json::Value;

use super::CLASS_ANNOTATION;
use crate::addresses::{address_problem, parse_address};
use crate::field::{ErrorList, Path};
use crate::names;
use crate::networking::ingress_class::reference_rules;
use crate::object::{given, list, number, text};

const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const REFUSED_IN_PATHS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const REFUSED_AT_ENDS: [&str; 2] = ["/..", "/."];

/// What held for the stored object, and is no reason to refuse it now.
#[derive(Clone, Copy, Default)]
struct Tolerated {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Tolerated {
    fn of(old: Option<&Value>) -> Tolerated {
        let Some(old) = old.map(|old| &old["spec"]) else { return Tolerated::default() };
        let broken_rule = |rule: &Value| {
            let mut errors = ErrorList::default();
            http_rules(&mut errors, Path::root("http"), rule);
            text(rule, "host").contains('*') && !errors.is_empty()
        };
        Tolerated {
            secret_names: list(old, "tls").iter().any(|tls| !secret_name(tls).is_empty()),
            wildcard_rules: list(old, "rules").iter().any(broken_rule),
        }
    }
}

pub(super) fn spec(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let tolerated = Tolerated::of(old);
    let (path, spec) = (Path::root("spec"), &object["spec"]);
    let rules = list(spec, "rules");
    if rules.is_empty() && !given(spec, "defaultBackend") {
        errors.invalid(path, &spec["rules"], "either `defaultBackend` or `rules` must be specified");
    }
    if given(spec, "defaultBackend") {
        backend(errors, path.child("defaultBackend"), &spec["defaultBackend"]);
    }
    let path_of_rules = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        let (path, name) = (path_of_rules.index(index), text(rule, "host"));
        if !name.is_empty() {
            if parse_address(name).is_some() {
                errors.invalid(path.child("host"), name, "must be a DNS name, not an IP address");
            }
            errors.all_invalid(path.child("host"), name, host(name));
        }
        if !(name.contains('*') && tolerated.wildcard_rules) {
            http_rules(errors, path.child("http"), rule);
        }
    }
    let path_of_tls = path.child("tls");
    for (index, tls) in list(spec, "tls").iter().enumerate() {
        let path = path_of_tls.index(index);
        let hosts = path.child("hosts");
        for (index, name) in list(tls, "hosts").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.all_invalid(hosts.index(index), name, host(name));
        }
        if !tolerated.secret_names {
            errors.all_invalid(path.child("secretName"), text(tls, "secretName"), secret_name(tls));
        }
    }
    if given(spec, "ingressClassName") {
        let class = text(spec, "ingressClassName");
        errors.all_invalid(path.child("ingressClassName"), class, names::dns_subdomain(class));
    }
}

/// A new object names its class once.
pub(super) fn class_or_annotation(errors: &mut ErrorList, object: &Value) {
    let (annotations, spec) = (&object["metadata"]["annotations"], &object["spec"]);
    let both = given(annotations, CLASS_ANNOTATION) && given(spec, "ingressClassName");
    let annotated = text(annotations, CLASS_ANNOTATION);
    if both && annotated != text(spec, "ingressClassName") {
        let path = Path::root("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(path.child(CLASS_ANNOTATION), annotated, detail);
    }
}

fn host(name: &str) -> Vec<String> {
    if name.contains('*') { names::wildcard_subdomain(name) } else { names::dns_subdomain(name) }
}

fn secret_name(tls: &Value) -> Vec<String> {
    match text(tls, "secretName") {
        "" => Vec::new(),
        name => names::dns_subdomain(name),
    }
}

fn http_rules(errors: &mut ErrorList, path: Path<'_>, rule: &Value) {
    if !given(rule, "http") {
        return;
    }
    let path = path.child("paths");
    let paths = list(&rule["http"], "paths");
    if paths.is_empty() {
        errors.required(path, "");
    }
    for (index, http_path) in paths.iter().enumerate() {
        self::http_path(errors, path.index(index), http_path);
    }
}

fn http_path(errors: &mut ErrorList, path: Path<'_>, http_path: &Value) {
    if !given(http_path, "pathType") {
        return errors.required(path.child("pathType"), "pathType must be specified");
    }
    let (at, value) = (path.child("path"), text(http_path, "path"));
    match text(http_path, "pathType") {
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                errors.invalid(at, value, "must be an absolute path");
            }
            for part in REFUSED_IN_PATHS.into_iter().filter(|part| value.contains(part)) {
                errors.invalid(at, value, &format!("must not contain '{part}'"));
            }
            for end in REFUSED_AT_ENDS.into_iter().filter(|end| value.ends_with(end)) {
                errors.invalid(at, value, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !value.is_empty() && !value.starts_with('/') {
                errors.invalid(at, value, "must be an absolute path");
            }
        }
        other => errors.not_supported(path.child("pathType"), other, PATH_TYPES),
    }
    backend(errors, path.child("backend"), &http_path["backend"]);
}

fn backend(errors: &mut ErrorList, path: Path<'_>, backend: &Value) {
    match (given(backend, "resource"), given(backend, "service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => reference_rules(errors, path.child("resource"), &backend["resource"]),
        (false, true) => service(errors, path, &backend["service"]),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
    }
}

fn service(errors: &mut ErrorList, path: Path<'_>, service: &Value) {
    let of_service = path.child("service");
    match text(service, "name") {
        "" => errors.required(of_service.child("name"), ""),
        name => errors.all_invalid(of_service.child("name"), name, names::dns_label(name)),
    }
    let port_path = of_service.child("port");
    match (text(&service["port"], "name"), number(&service["port"], "number")) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", port) => {
            if let Some(problem) = names::port_number(port) {
                errors.invalid(port_path.child("number"), port, problem);
            }
        }
        (name, 0) => errors.all_invalid(port_path.child("name"), name, names::port_name(name)),
        (..) => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

pub(super) fn status(errors: &mut ErrorList, object: &Value, old: &Value) {
    let points = |object: &Value| list(&object["status"]["loadBalancer"], "ingress").to_vec();
    let stored = points(old);
    let root = Path::root("status");
    let path = root.child("loadBalancer");
    let path = path.child("ingress");
    for (index, point) in points(object).iter().enumerate() {
        let path = path.index(index);
        let (address, name) = (text(point, "ip"), text(point, "hostname"));
        let known = || stored.iter().any(|point| text(point, "ip") == address);
        if let Some(problem) = address_problem(address).filter(|_| !address.is_empty() && !known()) {
            errors.invalid(path.child("ip"), address, problem);
        }
        if !name.is_empty() {
            errors.all_invalid(path.child("hostname"), name, names::dns_subdomain(name));
            if parse_address(name).is_some() {
                errors.invalid(path.child("hostname"), name, "must be a DNS name, not an IP address");
            }
        }
    }
}
