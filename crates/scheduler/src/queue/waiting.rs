//! Pods that wait for an event, grouped by what an event is asked about.
//!
//! ```text
//!   class: scheduler, who rejected, who waits, who gates      an event nobody of them hears of passes by
//!     └─ group: pods of one shape                             hints that read the shape alone are asked once
//!          └─ pods
//! ```

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::slots::{Line, Slot, Slots};
use super::{Asks, Happening, Judge, QueuedPod, Requeue, verdict};
use crate::cluster::{Object, PodInfo};
use crate::framework::PluginName;

/// Pods with the same scheduler that the same plugins hold back. Classes stay when they are empty: there are only as
/// many as there are profiles and sets of plugins that reject together.
struct Class {
    scheduler: String,
    unschedulable: BTreeSet<PluginName>,
    pending: BTreeSet<PluginName>,
    gating: Option<PluginName>,
    groups: Vec<u32>,
    by_shape: FxHashMap<u64, Vec<u32>>,
}

impl Class {
    fn is_of(&self, pod: &QueuedPod) -> bool {
        self.gating == pod.gating_plugin
            && self.unschedulable == pod.unschedulable_plugins
            && self.pending == pod.pending_plugins
            && self.scheduler == pod.info.spec.scheduler_name
    }
}

/// Pods of a class that plugins cannot tell apart.
#[derive(Default)]
struct Group {
    class: u32,
    shape: u64,
    /// Its place in the class.
    at: u32,
    pods: Vec<Slot>,
}

/// Pods that wait for an event.
#[derive(Default)]
pub(super) struct Waiting {
    classes: Vec<Class>,
    groups: Vec<Group>,
    free: Vec<u32>,
    len: usize,
    gated: usize,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many of them are gated.
    pub(super) fn gated(&self) -> usize {
        self.gated
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.classes.iter().flat_map(|class| &class.groups).flat_map(|at| &self.groups[*at as usize].pods).copied()
    }

    /// Puts a pod in line.
    pub(super) fn insert(&mut self, slot: Slot, pod: QueuedPod, slots: &mut Slots) {
        let class = self.class_of(&pod);
        let group = self.group_of(class, &pod, slots);
        self.len += 1;
        self.gated += usize::from(pod.gating_plugin.is_some());
        slots.put(slot, pod, Line::Waiting);
        let pods = &mut self.groups[group as usize].pods;
        let stand = &mut slots.stands[slot as usize];
        (stand.group, stand.at) = (group, pods.len() as u32);
        pods.push(slot);
    }

    fn class_of(&mut self, pod: &QueuedPod) -> u32 {
        let at = self.classes.iter().position(|class| class.is_of(pod)).unwrap_or_else(|| {
            self.classes.push(Class {
                scheduler: pod.info.spec.scheduler_name.clone(),
                unschedulable: pod.unschedulable_plugins.clone(),
                pending: pod.pending_plugins.clone(),
                gating: pod.gating_plugin,
                groups: Vec::new(),
                by_shape: FxHashMap::default(),
            });
            self.classes.len() - 1
        });
        at as u32
    }

