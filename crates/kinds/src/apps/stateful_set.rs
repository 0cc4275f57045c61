//! StatefulSets.

use std::collections::BTreeSet;

use bayplan_model::label_selector::Selector;
use serde_json::{Value, json};

use crate::core::persistent_volume_claim;
use crate::defaulting::{child, child_or_new, children, default};
use crate::field::{ErrorList, GoValue, Path};
use crate::int_or_percent::{at_most_all, int_or_percent};
use crate::kind::{Kind, SCALE, STANDARD_VERBS, Scope, Subresource};
use crate::label_selector::{self, selector_of, selects};
use crate::object::{Object, given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, containers, name_of, string, wide};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataCheck, Validation};
use crate::{metadata, names, pod_spec, workload};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "StatefulSet",
    plural: "statefulsets",
    singular: "statefulset",
    scope: Scope::Namespaced,
    short_names: &["sts"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[SCALE, Subresource::status("StatefulSet")],
    storage_prefix: "statefulsets",
    defaults,
    strategy: Strategy {
        status: StatusRule::Owned,
        generation: Generation::Spec,
        on_create: |object, _| drop_max_unavailable(object, &Value::Null),
        on_update: |object, old, _, _| drop_max_unavailable(object, old),
        warnings,
        ..Strategy::PLAIN
    },
    blank: workload::no_replicas,
    validation: Validation {
        metadata: MetadataCheck::First(names::dns_label),
        rules,
        change_rules,
        status_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Ready"), AGE, wide("Containers"), wide("Images")],
        cells: |object, now| {
            let (spec, status) = (&object["spec"], &object["status"]);
            let ready = format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas"));
            let (names, images) = containers(&spec["template"]["spec"]);
            vec![name_of(object), ready.into(), age_of(object, now), names, images]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = workload::template_warnings(object, old);
    if workload::spec_changes(object, old) && number(&object["spec"], "revisionHistoryLimit") < 0 {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}

fn defaults(object: &mut Object) {
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
    default(spec, "revisionHistoryLimit", workload::REVISION_HISTORY_LIMIT);
    pod_spec::template_defaults(spec.get_mut("template"));
    for claim in children(spec, "volumeClaimTemplates") {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
        persistent_volume_claim::defaults(claim);
    }
}

/// The feature gate MaxUnavailableStatefulSet is off: its field is dropped unless the stored object has it.
fn drop_max_unavailable(object: &mut Object, old: &Value) {
    if given(&old["spec"]["updateStrategy"]["rollingUpdate"], "maxUnavailable") {
        return;
    }
    let strategy = child(object, "spec").and_then(|spec| child(spec, "updateStrategy"));
    if let Some(rolling) = strategy.and_then(|strategy| child(strategy, "rollingUpdate")) {
        rolling.remove("maxUnavailable");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(path.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    strategy_rules(errors, path.child("updateStrategy"), &spec["updateStrategy"]);
    let retention = path.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let value = text(&spec["persistentVolumeClaimRetentionPolicy"], field);
        if !matches!(value, "Retain" | "Delete") {
            errors.not_supported(retention.child(field), value, &["Retain", "Delete"]);
        }
    }
    workload::non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    errors.non_negative(path.child("ordinals.start"), number(&spec["ordinals"], "start"));
    let service = text(spec, "serviceName");
    if old.is_none() {
        if !service.is_empty() {
            errors.all_invalid(path.child("serviceName"), service, names::dns_label(service));
        }
        let claims = path.child("volumeClaimTemplates");
        for (index, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            let claim_path = claims.index(index);
            persistent_volume_claim::spec_rules(errors, claim_path.child("spec"), &claim["spec"]);
        }
    }
    workload::selector_rules(errors, path, spec, "statefulset");
    match selector_of(&spec["selector"]) {
        Some(selector) => {
            let mut with_claims = spec.clone();
            claim_volumes(&mut with_claims);
            template_rules(errors, path, &with_claims, &selector);
        }
        None => {
            let shown = label_selector::shown(&spec["selector"]);
            errors.invalid(path.child("selector"), shown, "");
        }
    }
    workload::always_restarts(errors, path.child("template"), &spec["template"], "StatefulSet");
}

fn template_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value, selector: &Selector) {
    let template_path = path.child("template");
    let labels = &spec["template"]["metadata"]["labels"];
    if !selector.is_everything() && !selects(selector, labels) {
        let metadata = template_path.child("metadata");
        errors.invalid(metadata.child("labels"), labels, "`selector` does not match template `labels`");
    }
    // Upstream checks the metadata twice, and says so.
    let metadata = &spec["template"]["metadata"];
    metadata::labels(errors, template_path.child("labels"), &metadata["labels"]);
    metadata::annotations(errors, template_path.child("annotations"), &metadata["annotations"]);
    pod_spec::template_rules(errors, template_path, &spec["template"]);
}

/// Adds a volume for each claim template, and drops hostname and subdomain, which the controller sets.
fn claim_volumes(spec: &mut Value) {
    let mut seen = BTreeSet::new();
    let claims: Vec<Value> = list(spec, "volumeClaimTemplates")
        .iter()
        .map(|claim| text(&claim["metadata"], "name"))
        .filter(|name| seen.insert(*name))
        .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }))
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
        let claimed: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "name")).collect();
        volumes.retain(|volume| !claimed.contains(text(volume, "name")));
        volumes.splice(0..0, claims);
    }
}

fn strategy_rules(errors: &mut ErrorList, path: Path<'_>, strategy: &Value) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "OnDelete" if given(strategy, "rollingUpdate") => {
            errors.invalid(
                path.child("rollingUpdate"),
                GoValue("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", rolling),
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
        _ => {
            let shown = GoValue("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", strategy);
            errors.invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
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

fn status_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    const PARTS: [&str; 4] = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    let path = Path::root("status");
    let status = &new["status"];
    workload::non_negative(errors, path, status, &["replicas"]);
    // Upstream refuses `currentReplicas` below zero, too, which its own controller sends when it deletes a pod of
    // neither revision, and sends again when that was refused. Accepted here, so that our controller, which counts as
    // upstream's, deletes no pod twice.
    workload::non_negative(errors, path, status, &["readyReplicas", "updatedReplicas", "availableReplicas"]);
    workload::non_negative(errors, path, status, &["observedGeneration", "collisionCount"]);
    workload::status_counts(errors, path, status, &PARTS, "status.readyReplicas");
    workload::collisions_only_grow(errors, path, status, &old["status"]);
}
