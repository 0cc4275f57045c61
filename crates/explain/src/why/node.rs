//! What a node refuses, what it would take, and what it has left.

use std::collections::BTreeMap;

use bayplan_model::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use bayplan_scheduler::inspect::Attempt;
use bayplan_scheduler::{NodeInfo, PluginName, Status};
use serde::Serialize;

use super::rejections::quantity;
use super::{API_VERSION, Options, SourceOfState, list, missing, profile_of, source_of};
use crate::{Profiles, State};

/// The answer of `why node/NAME`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `NodeExplanation`.
    pub kind: &'static str,
    /// Where the state comes from.
    pub source: SourceOfState,
    /// The node.
    pub node: String,
    /// The pending pods that it refuses, by the first plugin that refuses them. Most pods first.
    pub refuses: Vec<RefusesPods>,
    /// The pending pods that it would take, each taken by itself.
    pub would_take: Vec<String>,
    /// What pods may still request of it.
    pub free: BTreeMap<String, String>,
    /// The number of pods on it.
    pub pods: usize,
    /// One line for each thing that the reader should know about the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Those of the missing resources that could matter for the pending pods; text is spared the others.
    #[serde(skip)]
    pub missing_here: Vec<&'static str>,
}

/// Pending pods that a node refuses for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct RefusesPods {
    /// The plugin.
    pub plugin: PluginName,
    /// The reason, as upstream words it.
    pub reason: String,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
}

/// Asks a node about all pending pods; none when there is no such node.
pub fn explain_node(state: &State, profiles: &Profiles, node: &str, options: &Options) -> Option<NodeExplanation> {
    let info = state.cluster().node(node)?;
    let mut refuses: BTreeMap<(PluginName, String), Vec<String>> = BTreeMap::new();
    let mut would_take = Vec::new();
    let mut notes = Vec::new();
    let mut missing_here = Vec::new();
    for pods in list::alike(state.pending().cloned()) {
        let Some(profile) = profile_of(profiles, &pods[0], &mut notes) else { continue };
        let mut attempt = Attempt::new(profile, state.cluster(), state.nominator(), &pods[0], options.now);
        missing_here.extend(missing::for_pod(state, &pods[0]));
        let names = || pods.iter().map(|pod| pod.key());
        let gate = attempt.pre_enqueue();
        let status = if gate.is_success() { attempt.check_node(info) } else { gate };
        if status.is_success() {
            would_take.extend(names());
        }
        for reason in reasons(&status) {
            refuses.entry((status.plugin, reason)).or_default().extend(names());
        }
    }
    notes.sort();
    notes.dedup();
    missing_here.sort_unstable();
    missing_here.dedup();
    let mut refuses: Vec<RefusesPods> =
        refuses.into_iter().map(|((plugin, reason), pods)| RefusesPods { plugin, reason, pods }).collect();
    refuses.sort_by_key(|refused| std::cmp::Reverse(refused.pods.len()));
    Some(NodeExplanation {
        api_version: API_VERSION,
        kind: "NodeExplanation",
        source: source_of(state),
        node: node.to_owned(),
        refuses,
        would_take,
        free: free(info),
        pods: info.pods().len(),
        notes,
        missing_here,
    })
}

fn reasons(status: &Status) -> Vec<String> {
    match status.is_success() {
        true => Vec::new(),
        false if status.reasons.is_empty() => vec![status.code.name().to_owned()],
        false => status.reasons.iter().map(|reason| reason.to_string()).collect(),
    }
}

/// What pods may still request of a node: allocatable less what is requested.
fn free(node: &NodeInfo) -> BTreeMap<String, String> {
    let left = |resource: &str| node.allocatable.get(resource).saturating_sub(node.requested.get(resource));
    let basic = [CPU, MEMORY, EPHEMERAL_STORAGE].into_iter();
    let scalars = node.allocatable.scalars.keys().map(|name| &**name);
    let listed = basic.filter(|resource| node.allocatable.get(resource) != 0).chain(scalars);
    let mut free: BTreeMap<String, String> =
        listed.map(|resource| (resource.to_owned(), quantity(resource, left(resource)))).collect();
    let pods = node.allocatable.pods.saturating_sub(node.pods().len() as i64);
    free.insert(PODS.to_owned(), pods.to_string());
    free
}
