//! The rules of containers: those that run, those that run first and those that come later.

use std::collections::BTreeSet;

use serde_json::Value;

use super::resource_rules::{self, Holder};
use super::volume_rules::Volumes;
use super::{environment_rules, mount_rules, probe_rules, security_rules};
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// The fields of a pod spec with containers.
pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// What containers are checked against: the pod around them.
struct Pod<'v> {
    volumes: Volumes<'v>,
    claims: &'v BTreeSet<&'v str>,
    grace: Option<i64>,
    never_restarts: bool,
    shares_users: bool,
}

/// Checks all containers of a pod with these volumes and claims.
pub(super) fn containers(
    errors: &mut ErrorList,
    path: Path<'_>,
    spec: &Value,
    volumes: Volumes<'_>,
    claims: &BTreeSet<&str>,
) {
    let pod = Pod {
        volumes,
        claims,
        grace: spec["terminationGracePeriodSeconds"].as_i64(),
        never_restarts: text(spec, "restartPolicy") == "Never",
        shares_users: spec["hostUsers"] != false,
    };
    regular(errors, path.child("containers"), spec, &pod);
    let mut names: BTreeSet<&str> = list(spec, "containers").iter().map(|container| text(container, "name")).collect();
    initial(errors, path.child("initContainers"), spec, &pod, &mut names);
    ephemeral(errors, path.child("ephemeralContainers"), spec, &pod, names);
    for kind in ["containers", "initContainers"] {
        let list_path = path.child(kind);
        for (index, container) in list(spec, kind).iter().enumerate() {
            environment_rules::file_volumes(errors, list_path.index(index), container, &pod.volumes);
        }
    }
}

fn regular(errors: &mut ErrorList, list_path: Path<'_>, spec: &Value, pod: &Pod<'_>) {
    let containers = list(spec, "containers");
    if containers.is_empty() {
        return errors.required(list_path, "");
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = list_path.index(index);
        one(errors, path, container, pod);
        if !names.insert(text(container, "name")) {
            errors.duplicate(path.child("name"), text(container, "name"));
        }
        probe_rules::probes(errors, path, container, pod.grace);
        restart_rules(errors, path, container, true);
    }
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        host_ports(errors, list_path.index(index), container, &mut taken);
    }
}

fn initial<'v>(
    errors: &mut ErrorList,
    list_path: Path<'_>,
    spec: &'v Value,
    pod: &Pod<'_>,
    names: &mut BTreeSet<&'v str>,
) {
    for (index, container) in list(spec, "initContainers").iter().enumerate() {
        let path = list_path.index(index);
        let name = text(container, "name");
        one(errors, path, container, pod);
        restart_rules(errors, path, container, given(container, "restartPolicy"));
        if names.contains(name) {
            errors.duplicate(path.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Init containers run one by one. Upstream reports all of them under the first place.
        host_ports(errors, list_path.index(0), container, &mut BTreeSet::new());
        if text(container, "restartPolicy") == "Always" {
            probe_rules::probes(errors, path, container, pod.grace);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if given(container, field) {
                errors.forbidden(path.child(field), "may not be set for init containers without restartPolicy=Always");
            }
        }
    }
}

fn ephemeral<'v>(
    errors: &mut ErrorList,
    list_path: Path<'_>,
    spec: &'v Value,
    pod: &Pod<'_>,
    mut names: BTreeSet<&'v str>,
) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    const NOT_ALLOWED: [&str; 9] = [
        "ports",
        "resources",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
        "restartPolicy",
        "restartPolicyRules",
        "resizePolicy",
    ];
    // Init containers without a name count as one here.
    names.extend(list(spec, "initContainers").iter().map(|container| text(container, "name")));
    let others = names.clone();
    for (index, container) in list(spec, "ephemeralContainers").iter().enumerate() {
        let path = list_path.index(index);
        one(errors, path, container, pod);
        untrimmed_image(errors, path, container);
        if !names.insert(text(container, "name")) {
            errors.duplicate(path.child("name"), text(container, "name"));
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(path.child("targetContainerName"), target);
        }
        for field in NOT_ALLOWED {
            let filled = match &container[field] {
                Value::Null => false,
                Value::Array(list) => !list.is_empty(),
                Value::Object(fields) => field != "resources" || !fields.is_empty(),
                _ => true,
            };
            if filled || errors.was_given_empty(path.child(field)) {
                errors.forbidden(path.child(field), DETAIL);
            }
        }
        let mounts = path.child("volumeMounts");
        for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
            let path = mounts.index(index);
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    errors.forbidden(path.child(field), DETAIL);
                }
            }
        }
    }
}

