//! The kinds that make pods.

use bayplan_model::label_selector::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::Value;

use super::errors::{Errors, Json};
use super::path::Path;
use super::{given, list, metadata, names, number, pod, text};

/// A selector that parses, or `None`.
fn selector_of(value: &Value) -> Option<Selector> {
    let selector = Option::<LabelSelector>::deserialize(value).ok()?;
    Selector::of(selector.as_ref()).ok()
}

fn matches(selector: &Selector, labels: &Value) -> bool {
    let labels: std::collections::BTreeMap<String, String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned()))
        .collect();
    selector.matches(&labels)
}

fn is_empty_selector(selector: &Value) -> bool {
    let empty = |name: &str| match &selector[name] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    empty("matchLabels") && empty("matchExpressions")
}

/// A selector that must be there and select something.
fn selector(errors: &mut Errors, spec_path: Path<'_>, spec: &Value, kind: &str) {
    let path = spec_path.child("selector");
    if !given(spec, "selector") {
        errors.required(path, "");
        return;
    }
    metadata::label_selector(errors, path, &spec["selector"]);
    if is_empty_selector(&spec["selector"]) {
        errors.invalid(path, &spec["selector"], &format!("empty selector is invalid for {kind}"));
    }
}

/// A template whose pods the selector must find and which must restart for ever.
fn template(errors: &mut Errors, spec_path: Path<'_>, spec: &Value, selector: &Selector, kind: &str) {
    let path = spec_path.child("template");
    let template = &spec["template"];
    if !selector.is_everything() && !matches(selector, &template["metadata"]["labels"]) {
        let metadata = path.child("metadata");
        errors.invalid(
            metadata.child("labels"),
            &template["metadata"]["labels"],
            "`selector` does not match template `labels`",
        );
    }
    pod::template(errors, path, template);
    runs_for_ever(errors, path, template, kind);
}

