//! One node: what is requested of it, its pods, and what every filter says of the selected pod there.

use std::collections::BTreeMap;

use bayplan_explain::why::{self, Answer, Options};
use bayplan_explain::{Profiles, State};
use bayplan_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use bayplan_scheduler::NodeInfo;
use jiff::Timestamp;
use serde::Serialize;

use super::Unanswered;
use super::trial::pod_named;

/// What the right column shows of a node.
#[derive(Debug, Serialize)]
pub(super) struct NodeDetail {
    node: String,
    resources: Vec<Resource>,
    taints: Vec<String>,
    labels: BTreeMap<String, String>,
    pods: Vec<PodOnNode>,
    /// The filters that refuse the selected pod; empty without one, and when none does.
    filters: Vec<Answer>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Resource {
    name: String,
    requested: i64,
    allocatable: i64,
}

#[derive(Debug, PartialEq, Serialize)]
struct PodOnNode {
    pod: String,
    cpu: i64,
    memory: i64,
    priority: i32,
}

pub(super) fn describe(
    state: &mut State,
    profiles: &Profiles,
    name: &str,
    pod: Option<&str>,
    now: Timestamp,
) -> Result<NodeDetail, Unanswered> {
    let filters = match pod.and_then(|pod| pod_named(state, pod).ok()) {
        Some(pod) => {
            let options = Options { node: Some(name.to_owned()), no_preemption: true, ..Options::at(now) };
            let asked = why::explain(state, profiles, &pod, &options).on_node;
            let all = asked.map(|on_node| on_node.filters).unwrap_or_default();
            all.into_iter().filter(|answer| !matches!(answer.code, "Success" | "Skip")).collect()
        }
        None => Vec::new(),
    };
    let found = state.cluster().node(name);
    let info = found.ok_or_else(|| Unanswered::NotFound(format!("there is no node {name}")))?;
    let taint = |taint: &bayplan_model::taint::Taint| match taint.value.is_empty() {
        true => format!("{}:{}", taint.key, taint.effect),
        false => format!("{}={}:{}", taint.key, taint.value, taint.effect),
    };
    let node = info.node();
    Ok(NodeDetail {
        node: name.to_owned(),
        resources: resources(info),
        taints: node.spec.taints.iter().map(taint).collect(),
        labels: node.metadata.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        pods: pods(info),
        filters,
    })
}

fn resources(info: &NodeInfo) -> Vec<Resource> {
    let scalars = info.allocatable.scalars.keys().map(|name| &**name);
    let names = [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter().chain(scalars);
    let amount = |name: &str| Resource {
        name: name.to_owned(),
        requested: info.requested.get(name),
        allocatable: info.allocatable.get(name),
    };
    let pods =
        Resource { name: PODS.to_owned(), requested: info.pods().len() as i64, allocatable: info.allocatable.pods };
    let listed = names.map(amount).filter(|resource| resource.allocatable != 0);
    listed.chain([pods]).collect()
}

/// The pods with the largest requests first.
fn pods(info: &NodeInfo) -> Vec<PodOnNode> {
    let on_node = |pod: &std::sync::Arc<bayplan_scheduler::PodInfo>| PodOnNode {
        pod: pod.key(),
        cpu: pod.usage.requested.milli_cpu,
        memory: pod.usage.requested.memory,
        priority: pod.priority(),
    };
    let mut pods: Vec<PodOnNode> = info.pods().iter().map(on_node).collect();
    pods.sort_by(|a, b| (b.cpu, b.memory, &a.pod).cmp(&(a.cpu, a.memory, &b.pod)));
    pods
}
