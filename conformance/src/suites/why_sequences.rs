//! The recorded sequences, asked as a what-if: every pod is placed where the recording has it, or pending with its
//! text.

use bayplan_explain::whatif::{Action, Options, whatif};
use bayplan_explain::{Profiles, State};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, TieBreak};
use bayplan_sources::{ClusterObjects, SourceObject, resource_of};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::scheduler::NOW;
use super::{Mismatch, Outcome};
use crate::difference::compare;

/// `whatif --from objects -f pods --as-written --ties name --no-preemption`, read from its JSON.
pub(super) fn sequences_by_whatif(case: &Value) -> Outcome {
    let unreadable = |text: String| Mismatch::Unreadable(text);
    let configuration = match &case["config"] {
        Value::Null => Configuration::default(),
        config => Configuration::from_value(config.clone()).map_err(|error| unreadable(error.to_string()))?,
    };
    let profiles = Profiles::build(&configuration, &Registry::default());
    let profiles = profiles.map_err(|error| unreadable(error.to_string()))?;
    let pods = case["pods"].as_array().cloned().unwrap_or_default();
    let action = Action::Apply { objects: pods, replicas: None, from: "pods".into() };
    let options = Options {
        ties: TieBreak::SmallestName,
        preempt: false,
        as_written: true,
        percentage: configuration.percentage_of_nodes_to_score,
        namespace: String::new(),
        more_copies_max: 0,
        now: NOW,
    };
    let state = State::new(objects(&case["objects"])?);
    let answer = whatif(state, &profiles, vec![action], &options).map_err(|error| unreadable(error.to_string()))?;
    compare(&expected(&case["expected"]["steps"]), &answered(&serde_json::to_value(&answer)?))?;
    Ok(())
}

/// Recorded objects as a source would give them.
fn objects(recorded: &Value) -> Result<ClusterObjects, Mismatch> {
    let mut objects = ClusterObjects::default();
    for json in recorded.as_array().into_iter().flatten() {
        let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let Some(resource) = resource_of(text("/apiVersion"), text("/kind")) else { continue };
        let (namespace, name) = (text("/metadata/namespace").into(), text("/metadata/name").into());
        objects.objects.push(SourceObject { resource, namespace, name, json: to_raw_value(json)? });
    }
    Ok(objects)
}

/// What a recording says of each pod: the node that was chosen, the text of the fit error, or that of the error.
fn expected(steps: &Value) -> Value {
    let mut by_pod = json!({});
    for step in steps.as_array().into_iter().flatten() {
        let outcome = ["chosen", "fitError", "error"].into_iter().find(|field| step.get(field).is_some());
        let Some(field) = outcome else { continue };
        by_pod[step["pod"].as_str().unwrap_or_default()] = json!({field: step[field]});
    }
    by_pod
}

/// The same of an answer.
fn answered(answer: &Value) -> Value {
    let mut by_pod = json!({});
    for placed in answer["placed"].as_array().into_iter().flatten() {
        by_pod[placed["pod"].as_str().unwrap_or_default()] = json!({"chosen": placed["node"]});
    }
    for pending in answer["pending"].as_array().into_iter().flatten() {
        let part = |field: &str| pending["pod"][field].as_str().unwrap_or_default();
        let key = format!("{}/{}", part("namespace"), part("name"));
        by_pod[key] = match pending.get("error") {
            Some(error) => json!({"error": error}),
            None => json!({"fitError": pending["message"]}),
        };
    }
    by_pod
}
