//! What holds for every version of a job.

use serde_json::{Value, json};

use super::{CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME, failure_rules};
use crate::field::{ErrorList, GoValue, Path};
use crate::label_selector::{self, selector_of, selects};
use crate::object::{given, number, text};
use crate::{names, pod_spec, workload};

/// The most indexes that may be at work at once, and the most that may fail.
const INDEXES_MAX: i64 = 100_000;
/// Beyond this many completions the limits are tighter.
const COMPLETIONS_SOFT_MAX: i64 = 100_000;
const INDEXES_OF_MANY_MAX: i64 = 10_000;
const MANAGER_MAX: usize = 63;

pub(super) fn rules(errors: &mut ErrorList, job: &Value, old: Option<&Value>) {
    generated_selector_rules(errors, job, old);
    own_spec_rules(errors, &job["spec"]);
    let spec = &job["spec"];
    let completions = number(spec, "completions");
    if text(spec, "completionMode") == "Indexed" && completions > 0 {
        // Pods are named after the job and their index.
        let name = text(&job["metadata"], "name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::dns_label(&hostname).is_empty() {
            let metadata = Path::root("metadata");
            let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
            errors.invalid(metadata.child("name"), name, &detail);
        }
    }
}

/// The rules of the spec of a job that is there, whose selector is made.
pub(super) fn own_spec_rules(errors: &mut ErrorList, spec: &Value) {
    let path = Path::root("spec");
    spec_rules(errors, path, spec);
    if given(spec, "selector") {
        label_selector::rules(errors, path.child("selector"), &spec["selector"]);
    } else {
        errors.required(path.child("selector"), "");
    }
    workload::selected_template_rules(errors, path, spec);
}

/// Unless the client manages the selector, it is the one that was made for the job, and the template has its labels.
fn generated_selector_rules(errors: &mut ErrorList, job: &Value, old: Option<&Value>) {
    let (spec, metadata) = (&job["spec"], &job["metadata"]);
    if spec["manualSelector"] == true || !given(spec, "selector") {
        return;
    }
    let (name, uid) = (text(metadata, "name"), text(metadata, "uid"));
    if uid.is_empty() {
        let path = Path::root("metadata");
        errors.required(path.child("uid"), "");
    }
    // Jobs from before 1.27 lack the current names.
    let was_labelled = old.is_none_or(|old| {
        let labels = &old["spec"]["template"]["metadata"]["labels"];
        given(labels, JOB_NAME) && given(labels, CONTROLLER_UID)
    });
    let mut expected = json!({ LEGACY_CONTROLLER_UID: uid, LEGACY_JOB_NAME: name });
    if was_labelled {
        expected[CONTROLLER_UID] = uid.into();
        expected[JOB_NAME] = name.into();
    }
    let path = Path::root("spec");
    let template = path.child("template");
    let template_metadata = template.child("metadata");
    let path_of = template_metadata.child("labels");
    let labels = &spec["template"]["metadata"]["labels"];
    for (label, value) in expected.as_object().into_iter().flatten() {
        let wanted = value.as_str().unwrap_or("");
        match labels[label].as_str() {
            None => errors.required(path_of.key(label), &format!("must be '{wanted}'")),
            Some(actual) if actual != wanted => {
                errors.invalid(path_of.key(label), labels, &format!("must be '{wanted}'"));
            }
            Some(_) => {}
        }
    }
    if selector_of(&spec["selector"]).is_some_and(|selector| !selects(&selector, &expected)) {
        let shown = label_selector::shown(&spec["selector"]);
        errors.invalid(path.child("selector"), shown, "`selector` not auto-generated");
    }
}

/// The rules of a job's spec that a CronJob's template shares: the selector is made later.
pub(crate) fn template_spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    spec_rules(errors, path, spec);
    if given(spec, "selector") {
        let shown = label_selector::shown(&spec["selector"]);
        errors.invalid(path.child("selector"), shown, "`selector` will be auto-generated");
    }
    if spec["manualSelector"] == true {
        errors.not_supported(path.child("manualSelector"), &spec["manualSelector"], &["nil", "false"]);
    }
}

