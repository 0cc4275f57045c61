//! Jobs.

mod change_rules;
mod failure_rules;
mod indexes;
mod rules;
mod status_rules;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::defaulting::{child, child_or_new, children, default, default_absent};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age, age_of, containers, name_of, shown_selector, string, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::{Dependents, Generation, StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};
use crate::{names, pod_spec, workload};

pub(super) use rules::template_spec_rules;

pub(crate) static KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    scope: Scope::Namespaced,
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("Job")],
    storage_prefix: "jobs",
    defaults,
    strategy: Strategy {
        dependents: Dependents::Orphaned,
        status: StatusRule::Owned,
        generation: Generation::Spec,
        selectable: SelectableFields {
            names: &["status.successful"],
            value,
            refusal: |label| format!("field label {label:?} not supported for Job"),
            ..SelectableFields::NONE
        },
        on_create,
        stored_short,
        shares_template_labels: true,
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules: rules::rules,
        change_rules: change_rules::rules,
        status_rules: status_rules::rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            string("Status"),
            string("Completions"),
            string("Duration"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn value(job: &Value, field: &str) -> String {
    match field {
        "status.successful" => number(&job["status"], "succeeded").to_string(),
        _ => text_at(job, field),
    }
}

fn warnings(job: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = workload::named_template_warnings(job, old);
    if workload::spec_changes(job, old) {
        warnings.extend(index_warnings(&job["spec"]));
    }
    warnings
}

/// Upstream's status has room for so many indexes only.
fn index_warnings(spec: &Value) -> Option<String> {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let many = number(spec, "completions") > COMPLETIONS && number(spec, "parallelism") > PARALLELISM;
    (many && text(spec, "completionMode") == "Indexed").then(|| {
        "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes \
         might not be able to track completedIndexes when a big number of indexes fail"
            .to_owned()
    })
}

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    spec_defaults(spec);
    if let Some(labels) = workload::template_labels(spec) {
        workload::label_like_template(object, labels);
    }
}

/// A job's own fields; a CronJob's template gets only the pod template's.
fn spec_defaults(spec: &mut Object) {
    if !given(spec, "completions") && !given(spec, "parallelism") {
        spec.insert("completions".into(), 1.into());
    }
    default(spec, "parallelism", 1);
    let backoff_limit = if given(spec, "backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    default(spec, "backoffLimit", backoff_limit);
    default_absent(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    let replacement = if given(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default_absent(spec, "podReplacementPolicy", replacement);
    default(spec, "manualSelector", false);
    template_spec_defaults(spec);
}

pub(super) fn template_spec_defaults(spec: &mut Object) {
    if let Some(policy) = child(spec, "podFailurePolicy") {
        for rule in children(policy, "rules") {
            children(rule, "onPodConditions").for_each(|pattern| default(pattern, "status", "True"));
        }
    }
    pod_spec::template_defaults(spec.get_mut("template"));
}

/// The labels of a job's pods: the current names, and those before them.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const LEGACY_CONTROLLER_UID: &str = "controller-uid";
const LEGACY_JOB_NAME: &str = "job-name";

/// Labels the template and selects by the job's UID, unless the user manages the selector.
fn on_create(object: &mut Object, _now: Timestamp) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let [name, uid] = ["name", "uid"].map(|field| Value::from(text(metadata, field)));
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    if let Some(labels) = spec.get_mut("template").and_then(|template| template_labels(template)) {
        for label in [LEGACY_JOB_NAME, JOB_NAME] {
            labels.entry(label).or_insert_with(|| name.clone());
        }
        for label in [LEGACY_CONTROLLER_UID, CONTROLLER_UID] {
            labels.entry(label).or_insert_with(|| uid.clone());
        }
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    let selector = spec.entry("selector").or_insert(Value::Null);
    if selector.is_null() {
        *selector = Value::Object(Map::new());
    }
    if let Value::Object(selector) = selector {
        let labels = selector.entry("matchLabels").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(labels) = labels {
            labels.entry(CONTROLLER_UID).or_insert(uid);
        }
    }
    // A job without labels has those of its template, once it is known to be valid.
    if names::label_value(name.as_str().unwrap_or("")).is_empty()
        && let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// A job without labels, and of a template without labels, has labels in answers alone until it is written again: those
/// that the server gave its template.
fn stored_short(job: &Value) -> bool {
    let labels = &job["metadata"]["labels"];
    let given_here = [CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME];
    *labels == job["spec"]["template"]["metadata"]["labels"]
        && labels.as_object().is_some_and(|labels| {
            labels.len() == given_here.len() && given_here.iter().all(|label| labels.contains_key(*label))
        })
}

/// The labels of a template, made when missing.
fn template_labels(template: &mut Value) -> Option<&mut Object> {
    child_or_new(child_or_new(template.as_object_mut()?, "metadata")?, "labels")
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
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
    vec![
        name_of(object),
        state.into(),
        completions.into(),
        duration.into(),
        age_of(object, now),
        names,
        images,
        shown_selector(&spec["selector"]),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A job of these labels, and a template of those, as it is after its create.
    fn created(labels: Value, of_template: Value) -> Value {
        let mut job = json!({
            "metadata": {"name": "j", "uid": "u", "labels": labels},
            "spec": {"template": {"metadata": {"labels": of_template}, "spec": {"containers": []}}},
        });
        let shares = KIND.shares_labels(&job);
        KIND.default(&mut job);
        KIND.prepare_for_create(&mut job, Timestamp::UNIX_EPOCH);
        if shares {
            KIND.share_labels(&mut job);
        }
        job
    }

    #[test]
    fn a_job_has_its_labels_in_common_with_its_template_if_it_has_none_of_its_own() {
        for (labels, of_template, own, is_short) in [
            (json!({"a": "b"}), json!({"a": "b"}), vec!["a"], false),
            (
                Value::Null,
                json!({"a": "b"}),
                vec!["a", CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME],
                false,
            ),
            (Value::Null, Value::Null, vec![CONTROLLER_UID, JOB_NAME, LEGACY_CONTROLLER_UID, LEGACY_JOB_NAME], true),
        ] {
            let job = created(labels, of_template);
            let mut found: Vec<&str> =
                job["metadata"]["labels"].as_object().unwrap().keys().map(String::as_str).collect();
            found.sort_unstable();
            assert_eq!((found, KIND.is_stored_short(&job)), (own, is_short), "{job}");
        }
    }
}