fn runs_for_ever(errors: &mut Errors, path: Path<'_>, template: &Value, kind: &str) {
    let path = path.child("spec");
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        errors.not_supported(path.child("restartPolicy"), policy, &["Always"]);
    }
    if given(&template["spec"], "activeDeadlineSeconds") {
        errors.forbidden(
            path.child("activeDeadlineSeconds"),
            &format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

fn non_negative(errors: &mut Errors, path: Path<'_>, object: &Value, fields: &[&str]) {
    for field in fields {
        errors.non_negative(path.child(field), number(object, field));
    }
}

pub(super) fn deployment_spec(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    non_negative(
        errors,
        path,
        spec,
        &["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
    );
    selector(errors, path, spec, "deployment");
    match selector_of(&spec["selector"]) {
        Some(selector) => template(errors, path, spec, &selector, "ReplicaSet"),
        None => errors.invalid(path.child("selector"), &spec["selector"], "invalid label selector"),
    }
    deployment_strategy(errors, path.child("strategy"), &spec["strategy"]);
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|deadline| deadline <= number(spec, "minReadySeconds")) {
        errors.invalid(path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn deployment_strategy(errors: &mut Errors, path: Path<'_>, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" if given(strategy, "rollingUpdate") => {
            errors.forbidden(path.child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            int_or_percent(errors, path.child("maxUnavailable"), &rolling["maxUnavailable"]);
            int_or_percent(errors, path.child("maxSurge"), &rolling["maxSurge"]);
            if amount(&rolling["maxUnavailable"]) == 0 && amount(&rolling["maxSurge"]) == 0 {
                let value = &rolling["maxUnavailable"];
                errors.invalid(path.child("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(errors, path.child("maxUnavailable"), &rolling["maxUnavailable"]);
        }
        kind => {
            let rolling = shown(rolling, [("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")]);
            let value = Json(format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind)));
            errors.not_supported(path, value, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// A rolling update as upstream's messages show it.
fn shown(rolling: &Value, fields: [(&str, &str); 2]) -> String {
    if rolling.is_null() {
        return "null".to_owned();
    }
    let [(first, a), (second, b)] = fields;
    format!("{{\"{first}\":{},\"{second}\":{}}}", rolling[a], rolling[b])
}

/// A count, or a share of the whole.
pub(super) fn int_or_percent(errors: &mut Errors, path: Path<'_>, value: &Value) {
    match value {
        Value::String(text) => {
            if let Some(problem) = names::percent(text) {
                errors.invalid(path, text.as_str(), &problem);
            }
        }
        value => errors.non_negative(path, value.as_i64().unwrap_or(0)),
    }
}

fn percentage(value: &Value) -> Option<i64> {
    value.as_str().filter(|text| names::percent(text).is_none())?.strip_suffix('%')?.parse().ok()
}

fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| percentage(value)).unwrap_or(0)
}

pub(super) fn at_most_all(errors: &mut Errors, path: Path<'_>, value: &Value) {
    if percentage(value).is_some_and(|percent| percent > 100) {
        errors.invalid(path, value, "must not be greater than 100%");
    }
}

pub(super) fn deployment_status(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("status");
    let status = &new["status"];
    non_negative(
        errors,
        path,
        status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    );
    counts(errors, path, status, &["updatedReplicas", "readyReplicas", "availableReplicas"]);
    let count = number(status, "collisionCount");
    if given(&old["status"], "collisionCount") && count < number(&old["status"], "collisionCount") {
        errors.invalid(path.child("collisionCount"), count, "cannot be decremented");
    }
}

/// No part may be larger than the whole, and what is available is ready.
fn counts(errors: &mut Errors, path: Path<'_>, status: &Value, parts: &[&str]) {
    for part in parts {
        if number(status, part) > number(status, "replicas") {
            errors.invalid(path.child(part), number(status, part), "cannot be greater than status.replicas");
        }
    }
    let available = number(status, "availableReplicas");
    if available > number(status, "readyReplicas") {
        errors.invalid(path.child("availableReplicas"), available, "cannot be greater than readyReplicas");
    }
}

pub(super) fn replica_set_spec(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    selector(errors, path, spec, "deployment");
    match selector_of(&spec["selector"]) {
        Some(selector) => template(errors, path, spec, &selector, "ReplicaSet"),
        None => errors.invalid(path.child("selector"), &spec["selector"], "invalid label selector"),
    }
}

pub(super) fn replica_set_status(errors: &mut Errors, status: &Value) {
    let path = Path::root("status");
    non_negative(
        errors,
        path,
        status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
    );
    counts(errors, path, status, &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]);
}

pub(super) fn replication_controller_spec(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    if spec["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(path.child("selector"), "");
    }
    if !given(spec, "template") {
        errors.required(path.child("template"), "");
        return;
    }
    let labels = serde_json::json!({ "matchLabels": spec["selector"] });
    if let Some(selector) = selector_of(&labels) {
        template(errors, path, spec, &selector, "ReplicationController");
    }
}

pub(super) fn stateful_set_spec(errors: &mut Errors, spec: &Value, is_update: bool) {
    let path = Path::root("spec");
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(path.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    stateful_strategy(errors, path.child("updateStrategy"), &spec["updateStrategy"]);
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let value = text(&spec["persistentVolumeClaimRetentionPolicy"], field);
        if !matches!(value, "Retain" | "Delete") {
            errors.not_supported(retention.child(field), value, &["Retain", "Delete"]);
        }
    }
    non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    errors.non_negative(path.child("ordinals.start"), number(&spec["ordinals"], "start"));
    let service = text(spec, "serviceName");
    if !is_update {
        if !service.is_empty() {
            errors.all_invalid(path.child("serviceName"), service, names::dns_label(service));
        }
        let claims = path.child("volumeClaimTemplates");
        for (index, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            let claim_path = claims.index(index);
            super::storage::claim_spec(errors, claim_path.child("spec"), &claim["spec"]);
        }
    }
    selector(errors, path, spec, "statefulset");
    match selector_of(&spec["selector"]) {
        Some(selector) => {
            let mut with_claims = spec.clone();
            claim_volumes(&mut with_claims);
            stateful_template(errors, path, &with_claims, &selector);
        }
        None => errors.invalid(path.child("selector"), &spec["selector"], ""),
    }
    runs_for_ever(errors, path.child("template"), &spec["template"], "StatefulSet");
}

fn stateful_template(errors: &mut Errors, path: Path<'_>, spec: &Value, selector: &Selector) {
    let template_path = path.child("template");
    let labels = &spec["template"]["metadata"]["labels"];
    if !selector.is_everything() && !matches(selector, labels) {
        let metadata = template_path.child("metadata");
        errors.invalid(metadata.child("labels"), labels, "`selector` does not match template `labels`");
    }
    pod::template(errors, template_path, &spec["template"]);
}

/// Claims become volumes of the same name; hostname and subdomain are the controller's to choose.
fn claim_volumes(spec: &mut Value) {
    let claims: Vec<Value> = list(spec, "volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = text(&claim["metadata"], "name");
            serde_json::json!({ "name": name, "persistentVolumeClaim": { "claimName": name } })
        })
        .collect();
    let Some(Value::Object(pod)) = spec.get_mut("template").and_then(|template| template.get_mut("spec")) else {
        return;
    };
    pod.remove("hostname");
    pod.remove("subdomain");
    if claims.is_empty() {
        return;
    }
    let volumes = pod.entry("volumes").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(volumes) = volumes {
        volumes.retain(|volume| !claims.iter().any(|claim| claim["name"] == volume["name"]));
        volumes.splice(0..0, claims);
    }
}

fn stateful_strategy(errors: &mut Errors, path: Path<'_>, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    const FIELDS: [(&str, &str); 2] = [("Partition", "partition"), ("MaxUnavailable", "maxUnavailable")];
    match text(strategy, "type") {
        "OnDelete" if given(strategy, "rollingUpdate") => {
            errors.invalid(
                path.child("rollingUpdate"),
                Json(shown(rolling, FIELDS)),
                "only allowed for updateStrategy 'RollingUpdate'",
            );
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            errors.non_negative(path.child("partition"), number(rolling, "partition"));
            if given(rolling, "maxUnavailable") {
                int_or_percent(errors, path.child("maxUnavailable"), &rolling["maxUnavailable"]);
                at_most_all(errors, path.child("maxUnavailable"), &rolling["maxUnavailable"]);
            }
        }
        kind => {
            let rolling = shown(rolling, FIELDS);
            let value = Json(format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind)));
            errors.invalid(path, value, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

pub(super) fn stateful_set_change(errors: &mut Errors, new: &Value, old: &Value) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ];
    let rest = |spec: &Value| {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        spec.retain(|name, _| !MUTABLE.contains(&name.as_str()));
        spec
    };
    if rest(&new["spec"]) != rest(&old["spec"]) {
        errors.forbidden(
            Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

pub(super) fn daemon_set_spec(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    metadata::label_selector(errors, path.child("selector"), &spec["selector"]);
    let template_path = path.child("template");
    if let Some(selector) = selector_of(&spec["selector"]) {
        let labels = &spec["template"]["metadata"]["labels"];
        if !matches(&selector, labels) {
            let metadata = template_path.child("metadata");
            errors.invalid(metadata.child("labels"), labels, "`selector` does not match template `labels`");
        }
    }
    if given(spec, "selector") && is_empty_selector(&spec["selector"]) {
        errors.invalid(path.child("selector"), &spec["selector"], "empty selector is invalid for daemonset");
    }
    pod::template(errors, template_path, &spec["template"]);
    runs_for_ever(errors, template_path, &spec["template"], "DaemonSet");
    non_negative(errors, path, spec, &["minReadySeconds", "revisionHistoryLimit"]);
    let strategy_path = path.child("updateStrategy");
    let (strategy, rolling) = (&spec["updateStrategy"], &spec["updateStrategy"]["rollingUpdate"]);
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = strategy_path.child("rollingUpdate");
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(errors, path.child(field), &rolling[field]);
                at_most_all(errors, path.child(field), &rolling[field]);
            }
            match (amount(&rolling["maxUnavailable"]) != 0, amount(&rolling["maxSurge"]) != 0) {
                (true, true) => errors.invalid(
                    path.child("maxSurge"),
                    &rolling["maxSurge"],
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => errors.required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        kind => {
            let rolling = shown(rolling, [("MaxUnavailable", "maxUnavailable"), ("MaxSurge", "maxSurge")]);
            let value = Json(format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(kind)));
            errors.not_supported(strategy_path, value, &["RollingUpdate", "OnDelete"]);
        }
    }
}

pub(super) fn job_spec(errors: &mut Errors, object: &Value) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    non_negative(
        errors,
        path,
        spec,
        &[
            "parallelism",
            "completions",
            "backoffLimit",
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
        ],
    );
    if !given(spec, "selector") {
        errors.required(path.child("selector"), "");
    } else {
        metadata::label_selector(errors, path.child("selector"), &spec["selector"]);
    }
    let template_path = path.child("template");
    if let Some(selector) = selector_of(&spec["selector"]) {
        let labels = &spec["template"]["metadata"]["labels"];
        if !matches(&selector, labels) {
            let metadata = template_path.child("metadata");
            errors.invalid(metadata.child("labels"), labels, "`selector` does not match template `labels`");
        }
    }
    pod::template(errors, template_path, &spec["template"]);
    let template_spec = template_path.child("spec");
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    if !matches!(policy, "Never" | "OnFailure") {
        errors.required(template_spec.child("restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
    }
    let mode = text(spec, "completionMode");
    if !matches!(mode, "NonIndexed" | "Indexed") {
        errors.not_supported(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == "Indexed" && !given(spec, "completions") {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
}

/// What may not change in a job that exists; a suspended job that never started may get another template.
pub(super) fn job_change(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    // The completions of an indexed job follow its parallelism.
    let elastic = before["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    let suspended = before["suspend"] == true && old["status"]["startTime"].is_null();
    for field in [
        "completions",
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if (field == "completions" && elastic) || (field == "template" && suspended) {
            continue;
        }
        errors.immutable(path.child(field), &spec[field], &before[field]);
    }
}
