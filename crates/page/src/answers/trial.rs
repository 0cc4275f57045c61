//! A pod's explanation, today and after a change that is tried on the state and undone.

use std::sync::Arc;

use bayplan_explain::why::{self, Options, Verdict};
use bayplan_explain::{Change, ChangeOptions, Profiles, State, Subject, Undo, changes};
use bayplan_patch::json_patch;
use bayplan_scheduler::PodInfo;
use bayplan_sources::{RESOURCES, Resource, resource_of};
use jiff::Timestamp;
use serde_json::Value;

use super::{Tiles, Unanswered, Why};
use crate::request::Trial;

/// A pod by `namespace/name`.
pub(super) fn pod_named(state: &State, pod: &str) -> Result<Arc<PodInfo>, Unanswered> {
    let found = pod.split_once('/').and_then(|(namespace, name)| state.pod(namespace, name));
    found.cloned().ok_or_else(|| Unanswered::NotFound(format!("there is no pod {pod}, or it has ended")))
}

/// Explains a pod on the state as it is.
pub(crate) fn explain(state: &mut State, profiles: &Profiles, pod: &str, now: Timestamp) -> Result<Why, Unanswered> {
    let mut why = explain_alone(state, profiles, pod, now)?;
    if matches!(why.explanation.verdict, Verdict::NotYet | Verdict::Never | Verdict::Gated) {
        why.explanation.changes = proven_changes(state, profiles, pod, now).unwrap_or_default();
    }
    Ok(why)
}

/// Explains a pod without looking for changes.
fn explain_alone(state: &mut State, profiles: &Profiles, pod: &str, now: Timestamp) -> Result<Why, Unanswered> {
    let pod = pod_named(state, pod)?;
    let explanation = why::explain(state, profiles, &pod, &Options::at(now));
    Ok(Why { explanation, tiles: tiles(state, profiles, &pod, now) })
}

/// The changes that let a pod in; none when the pod's object or its profile is not known.
fn proven_changes(state: &mut State, profiles: &Profiles, pod: &str, now: Timestamp) -> Option<Vec<Change>> {
    let (namespace, name) = pod.split_once('/')?;
    let written = state.written(pods()?, namespace, name)?;
    let json: Value = serde_json::from_str(written.get()).ok()?;
    let profile = profiles.get(&state.pod(namespace, name)?.spec.scheduler_name).or_else(|| profiles.first())?.clone();
    Some(changes(state, &profile, Subject::as_written(&json), &ChangeOptions::at(now)))
}

fn pods() -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == "Pod")
}

/// What every node answers. Preemption is left out: it would be tried on every node.
fn tiles(state: &mut State, profiles: &Profiles, pod: &Arc<PodInfo>, now: Timestamp) -> Tiles {
    let options = Options { per_node: true, no_preemption: true, ..Options::at(now) };
    Tiles::of(&why::explain(state, profiles, pod, &options).per_node)
}

/// Explains a pod on the state with a change, which is undone afterwards.
pub(super) fn try_change(
    state: &mut State,
    profiles: &Profiles,
    trial: &Trial,
    now: Timestamp,
) -> Result<Why, Unanswered> {
    let mut done = Vec::new();
    let answer = apply(state, trial, &mut done).and_then(|()| explain_alone(state, profiles, &trial.pod, now));
    done.into_iter().rev().for_each(|undo| state.undo(undo));
    answer
}

/// Applies what it can, in order; what was done is in `done` even if the rest fails.
fn apply(state: &mut State, trial: &Trial, done: &mut Vec<Undo>) -> Result<(), Unanswered> {
    for patch in &trial.patches {
        let (resource, namespace, name) = target(&patch["target"])?;
        let shown = format!("{} {name}", resource.kind);
        let written = state.written(resource, &namespace, &name);
        let written = written.ok_or_else(|| Unanswered::NotFound(format!("there is no {shown} to patch")))?;
        let object: Value = serde_json::from_str(written.get()).map_err(|error| refused(&shown, &error))?;
        let changed = json_patch::apply(object, patch["patch"].to_string().as_bytes());
        done.push(write(state, resource, &changed.map_err(|error| refused(&shown, &error))?)?);
    }
    for pod in &trial.deletes {
        let pods = RESOURCES.iter().find(|resource| resource.kind == "Pod");
        let gone =
            pods.zip(pod.split_once('/')).and_then(|(pods, (namespace, name))| state.remove(pods, namespace, name));
        done.push(gone.ok_or_else(|| Unanswered::NotFound(format!("there is no pod {pod} to delete")))?);
    }
    for object in &trial.adds {
        let resource = resource_named(object)?;
        done.push(write(state, resource, object)?);
    }
    Ok(())
}

fn write(state: &mut State, resource: &'static Resource, object: &Value) -> Result<Undo, Unanswered> {
    state.write(resource, object).map_err(|error| refused(resource.kind, &error))
}

fn refused(what: &str, error: &dyn std::fmt::Display) -> Unanswered {
    Unanswered::Refused(format!("the change of {what} cannot be tried: {error}"))
}

