//! Single computations: a question to one part of a controller, and upstream's answer. One file for each controller.

mod cronjob;
mod daemonset;
mod deployment;
mod endpoints;
mod hpa;
mod job;
mod quota;
mod statefulset;

use std::sync::Arc;

use bayplan_controllers::{Cache, Context, Kind};
use bayplan_testkit::FakeApi;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Mismatch, Outcome};
use crate::difference::compare;

/// The types of cases that a controller's file knows, each with its check.
type Types = &'static [(&'static str, fn(&Value) -> Outcome)];

/// One line for each file.
const CONTROLLERS: &[Types] = &[
    cronjob::TYPES,
    daemonset::TYPES,
    deployment::TYPES,
    endpoints::TYPES,
    hpa::TYPES,
    job::TYPES,
    quota::TYPES,
    statefulset::TYPES,
];

pub(super) fn check(case: &Value) -> Outcome {
    let name = case["type"].as_str().unwrap_or_default();
    let known = CONTROLLERS.iter().copied().flatten().find(|(known, _)| *known == name);
    let (_, check) = known.ok_or_else(|| Mismatch::Unreadable(format!("unknown type {name:?}")))?;
    check(case)
}

fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, Mismatch> {
    Ok(T::deserialize(value)?)
}

fn list<T: DeserializeOwned>(value: &Value) -> Result<Vec<Arc<T>>, Mismatch> {
    value.as_array().into_iter().flatten().map(|item| parse(item).map(Arc::new)).collect()
}

/// Compares by meaning: upstream's JSON leaves out some empty values and writes others.
fn equal(actual: &Value, expected: &Value) -> Outcome {
    Ok(compare(&prune(expected), &prune(actual))?)
}

/// A value without its empty parts; nothing when all of it is empty.
fn prune(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), prune(value)))
                .filter(|(_, value)| !value.is_null())
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(prune).collect()),
        other => other.clone(),
    }
}

/// The context of a reconcile against a fake API server.
fn context(api: &FakeApi, now: Timestamp) -> Context<'_> {
    Context { now, api, recorder: api }
}

/// Puts objects into the cache: a list of them, one, or none.
fn fill(cache: &Cache, kind: Kind, objects: &Value) -> Outcome {
    let objects = match objects {
        Value::Array(objects) => objects.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    objects.iter().try_for_each(|object| {
        cache.set(kind, object.to_string().as_bytes())?;
        Ok(())
    })
}
