//! The rules of what fails a job and what makes it succeed early (KEP-3329, KEP-3998).

use std::collections::BTreeSet;

use serde_json::Value;

use super::indexes;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

const RULES_MAX: usize = 20;

pub(super) fn failure_policy(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let rules = list(&spec["podFailurePolicy"], "rules");
    let rules_path = path.child("rules");
    if rules.len() > RULES_MAX {
        errors.too_many(rules_path, rules.len(), RULES_MAX);
    }
    let pod = &spec["template"]["spec"];
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|kind| list(pod, kind))
        .map(|container| text(container, "name"))
        .collect();
    for (index, rule) in rules.iter().enumerate() {
        failure_rule(errors, rules_path.index(index), spec, rule, &containers);
    }
}

fn failure_rule(errors: &mut ErrorList, path: Path<'_>, spec: &Value, rule: &Value, containers: &BTreeSet<&str>) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let action_path = path.child("action");
    match text(rule, "action") {
        "" => errors.required(action_path, "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
        "FailIndex" if !given(spec, "backoffLimitPerIndex") => {
            errors.invalid(action_path, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => errors.not_supported(action_path, action, &ACTIONS),
        _ => {}
    }
    let (has_codes, patterns) = (given(rule, "onExitCodes"), list(rule, "onPodConditions"));
    if has_codes {
        exit_codes(errors, path.child("onExitCodes"), &rule["onExitCodes"], containers);
    }
    conditions(errors, path.child("onPodConditions"), patterns);
    match (has_codes, !patterns.is_empty()) {
        (true, true) => {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            errors.invalid_without_value(path, detail);
        }
        (false, false) => {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            errors.invalid_without_value(path, detail);
        }
        _ => {}
    }
}

fn conditions(errors: &mut ErrorList, path: Path<'_>, patterns: &[Value]) {
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    if patterns.len() > RULES_MAX {
        errors.too_many(path, patterns.len(), RULES_MAX);
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let path = path.index(index);
        let (kind, status) = (text(pattern, "type"), text(pattern, "status"));
        errors.all_invalid(path.child("type"), kind, names::qualified_name(kind));
        if status.is_empty() {
            errors.required(path.child("status"), "valid values: [\"False\" \"True\" \"Unknown\"]");
        } else if !STATUSES.contains(&status) {
            errors.not_supported(path.child("status"), status, &STATUSES);
        }
    }
}

fn exit_codes(errors: &mut ErrorList, path: Path<'_>, codes: &Value, containers: &BTreeSet<&str>) {
    const VALUES_MAX: usize = 255;
    let operator = text(codes, "operator");
    match operator {
        "" => errors.required(path.child("operator"), "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        other => errors.not_supported(path.child("operator"), other, &["In", "NotIn"]),
    }
    if given(codes, "containerName") && !containers.contains(text(codes, "containerName")) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(path.child("containerName"), text(codes, "containerName"), detail);
    }
    let (values, values_path) = (list(codes, "values"), path.child("values"));
    if values.is_empty() {
        errors.invalid(values_path, &codes["values"], "at least one value is required");
    } else if values.len() > VALUES_MAX {
        errors.too_many(values_path, values.len(), VALUES_MAX);
    }
    let mut seen = BTreeSet::new();
    let values: Vec<i64> = values.iter().map(|value| value.as_i64().unwrap_or(0)).collect();
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.invalid(values_path.index(index), *value, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(values_path.index(index), *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(values_path, &codes["values"], "must be ordered");
    }
}

pub(super) fn success_policy(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let rules = list(&spec["successPolicy"], "rules");
    let rules_path = path.child("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(rules_path, detail);
    }
    if rules.len() > RULES_MAX {
        errors.too_many(rules_path, rules.len(), RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        success_rule(errors, rules_path.index(index), rule, number(spec, "completions"));
    }
}

fn success_rule(errors: &mut ErrorList, path: Path<'_>, rule: &Value, completions: i64) {
    const INDEXES_BYTES_MAX: usize = 64 * 1024;
    let has_indexes = given(rule, "succeededIndexes");
    if !given(rule, "succeededCount") && !has_indexes {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if has_indexes {
        let (given, path) = (text(rule, "succeededIndexes"), path.child("succeededIndexes"));
        if given.len() > INDEXES_BYTES_MAX {
            errors.too_long(path, INDEXES_BYTES_MAX);
        }
        match indexes::count(given, completions) {
            Ok(count) => total = count,
            Err(why) => errors.invalid(path, given, &format!("error parsing succeededIndexes: {why}")),
        }
    }
    if let Some(count) = rule["succeededCount"].as_i64() {
        let path = path.child("succeededCount");
        errors.non_negative(path, count);
        if count > completions {
            let what = "the number of specified completions";
            errors.invalid(path, count, &format!("must be less than or equal to {completions} ({what})"));
        }
        if has_indexes && count > total {
            let what = "the number of indexes in the specified succeededIndexes field";
            errors.invalid(path, count, &format!("must be less than or equal to {total} ({what})"));
        }
    }
}
