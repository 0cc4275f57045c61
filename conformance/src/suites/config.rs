//! The scheduler's configuration: strict loading, defaults, validation, and the resulting plugins.

use std::sync::Arc;

use bayplan_scheduler::config;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::Profile;
use bayplan_scheduler::{ExtensionPoints, Registry, Rng, Scheduler, TieBreak};
use serde_json::{Map, Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let text = case["yaml"].as_str().ok_or_else(|| Mismatch::Unreadable("no yaml".into()))?;
    let mut expected = case["expected"].clone();
    // The errors are compared as a set, so the order in their aggregate does not count either.
    if let Some(errors) = expected.get_mut("validationErrors").and_then(Value::as_array_mut) {
        errors.sort_by_key(Value::to_string);
    }
    if expected["validationErrors"].as_array().is_some_and(|errors| errors.len() > 1)
        && let Some(expected) = expected.as_object_mut()
    {
        expected.remove("validationMessage");
    }
    Ok(compare(&expected, &answer(text))?)
}

fn answer(text: &str) -> Value {
    let completed = match config::load(text) {
        Ok(completed) => completed,
        Err(error) => return json!({ "decodeError": error.to_string() }),
    };
    let mut errors = config::validate(&completed);
    if !errors.is_empty() {
        errors.sort_by_key(|error| Value::from(error.as_str()).to_string());
        let mut answer = json!({ "config": completed, "validationErrors": errors });
        if errors.len() == 1 {
            answer["validationMessage"] = config::aggregate(&errors).into();
        }
        return answer;
    }
    match plugins(&completed) {
        Ok(plugins) => json!({ "config": completed, "plugins": plugins }),
        Err(error) => json!({ "config": completed, "frameworkError": error }),
    }
}

/// Profile, extension point, plugins.
fn plugins(completed: &Value) -> Result<Value, String> {
    let configuration = Configuration::from_completed(completed.clone()).map_err(|error| error.to_string())?;
    let scheduler = Scheduler::new(&configuration, &Registry::default(), TieBreak::Random(Rng::new(1)));
    let scheduler = scheduler.map_err(|error| error.to_string())?;
    let names = configuration.profiles.iter().filter_map(|profile| profile.scheduler_name.as_deref());
    let expanded = names.filter_map(|name| Some((name.to_owned(), points(scheduler.profile(name)?))));
    Ok(Value::Object(expanded.collect()))
}

fn points(profile: &Arc<Profile>) -> Value {
    let plugin = |(name, weight): (&str, Option<i64>)| match weight {
        Some(weight) => json!({ "name": name, "weight": weight }),
        None => json!({ "name": name }),
    };
    let points = profile.expanded().map(|(point, list)| (key(point), list.into_iter().map(plugin).collect()));
    Value::Object(points.collect::<Map<String, Value>>())
}

/// `PreFilterPlugin` is configured as `preFilter`.
fn key(point: ExtensionPoints) -> String {
    let name = point.interface().trim_end_matches("Plugin");
    let (first, rest) = name.split_at(1);
    first.to_lowercase() + rest
}
