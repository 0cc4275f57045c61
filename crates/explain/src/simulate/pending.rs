//! Pods that found no node, and which of them is worth another try.
//!
//! ```text
//!   pod placed, pod gone, node changed ─▶ Changes      what came and went since a group was asked
//!                                            │
//!   pods in order of priority and age ─▶ groups of one signature ─▶ the next group that may get another answer
//! ```
//!
//! Pods of one signature get one answer: while the first of them fits nowhere, the others are not asked. A group that
//! was refused is asked again only after a change that could help it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::PodInfo;
use bayplan_scheduler::config::{Configuration, ProfileConfig};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// How many different priorities are told apart; with more, every change may help every important pod.
const PRIORITIES_MAX: usize = 64;
/// The spread constraints that filters hold.
const DO_NOT_SCHEDULE: &str = "DoNotSchedule";

/// The order in which pods are tried again: important ones first, then those that have waited longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    since: Timestamp,
    number: u64,
}

impl Rank {
    /// The rank of a pod that waits since a time; `number` tells pods of one time apart.
    pub(super) fn new(pod: &PodInfo, since: Timestamp, number: u64) -> Self {
        Rank { priority: Reverse(pod.priority()), since, number }
    }
}

/// Why a group may get another answer than the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    /// A node may take it as it is.
    Fit,
    /// The same, or less important pods may make way now.
    Preemption,
}

/// What a pod that arrives can expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prospect {
    /// To be refused as its like were, and nothing has changed since.
    Refusal,
    /// To be refused, unless a node takes it as it is: nobody would make way.
    Fit,
    /// Anything.
    Unknown,
}

/// Pods of one signature.
struct Group {
    pod: Arc<PodInfo>,
    uids: BTreeMap<Rank, String>,
    /// The time of [`Changes`] at which the group was last refused; none for one that is nominated to a node or was not
    /// asked yet.
    refused_at: Option<u64>,
    /// Whether filters count pods for it: more pods may let it in.
    counts_pods: bool,
}

/// The pods of one priority on nodes, and when they last changed.
#[derive(Default)]
struct Level {
    pods: usize,
    placed_at: u64,
    left_at: u64,
}

/// What happened, on a clock that counts changes.
#[derive(Default)]
struct Changes {
    now: u64,
    /// The last time at which a pod left a node.
    left_at: u64,
    /// The last time at which a pod came to a node.
    placed_at: u64,
    /// The last change of anything else.
    other_at: u64,
    /// Whether a pod was seen that keeps others away: then one that leaves may help on other nodes than its own.
    keep_apart: bool,
    levels: BTreeMap<i32, Level>,
}

impl Changes {
    fn next(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Whether less important pods may make way since a time, when they did not before: there are some, and one of them
    /// came, or one that could not make way left.
    fn allow_preemption(&self, group: &Group, since: u64) -> bool {
        if !self.may_preempt(&group.pod) {
            return false;
        }
        if self.levels.len() > PRIORITIES_MAX {
            return self.now > since;
        }
        let priority = group.pod.priority();
        let lower = || self.levels.range(..priority).map(|(_, level)| level);
        if group.counts_pods || self.keep_apart {
            return self.now > since;
        }
        self.other_at > since
            || lower().any(|level| level.placed_at > since)
            || self.levels.range(priority..).any(|(_, level)| level.left_at > since)
    }

    /// Whether there are pods that may have to make way for this one.
    fn may_preempt(&self, pod: &Pod) -> bool {
        pod.spec.preemption_policy.as_deref() != Some("Never")
            && self.levels.range(..pod.priority()).any(|(_, level)| level.pods > 0)
    }

    fn note(&mut self, pod: &Pod) {
        // What is bound to volumes and devices may matter on any node.
        if !pod.spec.volumes.is_empty() || !pod.spec.resource_claims.is_empty() {
            self.other_at = self.now;
        }
        let affinity = pod.spec.affinity.as_ref();
        let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        self.keep_apart |= apart.is_some_and(|apart| !apart.required.is_empty());
    }
}

/// All pods that found no node.
#[derive(Default)]
pub(super) struct Pending {
    groups: Vec<Group>,
    free: Vec<usize>,
    by_signature: FxHashMap<u64, Vec<usize>>,
    /// The groups by the rank of their first pod.
    heads: BTreeMap<Rank, usize>,
    of_pod: FxHashMap<String, (Rank, usize)>,
    changes: Changes,
    /// Whether pods without constraints of their own get some that filters count pods for.
    spread_by_default: bool,
}

impl Pending {
    /// Nobody waits yet, under this configuration.
    pub(super) fn new(configuration: &Configuration) -> Self {
        let is_hard = |rule: &Value| rule["whenUnsatisfiable"] == DO_NOT_SCHEDULE;
        let spreads = |profile: &ProfileConfig| {
            let rules = profile.args("PodTopologySpread").and_then(|args| args["defaultConstraints"].as_array());
            rules.is_some_and(|rules| rules.iter().any(is_hard))
        };
        Pending { spread_by_default: configuration.profiles.iter().any(spreads), ..Pending::default() }
    }

    /// A pod came to a node.
    pub(super) fn placed(&mut self, pod: &Pod) {
        let now = self.changes.next();
        self.changes.placed_at = now;
        self.changes.note(pod);
        let level = self.changes.levels.entry(pod.priority()).or_default();
        (level.pods, level.placed_at) = (level.pods + 1, now);
    }

