//! Per-kind answers of the API server: defaulting, table rows, validation.

use bayplan_kinds::codec::{self, Decoded, Encoding, FieldValidation};
use bayplan_kinds::{Circumstances, Kind, Scheme};
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

/// The kind a case is about; recordings carry it in the object.
fn kind_of(case: &Value) -> Result<&'static Kind, Mismatch> {
    let text =
        |value: &'static str, found: &Value| found.as_str().is_none().then(|| Mismatch::Unreadable(value.into()));
    let (kind, api_version) = (&case["kind"], &case["object"]["apiVersion"]);
    if let Some(mismatch) = text("no kind", kind).or_else(|| text("no apiVersion", api_version)) {
        return Err(mismatch);
    }
    let (kind, api_version) = (kind.as_str().unwrap_or(""), api_version.as_str().unwrap_or(""));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = Scheme::built_in().by_kind(group, version, kind);
    found.ok_or_else(|| Mismatch::Unreadable(format!("no kind {kind} in {api_version}")))
}

/// Decodes and defaults, the way a request body is.
fn decoded(kind: &Kind, object: &Value) -> Result<Decoded, Status> {
    let body = object.to_string();
    let mut decoded =
        codec::decode(kind.group_version_kind(), Encoding::Json, body.as_bytes(), FieldValidation::Ignore)?;
    kind.default(&mut decoded.object);
    Ok(decoded)
}

fn read(kind: &Kind, object: &Value) -> Result<Value, Status> {
    decoded(kind, object).map(|decoded| decoded.object)
}

pub(super) fn defaulting(case: &Value) -> Outcome {
    let actual = match read(kind_of(case)?, &case["object"]) {
        Ok(object) => json!({ "result": object }),
        Err(status) => json!({ "error": status.message }),
    };
    let expected = match case.get("result") {
        Some(result) => json!({ "result": result }),
        None => json!({ "error": case["error"] }),
    };
    Ok(compare(&expected, &actual)?)
}

pub(super) fn table(case: &Value) -> Outcome {
    let kind = kind_of(case)?;
    let now = serde_json::from_value(case["now"].clone())?;
    let object = read(kind, &case["object"]).map_err(|status| Mismatch::Unreadable(status.message))?;
    let row = kind.row(&object, now);
    let mut cells = json!({ "cells": row.cells });
    if !row.conditions.is_null() {
        cells["conditions"] = row.conditions;
    }
    let columns: Vec<Value> = kind
        .columns()
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.column_type,
                "format": column.format, "priority": column.priority,
            })
        })
        .collect();
    let expected = json!({ "columns": case["expect"]["columns"], "wide": case["expect"]["wide"] });
    Ok(compare(&expected, &json!({ "columns": columns, "wide": [cells] }))?)
}

/// The clock of prepared objects; no recorded answer shows it.
const PREPARED_AT: &str = "2026-01-01T00:00:00Z";

pub(super) fn validate(case: &Value) -> Outcome {
    let kind = kind_of(case)?;
    let now = PREPARED_AT.parse().map_err(|_| Mismatch::Unreadable("the clock".into()))?;
    let expected = &case["expect"];
    let Decoded { mut object, empties, .. } = match decoded(kind, &case["object"]) {
        Ok(decoded) => decoded,
        Err(status) => {
            let wanted = expected["decodeError"].as_str().unwrap_or("");
            let actual = if !wanted.is_empty() && status.message.ends_with(wanted) { wanted } else { &status.message };
            return Ok(compare(&expected["decodeError"], &json!(actual))?);
        }
    };
    let mut before = None;
    // The recorded server had no `--allow-privileged`.
    let circumstances = Circumstances { refuses_privileged: true, empties };
    let found = match case["verb"].as_str() {
        Some("create") => {
            let metadata = &mut object["metadata"];
            if kind.namespaced() && metadata.get("namespace").is_none() {
                metadata["namespace"] = "default".into();
            }
            metadata["uid"] = "11111111-1111-1111-1111-111111111111".into();
            kind.prepare_for_create(&mut object, now);
            kind.validate_create_under(circumstances, &object)
        }
        Some(verb) => {
            let old = read(kind, &case["old"]).map_err(|status| Mismatch::Unreadable(status.message))?;
            for field in ["generation", "uid", "creationTimestamp"] {
                if object["metadata"].get(field).is_none() && old["metadata"].get(field).is_some() {
                    object["metadata"][field] = old["metadata"][field].clone();
                }
            }
            let subresource = if verb == "status" { "status" } else { "" };
            kind.prepare_for_update(&mut object, &old, subresource, now);
            let found = kind.validate_update_under(circumstances, subresource, &object, &old);
            before = Some(old);
            found
        }
        None => return Err(Mismatch::Unreadable("no verb".into())),
    };
    // Upstream reports in map order: errors are a multiset.
    let mut actual: Vec<Value> = found
        .iter()
        .map(|error| {
            let message = error.message.lines().next().unwrap_or("");
            json!({ "type": error.reason, "field": error.field, "message": message })
        })
        .collect();
    let recorded = expected["errors"].as_array().into_iter().flatten();
    let mut wanted: Vec<Value> = recorded
        .map(|error| json!({ "type": error["type"], "field": error["field"], "message": error["message"] }))
        .collect();
    actual.sort_by_key(Value::to_string);
    if case["verb"] != "create" {
        // The recording of a change says once what its rules found twice.
        actual.dedup();
    }
    wanted.sort_by_key(Value::to_string);
    compare(&json!({ "errors": wanted }), &json!({ "errors": actual }))?;
    if let Some(warnings) = expected.get("warnings") {
        compare(&json!({ "warnings": warnings }), &json!({ "warnings": kind.warnings(&object, before.as_ref()) }))?;
    }
    match expected.get("generation") {
        Some(generation) if actual.is_empty() => {
            let actual = object["metadata"].get("generation").cloned().unwrap_or(json!(0));
            Ok(compare(&json!({ "generation": generation }), &json!({ "generation": actual }))?)
        }
        _ => Ok(()),
    }
}
