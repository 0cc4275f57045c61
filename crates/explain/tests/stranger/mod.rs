//! Someone who has only the JSON of a change: applies it to the objects, and asks a scheduler that knows nothing of how
//! it was found.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Helpers of tests, each used by some of them.

use std::sync::Arc;

use bayplan_explain::{Change, ChangeOptions, Profiles, State, Subject, changes};
use bayplan_model::pod::Pod;
use bayplan_model::quantity::Quantity;
use bayplan_patch::json_patch;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Attempt, PotentialNodes, Profile, Search, best_candidates, dry_run, ineligible};
use bayplan_scheduler::{PodInfo, Registry};
use bayplan_sources::ClusterObjects;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// A time after everything in tests and recordings.
pub const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// The first profile of a configuration; null is the default one.
pub fn profile(config: &Value) -> Arc<Profile> {
    let configuration = match config {
        Value::Null => Configuration::default(),
        config => Configuration::from_value(config.clone()).unwrap(),
    };
    Profiles::build(&configuration, &Registry::default()).unwrap().first().unwrap().clone()
}

/// A state of these objects; those that no decision reads are left out.
pub fn state(objects: &[Value]) -> State {
    State::new(ClusterObjects::of(objects))
}

fn pod_info(json: &Value) -> PodInfo {
    let mut pod = Pod::deserialize(json).unwrap();
    if pod.metadata.uid.is_empty() {
        pod.metadata.uid = pod.metadata.key();
    }
    PodInfo::new(Arc::new(pod))
}

/// The names of the feasible and of the best nodes, when the pod is let in at all.
pub fn decide(profile: &Profile, state: &State, pod: &Value) -> (Vec<String>, Vec<String>) {
    let pod = pod_info(pod);
    let mut attempt = Attempt::new(profile, state.cluster(), state.nominator(), &pod, NOW);
    if !attempt.pre_enqueue().is_success() {
        return (Vec::new(), Vec::new());
    }
    let Ok(found) = attempt.find(Search::ALL) else { return (Vec::new(), Vec::new()) };
    let names: Vec<String> = found.feasible.iter().map(|node| node.name.to_string()).collect();
    if found.feasible.len() < 2 {
        return (names.clone(), names);
    }
    let scores = attempt.score(&found.feasible).unwrap();
    (names, scores.best().into_iter().map(|at| scores.nodes[at].to_string()).collect())
}

/// The acceptable nodes of a preemption, each with its victims and violated budgets.
pub fn acceptable(profile: &Profile, state: &State, pod: &Value) -> Vec<(String, Vec<String>, usize)> {
    let pod = pod_info(pod);
    let mut attempt = Attempt::new(profile, state.cluster(), state.nominator(), &pod, NOW);
    assert!(attempt.pre_enqueue().is_success());
    let found = attempt.find(Search::ALL).unwrap();
    assert!(found.feasible.is_empty(), "a pod that preempts fits nowhere");
    attempt.with_post_filter_context(&found.diagnosis, 0, |cx| {
        assert_eq!(ineligible(cx), None);
        let nodes = PotentialNodes::of(cx);
        let result = dry_run(cx, &nodes, 0, nodes.len());
        let best = best_candidates(&result.candidates, NOW).into_iter();
        best.map(|one| (one.node.to_string(), one.victims.iter().map(|v| v.key()).collect(), one.pdb_violations))
            .collect()
    })
}

fn is_target(object: &Value, target: &Value) -> bool {
    let namespace = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    object["apiVersion"] == target["apiVersion"]
        && object["kind"] == target["kind"]
        && object["metadata"]["name"] == target["name"]
        && namespace(&object["metadata"]["namespace"]) == namespace(&target["namespace"])
}

/// The objects and the pod after a change.
pub fn apply(objects: &[Value], pod: &Value, change: &Value) -> (Vec<Value>, Value) {
    let (mut objects, mut pod) = (objects.to_vec(), pod.clone());
    for patch in change["patches"].as_array().into_iter().flatten() {
        let body = patch["patch"].to_string();
        let apply = |object: &Value| json_patch::apply(object.clone(), body.as_bytes()).unwrap();
        if is_target(&pod, &patch["target"]) {
            pod = apply(&pod);
        } else {
            let object = objects.iter_mut().rfind(|object| is_target(object, &patch["target"])).unwrap();
            *object = apply(object);
        }
    }
    for name in change["deletes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (namespace, name) = name.split_once('/').unwrap();
        let target = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name});
        let before = objects.len();
        objects.retain(|object| !is_target(object, &target));
        assert!(objects.len() < before, "{name} is not there");
    }
    objects.extend(change["adds"].as_array().into_iter().flatten().cloned());
    (objects, pod)
}

