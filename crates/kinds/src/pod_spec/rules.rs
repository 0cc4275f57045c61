//! The rules of pod specs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    affinity_rules, annotation_rules, container_rules, resource_rules, security_rules, volume_rules, windows_rules,
};
use crate::field::{ErrorList, GoValue, Path};
use crate::ip_rules::legacy_address;
use crate::object::{given, list, number, text};
use crate::{metadata, names};

/// The longest time in seconds.
pub(crate) const SECONDS_MAX: i64 = i32::MAX as i64;

/// A template inside a workload.
pub(crate) fn template_rules(errors: &mut ErrorList, path: Path<'_>, template: &Value) {
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    metadata::labels(errors, path.child("labels"), &metadata["labels"]);
    metadata::annotations(errors, path.child("annotations"), &metadata["annotations"]);
    annotation_rules::annotations(errors, path.child("annotations"), &metadata["annotations"], spec);
    let spec_path = path.child("spec");
    spec_rules(errors, spec_path, spec, None);
    annotation_rules::seccomp_agrees(errors, spec_path, &metadata["annotations"], spec);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(spec_path.child("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// What holds for every version of a pod.
pub(crate) fn pod_rules(errors: &mut ErrorList, pod: &Value) {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let (metadata_path, path) = (Path::root("metadata"), Path::root("spec"));
    annotation_rules::annotations(errors, metadata_path.child("annotations"), &metadata["annotations"], spec);
    spec_rules(errors, path, spec, Some(text(metadata, "name")));
    annotation_rules::tokens_need_an_account(errors, path, spec);
    for kind in ["containers", "initContainers"] {
        let list_path = path.child(kind);
        for (index, container) in list(spec, kind).iter().enumerate() {
            container_rules::untrimmed_image(errors, list_path.index(index), container);
        }
    }
}

/// The spec of a pod of that name, or of a template.
fn spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value, pod: Option<&str>) {
    if !given(spec, "terminationGracePeriodSeconds") {
        errors.required(path.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume_rules::volumes(errors, path.child("volumes"), spec, pod);
    let claims_given = list(spec, "resourceClaims");
    claims(errors, path.child("resourceClaims"), claims_given);
    let claim_names: BTreeSet<&str> =
        claims_given.iter().map(|claim| text(claim, "name")).filter(|name| !name.is_empty()).collect();
    container_rules::containers(errors, path, spec, volumes, &claim_names);
    resource_rules::of_pod(errors, path.child("resources"), spec, &claim_names);
    errors.one_of(path.child("restartPolicy"), text(spec, "restartPolicy"), &["Always", "OnFailure", "Never"]);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(path.child("dnsPolicy"), text(spec, "dnsPolicy"), &dns);
    metadata::labels(errors, path.child("nodeSelector"), &spec["nodeSelector"]);
    security_rules::pod(errors, path.child("securityContext"), spec);
    affinity_rules::affinity(errors, path.child("affinity"), &spec["affinity"]);
    dns_config(errors, path.child("dnsConfig"), spec);
    named(errors, path.child("readinessGates"), list(spec, "readinessGates"), "conditionType");
    gates(errors, path.child("schedulingGates"), list(spec, "schedulingGates"));
    affinity_rules::spread(errors, path.child("topologySpreadConstraints"), list(spec, "topologySpreadConstraints"));
    windows_rules::host_process(errors, path, spec);
    host(errors, path, spec, pod.is_some());
    name_rules(errors, path, spec);
    if let Some(deadline) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=SECONDS_MAX).contains(&deadline)
    {
        errors.invalid(path.child("activeDeadlineSeconds"), deadline, "must be between 1 and 2147483647, inclusive");
    }
    toleration_rules(errors, path.child("tolerations"), list(spec, "tolerations"));
    host_aliases(errors, path.child("hostAliases"), list(spec, "hostAliases"));
    if given(spec, "preemptionPolicy") {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.one_of(path.child("preemptionPolicy"), text(spec, "preemptionPolicy"), &policies);
    }
    resource_rules::overhead(errors, path.child("overhead"), &spec["overhead"]);
    if given(spec, "os") {
        windows_rules::operating_system(errors, path, spec);
    }
}

/// The names that a spec gives to other objects and to the host.
fn name_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    for field in ["serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"] {
        let value = text(spec, field);
        if !value.is_empty() || (field == "runtimeClassName" && given(spec, field)) {
            errors.all_invalid(path.child(field), value, names::dns_subdomain(value));
        }
    }
    for field in ["hostname", "subdomain"] {
        let value = text(spec, field);
        if !value.is_empty() {
            errors.all_invalid(path.child(field), value, names::dns_label(value));
        }
    }
    if given(spec, "hostnameOverride") {
        const NAME_MAX: usize = 64;
        let (name, path) = (text(spec, "hostnameOverride"), path.child("hostnameOverride"));
        errors.all_invalid(path, name, names::dns_subdomain(name));
        if name.len() > NAME_MAX {
            errors.too_long(path, NAME_MAX);
        }
        if spec["setHostnameAsFQDN"] == true {
            errors.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
        }
        if spec["hostNetwork"] == true {
            errors.forbidden(path, "may not be specified when hostNetwork is true");
        }
    }
}

/// What pods share with their node: its network, and its users unless they have their own (KEP-127).
fn host(errors: &mut ErrorList, path: Path<'_>, spec: &Value, is_pod: bool) {
    if spec["hostNetwork"] == true {
        let containers = path.child("containers");
        for (index, container) in list(spec, "containers").iter().enumerate() {
            let path = containers.index(index);
            let ports = path.child("ports");
            for (index, port) in list(container, "ports").iter().enumerate() {
                let (of_host, own) = (number(port, "hostPort"), number(port, "containerPort"));
                if (is_pod || of_host != 0) && of_host != own {
                    let path = ports.index(index);
                    let detail = "must match `containerPort` when `hostNetwork` is true";
                    errors.invalid(path.child("hostPort"), of_host, detail);
                }
            }
        }
    }
    if spec["hostUsers"] != false {
        return;
    }
    const DETAIL: &str = "when `hostUsers` is false";
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec[field] == true {
            errors.forbidden(path.child(shown), DETAIL);
        }
    }
    windows_rules::each_container(path, spec, |path, container| {
        if !list(container, "volumeDevices").is_empty() {
            errors.forbidden(path.child("volumeDevices"), DETAIL);
        }
    });
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
        let shown = GoValue("io.k8s.api.core.v1.PodResourceClaim", claim);
        match (given(claim, "resourceClaimName"), given(claim, "resourceClaimTemplateName")) {
            (true, true) => errors.invalid(
                path,
                shown,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => {
                errors.invalid(path, shown, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
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
        errors.all_invalid(path, name, names::qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(path, name);
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

fn host_aliases(errors: &mut ErrorList, path: Path<'_>, aliases: &[Value]) {
    for (index, alias) in aliases.iter().enumerate() {
        let path = path.index(index);
        legacy_address(errors, path.child("ip"), text(alias, "ip"), &[]);
        let hosts = path.child("hostnames");
        for (index, host) in list(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            errors.all_invalid(hosts.index(index), host, names::dns_subdomain(host));
        }
    }
}

fn dns_config(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    const SERVERS_MAX: usize = 3;
    const SEARCHES_MAX: usize = 32;
    const SEARCH_CHARS_MAX: usize = 2048;
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
    let (servers, searches) = (list(config, "nameservers"), list(config, "searches"));
    let path_of = path.child("nameservers");
    if servers.len() > SERVERS_MAX {
        let detail = format!("must not have more than {SERVERS_MAX} nameservers");
        errors.invalid(path_of, &config["nameservers"], &detail);
    }
    for (index, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        legacy_address(errors, path_of.index(index), server, &[]);
    }
    let path_of = path.child("searches");
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.invalid(path_of, &config["searches"], &detail);
    }
    let characters: usize = searches.iter().filter_map(Value::as_str).map(|search| search.len() + 1).sum();
    if characters > SEARCH_CHARS_MAX + 1 {
        let detail =
            format!("must not have more than {SEARCH_CHARS_MAX} characters (including spaces) in the search list");
        errors.invalid(path_of, &config["searches"], &detail);
    }
    for (index, search) in searches.iter().filter_map(Value::as_str).enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.all_invalid(path_of.index(index), search, names::underscored_subdomain(search));
    }
    let options = path.child("options");
    for (index, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(options.index(index), "must not be empty");
        }
    }
}
