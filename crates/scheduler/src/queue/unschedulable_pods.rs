//! Pods that wait for an event, grouped so that an event need not be checked for each of them.
//!
//! ```text
//!   class: scheduler and rejecting plugins      skipped when none of the plugins is registered for the event
//!     └─ group: pods of one signature           hints that read only the signature run once
//!          └─ pods
//! ```

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::slots::{Slot, Slots, SubQueue};
use super::{ClusterChange, HintScope, QueuePlugins, QueueingStrategy};
use crate::cluster::{Object, PodInfo};
use crate::framework::{ObjectChange, PluginName, QueuedPod};

/// Pods of one scheduler that the same plugins rejected. Empty classes are kept: there are only as many as profiles and
/// sets of plugins that reject together.
struct Class {
    scheduler: String,
    unschedulable: BTreeSet<PluginName>,
    pending: BTreeSet<PluginName>,
    gating: Option<PluginName>,
    groups: Vec<u32>,
    by_signature: FxHashMap<u64, Vec<u32>>,
}

impl Class {
    fn contains(&self, pod: &QueuedPod) -> bool {
        self.gating == pod.gating_plugin
            && self.unschedulable == pod.unschedulable_plugins
            && self.pending == pod.pending_plugins
            && self.scheduler == pod.info.spec.scheduler_name
    }
}

/// Pods of a class with the same signature.
#[derive(Default)]
struct Group {
    class: u32,
    signature: u64,
    /// The group's index in its class.
    at: u32,
    pods: Vec<Slot>,
}

/// Pods that wait for an event.
#[derive(Default)]
pub(super) struct UnschedulablePods {
    classes: Vec<Class>,
    groups: Vec<Group>,
    free: Vec<u32>,
    len: usize,
    gated: usize,
}

impl UnschedulablePods {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of gated pods.
    pub(super) fn gated(&self) -> usize {
        self.gated
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.classes.iter().flat_map(|class| &class.groups).flat_map(|at| &self.groups[*at as usize].pods).copied()
    }

    /// Adds a pod.
    pub(super) fn insert(&mut self, slot: Slot, pod: QueuedPod, slots: &mut Slots) {
        let class = self.class_of(&pod);
        let group = self.group_of(class, &pod, slots);
        self.len += 1;
        self.gated += usize::from(pod.gating_plugin.is_some());
        slots.put(slot, pod, SubQueue::Unschedulable);
        let pods = &mut self.groups[group as usize].pods;
        let position = &mut slots.positions[slot as usize];
        (position.group, position.at) = (group, pods.len() as u32);
        pods.push(slot);
    }

    fn class_of(&mut self, pod: &QueuedPod) -> u32 {
        let at = self.classes.iter().position(|class| class.contains(pod)).unwrap_or_else(|| {
            self.classes.push(Class {
                scheduler: pod.info.spec.scheduler_name.clone(),
                unschedulable: pod.unschedulable_plugins.clone(),
                pending: pod.pending_plugins.clone(),
                gating: pod.gating_plugin,
                groups: Vec::new(),
                by_signature: FxHashMap::default(),
            });
            self.classes.len() - 1
        });
        at as u32
    }

