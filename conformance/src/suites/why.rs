//! Recorded decisions and preemptions, turned into a dump and asked of `why`: its JSON has to say what upstream did.

use std::sync::{Arc, LazyLock};

use bayplan_explain::why::{Options, explain};
use bayplan_explain::{Profiles, State};
use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{PodInfo, Registry};
use bayplan_sources::{Given, SourceReader};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::scheduler::{NOW, sorted};
use super::why_sequences::sequences_by_whatif;
use super::{Mismatch, Outcome};
use crate::difference::compare;

static DEFAULT: LazyLock<Result<Profiles, String>> = LazyLock::new(|| build(&Configuration::default()));

fn build(configuration: &Configuration) -> Result<Profiles, String> {
    Profiles::build(configuration, &Registry::default()).map_err(|error| error.to_string())
}

pub(super) fn check(case: &Value) -> Outcome {
    let expected = &case["expected"];
    let answer = match expected {
        _ if expected.get("steps").is_some() => return sequences_by_whatif(case),
        _ if expected.get("potentialNodes").is_some() => preemption(&ask(case, false)?, &ask(case, true)?),
        _ => {
            let explanation = ask(case, false)?;
            every_node_has_an_entry(case, &explanation)?;
            decision(expected, &explanation, &ask(case, true)?)
        }
    };
    Ok(compare(&comparable(expected), &answer)?)
}

/// Asks as `why -f pod.json --as-written --per-node --from dump.json --config config.json -o json` does.
fn ask(case: &Value, no_preemption: bool) -> Result<Value, Mismatch> {
    let profiles = match &case["config"] {
        Value::Null => DEFAULT.clone(),
        config => Configuration::from_value(config.clone()).map_err(|e| e.to_string()).and_then(|c| build(&c)),
    };
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": case["objects"]}).to_string();
    let mut reader = SourceReader::default();
    reader.read("dump.json", &mut dump.as_bytes(), Given::Directly);
    let mut state = State::new(reader.finish());
    if let Some(note) = state.notes().first() {
        return Err(Mismatch::Unreadable(note.clone()));
    }
    let pod = Arc::new(PodInfo::new(Arc::new(Pod::deserialize(&case["pod"])?)));
    let options = Options { per_node: true, no_preemption, ..Options::at(NOW) };
    let explanation = explain(&mut state, &profiles.map_err(Mismatch::Unreadable)?, &pod, &options);
    Ok(serde_json::from_str(&serde_json::to_string(&explanation)?)?)
}

/// With `--per-node` no node is left out, unless the cycle did not get so far.
fn every_node_has_an_entry(case: &Value, explanation: &Value) -> Outcome {
    if explanation.get("preEnqueue").is_some() || explanation.get("error").is_some() {
        return Ok(());
    }
    let objects = case["objects"].as_array().into_iter().flatten();
    let nodes =
        sorted(objects.filter(|object| object["kind"] == "Node").filter_map(|n| n["metadata"]["name"].as_str()));
    let entries = explanation["perNode"].as_array().into_iter().flatten();
    Ok(compare(&json!({"perNode": nodes}), &json!({"perNode": sorted(entries.filter_map(|e| e["node"].as_str()))}))?)
}

/// The recorded fields that the JSON of `why` has an equal of.
fn comparable(expected: &Value) -> Value {
    const NOT_TOLD: [&str; 10] = [
        "preFilterNodes",
        "nominatedNodeUsed",
        "skippedFilterPlugins",
        "skippedScorePlugins",
        "unschedulablePlugins",
        "pendingPlugins",
        "postFilter",
        "potentialNodes",
        "dryRunStatuses",
        "errors",
    ];
    let fields = expected.as_object().into_iter().flatten();
    let told = fields.filter(|(name, _)| !NOT_TOLD.contains(&name.as_str()));
    told.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<String, Value>>().into()
}

