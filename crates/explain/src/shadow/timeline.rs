//! The recent past of a cluster: a state whose kinds can be taken back and forth apart from each other.
//!
//! A scheduler has a watch for each kind, and so have we. A watch brings the changes of its kind in the order in which
//! the API server stored them, but the watches do not wait for each other.
//!
//! ```text
//!   pods   ──●──●──●─────●──┊──●──▶   a state has any number of changes of each kind;
//!   nodes  ─────●──┊────────●─────▶   those of different kinds are compared by their resource versions
//!   rest   ──●─────●────────────┊─▶
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::inspect::Nominator;
use bayplan_scheduler::{Cluster, Nomination, Object, PodInfo};
use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::images::ImageSpread;
use super::track::{Change, Number, Track, Turn, Version};
use super::waits_in_pre_bind;

/// A state, and the changes that led to it.
#[derive(Default)]
pub(super) struct Timeline {
    cluster: Cluster,
    nominator: Nominator,
    pods: Track,
    nodes: Track,
    rest: BTreeMap<&'static str, Track>,
    images: ImageSpread,
    /// Nominated pods with claims, by UID.
    nominated: FxHashMap<String, Arc<Pod>>,
    /// Pods that are in the state as a later change has them, and as they were.
    early: Vec<(Arc<Pod>, Option<Object>, Turn)>,
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

/// The resource version of an object; 0 for one that is no number.
pub(super) fn version_of(object: &Object) -> Version {
    object.metadata().resource_version.parse().unwrap_or_default()
}

impl Timeline {
    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(super) fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    pub(super) fn pods(&self) -> &Track {
        &self.pods
    }

    pub(super) fn nodes(&self) -> &Track {
        &self.nodes
    }

    /// The changes of all other kinds.
    pub(super) fn rest(&self) -> impl Iterator<Item = (&'static str, &Track)> {
        self.rest.iter().map(|(kind, track)| (*kind, track))
    }

    pub(super) fn images(&self) -> &ImageSpread {
        &self.images
    }

    /// The pods that are in the state as a later change has them.
    pub(super) fn early(&self) -> impl Iterator<Item = (&Arc<Pod>, Turn)> {
        self.early.iter().map(|(pod, _, turn)| (pod, *turn))
    }

    /// Pods that may be on the node that they are nominated to: a scheduler that decides a nominated pod for that node
    /// does not show it, and PreBind may wait long for its claims.
    pub(super) fn may_be_placed(&self) -> impl Iterator<Item = Arc<Pod>> {
        self.nominated.values().map(|pod| PodInfo::new(pod.clone()).pod_on(&pod.status.nominated_node_name))
    }

    /// Takes an object of the state to begin with.
    pub(super) fn load(&mut self, new: Option<Object>, identity: &Object) {
        let old = self.known(identity);
        self.swap(old.as_ref(), new.as_ref());
    }

    fn known(&self, identity: &Object) -> Option<Object> {
        let meta = identity.metadata();
        self.cluster.find(identity.type_meta().1, &meta.namespace, &meta.name)
    }

    /// Adds a change to the end, where the timeline has to be.
    pub(super) fn push(&mut self, at: Timestamp, new: Option<Object>, identity: &Object, turn: Option<Turn>) {
        let old = self.known(identity);
        let matters = matters(old.as_ref(), new.as_ref());
        let change = Change { at, version: version_of(identity), old, new, matters, turn };
        self.images.before(&change, &self.cluster);
        self.swap(change.old.as_ref(), change.new.as_ref());
        let track = match identity {
            Object::Pod(_) => &mut self.pods,
            Object::Node(_) => &mut self.nodes,
            other => self.rest.entry(other.type_meta().1).or_default(),
        };
        let number = track.end();
        let dropped = track.push(change.clone());
        self.images.after(&change, number, &self.cluster);
        if let Some(dropped) = dropped {
            self.images.forget(&dropped, track.first());
        }
    }

    /// Takes the pods to a position.
    pub(super) fn go_to_pods(&mut self, number: Number) {
        while let Some((old, new)) = self.pods.step_to(number) {
            self.swap(old.as_ref(), new.as_ref());
        }
    }

    /// Takes the nodes to a position.
    pub(super) fn go_to_nodes(&mut self, number: Number) {
        while let Some((old, new)) = self.nodes.step_to(number) {
            self.swap(old.as_ref(), new.as_ref());
        }
    }

    /// Takes all other kinds to where they have the changes before a version.
    pub(super) fn go_to_rest(&mut self, version: Version) {
        let kinds: Vec<&'static str> = self.rest.keys().copied().collect();
        for kind in kinds {
            while let Some((old, new)) = self.rest.get_mut(kind).and_then(|track| {
                let number = track.first_from(version);
                track.step_to(number)
            }) {
                self.swap(old.as_ref(), new.as_ref());
            }
        }
    }

    /// The version of a change of a pod; the highest for one that is not there.
    pub(super) fn version(&self, pods: Number) -> Version {
        self.pods.change(pods).map_or(Version::MAX, |change| change.version)
    }

    /// Takes the state to where it has all changes before a version.
    pub(super) fn go_before(&mut self, version: Version) {
        self.go_to_pods(self.pods.first_from(version));
        self.go_to_nodes(self.nodes.first_from(version));
        self.go_to_rest(version);
    }

    /// Takes the state to where it has all changes.
    pub(super) fn go_to_end(&mut self) {
        self.go_to_pods(Number::MAX);
        self.go_to_nodes(Number::MAX);
        self.go_to_rest(Version::MAX);
    }

    /// Puts a pod as a later change has it into the state, if the state knows it: nobody decides about other ones.
    pub(super) fn place_early(&mut self, pod: &Arc<Pod>, turn: Turn) {
        let old = self.cluster.find("Pod", &pod.metadata.namespace, &pod.metadata.name);
        if matches!(&old, Some(Object::Pod(old)) if old.metadata.uid == pod.metadata.uid) {
            self.swap(old.as_ref(), Some(&Object::Pod(pod.clone())));
            self.early.push((pod.clone(), old, turn));
        }
    }

    /// Takes back what [`Timeline::place_early`] did, all of it.
    pub(super) fn take_back_early(&mut self) {
        while let Some((pod, old, _)) = self.early.pop() {
            self.swap(Some(&Object::Pod(pod)), old.as_ref());
        }
    }

    /// Takes a pod off its node for a question.
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
                self.nominated.remove(&pod.metadata.uid);
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
            if waits_in_pre_bind(pod) {
                self.nominated.insert(pod.metadata.uid.clone(), pod.clone());
            }
        }
        self.cluster.store(new.clone());
    }
}
