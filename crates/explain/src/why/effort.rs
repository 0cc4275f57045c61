//! What would let several groups of pods in, within a bounded effort.

use serde_json::Value;

use super::list::ExplanationList;
use super::{Options, PodName, search_changes};
use crate::{Complete, DECISIONS_MAX, FoundChanges, Profiles, State, Subject};

/// How many nodes, and pods on them, are looked at in all decisions for one list: 64 decisions on 5,000 nodes with
/// 150,000 pods, which take a second or two. The whole search for one pod takes some dozens.
const OBJECTS_ASKED_MAX: usize = 10_000_000;

/// What a decision costs besides, in objects: the pod and what is changed are patched and decoded again.
const OBJECTS_PER_DECISION_MIN: usize = 200;

/// With fewer decisions than this, hardly anything is found: the largest groups then have these, and others nothing.
const DECISIONS_MIN: usize = 10;

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
    find_within(state, profiles, list, pods, (options, OBJECTS_ASKED_MAX));
}

fn find_within(
    state: &mut State,
    profiles: &Profiles,
    list: &mut ExplanationList,
    pods: &WrittenPods<'_>,
    (options, objects_asked_max): (&Options, usize),
) {
    let objects = state.cluster().node_count() + state.cluster().placed_count();
    let mut left = objects_asked_max / objects.max(OBJECTS_PER_DECISION_MIN);
    let mut waiting: Vec<_> = list.groups.iter_mut().filter(|group| !group.explanation.verdict.fits()).collect();
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
            "the search for changes was ended for {unfinished} of {groups} groups, which may have more of them: ask \
             about one of their pods for all"
        ));
    }
}

#[cfg(test)]
mod tests {
    use bayplan_scheduler::Registry;
    use bayplan_scheduler::config::Configuration;
    use bayplan_sources::{ClusterObjects, resource_of};
    use bayplan_testkit::{node, pod};
    use jiff::Timestamp;

    use super::*;
    use crate::why::explain_all;

    /// How many changes each group has, largest group first, and what is said about the search.
    fn found(decisions: usize) -> (Vec<usize>, Vec<String>) {
        let mut objects = vec![node("n1").json(), node("n2").taint("a", "", "NoSchedule").json()];
        objects.push(pod("busy").request("cpu", "3").on_node("n1").json());
        for (count, cpu) in [(1, "2"), (3, "3"), (2, "4")] {
            objects.extend((0..count).map(|n| pod(&format!("p-{cpu}-{n}")).request("cpu", cpu).json()));
        }
        let mut state = State::new(ClusterObjects::of(&objects));
        let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
        let options = Options::at(Timestamp::UNIX_EPOCH);
        let pending: Vec<_> = state.pending().cloned().collect();
        let mut list = explain_all(&mut state, &profiles, pending, &options);
        let json = |state: &State, pod: &PodName| {
            let written = state.written(resource_of("v1", "Pod")?, &pod.namespace, &pod.name)?;
            serde_json::from_str(written.get()).ok()
        };
        let pods = WrittenPods { json: &json, complete: None };
        find_within(&mut state, &profiles, &mut list, &pods, (&options, decisions * OBJECTS_PER_DECISION_MIN));
        (list.groups.iter().map(|group| group.explanation.changes.len()).collect(), list.notes)
    }

    #[test]
    fn the_effort_is_shared_and_a_line_says_where_it_did_not_last() {
        let (all, notes) = found(1000);
        assert!(all.len() == 3 && all.iter().all(|changes| *changes > 2), "{all:?}");
        assert_eq!(notes, Vec::<String>::new());
        let (some, notes) = found(DECISIONS_MIN + 2);
        assert!(some[0] > 0 && some[0] < all[0], "the largest group is looked at first: {some:?}");
        assert_eq!(some[2], 0, "{some:?}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("the search for changes was ended for 3 of 3 groups"), "{notes:?}");
        assert_eq!(found(0).0, [0, 0, 0]);
    }
}