    fn group_of(&mut self, class: u32, pod: &QueuedPod, slots: &Slots) -> u32 {
        let of_class = &mut self.classes[class as usize];
        let signature = pod.info.signature_hash.full;
        let same_hash = of_class.by_signature.entry(signature).or_default();
        let groups = &mut self.groups;
        let same = |at: &&u32| slots.pod(groups[**at as usize].pods[0]).info.same_signature(&pod.info);
        if let Some(at) = same_hash.iter().find(same) {
            return *at;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() as u32 - 1
        });
        groups[at as usize] = Group { class, signature, at: of_class.groups.len() as u32, pods: Vec::new() };
        same_hash.push(at);
        of_class.groups.push(at);
        at
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, slot: Slot, slots: &mut Slots) -> QueuedPod {
        let position = slots.positions[slot as usize];
        let pods = &mut self.groups[position.group as usize].pods;
        pods.swap_remove(position.at as usize);
        if let Some(moved) = pods.get(position.at as usize) {
            slots.positions[*moved as usize].at = position.at;
        }
        if pods.is_empty() {
            self.drop_group(position.group);
        }
        let pod = slots.take(slot);
        self.len -= 1;
        self.gated -= usize::from(pod.gating_plugin.is_some());
        pod
    }

    fn drop_group(&mut self, at: u32) {
        let Group { class, signature, at: in_class, .. } = std::mem::take(&mut self.groups[at as usize]);
        let class = &mut self.classes[class as usize];
        class.groups.swap_remove(in_class as usize);
        if let Some(moved) = class.groups.get(in_class as usize) {
            self.groups[*moved as usize].at = in_class;
        }
        if let Some(same_hash) = class.by_signature.get_mut(&signature) {
            same_hash.retain(|group| *group != at);
            if same_hash.is_empty() {
                class.by_signature.remove(&signature);
            }
        }
        self.free.push(at);
    }

    /// The pods that a change moves, of those that `may` move, and the number of pods that would move but for a gate
    /// that only activation opens.
    pub(super) fn moved_by(
        &self,
        change: &ClusterChange,
        may: &dyn Fn(&PodInfo) -> bool,
        slots: &Slots,
        plugins: &dyn QueuePlugins,
    ) -> (Vec<(Slot, QueueingStrategy)>, usize) {
        let subject = slot_of_subject(change, slots);
        let strategy = |slot: Slot| change.strategy_for(slots.pod(slot), plugins);
        let (mut moved, mut still_gated) = (Vec::new(), 0);
        for class in &self.classes {
            let Some(first) = class.groups.first() else { continue };
            let first = slots.pod(self.groups[*first as usize].pods[0]);
            let scope = hint_scope_of_class(first, change, plugins);
            if scope == HintScope::Nobody {
                continue;
            }
            let is_shut = first.gating_plugin.is_some_and(|gating| plugins.waits_for_activation(&first.info, gating));
            for group in &class.groups {
                let pods = &self.groups[*group as usize].pods;
                if scope == HintScope::Pod {
                    moved.extend(pods.iter().map(|slot| (*slot, strategy(*slot))));
                    continue;
                }
                // The pod that the change is about may get another answer than the others of its signature.
                let subject = subject.filter(|subject| slots.positions[*subject as usize].group == *group);
                moved.extend(subject.map(|subject| (subject, strategy(subject))));
                let others = || pods.iter().copied().filter(|slot| Some(*slot) != subject);
                let Some(other) = others().next() else { continue };
                let shared = strategy(other);
                if shared == QueueingStrategy::Skip || !may(&slots.pod(other).info) {
                    continue;
                }
                match is_shut {
                    true => still_gated += pods.len() - usize::from(subject.is_some()),
                    false => moved.extend(others().map(|slot| (slot, shared))),
                }
            }
        }
        moved.retain(|(slot, strategy)| *strategy != QueueingStrategy::Skip && may(&slots.pod(*slot).info));
        (moved, still_gated)
    }
}

/// The unschedulable pod that the change is about, if it is about one.
fn slot_of_subject(change: &ClusterChange, slots: &Slots) -> Option<Slot> {
    let ObjectChange { old, new } = ObjectChange::of(change.object.as_ref());
    let mut uids = [old, new].into_iter().flatten().filter_map(|object| match object {
        Object::Pod(pod) => Some(pod.metadata.uid.as_str()),
        _ => None,
    });
    uids.find_map(|uid| slots.find(uid)).filter(|slot| slots.sub_queue(*slot) == SubQueue::Unschedulable)
}

/// For which pods of the class of a pod one answer to the event holds.
fn hint_scope_of_class(pod: &QueuedPod, change: &ClusterChange, plugins: &dyn QueuePlugins) -> HintScope {
    let event = &change.event;
    if event.is_wildcard() {
        return HintScope::Pod;
    }
    if pod.gating_plugin.is_some_and(|gating| !plugins.is_registered(&pod.info, gating, event)) {
        return HintScope::Nobody;
    }
    // A pod that no plugin rejected is moved by any event.
    let nobody_rejected = pod.unschedulable_plugins.is_empty() && pod.pending_plugins.is_empty();
    if nobody_rejected { HintScope::Pod } else { plugins.hint_scope(pod, event) }
}
