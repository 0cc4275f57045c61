//! The rules of pod specs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{affinity_rules, container_rules, volume_rules};
use crate::field::{ErrorList, Json, Path};
use crate::object::{given, list, number, text};
use crate::{metadata, names};

/// The longest time in seconds, and the largest user and group id.
pub(crate) const SECONDS_MAX: i64 = i32::MAX as i64;

/// A template inside a workload.
pub(crate) fn template_rules(errors: &mut ErrorList, path: Path<'_>, template: &Value) {
    metadata::labels(errors, path.child("labels"), &template["metadata"]["labels"]);
    metadata::annotations(errors, path.child("annotations"), &template["metadata"]["annotations"]);
    let spec_path = path.child("spec");
    spec_rules(errors, spec_path, &template["spec"]);
    if !list(&template["spec"], "ephemeralContainers").is_empty() {
        errors.forbidden(spec_path.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

pub(crate) fn spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    volume_rules::volumes(errors, path.child("volumes"), spec);
    claims(errors, path.child("resourceClaims"), list(spec, "resourceClaims"));
    container_rules::containers(errors, path, spec);
    errors.one_of(path.child("restartPolicy"), text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(path.child("dnsPolicy"), text(spec, "dnsPolicy"), &dns);
    metadata::labels(errors, path.child("nodeSelector"), &spec["nodeSelector"]);
    for (index, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(secret, "name").is_empty() && secret.as_object().is_some_and(|secret| !secret.is_empty()) {
            let secrets = path.child("imagePullSecrets");
            errors.required(secrets.index(index).child("name"), "");
        }
    }
    affinity_rules::affinity(errors, path.child("affinity"), &spec["affinity"]);
    affinity_rules::spread(errors, path.child("topologySpreadConstraints"), list(spec, "topologySpreadConstraints"));
    toleration_rules(errors, path.child("tolerations"), list(spec, "tolerations"));
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
        errors.one_of(path.child("preemptionPolicy"), text(spec, "preemptionPolicy"), &policies);
    }
    if given(spec, "os") {
        match text(&spec["os"], "name") {
            "" => errors.required(path.child("os").child("name"), "cannot be empty"),
            "linux" | "windows" => {}
            other => errors.not_supported(path.child("os"), other, &["linux", "windows"]),
        }
    }
    container_rules::overhead(errors, path.child("overhead"), &spec["overhead"]);
}

fn claims(errors: &mut ErrorList, path: Path<'_>, claims: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = text(claim, "name");
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        } else {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
        }
        let shown = || {
            format!(
                "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
                Value::from(name),
                claim["resourceClaimName"],
                claim["resourceClaimTemplateName"]
            )
        };
        match (given(claim, "resourceClaimName"), given(claim, "resourceClaimTemplateName")) {
            (true, true) => errors.invalid(
                path,
                Json(shown),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => errors.invalid(
                path,
                Json(shown),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for field in ["resourceClaimName", "resourceClaimTemplateName"] {
            if given(claim, field) {
                errors.all_invalid(path.child(field), text(claim, field), names::dns_subdomain(text(claim, field)));
            }
        }
    }
}

fn named(errors: &mut ErrorList, path: Path<'_>, entries: &[Value], field: &str) {
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        errors.all_invalid(path.child(field), text(entry, field), names::qualified_name(text(entry, field)));
    }
}

fn gates(errors: &mut ErrorList, path: Path<'_>, gates: &[Value]) {
    let mut seen = BTreeSet::new();
    for (index, gate) in gates.iter().enumerate() {
        let path = path.index(index);
        let name = text(gate, "name");
        let problems = names::qualified_name(name);
        if problems.is_empty() {
            if !seen.insert(name) {
                errors.duplicate(path, name);
            }
        } else {
            errors.all_invalid(path, name, problems);
        }
    }
}

pub(crate) fn toleration_rules(errors: &mut ErrorList, path: Path<'_>, tolerations: &[Value]) {
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
            // The feature gate TaintTolerationComparisonOperators is off.
            "Lt" | "Gt" => errors.not_supported(path.child("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => errors.not_supported(path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            errors.not_supported(path.child("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

pub(crate) const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub(crate) fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn host_aliases(errors: &mut ErrorList, path: Path<'_>, aliases: &[Value]) {
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

fn dns_config(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
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

fn security(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let context = &spec["securityContext"];
    let security_path = path.child("securityContext");
    let id = |errors: &mut ErrorList, field: &str, value: &Value| {
        if let Some(id) = value.as_i64()
            && !(0..=SECONDS_MAX).contains(&id)
        {
            errors.invalid(security_path.child(field), id, "must be between 0 and 2147483647, inclusive");
        }
    };
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, field, &context[field]);
    }
    container_rules::seccomp(errors, security_path.child("seccompProfile"), &context["seccompProfile"]);
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        errors.invalid(
            security_path.child("shareProcessNamespace"),
            &Value::Bool(true),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    if given(context, "fsGroupChangePolicy") {
        let policies = ["OnRootMismatch", "Always"];
        errors.one_of(security_path.child("fsGroupChangePolicy"), text(context, "fsGroupChangePolicy"), &policies);
    }
}
