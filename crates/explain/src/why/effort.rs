//! What would let several groups of pods in, within a bounded effort.

use serde_json::Value;

use super::list::ExplanationList;
use super::{Options, PodName, Verdict, search_changes};
use crate::{Complete, DECISIONS_MAX, FoundChanges, Profiles, State, Subject};

/// How many nodes are asked in all decisions for one list: 800 decisions on 5,000 nodes. The whole search for one pod
/// takes some dozens.
const NODES_ASKED_MAX: usize = 4_000_000;

/// What a decision costs besides its nodes, in nodes: the pod and the objects are patched and decoded again.
const NODES_PER_DECISION_MIN: usize = 200;

/// With fewer decisions than this, hardly anything is found: the largest groups then have these, and others nothing.
const DECISIONS_MIN: usize = 8;

/// The pods of a list as they are written.
pub struct WrittenPods<'a> {
    /// A pod's JSON; none when it is unknown.
    pub json: &'a dyn Fn(&State, &PodName) -> Option<Value>,
    /// How a pod is completed before it is decided; none for pods that are taken as written.
    pub complete: Option<&'a Complete<'a>>,
}

/// Adds the changes that would let in the pods of each group, largest group first. What one group does not need is left
/// for the next. A line says for how many groups the effort did not last.
pub fn find_changes_of_all(
    state: &mut State,
    profiles: &Profiles,
    list: &mut ExplanationList,
    pods: &WrittenPods<'_>,
    options: &Options,
) {
    let nodes = state.cluster().node_count().max(NODES_PER_DECISION_MIN);
    let mut left = NODES_ASKED_MAX / nodes;
    let mut waiting: Vec<_> = list.groups.iter_mut().filter(|group| fits_nowhere(group.explanation.verdict)).collect();
    let groups = waiting.len();
    let mut unfinished = 0;
    for (at, group) in waiting.iter_mut().enumerate() {
        let share = (left / (groups - at)).max(DECISIONS_MIN).min(left).min(DECISIONS_MAX);
        let found = match share {
            0 => FoundChanges::default(),
            share => {
                let explanation = &mut group.explanation;
                let json = (pods.json)(state, &explanation.pod);
                json.map_or(FoundChanges { is_complete: true, ..FoundChanges::default() }, |json| {
                    let subject = Subject { json: &json, complete: pods.complete };
                    search_changes(state, profiles, explanation, subject, share, options)
                })
            }
        };
        left = left.saturating_sub(found.decisions);
        unfinished += usize::from(!found.is_complete);
        group.explanation.changes = found.changes;
    }
    if unfinished > 0 {
        list.notes.push(format!(
            "the search for changes was ended for {unfinished} of {groups} groups, which may have more of them: ask about \
             one of their pods for all"
        ));
    }
}

fn fits_nowhere(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Placed | Verdict::WillPlace)
}
