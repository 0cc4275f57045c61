//! The recent past of a cluster: a state that can be taken back change by change, and forward again.

use std::collections::VecDeque;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::inspect::Nominator;
use bayplan_scheduler::{Cluster, Nomination, Object, PodInfo};
use jiff::Timestamp;

/// The most changes that are kept: some minutes of a busy cluster. Each holds handles on two versions of an object.
const CHANGES_MAX: usize = 50_000;

/// A change of one object.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) at: Timestamp,
    old: Option<Object>,
    new: Option<Object>,
    /// A decision may read it.
    pub(super) matters: bool,
}

impl Change {
    /// The pod that this change puts on a node.
    pub(super) fn placed(&self) -> Option<&Arc<Pod>> {
        match (&self.old, &self.new) {
            (Some(Object::Pod(old)), _) if old.is_assigned() => None,
            (_, Some(Object::Pod(new))) if new.is_assigned() => Some(new),
            _ => None,
        }
    }
}

/// Changes are numbered from the first one that was ever seen.
pub(super) type Number = u64;

/// A state, and the changes that led to it.
#[derive(Default)]
pub(super) struct Timeline {
    cluster: Cluster,
    nominator: Nominator,
    changes: VecDeque<Change>,
    /// The number of the first change that is kept.
    first: Number,
    /// The state has all changes before this one.
    position: Number,
}

fn object_of(object: &Object) -> Object {
    object.clone()
}

/// Whether decisions may differ between two versions of an object.
fn matters(old: Option<&Object>, new: Option<&Object>) -> bool {
    match (old, new) {
        (Some(Object::Pod(old)), Some(Object::Pod(new))) => {
            let seen = |pod: &Pod| (pod.is_assigned(), pod.is_terminating(), pod.is_nominated());
            seen(old) != seen(new)
                || old.metadata.labels != new.metadata.labels
                || old.spec != new.spec
                || old.status.nominated_node_name != new.status.nominated_node_name
                || (new.is_assigned() && old.status != new.status)
        }
        (None, Some(Object::Pod(pod))) | (Some(Object::Pod(pod)), None) => pod.is_assigned() || pod.is_nominated(),
        (Some(Object::Node(old)), Some(Object::Node(new))) => {
            old.metadata.labels != new.metadata.labels || old.spec != new.spec || old.status != new.status
        }
        _ => true,
    }
}

impl Timeline {
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// The number of the first change that is kept.
    pub(super) fn first(&self) -> Number {
        self.first
    }

    /// The number that the next change will have.
    pub(super) fn end(&self) -> Number {
        self.first + self.changes.len() as u64
    }

    pub(super) fn change(&self, number: Number) -> Option<&Change> {
        self.changes.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The first change that was seen after a time.
    pub(super) fn first_after(&self, time: Timestamp) -> Number {
        self.first + self.changes.partition_point(|change| change.at <= time) as u64
    }

    /// Adds a change to the end, where the timeline has to be.
    pub(super) fn push(&mut self, at: Timestamp, new: Option<Object>, identity: &Object) {
        let meta = identity.metadata();
        let old = self.cluster.find(identity.type_meta().1, &meta.namespace, &meta.name);
        let matters = matters(old.as_ref(), new.as_ref());
        self.swap(old.as_ref(), new.as_ref());
        self.changes.push_back(Change { at, old, new, matters });
        if self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
        self.position = self.end();
    }

    /// Takes the state to where it has all changes before this one.
    pub(super) fn go_to(&mut self, number: Number) {
        let number = number.clamp(self.first, self.end());
        while self.position > number {
            self.position -= 1;
            if let Some(Change { old, new, .. }) = self.change(self.position).cloned() {
                self.swap(new.as_ref(), old.as_ref());
            }
        }
        while self.position < number {
            if let Some(Change { old, new, .. }) = self.change(self.position).cloned() {
                self.swap(old.as_ref(), new.as_ref());
            }
            self.position += 1;
        }
    }

    /// Puts a pod as a change has it into the state, out of turn; the version that was there is returned.
    pub(super) fn place_early(&mut self, pod: &Arc<Pod>) -> Option<Object> {
        let old = self.cluster.find("Pod", &pod.metadata.namespace, &pod.metadata.name);
        let is_other = matches!(&old, Some(Object::Pod(old)) if old.metadata.uid != pod.metadata.uid);
        if !is_other {
            self.swap(old.as_ref(), Some(&Object::Pod(pod.clone())));
        }
        old
    }

    /// Takes back what [`Timeline::place_early`] did.
    pub(super) fn take_back(&mut self, pod: &Arc<Pod>, old: Option<&Object>) {
        self.swap(Some(&Object::Pod(pod.clone())), old);
    }

    /// Takes a pod off its node for a question, and says where it was.
    pub(super) fn without_pod<T>(&mut self, uid: &str, question: impl FnOnce(&Self) -> T) -> T {
        let placed = self.cluster.placed(uid).cloned();
        let nominated = self.nominator.node_of(uid).map(str::to_owned);
        if placed.is_some() {
            self.cluster.remove_pod(uid);
        }
        let answer = question(self);
        if let Some(placed) = placed {
            self.cluster.set_pod(placed);
        }
        debug_assert_eq!(self.nominator.node_of(uid).map(str::to_owned), nominated);
        answer
    }

    fn swap(&mut self, old: Option<&Object>, new: Option<&Object>) {
        if let Some(old) = old {
            if let Object::Pod(pod) = old {
                self.nominator.remove(&pod.metadata.uid);
                self.cluster.remove_pod(&pod.metadata.uid);
            }
            if new.is_none() || matches!(old, Object::Pod(_)) {
                self.cluster.remove(old);
            }
        }
        let Some(new) = new else { return };
        if let Object::Pod(pod) = new
            && !pod.is_assigned()
            && pod.is_nominated()
        {
            self.nominator.add(&Arc::new(PodInfo::new(pod.clone())), &Nomination::Keep);
        }
        self.cluster.store(object_of(new));
    }
}
