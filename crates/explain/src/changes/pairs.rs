//! Two changes of different kinds together, where no change of one kind is enough.
//!
//! ```text
//!   nodes that exactly two kinds of obstacles refuse ─▶ a draft against the first ─▶ applied: what is still in the way
//!                                                       └──── with a change against the second, proven on top of it
//! ```

use super::obstacles::Obstacles;
use super::trial::{Draft, Trial};
use super::{Change, cost, delete_pods, reduce_request, relax, tolerate};

/// Most pairs that are returned: each is two things to do.
const PAIRS_MAX: usize = 4;
/// How many first parts of one kind are tried.
const FIRSTS_MAX: usize = 3;
/// Most decisions for pairs, so that they leave a question as quick as it was.
const PAIR_DECISIONS_MAX: usize = 120;

/// Drafts against one kind of obstacle, not proven.
type Drafts = fn(&Trial<'_>, &Obstacles) -> Vec<Draft>;

/// A kind of obstacle and what helps against it.
struct Part {
    /// The plugins that refuse nodes for it.
    plugins: &'static [&'static str],
    /// First parts of pairs; none where it can only be the second.
    drafts: Option<Drafts>,
    changes: fn(&mut Trial<'_>, &Obstacles) -> Vec<Change>,
}

/// Each part is paired with those after it, so that no pair is found twice.
const PARTS: &[Part] = &[
    Part {
        plugins: &["TaintToleration", "NodeUnschedulable"],
        drafts: Some(relax::cordon::drafts),
        changes: relax::cordon::changes,
    },
    Part {
        plugins: &["TaintToleration", "NodeUnschedulable"],
        drafts: Some(tolerate::drafts),
        changes: tolerate::changes,
    },
    Part {
        plugins: &["NodeAffinity"],
        drafts: Some(relax::node_affinity::drafts),
        changes: relax::node_affinity::changes,
    },
    Part { plugins: &["PodTopologySpread"], drafts: Some(relax::spread::drafts), changes: relax::spread::changes },
    Part {
        plugins: &["InterPodAffinity"],
        drafts: Some(relax::pod_affinity::drafts),
        changes: relax::pod_affinity::changes,
    },
    Part { plugins: &["NodePorts"], drafts: Some(relax::ports::drafts), changes: relax::ports::changes },
    Part { plugins: &["NodeResourcesFit"], drafts: None, changes: reduce_request::changes },
    Part {
        plugins: &["NodeResourcesFit", "InterPodAffinity", "NodePorts"],
        drafts: None,
        changes: delete_pods::changes,
    },
];

/// Changes of two kinds each, of which neither is enough.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let most = trial.decisions().saturating_add(PAIR_DECISIONS_MAX);
    let mut found: Vec<Change> = Vec::new();
    for (at, first) in PARTS.iter().enumerate() {
        let Some(drafts) = first.drafts else { continue };
        for second in &PARTS[at + 1..] {
            if second.plugins == first.plugins {
                continue;
            }
            let both = obstacles.refused_by_both(first.plugins, second.plugins);
            for base in drafts(trial, &both).into_iter().take(FIRSTS_MAX) {
                if trial.is_exhausted() || trial.decisions() > most {
                    return smallest(found);
                }
                let pairs = trial.with_base(&base, |trial, left| (second.changes)(trial, left));
                found.extend(pairs.into_iter().filter(|pair| !is_second_enough(trial, &base, pair)));
            }
        }
    }
    smallest(found)
}

/// Whether the second part does without the first. Parts that patch the pod or nodes were tried alone before; pods that
/// are deleted may be others than those that were.
fn is_second_enough(trial: &mut Trial<'_>, base: &Draft, pair: &Change) -> bool {
    if pair.deletes.is_empty() {
        return false;
    }
    let name = |name: &String| name.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let mut alone = Draft::new(base.kind, cost::DELETION, String::new());
    alone.deletes = pair.deletes.iter().filter_map(name).collect();
    trial.prove(alone).is_some()
}

fn smallest(mut found: Vec<Change>) -> Vec<Change> {
    found.sort_by_key(|change| change.cost);
    found.truncate(PAIRS_MAX);
    found
}
