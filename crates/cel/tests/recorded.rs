//! Device selectors and what upstream v1.36 answers: its errors, its estimates, its costs and its results.
//!
//! Costs are left out where upstream's differ from run to run (it goes through maps in any order), where an evaluation
//! fails, and for patterns, which count by their real size here. Results are left out for `format` and `strings.quote`,
//! which do not run.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;

use bayplan_cel::Regexes;
use bayplan_cel::device::Selector;
use bayplan_model::resource_slice::Device;
use serde_json::{Value, json};

/// The device that upstream was asked about.
fn device() -> Device {
    serde_json::from_value(json!({
        "name": "dev-0",
        "allowMultipleAllocations": true,
        "attributes": {
            "model": {"string": "a100"},
            "numa": {"int": 1},
            "healthy": {"bool": true},
            "driverVersion": {"version": "1.12.3"},
            "other.example.com/rack": {"string": "r-7"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }))
    .unwrap()
}

/// What we answer, in the form of the recording.
fn answer(expression: &str) -> Value {
    let selector = match Selector::compile(expression, false, &Arc::new(Regexes::default())) {
        Ok(selector) => selector,
        Err(error) => return json!({"expr": expression, "error": error.to_string()}),
    };
    let (result, cost) = selector.matches("gpu.example.com", &device(), u64::MAX);
    let result = result.map_or_else(|error| format!("error: {error}"), |answer| answer.to_string());
    json!({"expr": expression, "max": selector.max_cost(), "cost": cost, "result": result})
}

#[test]
fn selectors_are_answered_as_upstream_answers_them() {
    let recorded = include_str!("recorded.jsonl");
    let mut different = Vec::new();
    for line in recorded.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let ours = answer(recorded["expr"].as_str().unwrap());
        for part in ["error", "max", "cost", "result"] {
            let is_left_out = matches!(part, "cost" | "result") && recorded[part].is_null();
            if !is_left_out && recorded[part] != ours[part] {
                different.push(format!("{}\n  {part}: {}\n   ours: {}", recorded["expr"], recorded[part], ours[part]));
            }
        }
    }
    assert!(different.is_empty(), "{} differences:\n{}", different.len(), different.join("\n"));
}
