//! The cells of every kind but pods.

use std::collections::BTreeSet;

use bayplan_model::label_selector::{LabelSelector, Selector};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::age;

/// Endpoints shown before the rest is only counted.
const ENDPOINTS_MAX: usize = 3;

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or("")
}

fn number(value: &Value, name: &str) -> i64 {
    value[name].as_i64().unwrap_or(0)
}

fn given(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|value| !value.is_null())
}

fn or<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}

/// The cells of an object, in the order of its kind's columns.
pub(super) fn of(group: &str, kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let name = Value::from(text(metadata, "name"));
    let age = Value::from(age::since(&metadata["creationTimestamp"], now));
    let template = &spec["template"]["spec"];
    match (group, kind) {
        ("apps", "Deployment") => {
            let ready = format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas"));
            let (names, images) = containers(template);
            let selector = selector(&spec["selector"]).unwrap_or_else(|| "<invalid>".to_owned());
            let (updated, available) = (number(status, "updatedReplicas"), number(status, "availableReplicas"));
            vec![name, ready.into(), updated.into(), available.into(), age, names, images, selector.into()]
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            let (names, images) = containers(template);
            let selector =
                if kind == "ReplicaSet" { shown_selector(&spec["selector"]) } else { labels(&spec["selector"]) };
            let (desired, current) = (number(spec, "replicas"), number(status, "replicas"));
            let ready = number(status, "readyReplicas");
            vec![name, desired.into(), current.into(), ready.into(), age, names, images, selector]
        }
        ("apps", "StatefulSet") => {
            let ready = format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas"));
            let (names, images) = containers(template);
            vec![name, ready.into(), age, names, images]
        }
        ("apps", "DaemonSet") => {
            let counts = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let (names, images) = containers(template);
            let mut cells = vec![name];
            cells.extend(counts.map(|count| Value::from(number(status, count))));
            cells.extend([labels(&template["nodeSelector"]), age, names, images, shown_selector(&spec["selector"])]);
            cells
        }
        ("apps", "ControllerRevision") => {
            vec![name, controller(metadata).into(), number(object, "revision").into(), age]
        }
        ("batch", "Job") => job(object, name, age, now),
        ("batch", "CronJob") => cron_job(object, name, age, now),
        ("", "PodTemplate") => {
            let (names, images) = containers(&object["template"]["spec"]);
            vec![name, names, images, labels(&object["template"]["metadata"]["labels"])]
        }
        ("", "Node") => node(object, name, age),
        ("", "Namespace") => vec![name, text(status, "phase").into(), age],
        ("", "Service") => service(object, name, age),
        ("", "Endpoints") => vec![name, endpoints(object).into(), age],
        ("discovery.k8s.io", "EndpointSlice") => {
            vec![
                name,
                text(object, "addressType").into(),
                slice_ports(object).into(),
                slice_endpoints(object).into(),
                age,
            ]
        }
        ("" | "events.k8s.io", "Event") => event(object, name, now),
        ("", "ConfigMap") => vec![name, (entries(object, "data") + entries(object, "binaryData")).into(), age],
        ("", "Secret") => vec![name, text(object, "type").into(), entries(object, "data").into(), age],
        ("", "ServiceAccount") | ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => vec![name, age],
        ("", "ResourceQuota") => resource_quota(status, name, age),
        ("", "PersistentVolume") => persistent_volume(object, name, age),
        ("", "PersistentVolumeClaim") => persistent_volume_claim(object, name, age),
        ("policy", "PodDisruptionBudget") => {
            let bound = |name: &str| match &spec[name] {
                Value::Null => "N/A".to_owned(),
                Value::String(percent) => percent.clone(),
                count => count.to_string(),
            };
            let allowed = number(status, "disruptionsAllowed");
            vec![name, bound("minAvailable").into(), bound("maxUnavailable").into(), allowed.into(), age]
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            let default = object["globalDefault"] == true;
            vec![name, number(object, "value").into(), default.into(), age, text(object, "preemptionPolicy").into()]
        }
        ("coordination.k8s.io", "Lease") => vec![name, text(spec, "holderIdentity").into(), age],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => role_binding(object, name, age),
        ("storage.k8s.io", "StorageClass") => storage_class(object, age),
        ("storage.k8s.io", "VolumeAttributesClass") => vec![name, text(object, "driverName").into(), age],
        ("storage.k8s.io", "VolumeAttachment") => {
            let volume = text(&spec["source"], "persistentVolumeName");
            let attached = status["attached"] == true;
            vec![
                name,
                text(spec, "attacher").into(),
                volume.into(),
                text(spec, "nodeName").into(),
                attached.into(),
                age,
            ]
        }
        ("storage.k8s.io", "CSINode") => vec![name, list(spec, "drivers").len().into(), age],
        ("storage.k8s.io", "CSIDriver") => csi_driver(spec, name, age),
        ("storage.k8s.io", "CSIStorageCapacity") => {
            vec![name, text(object, "storageClassName").into(), or(text(object, "capacity"), "<unset>").into()]
        }
        ("resource.k8s.io", "ResourceClaim") => vec![name, claim_state(object).into(), age],
        ("resource.k8s.io", "ResourceSlice") => {
            let pool = text(&spec["pool"], "name");
            vec![name, text(spec, "nodeName").into(), text(spec, "driver").into(), pool.into(), age]
        }
        ("node.k8s.io", "RuntimeClass") => vec![name, text(object, "handler").into(), age],
        ("networking.k8s.io", "NetworkPolicy") => vec![name, shown_selector(&spec["podSelector"]), age],
        ("autoscaling", "Scale") => vec![name, number(spec, "replicas").into(), number(status, "replicas").into(), age],
        // Kinds without columns of their own show when they were created, not how long ago.
        _ => vec![name, metadata.get("creationTimestamp").filter(|t| !t.is_null()).cloned().unwrap_or(Value::Null)],
    }
}

