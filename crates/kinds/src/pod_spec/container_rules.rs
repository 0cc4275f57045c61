//! The rules of containers: ports, environment, resources, probes.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::field::{ErrorList, Json, Path};
use crate::names;
use crate::object::{given, list, number, text};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Checks all containers of a pod, whose names must differ.
pub(super) fn containers(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    if list(spec, "containers").is_empty() {
        errors.required(path.child("containers"), "");
    }
    let mut names_seen = BTreeSet::new();
    let volumes = Volumes::of(spec);
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        let list_path = path.child(kind);
        for (index, container) in list(spec, kind).iter().enumerate() {
            let path = list_path.index(index);
            let name = text(container, "name");
            if !name.is_empty() && !names_seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
            one(errors, path, container, &volumes);
            match kind {
                "containers" => probes(errors, path, container),
                "initContainers" => init(errors, path, container),
                _ => ephemeral(errors, path, container),
            }
        }
    }
    host_ports(errors, path.child("containers"), spec);
}

fn one(errors: &mut ErrorList, path: Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    match text(container, "name") {
        "" => errors.required(path.child("name"), ""),
        name => errors.all_invalid(path.child("name"), name, names::dns_label(name)),
    }
    let image = text(container, "image");
    if image.is_empty() {
        errors.required(path.child("image"), "");
    }
    let messages = ["File", "FallbackToLogsOnError"];
    errors.one_of(path.child("terminationMessagePolicy"), text(container, "terminationMessagePolicy"), &messages);
    errors.one_of(path.child("imagePullPolicy"), text(container, "imagePullPolicy"), &PULL_POLICIES);
    ports(errors, path.child("ports"), list(container, "ports"));
    environment(errors, path.child("env"), list(container, "env"));
    environment_from(errors, path.child("envFrom"), list(container, "envFrom"));
    mounts(errors, path, container, volumes);
    resources(errors, path.child("resources"), &container["resources"]);
    resize_policy(errors, path.child("resizePolicy"), list(container, "resizePolicy"));
    let security = path.child("securityContext");
    seccomp(errors, security.child("seccompProfile"), &container["securityContext"]["seccompProfile"]);
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = container["securityContext"][field].as_i64()
            && !(0..=i64::from(i32::MAX)).contains(&id)
        {
            errors.invalid(security.child(field), id, "must be between 0 and 2147483647, inclusive");
        }
    }
}

fn init(errors: &mut ErrorList, path: Path<'_>, container: &Value) {
    let sidecar = text(container, "restartPolicy") == "Always";
    if sidecar {
        probes(errors, path, container);
        return;
    }
    for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if given(container, field) {
            errors.forbidden(path.child(field), "may not be set for init containers without restartPolicy=Always");
        }
    }
}

fn ephemeral(errors: &mut ErrorList, path: Path<'_>, container: &Value) {
    const NOT_ALLOWED: [&str; 7] =
        ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy", "resizePolicy"];
    for field in NOT_ALLOWED.into_iter().chain(["restartPolicyRules"]) {
        let filled = match &container[field] {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            _ => true,
        };
        if filled {
            errors.forbidden(path.child(field), "cannot be set for an Ephemeral Container");
        }
    }
}

/// No two containers may claim the same port of the node.
fn host_ports(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let mut taken = BTreeSet::new();
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (port_index, port) in list(container, "ports").iter().enumerate() {
            let host_port = number(port, "hostPort");
            if host_port == 0 {
                continue;
            }
            let key = (text(port, "protocol"), text(port, "hostIP"), host_port);
            if !taken.insert(key) {
                let container_path = path.index(index);
                let ports = container_path.child("ports");
                let port_path = ports.index(port_index);
                let (protocol, ip, _) = key;
                errors.duplicate(port_path.child("hostPort"), format!("{protocol}/{ip}/{host_port}").as_str());
            }
        }
    }
}

