//! The kinds that make pods.

use serde_json::{Map, Value, json};

use super::{Object, child, child_or_new, children, default, pod, storage, text};

const REVISION_HISTORY_LIMIT: i64 = 10;

/// Where DaemonSets keep the count that older clients read.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(super) fn deployment(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    if let Some(strategy) = child_or_new(spec, "strategy") {
        default(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child_or_new(strategy, "rollingUpdate")
        {
            default_absent(rolling, "maxUnavailable", "25%");
            default_absent(rolling, "maxSurge", "25%");
        } else if let Some(rolling) = child(strategy, "rollingUpdate") {
            // Out of place here, but once given it is written in full.
            default_absent(rolling, "maxUnavailable", 0);
            default_absent(rolling, "maxSurge", 0);
        }
    }
    default(spec, "revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    default(spec, "progressDeadlineSeconds", 600);
    pod::template(spec.get_mut("template"));
}

pub(super) fn replica_set(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    pod::template(spec.get_mut("template"));
}

pub(super) fn replication_controller(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    pod::template(spec.get_mut("template"));
    let Some(labels) = template_labels(spec) else { return };
    let empty = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(Map::is_empty);
    if empty(spec.get("selector")) {
        spec.insert("selector".into(), labels.clone());
    }
    label_like_template(object, labels);
}

pub(super) fn stateful_set(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = child_or_new(spec, "updateStrategy") {
        if text(strategy, "type").is_empty() {
            default(strategy, "type", "RollingUpdate");
            child_or_new(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            default(rolling, "partition", 0);
        }
    }
    if let Some(retention) = child_or_new(spec, "persistentVolumeClaimRetentionPolicy") {
        default(retention, "whenDeleted", "Retain");
        default(retention, "whenScaled", "Retain");
    }
    default(spec, "replicas", 1);
    default(spec, "revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    pod::template(spec.get_mut("template"));
    for claim in children(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
        storage::persistent_volume_claim(claim);
    }
}

pub(super) fn daemon_set(object: &mut Object) {
    if let Some(metadata) = child(object, "metadata")
        && let Some(annotations) = child_or_new(metadata, "annotations")
    {
        default(annotations, TEMPLATE_GENERATION, "0");
    }
    let Some(spec) = child(object, "spec") else { return };
    if let Some(strategy) = child_or_new(spec, "updateStrategy") {
        default(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child_or_new(strategy, "rollingUpdate")
        {
            default_absent(rolling, "maxUnavailable", 1);
            default_absent(rolling, "maxSurge", 0);
        }
    }
    default(spec, "revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    pod::template(spec.get_mut("template"));
}

pub(super) fn job(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    job_spec(spec);
    if let Some(labels) = template_labels(spec) {
        label_like_template(object, labels);
    }
}

/// A job's own fields; a CronJob's template gets only the pod template's.
fn job_spec(spec: &mut Object) {
    let given = |spec: &Object, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !given(spec, "completions") && !given(spec, "parallelism") {
        spec.insert("completions".into(), 1.into());
    }
    default(spec, "parallelism", 1);
    let backoff_limit = if given(spec, "backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    default(spec, "backoffLimit", backoff_limit);
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let replacement = if given(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default(spec, "podReplacementPolicy", replacement);
    default(spec, "manualSelector", false);
    job_template_spec(spec);
}

fn job_template_spec(spec: &mut Object) {
    if let Some(policy) = child(spec, "podFailurePolicy") {
        for rule in children(policy, "rules") {
            children(rule, "onPodConditions").for_each(|pattern| default(pattern, "status", "True"));
        }
    }
    pod::template(spec.get_mut("template"));
}

pub(super) fn cron_job(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    if let Some(template) = child(spec, "jobTemplate").and_then(|template| child(template, "spec")) {
        job_template_spec(template);
    }
}

fn template_labels(spec: &Object) -> Option<Value> {
    let labels = spec.get("template")?.get("metadata")?.get("labels")?;
    labels.as_object().filter(|labels| !labels.is_empty()).map(|labels| json!(labels))
}

fn label_like_template(object: &mut Object, labels: Value) {
    let Some(metadata) = child_or_new(object, "metadata") else { return };
    if metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
        metadata.insert("labels".into(), labels);
    }
}

/// Sets an optional field that is absent; empty text and zero were said on purpose.
fn default_absent(object: &mut Object, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}