fn containers(pod_spec: &Value) -> (Value, Value) {
    let joined = |field: &str| {
        let all: Vec<&str> = list(pod_spec, "containers").iter().map(|container| text(container, field)).collect();
        Value::from(all.join(","))
    };
    (joined("name"), joined("image"))
}

/// A label selector in query form; `None` when it is not one.
fn selector(value: &Value) -> Option<String> {
    let selector = Option::<LabelSelector>::deserialize(value).ok()?;
    Selector::of(selector.as_ref()).ok().map(|selector| selector.to_string())
}

fn shown_selector(value: &Value) -> Value {
    let text = selector(value).unwrap_or_else(|| "<error>".to_owned());
    or(&text, "<none>").into()
}

/// Labels as `k=v,k2=v2`.
fn labels(value: &Value) -> Value {
    let pairs = value.as_object().into_iter().flatten();
    let text: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    or(&text.join(","), "<none>").into()
}

fn entries(object: &Value, name: &str) -> usize {
    object[name].as_object().map_or(0, Map::len)
}

fn controller(metadata: &Value) -> String {
    let Some(owner) = list(metadata, "ownerReferences").iter().find(|owner| owner["controller"] == true) else {
        return "<none>".to_owned();
    };
    let kind = text(owner, "kind").to_lowercase();
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
        None => format!("{kind}/{}", text(owner, "name")),
    }
}