/// Checks one change as a stranger would.
pub fn check(profile: &Profile, objects: &[Value], pod: &Value, change: &Value) {
    let shown = || format!("{change:#}");
    let (changed, changed_pod) = apply(objects, pod, change);
    let state = state(&changed);
    let node = change["node"].as_str().unwrap();
    if change["kind"] == "RaisePriority" {
        let acceptable = acceptable(profile, &state, &changed_pod);
        let chosen = acceptable.iter().find(|(name, _, _)| name == node);
        let (_, victims, violations) = chosen.unwrap_or_else(|| panic!("{acceptable:?}: {}", shown()));
        assert_eq!(json!(victims), change["victims"], "{}", shown());
        assert_eq!(*violations as u64, change["pdbViolations"].as_u64().unwrap_or(0), "{}", shown());
        return;
    }
    let (feasible, best) = decide(profile, &state, &changed_pod);
    assert!(best.iter().any(|name| name == node), "{best:?}: {}", shown());
    assert_eq!(feasible.len() as u64, change["feasibleAfter"].as_u64().unwrap(), "{}", shown());
    let with = change["with"].as_array().into_iter().flatten();
    for kind in with.chain([&change["kind"]]) {
        match kind.as_str().unwrap() {
            "ReduceRequest" => check_least(profile, &state, &changed_pod, change),
            "DeletePods" => check_all_needed(profile, objects, pod, change),
            _ => {}
        }
    }
}

/// One unit more of any request that was reduced does not fit.
fn check_least(profile: &Profile, state: &State, pod: &Value, change: &Value) {
    let operations = change["patches"][0]["patch"].as_array().unwrap();
    let paths: Vec<&str> = operations.iter().filter_map(|op| op["path"].as_str()).collect();
    let of_pod = paths.iter().any(|path| path.starts_with("/spec/resources/requests/"));
    let mut tried = 0;
    for path in paths {
        let Some((before, resource)) = path.rsplit_once("/requests/") else { continue };
        // Where the pod asks as a whole, its containers only follow.
        if of_pod && before != "/spec/resources" {
            continue;
        }
        let mut more = pod.clone();
        let value = more.pointer_mut(path).unwrap();
        let amount = Quantity::parse(value.as_str().unwrap()).unwrap();
        *value = match resource {
            "cpu" => format!("{}m", amount.milli_value() + 1),
            _ => (amount.value() + 1).to_string(),
        }
        .into();
        assert!(decide(profile, state, &more).0.is_empty(), "{path} fits with one more: {change:#}");
        tried += 1;
    }
    assert!(tried > 0, "{change:#}");
}

/// No pod is deleted that could stay.
fn check_all_needed(profile: &Profile, objects: &[Value], pod: &Value, change: &Value) {
    let deletes = change["deletes"].as_array().unwrap();
    for (at, deleted) in deletes.iter().enumerate() {
        let mut fewer = change.clone();
        fewer["deletes"].as_array_mut().unwrap().remove(at);
        let (changed, pod) = apply(objects, pod, &fewer);
        let feasible = decide(profile, &state(&changed), &pod).0;
        assert!(feasible.is_empty(), "{deleted} could stay: {change:#}");
    }
}

/// Finds the changes for a pod and checks each one.
pub fn proven(profile: &Profile, objects: &[Value], pod: &Value) -> Vec<Change> {
    let mut state = state(objects);
    let before = decide(profile, &state, pod);
    let options = ChangeOptions::at(NOW);
    let found = changes(&mut state, profile, Subject::as_written(pod), &options);
    assert_eq!(decide(profile, &state, pod), before, "the state is put back");
    let again = changes(&mut state, profile, Subject::as_written(pod), &options);
    assert_eq!(found, again, "the same question has the same answer");
    if !before.0.is_empty() {
        assert!(found.is_empty(), "a pod that fits needs no change");
    }
    for change in &found {
        check(profile, objects, pod, &serde_json::to_value(change).unwrap());
    }
    found
}
