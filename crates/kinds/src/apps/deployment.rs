//! Deployments.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, child_or_new, default, default_absent};
use crate::field::{ErrorList, GoValue, Path};
use crate::int_or_percent::{amount, at_most_all, int_or_percent};
use crate::kind::{Kind, SCALE, STANDARD_VERBS, Scope, Subresource};
use crate::label_selector::selector_of;
use crate::object::{Object, given, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, containers, name_of, string, wide};
use crate::strategy::{Generation, StatusRule, Strategy, restore_metadata};
use crate::validation::Validation;
use crate::{pod_spec, workload};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    scope: Scope::Namespaced,
    short_names: &["deploy"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[SCALE, Subresource::status("Deployment")],
    storage_prefix: "deployments",
    // The revision to roll back to.
    annotated_fields: &["deprecated.deployment.rollback.to"],
    defaults,
    strategy: Strategy {
        status: StatusRule::Owned,
        generation: Generation::SpecAndAnnotations,
        on_update,
        warnings: workload::named_template_warnings,
        ..Strategy::PLAIN
    },
    blank: workload::no_replicas,
    validation: Validation { rules, change_rules: workload::selector_is_immutable, status_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            string("Ready"),
            string("Up-to-date"),
            string("Available"),
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

fn defaults(object: &mut Object) {
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
            // Validation refuses it here; upstream still writes its zero values.
            default_absent(rolling, "maxUnavailable", 0);
            default_absent(rolling, "maxSurge", 0);
        }
    }
    default(spec, "revisionHistoryLimit", workload::REVISION_HISTORY_LIMIT);
    default(spec, "progressDeadlineSeconds", 600);
    pod_spec::template_defaults(spec.get_mut("template"));
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource == "status" {
        restore_metadata(object, old, "labels");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    workload::non_negative(
        errors,
        path,
        spec,
        &["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
    );
    workload::selector_and_template_rules(errors, path, spec);
    strategy_rules(errors, path.child("strategy"), &spec["strategy"]);
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|deadline| deadline <= number(spec, "minReadySeconds")) {
        errors.invalid(path.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn strategy_rules(errors: &mut ErrorList, path: Path<'_>, strategy: &Value) {
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
        _ => {
            let shown = GoValue("io.k8s.api.apps.v1.DeploymentStrategy", strategy);
            errors.not_supported(path, shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn status_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("status");
    let status = &new["status"];
    workload::non_negative(
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
    workload::status_counts(
        errors,
        path,
        status,
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
    );
    workload::collisions_only_grow(errors, path, status, &old["status"]);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (names, images) = containers(&spec["template"]["spec"]);
    let selector = selector_of(&spec["selector"]).map_or_else(|| "<invalid>".to_owned(), |s| s.to_string());
    vec![
        name_of(object),
        format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas")).into(),
        number(status, "updatedReplicas").into(),
        number(status, "availableReplicas").into(),
        age_of(object, now),
        names,
        images,
        selector.into(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::{self, FieldValidation};

    #[test]
    fn status_and_spec_are_written_through_their_own_endpoints_only() {
        let old = json!({
            "metadata": { "generation": 3, "labels": { "a": "1" } },
            "spec": { "replicas": 1 }, "status": { "replicas": 1 },
        });
        let new = json!({
            "metadata": { "generation": 3, "labels": { "b": "2" } },
            "spec": { "replicas": 2 }, "status": { "replicas": 5 },
        });
        let mut main = new.clone();
        KIND.prepare_for_update(&mut main, &old, "", Timestamp::UNIX_EPOCH);
        assert_eq!((&main["status"], &main["spec"]), (&old["status"], &new["spec"]));
        assert_eq!(main["metadata"]["generation"], 4);
        let mut status = new.clone();
        KIND.prepare_for_update(&mut status, &old, "status", Timestamp::UNIX_EPOCH);
        assert_eq!((&status["status"], &status["spec"]), (&new["status"], &old["spec"]));
        assert_eq!(status["metadata"], old["metadata"], "labels are restored, the generation stays");
    }

    #[test]
    fn a_selector_must_find_the_template() {
        let deployment = json!({
            "metadata": { "name": "d", "namespace": "default" },
            "spec": {
                "selector": { "matchLabels": { "app": "a" } },
                "template": {
                    "metadata": { "labels": { "app": "b" } },
                    "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
                },
            },
        });
        let kind = KIND.group_version_kind();
        let mut deployment = codec::canonical(kind, deployment, FieldValidation::Ignore).expect("it decodes").object;
        KIND.default(&mut deployment);
        let errors: Vec<String> = KIND.validate_create(&deployment).iter().map(ToString::to_string).collect();
        let path = "spec.template.metadata.labels";
        let value = r#"{"app":"b"}"#;
        assert_eq!(errors, [format!("{path}: Invalid value: {value}: `selector` does not match template `labels`")]);
    }
}
