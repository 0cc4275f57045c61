//! Why many pods are pending, each template and answer once.

use std::sync::Arc;

use bayplan_model::pod::Volume;
use bayplan_scheduler::PodInfo;
use serde::Serialize;

use super::{API_VERSION, Explanation, Options, SourceOfState, Verdict, explain, source_of};
use crate::{Profiles, State};

/// The answer for several pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationList {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `ExplanationList`.
    pub kind: &'static str,
    /// Where the state comes from.
    pub source: SourceOfState,
    /// Pods of one template with one answer, most pods first.
    pub groups: Vec<Group>,
    /// How many pods have which verdict.
    pub counts: Counts,
    /// One line for each thing that the reader should know about the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Pods of one template with one answer.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// The answer in a few words.
    pub cause: String,
    /// The pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// The answer for the first of them.
    pub explanation: Explanation,
}

/// How many pods have which verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Counts {
    /// Bound.
    pub placed: usize,
    /// A node fits now.
    pub will_place: usize,
    /// Nothing fits now.
    pub not_yet: usize,
    /// Nothing will ever fit.
    pub never: usize,
    /// Held by PreEnqueue.
    pub gated: usize,
}

impl Counts {
    fn add(&mut self, verdict: Verdict, pods: usize) {
        *match verdict {
            Verdict::Placed => &mut self.placed,
            Verdict::WillPlace => &mut self.will_place,
            Verdict::NotYet => &mut self.not_yet,
            Verdict::Never => &mut self.never,
            Verdict::Gated => &mut self.gated,
        } += pods;
    }
}

/// Explains pods. Those that no plugin can tell apart are decided once.
pub fn explain_all(
    state: &mut State,
    profiles: &Profiles,
    pods: impl IntoIterator<Item = Arc<PodInfo>>,
    options: &Options,
) -> ExplanationList {
    let mut groups: Vec<Group> = Vec::new();
    let mut counts = Counts::default();
    for pods in alike(pods) {
        let explanation = explain(state, profiles, &pods[0], options);
        counts.add(explanation.verdict, pods.len());
        let names = pods.iter().map(|pod| pod.key()).collect();
        groups.push(Group { cause: cause(&explanation), pods: names, explanation });
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
    let (kind, source) = ("ExplanationList", source_of(state));
    ExplanationList { api_version: API_VERSION, kind, source, groups, counts, notes: Vec::new() }
}

/// Pods that get the same answer, together.
pub(super) fn alike(pods: impl IntoIterator<Item = Arc<PodInfo>>) -> Vec<Vec<Arc<PodInfo>>> {
    let mut groups: Vec<Vec<Arc<PodInfo>>> = Vec::new();
    for pod in pods {
        let same = |group: &&mut Vec<Arc<PodInfo>>| {
            let first = &group[0];
            // A bound pod's answer depends on what it leaves behind on its node.
            !pod.is_assigned()
                && first.status.nominated_node_name == pod.status.nominated_node_name
                && is_alike(first, &pod)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(pod),
            None => groups.push(vec![pod]),
        }
    }
    groups
}

/// True when no plugin can tell two pods apart. Every pod has a volume with a token, under a name of its own:
/// volumes of kinds that no plugin reads do not count.
fn is_alike(one: &PodInfo, other: &PodInfo) -> bool {
    let is_read = |volume: &&Volume| **volume != Volume { name: volume.name.clone(), ..Volume::default() };
    let read = |pod: &PodInfo| pod.spec.volumes.iter().filter(is_read).cloned().collect::<Vec<_>>();
    let has_own_claims = |pod: &PodInfo| {
        let ephemeral = pod.spec.volumes.iter().any(|volume| volume.ephemeral.is_some());
        ephemeral || !pod.spec.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some()
    };
    one.same_signature(other)
        || (one.same_base_signature(other)
            && !has_own_claims(one)
            && !has_own_claims(other)
            && read(one) == read(other))
}

/// The answer in a few words: what refused the most nodes.
pub fn cause(explanation: &Explanation) -> String {
    let held = explanation.pre_enqueue.as_ref().or(explanation.pre_filter.as_ref());
    if let Some(held) = held {
        let by = if held.plugin.is_empty() { "PreFilter" } else { held.plugin };
        return format!("{by}: {}", held.reasons.join(", "));
    }
    if let Some(error) = &explanation.error {
        return format!("error: {error}");
    }
    match (explanation.verdict, explanation.rejections.as_slice()) {
        (Verdict::Placed | Verdict::WillPlace, _) => match &explanation.node {
            Some(node) if explanation.verdict == Verdict::Placed => format!("on {node}"),
            Some(node) => format!("fits on {node}"),
            None => "fits".to_owned(),
        },
        (_, []) => explanation.message.clone().unwrap_or_default(),
        (_, [first, rest @ ..]) => {
            let by = if first.plugin.is_empty() { "PreFilter" } else { first.plugin };
            let more = match rest.len() {
                0 => String::new(),
                1 => ", and one more reason".to_owned(),
                more => format!(", and {more} more reasons"),
            };
            format!("{by}: {}{more}", first.reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::pod::Pod;
    use bayplan_testkit::pod;
    use serde_json::json;

    use super::*;

    fn with_volume(name: &str, volume: serde_json::Value) -> Arc<PodInfo> {
        let mut json = pod(name).request("cpu", "1").json();
        json["spec"]["volumes"] = json!([volume]);
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value::<Pod>(json).unwrap())))
    }

    #[test]
    fn pods_are_alike_unless_a_volume_that_plugins_read_tells_them_apart() {
        let token = |name: &str, volume: &str| with_volume(name, json!({"name": volume, "projected": {"sources": []}}));
        assert_eq!(alike([token("a", "kube-api-access-x"), token("b", "kube-api-access-y")]).len(), 1);
        let claim = |name: &str, claim: &str| {
            with_volume(name, json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}))
        };
        assert_eq!(alike([claim("a", "one"), claim("b", "one"), claim("c", "two")]).len(), 2);
        let own = |name: &str| with_volume(name, json!({"name": "scratch", "ephemeral": {}}));
        assert_eq!(alike([own("a"), own("b")]).len(), 2);
    }
}