fn resource_named(object: &Value) -> Result<&'static Resource, Unanswered> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    resource_of(text("apiVersion"), text("kind")).ok_or_else(|| {
        Unanswered::Refused(format!("{} {} is no kind that a decision reads", text("apiVersion"), text("kind")))
    })
}

fn target(target: &Value) -> Result<(&'static Resource, String, String), Unanswered> {
    let text = |field: &str| target[field].as_str().unwrap_or_default().to_owned();
    Ok((resource_named(target)?, text("namespace"), text("name")))
}

#[cfg(test)]
mod tests {
    use bayplan_scheduler::Registry;
    use bayplan_scheduler::config::Configuration;
    use bayplan_sources::{ClusterObjects, SourceObject};
    use bayplan_testkit::{node, pod};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn state(objects: &[Value]) -> State {
        let source = |json: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            SourceObject {
                resource: resource_named(json).unwrap(),
                namespace: text(&json["metadata"]["namespace"]).into(),
                name: text(&json["metadata"]["name"]).into(),
                json: to_raw_value(json).unwrap(),
            }
        };
        State::new(ClusterObjects { objects: objects.iter().map(source).collect(), ..ClusterObjects::default() })
    }

    fn profiles() -> Profiles {
        Profiles::build(&Configuration::default(), &Registry::default()).unwrap()
    }

    fn full() -> State {
        let big = pod("big").request("cpu", "3").json();
        state(&[node("n").json(), pod("a").request("cpu", "2").on_node("n").json(), big])
    }

    /// The verdict after a change, and that the state is as it was.
    fn verdict(trial: Value) -> Result<String, String> {
        let (mut state, profiles) = (full(), profiles());
        let trial: Trial = serde_json::from_value(trial).unwrap();
        let answer = try_change(&mut state, &profiles, &trial, Timestamp::UNIX_EPOCH);
        let today = explain(&mut state, &profiles, "default/big", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(today.explanation.verdict.name(), "NotYet", "the change is undone");
        assert_eq!(state.cluster().node_count(), 1);
        answer.map(|why| why.explanation.verdict.name().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_change_is_decided_on_and_undone() {
        let target = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "big"});
        let less = json!([{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "2"}]);
        let patches = json!([{"target": target, "patch": less}]);
        assert_eq!(verdict(json!({"pod": "default/big", "patches": patches})), Ok("WillPlace".into()));
        assert_eq!(verdict(json!({"pod": "default/big", "deletes": ["default/a"]})), Ok("WillPlace".into()));
        assert_eq!(verdict(json!({"pod": "default/big", "adds": [node("m").json()]})), Ok("WillPlace".into()));
        assert_eq!(verdict(json!({"pod": "default/big"})), Ok("NotYet".into()));
    }

    #[test]
    fn a_change_that_cannot_be_made_is_refused_and_what_was_made_of_it_is_undone() {
        for (trial, expected) in [
            (
                json!({"pod": "default/big", "deletes": ["default/a", "default/x"]}),
                "there is no pod default/x to delete",
            ),
            (json!({"pod": "default/x"}), "there is no pod default/x, or it has ended"),
            (json!({"pod": "default/big", "adds": [{"kind": "Secret", "apiVersion": "v1"}]}), "v1 Secret is no kind"),
            (
                json!({"pod": "default/big", "adds": [node("m").json()], "patches": [
                    {"target": {"apiVersion": "v1", "kind": "Node", "name": "x"}, "patch": []}]}),
                "there is no Node x to patch",
            ),
            (
                json!({"pod": "default/big", "patches": [
                    {"target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
                        "patch": [{"op": "remove", "path": "/nothing"}]}]}),
                "the change of Node n cannot be tried",
            ),
        ] {
            let error = verdict(trial.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{trial}: {error}");
        }
    }

    #[test]
    fn every_change_that_is_shown_lets_the_pod_in_when_it_is_tried() {
        let (mut state, profiles) = (full(), profiles());
        let today = explain(&mut state, &profiles, "default/big", Timestamp::UNIX_EPOCH).unwrap();
        assert!(!today.explanation.changes.is_empty());
        for change in &today.explanation.changes {
            let mut trial = json!({"pod": "default/big"});
            for field in ["patches", "deletes", "adds"] {
                trial[field] = json!(change).get(field).cloned().unwrap_or(json!([]));
            }
            let trial: Trial = serde_json::from_value(trial).unwrap();
            let then = try_change(&mut state, &profiles, &trial, Timestamp::UNIX_EPOCH).unwrap().explanation;
            let preempts = then.preemption.is_some_and(|preemption| preemption.acceptable.contains(&change.node));
            assert!(then.best.contains(&change.node) || preempts, "{change:?}");
        }
    }

    #[test]
    fn every_node_answers_in_the_order_of_the_columns() {
        let mut state = full();
        let why = explain(&mut state, &profiles(), "default/big", Timestamp::UNIX_EPOCH).unwrap();
        let tiles = serde_json::to_value(&why.tiles).unwrap();
        assert_eq!(tiles["filters"], json!(["NodeResourcesFit"]));
        assert_eq!(tiles["reasons"], json!(["Insufficient cpu"]));
        assert_eq!(why.explanation.per_node.len(), 0);
    }
}