/// What holds for containers of every kind.
fn one(errors: &mut ErrorList, path: Path<'_>, container: &Value, pod: &Pod<'_>) {
    match text(container, "name") {
        "" => errors.required(path.child("name"), ""),
        name => errors.all_invalid(path.child("name"), name, names::dns_label(name)),
    }
    if text(container, "image").is_empty() {
        errors.required(path.child("image"), "");
    }
    let messages = ["File", "FallbackToLogsOnError"];
    errors.one_of(path.child("terminationMessagePolicy"), text(container, "terminationMessagePolicy"), &messages);
    ports(errors, path.child("ports"), list(container, "ports"));
    environment_rules::environment(errors, path.child("env"), list(container, "env"));
    environment_rules::environment_from(errors, path.child("envFrom"), list(container, "envFrom"));
    mount_rules::mounts(errors, path, container, &pod.volumes);
    errors.one_of(path.child("imagePullPolicy"), text(container, "imagePullPolicy"), &PULL_POLICIES);
    let resources = path.child("resources");
    resource_rules::requirements(errors, resources, &container["resources"], Holder::Container, pod.claims);
    resize_policy(errors, path.child("resizePolicy"), list(container, "resizePolicy"), pod);
    let security = path.child("securityContext");
    security_rules::container(errors, security, &container["securityContext"], pod.shares_users);
}

/// Pods that exist have images without spaces around them; templates may.
pub(super) fn untrimmed_image(errors: &mut ErrorList, path: Path<'_>, container: &Value) {
    let image = text(container, "image");
    if image.trim() != image {
        errors.invalid(path.child("image"), image, "must not have leading or trailing whitespace");
    }
}

/// When a container restarts by itself, whatever its pod says (KEP-5307).
fn restart_rules(errors: &mut ErrorList, path: Path<'_>, container: &Value, checks_rules: bool) {
    const RULES_MAX: usize = 20;
    const EXIT_CODES_MAX: usize = 255;
    let (policy, rules) = (text(container, "restartPolicy"), list(container, "restartPolicyRules"));
    let policy_path = path.child("restartPolicy");
    if !given(container, "restartPolicy") {
        if !rules.is_empty() {
            errors.required(policy_path, "must specify restartPolicy when restart rules are used");
        }
    } else if !matches!(policy, "Always" | "Never" | "OnFailure") {
        errors.not_supported(policy_path, policy, &["Always", "Never", "OnFailure"]);
    }
    if !checks_rules {
        return;
    }
    let rules_path = path.child("restartPolicyRules");
    if rules.len() > RULES_MAX {
        errors.too_many(rules_path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = rules_path.index(index);
        let action = text(rule, "action");
        if !matches!(action, "Restart" | "RestartAllContainers") {
            errors.not_supported(path.child("action"), action, &["Restart", "RestartAllContainers"]);
        }
        let codes = path.child("exitCodes");
        if !given(rule, "exitCodes") {
            errors.required(codes, "must be specified");
            continue;
        }
        let operator = text(&rule["exitCodes"], "operator");
        if !matches!(operator, "In" | "NotIn") {
            errors.not_supported(codes.child("operator"), operator, &["In", "NotIn"]);
        }
        let values = list(&rule["exitCodes"], "values").len();
        if values > EXIT_CODES_MAX {
            errors.too_many(codes.child("values"), values, EXIT_CODES_MAX);
        }
    }
}

/// No two containers may claim the same port of the node.
fn host_ports<'v>(
    errors: &mut ErrorList,
    path: Path<'_>,
    container: &'v Value,
    taken: &mut BTreeSet<(&'v str, &'v str, i64)>,
) {
    let ports = path.child("ports");
    for (index, port) in list(container, "ports").iter().enumerate() {
        let key = (text(port, "protocol"), text(port, "hostIP"), number(port, "hostPort"));
        if key.2 != 0 && !taken.insert(key) {
            let (protocol, ip, number) = key;
            errors.duplicate(ports.index(index).child("hostPort"), format!("{protocol}/{ip}/{number}").as_str());
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

fn resize_policy(errors: &mut ErrorList, path: Path<'_>, policies: &[Value], pod: &Pod<'_>) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let (name, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(name) {
            errors.duplicate(path.index(index), name);
        }
        errors.one_of(path, name, &["cpu", "memory"]);
        errors.one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if pod.never_restarts && restart != "NotRequired" {
            errors.invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}