    fn group_of(&mut self, class: u32, pod: &QueuedPod, slots: &Slots) -> u32 {
        let of_class = &mut self.classes[class as usize];
        let shape = pod.info.shape_hash.full;
        let same_hash = of_class.by_shape.entry(shape).or_default();
        let groups = &mut self.groups;
        let same = |at: &&u32| slots.pod(groups[**at as usize].pods[0]).info.same_shape(&pod.info);
        if let Some(at) = same_hash.iter().find(same) {
            return *at;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            groups.push(Group::default());
            groups.len() as u32 - 1
        });
        groups[at as usize] = Group { class, shape, at: of_class.groups.len() as u32, pods: Vec::new() };
        same_hash.push(at);
        of_class.groups.push(at);
        at
    }

    /// Takes a pod out of line.
    pub(super) fn remove(&mut self, slot: Slot, slots: &mut Slots) -> QueuedPod {
        let stand = slots.stands[slot as usize];
        let pods = &mut self.groups[stand.group as usize].pods;
        pods.swap_remove(stand.at as usize);
        if let Some(moved) = pods.get(stand.at as usize) {
            slots.stands[*moved as usize].at = stand.at;
        }
        if pods.is_empty() {
            self.drop_group(stand.group);
        }
        let pod = slots.take(slot);
        self.len -= 1;
        self.gated -= usize::from(pod.gating_plugin.is_some());
        pod
    }

    fn drop_group(&mut self, at: u32) {
        let Group { class, shape, at: in_class, .. } = std::mem::take(&mut self.groups[at as usize]);
        let class = &mut self.classes[class as usize];
        class.groups.swap_remove(in_class as usize);
        if let Some(moved) = class.groups.get(in_class as usize) {
            self.groups[*moved as usize].at = in_class;
        }
        if let Some(same_hash) = class.by_shape.get_mut(&shape) {
            same_hash.retain(|group| *group != at);
            if same_hash.is_empty() {
                class.by_shape.remove(&shape);
            }
        }
        self.free.push(at);
    }

    /// The pods an event brings back, of those that may be: pods of one shape all or none, but for the one the event is
    /// about. Pods of which it is known that their gate stays shut are only counted.
    pub(super) fn woken(
        &self,
        happening: &Happening,
        may: &dyn Fn(&PodInfo) -> bool,
        slots: &Slots,
        judge: &dyn Judge,
    ) -> (Vec<(Slot, Requeue)>, usize) {
        let own = own_slot(happening, slots);
        let ask = |slot: Slot| verdict(slots.pod(slot), happening, judge);
        let (mut woken, mut held) = (Vec::new(), 0);
        for class in &self.classes {
            let Some(first) = class.groups.first() else { continue };
            let first = slots.pod(self.groups[*first as usize].pods[0]);
            let asks = class_asks(first, happening, judge);
            if asks == Asks::Nobody {
                continue;
            }
            let shut = first.gating_plugin.is_some_and(|gating| judge.waits_for_activation(&first.info, gating));
            for group in &class.groups {
                let pods = &self.groups[*group as usize].pods;
                if asks == Asks::Pod {
                    woken.extend(pods.iter().map(|slot| (*slot, ask(*slot))));
                    continue;
                }
                // The pod the event is about may be told something else than its likes.
                let own = own.filter(|own| slots.stands[*own as usize].group == *group);
                woken.extend(own.map(|own| (own, ask(own))));
                let likes = || pods.iter().copied().filter(|slot| Some(*slot) != own);
                let Some(like) = likes().next() else { continue };
                let shared = ask(like);
                if shared == Requeue::Skip || !may(&slots.pod(like).info) {
                    continue;
                }
                match shut {
                    true => held += pods.len() - usize::from(own.is_some()),
                    false => woken.extend(likes().map(|slot| (slot, shared))),
                }
            }
        }
        woken.retain(|(slot, requeue)| *requeue != Requeue::Skip && may(&slots.pod(*slot).info));
        (woken, held)
    }
}

/// The waiting pod that the event is about, if it is about one.
fn own_slot(happening: &Happening, slots: &Slots) -> Option<Slot> {
    let pods = [&happening.old, &happening.new].into_iter().flatten();
    let mut uids = pods.filter_map(|object| match object {
        Object::Pod(pod) => Some(pod.metadata.uid.as_str()),
        _ => None,
    });
    uids.find_map(|uid| slots.find(uid)).filter(|slot| slots.line(*slot) == Line::Waiting)
}

/// Whose answer an event needs for the class of a pod.
fn class_asks(pod: &QueuedPod, happening: &Happening, judge: &dyn Judge) -> Asks {
    let event = &happening.event;
    if event.is_wildcard() {
        return Asks::Pod;
    }
    if pod.gating_plugin.is_some_and(|gating| !judge.listens(&pod.info, gating, event)) {
        return Asks::Nobody;
    }
    // Without anybody to ask, any event brings a pod back.
    let nobody_rejected = pod.unschedulable_plugins.is_empty() && pod.pending_plugins.is_empty();
    if nobody_rejected { Asks::Pod } else { judge.asks(pod, event) }
}
