//! Per-kind answers of the API server: defaulting, table rows, validation.

use bayplan_apiserver::codec::{self, Decoded, FieldValidation, Kind};
use bayplan_apiserver::{defaults, resources, strategy, tables, validation};
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

/// The kind a case is about; recordings carry it in the object.
fn kind_of(case: &Value) -> Result<Kind<'_>, Mismatch> {
    let text =
        |value: &'static str, found: &Value| found.as_str().is_none().then(|| Mismatch::Unreadable(value.into()));
    let (kind, api_version) = (&case["kind"], &case["object"]["apiVersion"]);
    if let Some(mismatch) = text("no kind", kind).or_else(|| text("no apiVersion", api_version)) {
        return Err(mismatch);
    }
    let (kind, api_version) = (kind.as_str().unwrap_or(""), api_version.as_str().unwrap_or(""));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Ok(Kind { group, version, kind })
}

/// Decodes and defaults, the way a request body is.
fn read(kind: Kind<'_>, object: &Value) -> Result<Value, Status> {
    let body = object.to_string();
    let Decoded { mut object, .. } = codec::decode_kind(kind, None, body.as_bytes(), FieldValidation::Ignore)?;
    defaults::apply_kind(kind, &mut object);
    Ok(object)
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
    let row = tables::row_of(kind, &object, now);
    let mut cells = json!({ "cells": row.cells });
    if !row.conditions.is_null() {
        cells["conditions"] = row.conditions;
    }
    let columns: Vec<Value> = tables::columns_of(kind)
        .iter()
        .map(|column| {
            json!({ "name": column.name, "type": column.column_type, "format": column.format, "priority": column.priority })
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
    let mut object = match read(kind, &case["object"]) {
        Ok(object) => object,
        Err(status) => {
            let wanted = expected["decodeError"].as_str().unwrap_or("");
            let actual = if !wanted.is_empty() && status.message.ends_with(wanted) { wanted } else { &status.message };
            return Ok(compare(&expected["decodeError"], &json!(actual))?);
        }
    };
    let strategy = strategy::of_kind(kind);
    let namespaced =
        resources::find_kind(kind.group, kind.version, kind.kind).is_some_and(resources::Resource::namespaced);
    let found = match case["verb"].as_str() {
        Some("create") => {
            let metadata = &mut object["metadata"];
            if namespaced && metadata.get("namespace").is_none() {
                metadata["namespace"] = "default".into();
            }
            metadata["uid"] = "11111111-1111-1111-1111-111111111111".into();
            strategy.prepare_for_create(&mut object, now);
            validation::create_kind(kind, namespaced, &object)
        }
        Some(verb) => {
            let old = read(kind, &case["old"]).map_err(|status| Mismatch::Unreadable(status.message))?;
            for field in ["generation", "uid", "creationTimestamp"] {
                if object["metadata"].get(field).is_none() && old["metadata"].get(field).is_some() {
                    object["metadata"][field] = old["metadata"][field].clone();
                }
            }
            let subresource = if verb == "status" { "status" } else { "" };
            strategy.prepare_for_update(&mut object, &old, subresource, now);
            validation::update_kind(kind, subresource, &object, &old)
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
    wanted.sort_by_key(Value::to_string);
    compare(&json!({ "errors": wanted }), &json!({ "errors": actual }))?;
    match expected.get("generation") {
        Some(generation) if actual.is_empty() => {
            let actual = object["metadata"].get("generation").cloned().unwrap_or(json!(0));
            Ok(compare(&json!({ "generation": generation }), &json!({ "generation": actual }))?)
        }
        _ => Ok(()),
    }
}