fn spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    const COUNTS: [&str; 7] = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    workload::non_negative(errors, path, spec, &COUNTS);
    if given(spec, "maxFailedIndexes") && !given(spec, "backoffLimitPerIndex") {
        errors.required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if given(spec, "managedBy") {
        manager_rules(errors, path.child("managedBy"), text(spec, "managedBy"));
    }
    let mode = text(spec, "completionMode");
    if given(spec, "completionMode") && !matches!(mode, "NonIndexed" | "Indexed") {
        errors.not_supported(path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    match mode {
        "Indexed" => indexed_rules(errors, path, spec),
        "NonIndexed" | "" if mode == "NonIndexed" || !given(spec, "completionMode") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if given(spec, field) {
                    errors.invalid(path.child(field), number(spec, field), "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
    if given(spec, "podFailurePolicy") {
        failure_rules::failure_policy(errors, path.child("podFailurePolicy"), spec);
    }
    if given(spec, "successPolicy") {
        let path = path.child("successPolicy");
        if mode == "Indexed" {
            failure_rules::success_policy(errors, path, spec);
        } else {
            let shown = GoValue("io.k8s.api.batch.v1.SuccessPolicy", &spec["successPolicy"]);
            errors.invalid(path, shown, "requires indexed completion mode");
        }
    }
    replacement_rules(errors, path.child("podReplacementPolicy"), spec);
    template_rules(errors, path.child("template"), spec);
}

fn manager_rules(errors: &mut ErrorList, path: Path<'_>, manager: &str) {
    if manager.is_empty() {
        errors.required(path, "");
    } else {
        for (part, problem) in names::domain_prefixed_path(manager) {
            errors.invalid(path, part, &problem);
        }
    }
    if manager.len() > MANAGER_MAX {
        errors.too_long(path, MANAGER_MAX);
    }
}

fn indexed_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let (parallelism, failed) = (number(spec, "parallelism"), number(spec, "maxFailedIndexes"));
    let limits_failures = given(spec, "maxFailedIndexes");
    let (parallelism_path, failed_path) = (path.child("parallelism"), path.child("maxFailedIndexes"));
    if !given(spec, "completions") {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    if parallelism > INDEXES_MAX {
        let detail = format!("must be less than or equal to {INDEXES_MAX} when completion mode is Indexed");
        errors.invalid(parallelism_path, parallelism, &detail);
    }
    if limits_failures && given(spec, "completions") && failed > number(spec, "completions") {
        errors.invalid(failed_path, failed, "must be less than or equal to completions");
    }
    if limits_failures && failed > INDEXES_MAX {
        errors.invalid(failed_path, failed, &format!("must be less than or equal to {INDEXES_MAX}"));
    }
    if number(spec, "completions") <= COMPLETIONS_SOFT_MAX || !given(spec, "backoffLimitPerIndex") {
        return;
    }
    let detail = format!(
        "must be less than or equal to {INDEXES_OF_MANY_MAX} when completions are above {COMPLETIONS_SOFT_MAX} and \
         used with backoff limit per index"
    );
    if !limits_failures {
        let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_MAX}");
        errors.required(failed_path, &detail);
    }
    if parallelism > INDEXES_OF_MANY_MAX {
        errors.invalid(parallelism_path, parallelism, &detail);
    }
    if limits_failures && failed > INDEXES_OF_MANY_MAX {
        errors.invalid(failed_path, failed, &detail);
    }
}

fn replacement_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    if !given(spec, "podReplacementPolicy") {
        return;
    }
    let policy = text(spec, "podReplacementPolicy");
    let known: &[&str] = if given(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !known.contains(&policy) {
        errors.not_supported(path, policy, known);
    }
}

fn template_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    pod_spec::template_rules(errors, path, &spec["template"]);
    let path = path.child("spec");
    let path = path.child("restartPolicy");
    match text(&spec["template"]["spec"], "restartPolicy") {
        "Always" | "" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if !given(spec, "podFailurePolicy") => {}
        "OnFailure" => {
            errors.invalid(path, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified")
        }
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}
