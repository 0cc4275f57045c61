//! The answers to the page's questions, as JSON.

mod node;
mod tiles;
mod trial;

use bayplan_explain::State;
use bayplan_explain::why::{self, Explanation, Options};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster_view::ClusterView;
use crate::request::Trial;

pub(crate) use tiles::{NodeColumns, Tiles};
pub(crate) use trial::explain;

/// Pods that a search by name shows.
const FOUND_MAX: usize = 50;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The change cannot be tried.
    #[error("{0}")]
    Refused(String),
}

fn bytes(answer: &impl Serialize) -> Bytes {
    // What is serialized here has string keys and no failing parts.
    serde_json::to_vec(answer).map(Bytes::from).unwrap_or_default()
}

/// How many nodes and pods there are, and where the state comes from.
pub(crate) fn summary(view: &ClusterView) -> Bytes {
    let mut summary = summary_of(&view.lock().state, &view.about.name, view.about.is_live);
    summary["decisionLog"] = view.about.log.as_deref().into();
    bytes(&summary)
}

pub(crate) fn summary_of(state: &State, name: &str, is_live: bool) -> Value {
    let origin = state.origin();
    json!({
        "name": name,
        "live": is_live,
        "nodes": state.cluster().node_count(),
        "pods": state.cluster().placed_count() + state.pending().count(),
        "pending": state.pending().count(),
        "source": {
            "kind": origin.kind,
            "time": origin.time,
            "resourceVersion": origin.resource_version,
            "missing": state.missing(),
        },
        "notes": state.notes(),
    })
}

/// All nodes, in columns.
pub(crate) fn nodes(view: &ClusterView) -> Bytes {
    bytes(&NodeColumns::of(view.lock().state.cluster()))
}

/// All pending pods, grouped by cause.
pub(crate) fn pending(view: &ClusterView, now: Timestamp) -> Bytes {
    let version = view.version();
    let mut shown = view.lock();
    if let Some((answered, answer)) = &shown.pending
        && *answered == version
    {
        return answer.clone();
    }
    let pods: Vec<_> = shown.state.pending().cloned().collect();
    let options = Options { no_preemption: true, ..Options::at(now) };
    let answer = bytes(&why::explain_all(&mut shown.state, &view.profiles, pods, &options));
    shown.pending = Some((version, answer.clone()));
    answer
}

/// One pod: its explanation, and what every node answers.
#[derive(Serialize)]
pub(crate) struct Why {
    pub(crate) explanation: Explanation,
    pub(crate) tiles: Tiles,
}

/// Explains a pod.
pub(crate) fn why(view: &ClusterView, pod: &str, now: Timestamp) -> Result<Bytes, Unanswered> {
    let mut shown = view.lock();
    Ok(bytes(&trial::explain(&mut shown.state, &view.profiles, pod, now)?))
}

/// What would be after a change.
pub(crate) fn try_change(view: &ClusterView, trial: &Trial, now: Timestamp) -> Result<Bytes, Unanswered> {
    let mut shown = view.lock();
    Ok(bytes(&trial::try_change(&mut shown.state, &view.profiles, trial, now)?))
}

/// One node, and what every filter says of a pod there.
pub(crate) fn node(view: &ClusterView, name: &str, pod: Option<&str>, now: Timestamp) -> Result<Bytes, Unanswered> {
    let mut shown = view.lock();
    Ok(bytes(&node::describe(&mut shown.state, &view.profiles, name, pod, now)?))
}

/// Pods whose names have a text, pending or not.
pub(crate) fn find(view: &ClusterView, text: &str) -> Bytes {
    let shown = view.lock();
    let text = text.to_lowercase();
    let pods = shown.state.cluster().objects.pods.iter().map(|pod| pod.metadata.key());
    let mut found: Vec<String> = pods.filter(|name| name.to_lowercase().contains(&text)).take(FOUND_MAX).collect();
    found.sort();
    bytes(&json!({ "pods": found }))
}

/// Decisions from a number on.
pub(crate) fn decisions(view: &ClusterView, since: u64) -> Bytes {
    bytes(&view.lock().decisions.since(since))
}

/// The version now.
pub(crate) fn events(view: &ClusterView) -> Bytes {
    bytes(&json!({ "seen": view.seen(view.version()) }))
}
