//! Pods, pod templates and containers.

use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde_json::{Map, Value};

use super::{
    Object, child, children, default, default_nonzero, round_requirements, round_resource_list, text, volumes,
};

/// Annotations of long-gone kubelets; a pod must not bring them back.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

pub(super) fn pod(object: &mut Object) {
    drop_init_container_annotations(object);
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
        pod_spec(spec);
        if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|period| period < 0) {
            spec.insert("terminationGracePeriodSeconds".into(), 1.into());
        }
    }
    if let Some(status) = child(object, "status") {
        pod_status(status);
    }
}

/// A template gets everything but what only pods get.
pub(super) fn template(template: Option<&mut Value>) {
    let Some(template) = template.and_then(Value::as_object_mut) else { return };
    drop_init_container_annotations(template);
    if let Some(spec) = child(template, "spec") {
        pod_spec(spec);
    }
}

fn drop_init_container_annotations(object: &mut Object) {
    let Some(metadata) = child(object, "metadata") else { return };
    let Some(annotations) = child(metadata, "annotations") else { return };
    let before = annotations.len();
    for name in INIT_CONTAINER_ANNOTATIONS {
        annotations.remove(name);
    }
    if before > 0 && annotations.is_empty() {
        metadata.remove("annotations");
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
    if let Some(requests) = super::child_or_new(resources, "requests") {
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

fn pod_spec(spec: &mut Object) {
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", Map::new());
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    // The deprecated name mirrors the current one, whichever was given.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    }
    .to_owned();
    if account.is_empty() {
        spec.remove("serviceAccount");
    } else {
        spec.insert("serviceAccountName".into(), account.clone().into());
        spec.insert("serviceAccount".into(), account.into());
    }
    children(spec, "volumes").for_each(volumes::volume);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        children(spec, containers).for_each(container);
    }
    round_resource_list(spec, "overhead");
    round_requirements(child(spec, "resources"));
}

fn container(container: &mut Object) {
    let image = text(container, "image");
    let policy = pull_policy(image);
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    children(container, "ports").for_each(|port| default(port, "protocol", "TCP"));
    for variable in children(container, "env") {
        let Some(from) = child(variable, "valueFrom") else { continue };
        if let Some(field) = child(from, "fieldRef") {
            default(field, "apiVersion", "v1");
        }
        if let Some(key) = child(from, "fileKeyRef") {
            default(key, "optional", false);
        }
    }
    round_requirements(child(container, "resources"));
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, name) {
            default_nonzero(probe, "timeoutSeconds", 1);
            default_nonzero(probe, "periodSeconds", 10);
            default_nonzero(probe, "successThreshold", 1);
            default_nonzero(probe, "failureThreshold", 3);
            http_get(child(probe, "httpGet"));
            if let Some(grpc) = child(probe, "grpc") {
                default(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child(lifecycle, hook) {
                http_get(child(hook, "httpGet"));
            }
        }
    }
}

fn http_get(action: Option<&mut Object>) {
    if let Some(action) = action {
        default(action, "path", "/");
        default(action, "scheme", "HTTP");
    }
}

/// `Always` for images that may change under their name.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// True when an image reference means the tag `latest`, said or unsaid. A reference that does not parse does not.
fn is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    if !is_image_path(path) || digest.is_some_and(|digest| !is_digest(digest)) {
        return false;
    }
    match tag {
        Some(tag) => tag == "latest",
        None => digest.is_none(),
    }
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        !algorithm.is_empty() && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// `[registry/]path/…/name`, lower case, separators inside components only.
fn is_image_path(path: &str) -> bool {
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first != first.to_lowercase() => {
            (Some(first), rest)
        }
        _ => (None, path),
    };
    if path.len() == 64 && path.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9')) {
        return false;
    }
    let component = |part: &str| {
        let bytes = part.as_bytes();
        let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
            && !part.contains("..")
            && !part.contains("___")
    };
    let host = |part: &str| {
        let (name, port) = part.split_once(':').unwrap_or((part, "0"));
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
            && port.bytes().all(|b| b.is_ascii_digit())
            && !port.is_empty()
    };
    registry.is_none_or(host) && rest.split('/').all(component)
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
    // The single address is the older client's word and wins.
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

/// Pod-level requests and huge-page limits that follow from what the containers ask (KEP-2837).
fn pod_level_resources(spec: &mut Object) {
    let Some(Value::Object(resources)) = spec.get("resources") else { return };
    let entries = |name: &str| resources.get(name).and_then(Value::as_object).map_or(0, Map::len);
    if entries("limits") == 0 && entries("requests") == 0 {
        return;
    }
    let has = |list: &str, name: &str| resources.get(list).is_some_and(|list| list.get(name).is_some());

    let mut limits = resources.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, quantity) in aggregate(spec, "limits") {
        if is_huge_page(&name) && !has("requests", &name) && !limits.contains_key(&name) {
            limits.insert(name, quantity.to_string().into());
        }
    }
    let mut requests = resources.get("requests").and_then(Value::as_object).cloned().unwrap_or_default();
    if !limits.is_empty() {
        for (name, quantity) in aggregate(spec, "requests") {
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

type Amounts = BTreeMap<String, Quantity>;

/// What all containers together ask: the sum of those that run together, or the most an init step needs.
fn aggregate(spec: &Object, list: &str) -> Amounts {
    let of = |container: &Value| -> Amounts {
        let amounts = container.get("resources").and_then(|resources| resources.get(list)).and_then(Value::as_object);
        amounts
            .into_iter()
            .flatten()
            .filter_map(|(name, quantity)| Some((name.clone(), quantity.as_str()?.parse().ok()?)))
            .collect()
    };
    let containers = |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut total = Amounts::new();
    for container in containers("containers") {
        add(&mut total, &of(container));
    }
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in containers("initContainers") {
        let mut needs = of(container);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut total, &needs);
            add(&mut sidecars, &needs);
            needs.clone_from(&sidecars);
        } else {
            add(&mut needs, &sidecars);
        }
        most(&mut init, &needs);
    }
    most(&mut total, &init);
    total
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, quantity) in more {
        match total.get_mut(name) {
            Some(sum) => sum.add(quantity),
            None => {
                total.insert(name.clone(), quantity.clone());
            }
        }
    }
}

fn most(total: &mut Amounts, other: &Amounts) {
    for (name, quantity) in other {
        match total.get(name) {
            Some(have) if have >= quantity => {}
            _ => {
                total.insert(name.clone(), quantity.clone());
            }
        }
    }
}