fn ports(errors: &mut ErrorList, path: Path<'_>, ports: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = names::port_name(name);
            if !problems.is_empty() {
                errors.all_invalid(path.child("name"), name, problems);
            } else if !seen.insert(name) {
                errors.duplicate(path.child("name"), name);
            }
        }
        match number(port, "containerPort") {
            0 => errors.required(path.child("containerPort"), ""),
            number => port_number(errors, path.child("containerPort"), number),
        }
        if number(port, "hostPort") != 0 {
            port_number(errors, path.child("hostPort"), number(port, "hostPort"));
        }
        errors.one_of(path.child("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn port_number(errors: &mut ErrorList, path: Path<'_>, number: i64) {
    if let Some(problem) = names::port_number(number) {
        errors.invalid(path, number, problem);
    }
}

fn environment(errors: &mut ErrorList, path: Path<'_>, variables: &[Value]) {
    for (index, variable) in variables.iter().enumerate() {
        let path = path.index(index);
        match text(variable, "name") {
            "" => errors.required(path.child("name"), ""),
            name => errors.all_invalid(path.child("name"), name, names::env_name(name)),
        }
        let from = &variable["valueFrom"];
        if from.is_null() {
            continue;
        }
        let path = path.child("valueFrom");
        let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let count = sources.iter().filter(|source| given(from, source)).count();
        for source in ["configMapKeyRef", "secretKeyRef"] {
            if given(from, source) {
                key_reference(errors, path.child(source), &from[source], source == "secretKeyRef");
            }
        }
        if given(from, "fieldRef") {
            field_reference(errors, path.child("fieldRef"), &from["fieldRef"]);
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
}

fn key_reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value, is_secret: bool) {
    match text(reference, "name") {
        "" if !is_secret => errors.required(path.child("name"), ""),
        name => errors.all_invalid(path.child("name"), name, names::dns_subdomain(name)),
    }
    match text(reference, "key") {
        "" => errors.required(path.child("key"), ""),
        key => errors.all_invalid(path.child("key"), key, names::config_key(key)),
    }
}

fn field_reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value) {
    const PATHS: [&str; 9] = [
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
    const CONVERTIBLE: [&str; 5] =
        ["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];
    match text(reference, "fieldPath") {
        "" => errors.required(path.child("fieldPath"), ""),
        field if PATHS.contains(&field) => {}
        field if field.contains('[') => {
            let known = ["metadata.annotations[", "metadata.labels["].iter().any(|prefix| field.starts_with(prefix));
            if !known {
                let detail = format!("error converting fieldPath: field label does not support subscript: {field}");
                errors.invalid(path.child("fieldPath"), field, &detail);
            }
        }
        field if CONVERTIBLE.contains(&field) => errors.not_supported(path.child("fieldPath"), field, &PATHS),
        field => {
            let detail = format!("error converting fieldPath: field label not supported: {field}");
            errors.invalid(path.child("fieldPath"), field, &detail);
        }
    }
}

fn environment_from(errors: &mut ErrorList, path: Path<'_>, sources: &[Value]) {
    for (index, source) in sources.iter().enumerate() {
        let entry = path.index(index);
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.all_invalid(entry.child("prefix"), prefix, names::env_name(prefix));
        }
        let kinds = ["configMapRef", "secretRef"];
        let count = kinds.iter().filter(|kind| given(source, kind)).count();
        for kind in kinds {
            if !given(source, kind) {
                continue;
            }
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

/// The volumes of a pod by name; of several with one name the first.
struct Volumes<'v>(BTreeMap<&'v str, &'v Value>);

impl<'v> Volumes<'v> {
    fn of(spec: &'v Value) -> Self {
        // The last one that is put in stays, so the first goes last.
        Volumes(list(spec, "volumes").iter().rev().map(|volume| (text(volume, "name"), volume)).collect())
    }
}

/// The values of a text field in a list.
fn all<'v>(entries: &'v [Value], field: &str) -> BTreeSet<&'v str> {
    entries.iter().map(|entry| text(entry, field)).collect()
}

fn mounts(errors: &mut ErrorList, path: Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    let (device_names, device_paths) = (all(devices, "name"), all(devices, "devicePath"));
    let mut paths_seen = BTreeSet::new();
    let mounts_path = path.child("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let path = mounts_path.index(index);
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        if !volumes.0.contains_key(name) {
            errors.not_found(path.child("name"), name);
        }
        if at.is_empty() {
            errors.required(path.child("mountPath"), "");
        }
        if !paths_seen.insert(at) {
            errors.invalid(path.child("mountPath"), at, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(path.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(at) {
            errors.invalid(path.child("mountPath"), at, "must not already exist as a path in volumeDevices");
        }
    }
    device_rules(errors, path.child("volumeDevices"), mounts, devices, volumes);
}

fn device_rules(
    errors: &mut ErrorList,
    devices_path: Path<'_>,
    mounts: &[Value],
    devices: &[Value],
    volumes: &Volumes<'_>,
) {
    let (mount_names, mount_paths) = (all(mounts, "name"), all(mounts, "mountPath"));
    let (mut names_seen, mut paths_seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in devices.iter().enumerate() {
        let path = devices_path.index(index);
        let (name, at) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        if !name.is_empty() && !names_seen.insert(name) {
            errors.invalid(path.child("name"), name, "must be unique");
        }
        match volumes.0.get(name) {
            None => errors.not_found(path.child("name"), name),
            Some(volume) if !given(*volume, "persistentVolumeClaim") && !given(*volume, "ephemeral") => errors.invalid(
                path.child("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
        }
        if at.is_empty() {
            errors.required(path.child("devicePath"), "");
        }
        if !paths_seen.insert(at) {
            errors.invalid(path.child("devicePath"), at, "must be unique");
        }
        if mount_names.contains(name) {
            errors.invalid(path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(at) {
            errors.invalid(path.child("devicePath"), at, "must not already exist as a path in volumeMounts");
        }
    }
}

fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn resource_name(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    let problems = names::qualified_name(name);
    let clean = problems.is_empty();
    errors.all_invalid(path, name, problems);
    if !name.contains('/') {
        if clean && !is_standard(name) && !matches!(name, "storage" | "pods" | "services" | "secrets" | "configmaps") {
            errors.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !is_standard(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name)
        && (name.starts_with("requests.") || !names::qualified_name(&format!("requests.{name}")).is_empty())
    {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

/// Checks one entry of a resource list; returns the amount when it parses.
fn amount(errors: &mut ErrorList, path: Path<'_>, name: &str, value: &Value) -> Option<Quantity> {
    let text = value.as_str().unwrap_or("");
    let quantity: Quantity = text.parse().ok()?;
    if quantity.sign() < 0 {
        errors.invalid(path, text, "must be greater than or equal to 0");
    }
    if !is_native(name) && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, text, "must be an integer");
    }
    if let Some(size) = name.strip_prefix("hugepages-").and_then(|size| size.parse::<Quantity>().ok()) {
        let (size, value) = (size.value(), quantity.value());
        let whole = quantity.milli_value() % 1000 == 0 && size > 0 && value % size == 0;
        if !whole {
            errors.invalid(path, text, &format!("{text} is not positive integer multiple of {name}"));
        }
    }
    Some(quantity)
}

fn resources(errors: &mut ErrorList, path: Path<'_>, resources: &Value) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    for (name, value) in limits.as_object().into_iter().flatten() {
        resource_name(errors, limits_path.key(name), name);
        amount(errors, limits_path.key(name), name, value);
    }
    for (name, value) in requests.as_object().into_iter().flatten() {
        resource_name(errors, requests_path.key(name), name);
        let asked = amount(errors, requests_path.key(name), name, value);
        let limit = limits[name].as_str();
        match (asked, limit.and_then(|limit| limit.parse::<Quantity>().ok())) {
            (Some(asked), Some(most)) => {
                let shown = limit.unwrap_or("");
                let fixed = !is_native(name) || name.starts_with("hugepages-");
                if fixed && asked != most {
                    let detail = format!("must be equal to {name} limit of {shown}");
                    errors.invalid(requests_path, value, &detail);
                } else if !fixed && asked > most {
                    let detail = format!("must be less than or equal to {name} limit of {shown}");
                    errors.invalid(requests_path, value, &detail);
                }
            }
            (Some(_), None) if !is_native(name) || name.starts_with("hugepages-") => {
                errors.required(limits_path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    huge_pages(errors, path, limits, requests);
}

fn huge_pages(errors: &mut ErrorList, path: Path<'_>, limits: &Value, requests: &Value) {
    let has = |wanted: fn(&str) -> bool| {
        [limits, requests].iter().any(|list| list.as_object().is_some_and(|list| list.keys().any(|name| wanted(name))))
    };
    if has(|name| name.starts_with("hugepages-")) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

pub(super) fn overhead(errors: &mut ErrorList, path: Path<'_>, overhead: &Value) {
    if !overhead.is_object() {
        return;
    }
    let wrapped = serde_json::json!({ "limits": overhead });
    resources(errors, path, &wrapped);
}

fn resize_policy(errors: &mut ErrorList, path: Path<'_>, policies: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let name = text(policy, "resourceName");
        if !seen.insert(name) {
            errors.duplicate(path.index(index), name);
        }
        match name {
            "cpu" | "memory" => {}
            "" => errors.required(path, ""),
            name => errors.not_supported(path, name, &["cpu", "memory"]),
        }
        match text(policy, "restartPolicy") {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(path, ""),
            restart => errors.not_supported(path, restart, &["NotRequired", "RestartContainer"]),
        }
    }
}

pub(super) fn seccomp(errors: &mut ErrorList, path: Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let kind = text(profile, "type");
    match kind {
        "" => errors.required(path.child("type"), "type is required when seccompProfile is set"),
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        other => errors.not_supported(path.child("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    if kind == "Localhost" {
        if !given(profile, "localhostProfile") {
            errors.required(path.child("localhostProfile"), "must be set when seccomp type is Localhost");
        }
    } else if given(profile, "localhostProfile") {
        let shown =
            || format!("{{\"Type\":{},\"LocalhostProfile\":{}}}", Value::from(kind), profile["localhostProfile"]);
        errors.invalid(path.child("localhostProfile"), Json(shown), "can only be set when seccomp type is Localhost");
    }
}

fn probes(errors: &mut ErrorList, path: Path<'_>, container: &Value) {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if probe.is_null() {
            continue;
        }
        let path = path.child(kind);
        handler(errors, path, probe);
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.non_negative(path.child(field), number(probe, field));
        }
        if let Some(grace) = probe["terminationGracePeriodSeconds"].as_i64() {
            if grace <= 0 {
                errors.invalid(path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0");
            }
            if kind == "readinessProbe" {
                errors.invalid(
                    path.child("terminationGracePeriodSeconds"),
                    grace,
                    "must not be set for readinessProbes",
                );
            }
        }
        if kind != "readinessProbe" && number(probe, "successThreshold") != 1 {
            errors.invalid(path.child("successThreshold"), number(probe, "successThreshold"), "must be 1");
        }
    }
    let lifecycle = path.child("lifecycle");
    for hook in ["postStart", "preStop"] {
        if given(&container["lifecycle"], hook) {
            handler(errors, lifecycle.child(hook), &container["lifecycle"][hook]);
        }
    }
}

fn handler(errors: &mut ErrorList, path: Path<'_>, probe: &Value) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &probe[kind];
        if action.is_null() {
            continue;
        }
        let action_path = path.child(kind);
        if found {
            errors.forbidden(action_path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match kind {
            "exec" if list(action, "command").is_empty() => errors.required(action_path.child("command"), ""),
            "httpGet" => {
                if text(action, "path").is_empty() {
                    errors.required(action_path.child("path"), "");
                }
                port(errors, action_path.child("port"), &action["port"]);
                let scheme = text(action, "scheme");
                if !matches!(scheme, "HTTP" | "HTTPS") {
                    errors.not_supported(action_path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
                }
            }
            "tcpSocket" => port(errors, action_path.child("port"), &action["port"]),
            "grpc" => port_number(errors, action_path.child("port"), number(action, "port")),
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

/// A port by number or by name.
fn port(errors: &mut ErrorList, path: Path<'_>, value: &Value) {
    match value {
        Value::String(name) => errors.all_invalid(path, name, names::port_name(name)),
        value => port_number(errors, path, value.as_i64().unwrap_or(0)),
    }
}
