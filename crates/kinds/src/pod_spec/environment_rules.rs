//! The rules of environment variables, and of what they and files take from the pod.

use std::borrow::Cow;

use serde_json::Value;

use super::resource_rules;
use super::volume_rules::Volumes;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, text};

/// The fields of a pod that a variable can hold, sorted.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a pod that a file can hold, sorted.
pub(super) const VOLUME_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The fields that upstream knows, of which some can be in no variable and no file.
const KNOWN_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];

pub(super) fn environment(errors: &mut ErrorList, path: Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        match text(variable, "name") {
            "" => errors.required(path.child("name"), ""),
            name => errors.all_invalid(path.child("name"), name, names::env_name(name)),
        }
        if given(variable, "valueFrom") {
            value_from(errors, path.child("valueFrom"), variable);
        }
    }
}

fn value_from(errors: &mut ErrorList, path: Path<'_>, variable: &Value) {
    const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let from = &variable["valueFrom"];
    let mut count = 0;
    for source in SOURCES.into_iter().filter(|source| given(from, source)) {
        count += 1;
        let (path, reference) = (path.child(source), &from[source]);
        match source {
            "fieldRef" => field_reference(errors, path, reference, &VARIABLE_FIELDS),
            "resourceFieldRef" => resource_reference(errors, path, reference, false),
            "fileKeyRef" => {
                for field in ["volumeName", "path", "key"] {
                    if text(reference, field).is_empty() {
                        errors.required(path.child(field), "");
                    }
                }
            }
            _ => key_reference(errors, path, reference),
        }
    }
    if count == 0 {
        errors.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` \
             or `fileKeyRef`",
        );
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(path, "", "may not have more than one field specified at a time");
    }
}

fn key_reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value) {
    let name = text(reference, "name");
    errors.all_invalid(path.child("name"), name, names::dns_subdomain(name));
    match text(reference, "key") {
        "" => errors.required(path.child("key"), ""),
        key => errors.all_invalid(path.child("key"), key, names::config_key(key)),
    }
}

/// A reference to one of these fields, or to one label or annotation.
pub(super) fn field_reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value, fields: &[&str]) {
    let (version, field) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let field_path = path.child("fieldPath");
    if version.is_empty() {
        return errors.required(path.child("apiVersion"), "");
    }
    if field.is_empty() {
        return errors.required(field_path, "");
    }
    let not_converted = |errors: &mut ErrorList, why: String| {
        errors.invalid(field_path, field, &format!("error converting fieldPath: {why}"));
    };
    if version != "v1" {
        return not_converted(errors, format!("unsupported pod version: {version}"));
    }
    // The first clients called the node `spec.host`.
    let field_name = if field == "spec.host" { "spec.nodeName" } else { field };
    match subscript(field_name) {
        Some((map @ ("metadata.annotations" | "metadata.labels"), key)) => {
            let key = if map == "metadata.labels" { Cow::Borrowed(key) } else { Cow::Owned(key.to_lowercase()) };
            errors.all_invalid(path, &key, names::qualified_name(&key));
        }
        Some(_) => not_converted(errors, format!("field label does not support subscript: {field}")),
        None if fields.contains(&field_name) => {}
        None if KNOWN_FIELDS.contains(&field_name) || VARIABLE_FIELDS.contains(&field_name) => {
            errors.not_supported(field_path, field_name, fields);
        }
        None => not_converted(errors, format!("field label not supported: {field}")),
    }
}

/// `metadata.labels['app']` in two.
fn subscript(field: &str) -> Option<(&str, &str)> {
    field.strip_suffix("']")?.split_once("['").filter(|(map, _)| !map.is_empty())
}

/// A reference to a limit or request of a container.
pub(super) fn resource_reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value, in_volume: bool) {
    const RESOURCES: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = text(reference, "resource");
    let huge_page = ["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| resource.starts_with(prefix));
    if in_volume && text(reference, "containerName").is_empty() {
        errors.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !huge_page {
        errors.not_supported(path.child("resource"), resource, &RESOURCES);
    }
    divisor(errors, path.child("divisor"), resource, &reference["divisor"]);
}

fn divisor(errors: &mut ErrorList, path: Path<'_>, resource: &str, divisor: &Value) {
    const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let Some(quantity) = resource_rules::quantity(divisor).filter(|quantity| !quantity.is_zero()) else { return };
    let shown = quantity.to_string();
    let amount = resource.split_once('.').map_or("", |(_, amount)| amount);
    let what = match amount {
        "cpu" if !["1m", "1"].contains(&shown.as_str()) => {
            let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
            return errors.invalid(path, resource, detail);
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        huge if huge.starts_with("hugepages-") => "hugepages",
        _ => return,
    };
    if !BYTES.contains(&shown.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {what} resource", BYTES.join(", "));
        errors.invalid(path, resource, &detail);
    }
}

pub(super) fn environment_from(errors: &mut ErrorList, path: Path<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let entry = path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.all_invalid(entry.child("prefix"), prefix, names::env_name(prefix));
        }
        let kinds = ["configMapRef", "secretRef"];
        let count = kinds.iter().filter(|kind| given(source, kind)).count();
        for kind in kinds.into_iter().filter(|kind| given(source, kind)) {
            let reference = entry.child(kind);
            match text(&source[kind], "name") {
                "" => errors.required(reference.child("name"), ""),
                name => errors.all_invalid(reference.child("name"), name, names::dns_subdomain(name)),
            }
        }
        match count {
            0 => errors.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
        }
    }
}

/// Variables that are read from files need volumes that hold files of the pod itself.
pub(super) fn file_volumes(errors: &mut ErrorList, path: Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    let path = path.child("env");
    for (index, variable) in list(container, "env").iter().enumerate() {
        let reference = &variable["valueFrom"]["fileKeyRef"];
        if reference.is_null() {
            continue;
        }
        let (name, path) = (text(reference, "volumeName"), path.index(index));
        let path = path.child("valueFrom");
        let path = path.child("fileKeyRef");
        match volumes.get(name) {
            None => errors.not_found(path.child("volumeName"), name),
            Some(volume) if !given(*volume, "emptyDir") => {
                errors.invalid(path.child("volumeName"), name, "referenced volume must be of type emptyDir");
            }
            Some(_) => {}
        }
    }
}