    /// A pod left its node.
    pub(super) fn left(&mut self, pod: &Pod) {
        let now = self.changes.next();
        self.changes.left_at = now;
        self.changes.note(pod);
        let level = self.changes.levels.entry(pod.priority()).or_default();
        (level.pods, level.left_at) = (level.pods.saturating_sub(1), now);
    }

    /// Something else changed: a node, an object, a nomination.
    pub(super) fn changed(&mut self) {
        self.changes.other_at = self.changes.next();
    }

    /// A pod was refused; it may be here already.
    pub(super) fn add(&mut self, pod: &Arc<PodInfo>, rank: Rank) {
        if self.of_pod.contains_key(pod.uid()) {
            return;
        }
        self.changes.note(pod);
        let at = self.group_of(pod);
        let group = &mut self.groups[at];
        if let Some((head, _)) = group.uids.first_key_value() {
            self.heads.remove(head);
        }
        group.uids.insert(rank, pod.uid().to_owned());
        let head = group.uids.first_key_value().map_or(rank, |(head, _)| *head);
        self.heads.insert(head, at);
        self.of_pod.insert(pod.uid().to_owned(), (rank, at));
    }

    /// A pod is placed or gone.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Rank> {
        let (rank, at) = self.of_pod.remove(uid)?;
        let group = &mut self.groups[at];
        let was_head = group.uids.first_key_value().is_some_and(|(head, _)| *head == rank);
        group.uids.remove(&rank);
        if was_head {
            self.heads.remove(&rank);
            match group.uids.first_key_value() {
                Some((head, _)) => drop(self.heads.insert(*head, at)),
                None => self.drop_group(at),
            }
        }
        Some(rank)
    }

    /// True when nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.of_pod.is_empty()
    }

    /// What a pod that arrives now can expect.
    pub(super) fn prospect(&self, pod: &PodInfo) -> Prospect {
        let hope = match self.find_group(pod) {
            Some(at) => self.hope(&self.groups[at]),
            None if self.changes.may_preempt(pod) => Some(Hope::Preemption),
            None => Some(Hope::Fit),
        };
        match hope {
            None => Prospect::Refusal,
            Some(Hope::Fit) => Prospect::Fit,
            Some(Hope::Preemption) => Prospect::Unknown,
        }
    }

    /// The group whose answer holds for a pod. What a nominated pod is answered holds for nobody else.
    fn find_group(&self, pod: &PodInfo) -> Option<usize> {
        let same_number = self.by_signature.get(&pod.signature_number())?;
        let is_same = |group: &Group| !group.pod.is_nominated() && group.pod.same_signature(pod);
        same_number.iter().copied().find(|at| !pod.is_nominated() && is_same(&self.groups[*at]))
    }

    fn group_of(&mut self, pod: &Arc<PodInfo>) -> usize {
        if let Some(at) = self.find_group(pod) {
            return at;
        }
        let counts_pods = self.counts_pods(pod);
        let group = Group { counts_pods, pod: pod.clone(), uids: BTreeMap::new(), refused_at: None };
        let at = match self.free.pop() {
            Some(at) => {
                self.groups[at] = group;
                at
            }
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        };
        self.by_signature.entry(pod.signature_number()).or_default().push(at);
        at
    }

    fn drop_group(&mut self, at: usize) {
        let number = self.groups[at].pod.signature_number();
        if let Some(same_number) = self.by_signature.get_mut(&number) {
            same_number.retain(|other| *other != at);
            if same_number.is_empty() {
                self.by_signature.remove(&number);
            }
        }
        self.free.push(at);
    }

    /// The first pod after a rank whose group may get another answer than the last time, and why.
    pub(super) fn next(&self, after: Option<Rank>) -> Option<(Rank, Hope)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut heads = self.heads.range((from, Bound::Unbounded));
        heads.find_map(|(rank, at)| Some((*rank, self.hope(&self.groups[*at])?)))
    }

    fn hope(&self, group: &Group) -> Option<Hope> {
        let changes = &self.changes;
        let Some(since) = group.refused_at else { return Some(Hope::Preemption) };
        if changes.allow_preemption(group, since) {
            return Some(Hope::Preemption);
        }
        let may_fit = changes.left_at.max(changes.other_at) > since || group.counts_pods && changes.placed_at > since;
        may_fit.then_some(Hope::Fit)
    }

    /// The group of a first pod: one of its pods, and the UID of the first.
    pub(super) fn head(&self, rank: Rank) -> Option<(Arc<PodInfo>, String)> {
        let group = &self.groups[*self.heads.get(&rank)?];
        Some((group.pod.clone(), group.uids.get(&rank)?.clone()))
    }

    /// The group of this pod was refused as things are now.
    pub(super) fn refused(&mut self, uid: &str) {
        if let Some((_, at)) = self.of_pod.get(uid)
            && !self.groups[*at].pod.is_nominated()
        {
            self.groups[*at].refused_at = Some(self.changes.now);
        }
    }

    /// Whether filters count pods for this one: it must be near some, or evenly spread.
    fn counts_pods(&self, pod: &PodInfo) -> bool {
        let rules = &pod.spec.topology_spread_constraints;
        !pod.required_affinity.is_empty()
            || rules.iter().any(|rule| rule.when_unsatisfiable == DO_NOT_SCHEDULE)
            || (rules.is_empty() && self.spread_by_default)
    }

    /// All pods in their order.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<String> {
        let mut all: Vec<(Rank, &String)> = self.of_pod.iter().map(|(uid, (rank, _))| (*rank, uid)).collect();
        all.sort();
        all.into_iter().map(|(_, uid)| uid.clone()).collect()
    }
}