/// The answer of `why` in the form of a recorded decision. `before` was asked without preemption.
fn decision(expected: &Value, explanation: &Value, before: &Value) -> Value {
    let mut answer = Map::new();
    for field in ["preEnqueue", "preFilter", "error", "best"] {
        insert(&mut answer, field, explanation[field].clone());
    }
    for status in ["preEnqueue", "preFilter"] {
        if let Some(reasons) = answer.get_mut(status).and_then(|status| status.get_mut("reasons")) {
            *reasons = sorted(strings(reasons));
        }
    }
    if expected["errors"].as_array().is_some_and(|errors| errors.contains(&explanation["error"])) {
        insert(&mut answer, "error", expected["error"].clone());
    }
    insert(&mut answer, "fitError", explanation["message"].clone());
    insert(&mut answer, "fitErrorBeforePostFilter", before["message"].clone());
    per_node(expected, explanation, &mut answer);
    answer.into()
}

/// Takes the entries of all nodes apart into what was recorded.
fn per_node(expected: &Value, explanation: &Value, answer: &mut Map<String, Value>) {
    let entries = || explanation["perNode"].as_array().into_iter().flatten();
    let name = |entry: &Value| entry["node"].as_str().unwrap_or_default().to_owned();
    answer.insert("feasible".into(), sorted(entries().filter(|entry| entry.get("code").is_none()).map(name)));
    let asked = |entry: &&Value| entry.get("code").is_some_and(|code| code != "Skip");
    // Nodes that PreFilter leaves out, all of them with one status, are recorded once.
    let others = expected.get("absentNodes");
    let mut nodes = Map::new();
    for entry in entries().filter(asked) {
        let status = status(entry);
        match others {
            Some(others) if *others == status => drop(answer.insert("absentNodes".into(), status)),
            _ if answer.contains_key("preFilter") => {}
            // With a node that fits, the status of the nodes that were left out is not recorded.
            _ if expected.get("preFilterNodes").is_some() && status.get("plugin").is_none() => {}
            _ => drop(nodes.insert(name(entry), status)),
        }
    }
    if others.is_some() && !answer.contains_key("absentNodes") {
        insert(answer, "absentNodes", others.cloned().unwrap_or_default());
    }
    if !nodes.is_empty() {
        answer.insert("nodes".into(), nodes.into());
    }
    let (mut raw, mut scores, mut totals) = (Map::new(), Map::new(), Map::new());
    for entry in entries().filter(|entry| entry.get("total").is_some()) {
        totals.insert(name(entry), entry["total"].clone());
        for score in entry["scores"].as_array().into_iter().flatten() {
            let plugin = score["plugin"].as_str().unwrap_or_default();
            for (all, value) in [(&mut raw, &score["raw"]), (&mut scores, &score["score"])] {
                let of_plugin = all.entry(plugin).or_insert_with(|| json!({}));
                of_plugin[name(entry)] = value.clone();
            }
        }
    }
    for (field, values) in [("rawScores", raw), ("scores", scores), ("totals", totals)] {
        if !values.is_empty() {
            answer.insert(field.into(), values.into());
        }
    }
}

/// The status of an entry in the recorded form.
fn status(entry: &Value) -> Value {
    let mut status = Map::new();
    for field in ["code", "plugin"] {
        insert(&mut status, field, entry[field].clone());
    }
    if let Some(reasons) = entry.get("reasons") {
        status.insert("reasons".into(), sorted(strings(reasons)));
    }
    status.into()
}

/// The answer of `why` in the form of a recorded preemption. `before` was asked without preemption.
fn preemption(explanation: &Value, before: &Value) -> Value {
    let told = &explanation["preemption"];
    let mut answer = Map::new();
    insert(&mut answer, "fitError", explanation["message"].clone());
    insert(&mut answer, "fitErrorBeforePostFilter", before["message"].clone());
    insert(&mut answer, "eligible", told["eligible"].clone());
    insert(&mut answer, "ineligibleReason", told["reason"].clone());
    insert(&mut answer, "acceptable", told["acceptable"].clone());
    let candidates = told["candidates"].as_array().into_iter().flatten().map(|candidate| {
        let node = candidate["node"].as_str().unwrap_or_default().to_owned();
        (node, json!({"victims": candidate["victims"], "numPDBViolations": candidate["pdbViolations"]}))
    });
    answer.insert("candidates".into(), candidates.collect::<Map<String, Value>>().into());
    answer.into()
}

fn insert(answer: &mut Map<String, Value>, name: &str, value: Value) {
    if !value.is_null() {
        answer.insert(name.into(), value);
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
