//! Pods and pod templates.

use serde_json::{Map, Value};

use super::errors::{Errors, Json};
use super::path::Path;
use super::{affinity, container, given, list, metadata, names, number, text, volumes};

const SECONDS_MAX: i64 = i32::MAX as i64;

/// Whose pod spec it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Pod,
    Template,
}

/// A template inside a workload.
pub(super) fn template(errors: &mut Errors, path: Path<'_>, template: &Value) {
    metadata::labels(errors, path.child("labels"), &template["metadata"]["labels"]);
    metadata::annotations(errors, path.child("annotations"), &template["metadata"]["annotations"]);
    let spec_path = path.child("spec");
    spec(errors, spec_path, &template["spec"], Owner::Template);
    if !list(&template["spec"], "ephemeralContainers").is_empty() {
        errors.forbidden(spec_path.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// What only new pods must satisfy.
pub(super) fn create(errors: &mut Errors, pod: &Value) {
    let path = Path::root("spec");
    let spec = &pod["spec"];
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        errors.forbidden(path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

pub(super) fn spec(errors: &mut Errors, path: Path<'_>, spec: &Value, owner: Owner) {
    volumes::volumes(errors, path.child("volumes"), spec, owner);
    claims(errors, path.child("resourceClaims"), list(spec, "resourceClaims"));
    container::containers(errors, path, spec);
    choice(errors, path.child("restartPolicy"), text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    choice(errors, path.child("dnsPolicy"), text(spec, "dnsPolicy"), &dns);
    metadata::labels(errors, path.child("nodeSelector"), &spec["nodeSelector"]);
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() && secret.as_object().is_some_and(|secret| !secret.is_empty()) {
            let secrets = path.child("imagePullSecrets");
            errors.required(secrets.index(index).child("name"), "");
        }
    }
    affinity::affinity(errors, path.child("affinity"), &spec["affinity"]);
    affinity::spread(errors, path.child("topologySpreadConstraints"), list(spec, "topologySpreadConstraints"));
    tolerations(errors, path.child("tolerations"), list(spec, "tolerations"));
    named(errors, path.child("readinessGates"), list(spec, "readinessGates"), "conditionType");
    gates(errors, path.child("schedulingGates"), list(spec, "schedulingGates"));
    for field in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.all_invalid(path.child(field), value, names::dns_subdomain(value));
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.all_invalid(path.child(field), value, names::dns_label(value));
        }
    }
    if let Some(deadline) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=SECONDS_MAX).contains(&deadline)
    {
        errors.invalid(path.child("activeDeadlineSeconds"), deadline, "must be between 1 and 2147483647, inclusive");
    }
    errors.non_negative(path.child("terminationGracePeriodSeconds"), number(spec, "terminationGracePeriodSeconds"));
    host_aliases(errors, path.child("hostAliases"), list(spec, "hostAliases"));
    dns_config(errors, path.child("dnsConfig"), spec);
    security(errors, path, spec);
    if given(spec, "preemptionPolicy") {
        let policies = ["Never", "PreemptLowerPriority"];
        choice(errors, path.child("preemptionPolicy"), text(spec, "preemptionPolicy"), &policies);
    }
    if given(spec, "os") {
        match text(&spec["os"], "name") {
            "" => errors.required(path.child("os").child("name"), "cannot be empty"),
            "linux" | "windows" => {}
            other => errors.not_supported(path.child("os"), other, &["linux", "windows"]),
        }
    }
    container::overhead(errors, path.child("overhead"), &spec["overhead"]);
}

fn choice(errors: &mut Errors, path: Path<'_>, value: &str, supported: &[&str]) {
    errors.one_of(path, value, supported);
}

fn claims(errors: &mut Errors, path: Path<'_>, claims: &[Value]) {
    let mut seen = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else if seen.contains(&name) {
            errors.duplicate(path.child("name"), name);
        } else {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
            seen.push(name);
        }
        let shown = || {
            Json(format!(
                "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
                Value::from(name),
                claim["resourceClaimName"],
                claim["resourceClaimTemplateName"]
            ))
        };
        match (given(claim, "resourceClaimName"), given(claim, "resourceClaimTemplateName")) {
            (true, true) => errors.invalid(
                path,
                shown(),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                errors.invalid(path, shown(), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
            }
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if given(claim, field) {
                errors.all_invalid(path.child(field), text(claim, field), names::dns_subdomain(text(claim, field)));
            }
        }
    }
}

fn named(errors: &mut Errors, path: Path<'_>, entries: &[Value], field: &str) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        errors.all_invalid(path.child(field), text(entry, field), names::qualified_name(text(entry, field)));
    }
}

fn gates(errors: &mut Errors, path: Path<'_>, gates: &[Value]) {
    for (index, gate) in gates.iter().enumerate() {
        let path = path.index(index);
        let name = text(gate, "name");
        let problems = names::qualified_name(name);
        if problems.is_empty() {
            if gates[..index].iter().any(|other| text(other, "name") == name) {
                errors.duplicate(path, name);
            }
        } else {
            errors.all_invalid(path, name, problems);
        }
    }
}

pub(super) fn tolerations(errors: &mut Errors, path: Path<'_>, tolerations: &[Value]) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        } else if operator != "Exists" {
            errors.invalid(
                path.child("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if given(toleration, "tolerationSeconds") && effect != "NoExecute" {
            errors.invalid(path.child("effect"), effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.invalid(path.child("operator"), value, &problems.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                errors.invalid(path.child("operator"), value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            // Comparing operators are behind a gate that is off.
            "Lt" | "Gt" => errors.not_supported(path.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => errors.not_supported(path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            errors.not_supported(path.child("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn host_aliases(errors: &mut Errors, path: Path<'_>, aliases: &[Value]) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        if !is_address(text(alias, "ip")) {
            errors.invalid(path.child("ip"), text(alias, "ip"), NOT_AN_ADDRESS);
        }
        for host in list(alias, "hostnames").iter().filter_map(Value::as_str) {
            errors.all_invalid(path.child("hostnames"), host, names::dns_subdomain(host));
        }
    }
}

fn dns_config(errors: &mut Errors, path: Path<'_>, spec: &Value) {
    let config = &spec["dnsConfig"];
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if list(config, "nameservers").is_empty() {
            errors.required(
                path.child("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let servers = path.child("nameservers");
    for (index, server) in list(config, "nameservers").iter().filter_map(Value::as_str).enumerate() {
        if !is_address(server) {
            errors.invalid(servers.index(index), server, NOT_AN_ADDRESS);
        }
    }
    let options = path.child("options");
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(options.index(index), "must not be empty");
        }
    }
}

fn security(errors: &mut Errors, path: Path<'_>, spec: &Value) {
    let context = &spec["securityContext"];
    let security_path = path.child("securityContext");
    let id = |errors: &mut Errors, field: &str, value: &Value| {
        if let Some(id) = value.as_i64()
            && !(0..=SECONDS_MAX).contains(&id)
        {
            errors.invalid(security_path.child(field), id, "must be between 0 and 2147483647, inclusive");
        }
    };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, field, &context[field]);
    }
    container::seccomp(errors, security_path.child("seccompProfile"), &context["seccompProfile"]);
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        errors.invalid(
            security_path.child("shareProcessNamespace"),
            &Value::Bool(true),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    if given(context, "fsGroupChangePolicy") {
        let policies = ["OnRootMismatch", "Always"];
        choice(errors, security_path.child("fsGroupChangePolicy"), text(context, "fsGroupChangePolicy"), &policies);
    }
}

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What may change in a pod that exists.
pub(super) fn change(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    for containers in ["containers", "initContainers"] {
        if list(new, containers).len() != list(old, containers).len() {
            errors.forbidden(path.child(containers), "pod updates may not add or remove containers");
            return;
        }
    }
    for containers in ["containers", "initContainers"] {
        let list_path = path.child(containers);
        for (index, container) in list(new, containers).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let container_path = list_path.index(index);
                errors.invalid(container_path.child("image"), image, "must not have leading or trailing whitespace");
            }
        }
    }
    let deadline = path.child("activeDeadlineSeconds");
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(seconds), _) if !(0..=SECONDS_MAX).contains(&seconds) => {
            errors.invalid(deadline, seconds, "must be between 0 and 2147483647, inclusive");
            return;
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(deadline, seconds, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            errors.invalid(deadline, &Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    tolerations_only_added(errors, path.child("tolerations"), new, old);
    let gates = path.child("schedulingGates");
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        if !list(old, "schedulingGates").iter().any(|known| known["name"] == gate["name"]) {
            let gate_path = gates.index(index);
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
            errors.forbidden(gate_path.child("name"), &detail);
        }
    }
    if new == old {
        return;
    }
    let mut rest = new.as_object().cloned().unwrap_or_default();
    forgive(&mut rest, old);
    if !list(old, "schedulingGates").is_empty() {
        affinity::gated_change(errors, path, &mut rest, old);
    }
    if Some(&rest) != old.as_object() {
        errors.forbidden(path, UPDATABLE);
    }
}

/// Takes back what may change, so that what is left must be equal.
fn forgive(rest: &mut Map<String, Value>, old: &Value) {
    for containers in ["containers", "initContainers"] {
        let Some(Value::Array(list)) = rest.get_mut(containers) else { continue };
        for (container, before) in list.iter_mut().zip(super::list(old, containers)) {
            if let Value::Object(container) = container {
                put(container, "image", before.get("image"));
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(rest, field, old.get(field));
    }
    let grace = "terminationGracePeriodSeconds";
    if number(old, grace) < 0 && rest.get(grace).and_then(Value::as_i64) == Some(1) {
        put(rest, grace, old.get(grace));
    }
}

pub(super) fn put(object: &mut Map<String, Value>, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            object.insert(name.to_owned(), value.clone());
        }
        None => {
            object.remove(name);
        }
    }
}

fn tolerations_only_added(errors: &mut Errors, path: Path<'_>, new: &Value, old: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.as_object().cloned().unwrap_or_default();
        toleration.remove("tolerationSeconds");
        toleration
    };
    for toleration in list(old, "tolerations") {
        let wanted = without_seconds(toleration);
        if !list(new, "tolerations").iter().any(|other| without_seconds(other) == wanted) {
            errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
            return;
        }
    }
    tolerations(errors, path, list(new, "tolerations"));
}

/// What the status endpoint may write.
pub(super) fn status(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("status");
    let (status, before) = (&new["status"], &old["status"]);
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() {
        errors.all_invalid(path.child("nominatedNodeName"), nominated, names::dns_subdomain(nominated));
    }
    if text(status, "qosClass") != text(before, "qosClass") {
        errors.invalid(path.child("qosClass"), text(status, "qosClass"), "field is immutable");
    }
    let ips = path.child("podIPs");
    for (index, entry) in list(status, "podIPs").iter().enumerate() {
        if !is_address(text(entry, "ip")) {
            errors.invalid(ips.index(index), text(entry, "ip"), NOT_AN_ADDRESS);
        }
    }
}