fn job(object: &Value, name: Value, age: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = number(status, "succeeded");
    let completions = match (spec["completions"].as_i64(), number(spec, "parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = match age::parse(&status["startTime"]) {
        Some(start) => age::human(age::parse(&status["completionTime"]).unwrap_or(now), start),
        None => String::new(),
    };
    let holds = |kind: &str| {
        let condition = list(status, "conditions").iter().find(|condition| text(condition, "type") == kind);
        condition.is_some_and(|condition| text(condition, "status") == "True")
    };
    let state = if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if given(&object["metadata"], "deletionTimestamp") {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"].into_iter().find(|kind| holds(kind)).unwrap_or("Running")
    };
    let (names, images) = containers(&spec["template"]["spec"]);
    vec![name, state.into(), completions.into(), duration.into(), age, names, images, shown_selector(&spec["selector"])]
}

fn cron_job(object: &Value, name: Value, age: Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let job = &spec["jobTemplate"]["spec"];
    let last = if given(status, "lastScheduleTime") {
        age::since(&status["lastScheduleTime"], now)
    } else {
        "<none>".to_owned()
    };
    let suspend = match spec["suspend"].as_bool() {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let zone = if given(spec, "timeZone") { text(spec, "timeZone") } else { "<none>" };
    let (names, images) = containers(&job["template"]["spec"]);
    let active = list(status, "active").len();
    vec![
        name,
        text(spec, "schedule").into(),
        zone.into(),
        suspend.into(),
        active.into(),
        last.into(),
        age,
        names,
        images,
        shown_selector(&job["selector"]),
    ]
}

fn node(object: &Value, name: Value, age: Value) -> Vec<Value> {
    const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
    let (status, info) = (&object["status"], &object["status"]["nodeInfo"]);
    let ready = list(status, "conditions").iter().rev().find(|condition| text(condition, "type") == "Ready");
    let mut state = match ready {
        Some(condition) if text(condition, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => roles.insert(role),
            None if key == "kubernetes.io/role" => roles.insert(value.as_str().unwrap_or("")),
            None => false,
        };
    }
    roles.remove("");
    let roles: Vec<&str> = roles.into_iter().collect();
    let address = |kind: &str| {
        let found = list(status, "addresses").iter().find(|address| text(address, "type") == kind);
        Value::from(found.map_or("<none>", |address| text(address, "address")))
    };
    let mut kernel = or(text(info, "kernelVersion"), "<unknown>").to_owned();
    if !text(info, "architecture").is_empty() {
        kernel = format!("{kernel} ({})", text(info, "architecture"));
    }
    vec![
        name,
        state.into(),
        or(&roles.join(","), "<none>").into(),
        age,
        text(info, "kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        or(text(info, "osImage"), "<unknown>").into(),
        kernel.into(),
        or(text(info, "containerRuntimeVersion"), "<unknown>").into(),
    ]
}

fn service(object: &Value, name: Value, age: Value) -> Vec<Value> {
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
        name,
        text(spec, "type").into(),
        cluster_ip.into(),
        external_ips(object).into(),
        or(&ports.join(","), "<none>").into(),
        age,
        labels(&spec["selector"]),
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

fn endpoints(object: &Value) -> String {
    if list(object, "subsets").is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        if list(subset, "ports").is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in list(subset, "ports") {
            let port = number(port, "port");
            all.extend(
                addresses().map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
            );
        }
    }
    some_and_more(&all)
}

fn some_and_more(all: &[String]) -> String {
    if all.len() > ENDPOINTS_MAX {
        format!("{} + {} more...", all[..ENDPOINTS_MAX].join(","), all.len() - ENDPOINTS_MAX)
    } else {
        all.join(",")
    }
}

fn slice_ports(object: &Value) -> String {
    let port = |port: &Value| match port["port"].as_i64() {
        Some(number) => number.to_string(),
        None if given(port, "name") => text(port, "name").to_owned(),
        None => "*".to_owned(),
    };
    let all: Vec<String> = list(object, "ports").iter().map(port).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}

fn slice_endpoints(object: &Value) -> String {
    let endpoints = list(object, "endpoints").iter();
    let all: Vec<String> =
        endpoints.flat_map(|e| list(e, "addresses")).filter_map(Value::as_str).map(str::to_owned).collect();
    if all.is_empty() { "<unset>".to_owned() } else { some_and_more(&all) }
}

/// Events in either of their two forms.
fn event(object: &Value, name: Value, now: Timestamp) -> Vec<Value> {
    let either = |first: &str, second: &str| {
        let chosen = if given(object, first) { first } else { second };
        object.get(chosen).cloned().unwrap_or(Value::Null)
    };
    let regarding = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");
    let (first_time, last_time) =
        (either("firstTimestamp", "deprecatedFirstTimestamp"), either("lastTimestamp", "deprecatedLastTimestamp"));
    let first = age::since(if first_time.is_null() { &object["eventTime"] } else { &first_time }, now);
    let mut last = if last_time.is_null() { first.clone() } else { age::since(&last_time, now) };
    let mut count = either("count", "deprecatedCount").as_i64().unwrap_or(0);
    if given(object, "series") {
        last = age::since(&object["series"]["lastObservedTime"], now);
        count = number(&object["series"], "count");
    } else if count == 0 {
        count = 1;
    }
    let kind = text(&regarding, "kind").to_lowercase();
    let target = match text(&regarding, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let controller = either("reportingComponent", "reportingController");
    let component = or(text(&source, "component"), controller.as_str().unwrap_or("")).to_owned();
    let instance = or(text(&source, "host"), text(object, "reportingInstance"));
    let source = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    let message = either("message", "note");
    vec![
        last.into(),
        text(object, "type").into(),
        text(object, "reason").into(),
        target.into(),
        text(&regarding, "fieldPath").into(),
        source.into(),
        message.as_str().unwrap_or("").trim().into(),
        first.into(),
        count.into(),
        name,
    ]
}

fn resource_quota(status: &Value, name: Value, age: Value) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in status["hard"].as_object().into_iter().flatten() {
        let used = status["used"][resource].as_str().unwrap_or("0");
        let entry = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![name, requests.join(", ").into(), limits.join(", ").into(), age]
}

fn access_modes(value: &Value) -> Value {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let modes = list(value, "accessModes");
    let shown: Vec<&str> =
        SHORT.iter().filter(|(long, _)| modes.iter().any(|mode| mode == *long)).map(|(_, short)| *short).collect();
    shown.join(",").into()
}

/// The storage class, which older objects name in an annotation.
fn storage_class_name(object: &Value) -> Value {
    let annotated = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotated.as_str().unwrap_or_else(|| text(&object["spec"], "storageClassName")).into()
}

fn phase(object: &Value) -> Value {
    let deleting = given(&object["metadata"], "deletionTimestamp");
    if deleting { "Terminating".into() } else { text(&object["status"], "phase").into() }
}

fn or_unset(object: &Value, name: &str) -> Value {
    if given(object, name) { text(object, name).into() } else { "<unset>".into() }
}

fn persistent_volume(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
    };
    vec![
        name,
        or(text(&spec["capacity"], "storage"), "0").into(),
        access_modes(spec),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        storage_class_name(object),
        or_unset(spec, "volumeAttributesClassName"),
        text(&object["status"], "reason").into(),
        age,
        or_unset(spec, "volumeMode"),
    ]
}

fn persistent_volume_claim(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let bound = !text(spec, "volumeName").is_empty();
    let capacity = if bound { or(text(&status["capacity"], "storage"), "0") } else { "" };
    vec![
        name,
        phase(object),
        text(spec, "volumeName").into(),
        capacity.into(),
        if bound { access_modes(status) } else { "".into() },
        storage_class_name(object),
        or_unset(spec, "volumeAttributesClassName"),
        age,
        or_unset(spec, "volumeMode"),
    ]
}

fn role_binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let role = &object["roleRef"];
    let of_kind = |kind: &str| {
        let subjects = list(object, "subjects").iter().filter(|subject| text(subject, "kind") == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        Value::from(names.collect::<Vec<_>>().join(", "))
    };
    let role = format!("{}/{}", text(role, "kind"), text(role, "name"));
    vec![name, role.into(), age, of_kind("User"), of_kind("Group"), of_kind("ServiceAccount")]
}

fn storage_class(object: &Value, age: Value) -> Vec<Value> {
    let annotations = &object["metadata"]["annotations"];
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|name| annotations[name] == "true");
    let suffix = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{suffix}", text(&object["metadata"], "name")).into(),
        text(object, "provisioner").into(),
        or(text(object, "reclaimPolicy"), "Delete").into(),
        or(text(object, "volumeBindingMode"), "Immediate").into(),
        (object["allowVolumeExpansion"] == true).into(),
        age,
    ]
}

fn csi_driver(spec: &Value, name: Value, age: Value) -> Vec<Value> {
    let modes: Vec<&str> = list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let tokens = if given(spec, "tokenRequests") {
        list(spec, "tokenRequests").iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
    } else {
        "<unset>".to_owned()
    };
    vec![
        name,
        (spec["attachRequired"] != false).into(),
        (spec["podInfoOnMount"] == true).into(),
        (spec["storageCapacity"] == true).into(),
        tokens.into(),
        (spec["requiresRepublish"] == true).into(),
        or(&modes.join(","), "<none>").into(),
        age,
    ]
}

fn claim_state(object: &Value) -> String {
    let deleting = given(&object["metadata"], "deletionTimestamp");
    let status = &object["status"];
    let mut states = Vec::new();
    if deleting {
        states.push("deleted");
    }
    if given(status, "allocation") {
        states.push("allocated");
        if !list(status, "reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !deleting {
        states.push("pending");
    }
    states.join(",")
}
