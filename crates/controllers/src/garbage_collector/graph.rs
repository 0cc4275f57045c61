//! The graph of owners and dependents by UID, as far as the watches have reported them.

use std::collections::{BTreeSet, VecDeque};

use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::meta::{ObjectMeta, OwnerReference};

/// The finalizer of foreground deletion.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning deletion.
pub(crate) const ORPHAN: &str = "orphan";

/// How many absent owners are remembered, so that a thousand dependents of one cause one lookup.
const ABSENT_OWNERS_MAX: usize = 500;

/// The identity of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub kind: String,
    pub api_version: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Identity {
    /// The owner that a reference in an object of this namespace names.
    pub(crate) fn of_owner(owner: &OwnerReference, namespace: &str) -> Self {
        Identity {
            kind: owner.kind.clone(),
            api_version: owner.api_version.clone(),
            namespace: namespace.into(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }

    /// Whether a reference in an object of this namespace names this object.
    fn is_meant_by(&self, owner: &OwnerReference, namespace: &str) -> bool {
        owner.uid == self.uid
            && owner.kind == self.kind
            && owner.api_version == self.api_version
            && owner.name == self.name
            && self.is_in_reach_of(namespace)
    }

    /// Whether objects of this namespace can have this object as their owner at all. An unseen owner of no namespace
    /// may still turn out to be of one.
    pub(crate) fn is_in_reach_of(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }
}

/// An object, or an owner known only from references.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub identity: Identity,
    pub owners: Vec<OwnerReference>,
    /// The UIDs of the objects that name it as an owner.
    pub dependents: BTreeSet<String>,
    /// Its foreground deletion waits for its dependents.
    pub deleting_dependents: bool,
    /// Its orphaning deletion waits for its dependents' references to be removed.
    pub orphaning: bool,
    /// Its deletion has begun.
    pub being_deleted: bool,
    /// Known only from references; no watch has reported it.
    pub is_virtual: bool,
}

/// Work on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Check whether it has to be deleted.
    Delete(String),
    /// Remove it from its dependents' owner references.
    Orphan(String),
}

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: KeyedMap<String, Node>,
    absent: Absent,
}

#[derive(Debug, Default)]
struct Absent {
    known: KeyedSet<Identity>,
    order: VecDeque<Identity>,
}

impl Absent {
    fn insert(&mut self, identity: Identity) {
        if !self.known.insert(identity.clone()) {
            return;
        }
        self.order.push_back(identity);
        if self.order.len() > ABSENT_OWNERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl Node {
    /// A copy without the dependents, of which there may be very many.
    pub(crate) fn outline(&self) -> Node {
        Node {
            identity: self.identity.clone(),
            owners: self.owners.clone(),
            dependents: BTreeSet::new(),
            deleting_dependents: self.deleting_dependents,
            orphaning: self.orphaning,
            being_deleted: self.being_deleted,
            is_virtual: self.is_virtual,
        }
    }
}

impl Graph {
    pub(crate) fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Whether this owner is known to be absent.
    pub(crate) fn is_absent(&self, identity: &Identity) -> bool {
        self.absent.known.contains(identity)
    }

    /// Remembers that this owner is absent.
    pub(crate) fn set_absent(&mut self, identity: Identity) {
        self.absent.insert(identity);
    }

    /// The objects that name this one as an owner and may: those of other namespaces have no say in its deletion, and
    /// are collected because the owner they name does not exist where they are.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.nodes.get(uid).into_iter().flat_map(|owner| {
            let dependents = owner.dependents.iter().filter_map(|dependent| self.nodes.get(dependent));
            dependents.filter(|node| owner.identity.is_in_reach_of(&node.identity.namespace))
        })
    }

    /// What a foreground deletion of the node waits for: none when no dependent blocks it, else the blocking dependents
    /// that are not being deleted yet.
    pub(crate) fn blocking_dependents(&self, uid: &str) -> Option<Vec<String>> {
        let blocks = |node: &&Node| node.owners.iter().any(|o| o.uid == uid && o.block_owner_deletion == Some(true));
        let mut blocking = self.dependents(uid).filter(blocks).peekable();
        blocking.peek()?;
        Some(blocking.filter(|node| !node.being_deleted).map(|node| node.identity.uid.clone()).collect())
    }

    /// Whether some object names this one as an owner.
    pub(crate) fn has_dependents(&self, uid: &str) -> bool {
        self.dependents(uid).next().is_some()
    }

    /// Whether some dependent of the node waits for dependents of its own: they might wait for one another.
    pub(crate) fn may_be_circular(&self, uid: &str) -> bool {
        self.dependents(uid).any(|node| node.deleting_dependents)
    }

    /// A watch reported the object as added or updated.
    pub(crate) fn present(&mut self, api_version: &str, kind: &str, meta: &ObjectMeta) -> Vec<Task> {
        let mut tasks = Vec::new();
        let uid = &meta.uid;
        let identity = Identity {
            kind: kind.into(),
            api_version: api_version.into(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: uid.clone(),
        };
        let being_deleted = meta.deletion_timestamp.is_some();
        let has = |finalizer: &str| being_deleted && meta.finalizers.iter().any(|f| f == finalizer);
        // Moved, not copied: an owner of ten thousand dependents comes by here with every change of its status.
        let old = self.nodes.get_mut(uid).map(std::mem::take).unwrap_or_default();
        if old.is_virtual && old.identity != identity {
            // The references that created the node named another object: check each of those dependents.
            tasks.extend(self.dependents_not_meaning(&old, &identity).into_iter().map(Task::Delete));
        }
        self.relink(uid, &meta.namespace, &old.owners, &meta.owner_references, &mut tasks);
        let node = self.nodes.entry(uid.clone()).or_default();
        *node = Node {
            identity,
            owners: meta.owner_references.clone(),
            dependents: old.dependents,
            being_deleted: being_deleted || old.being_deleted,
            deleting_dependents: has(FOREGROUND) || old.deleting_dependents,
            orphaning: has(ORPHAN),
            is_virtual: false,
        };
        if node.orphaning && !old.orphaning {
            tasks.push(Task::Orphan(uid.clone()));
        }
        if has(FOREGROUND) && !old.deleting_dependents {
            tasks.extend(node.dependents.iter().cloned().map(Task::Delete));
            tasks.push(Task::Delete(uid.clone()));
        }
        tasks
    }

    /// Follows a change of owner references.
    fn relink(
        &mut self,
        uid: &str,
        namespace: &str,
        old: &[OwnerReference],
        new: &[OwnerReference],
        tasks: &mut Vec<Task>,
    ) {
        let blocking = |owner: &OwnerReference| owner.block_owner_deletion == Some(true);
        let kept: KeyedMap<&str, &OwnerReference> = new.iter().rev().map(|owner| (&*owner.uid, owner)).collect();
        let known: KeyedSet<&OwnerReference> = old.iter().collect();
        for was in old {
            let is = kept.get(&*was.uid);
            if blocking(was) && !is.is_some_and(|is| blocking(is)) && self.nodes.contains_key(&was.uid) {
                tasks.push(Task::Delete(was.uid.clone()));
            }
            if is.is_none()
                && let Some(owner) = self.nodes.get_mut(&was.uid)
            {
                owner.dependents.remove(uid);
            }
        }
        for owner in new {
            match self.nodes.get_mut(&owner.uid) {
                Some(node) => {
                    node.dependents.insert(uid.into());
                    // An unseen owner that a cluster-scoped object named first may be of a namespaced kind.
                    let doubtful = node.is_virtual && node.identity.namespace.is_empty() && !namespace.is_empty();
                    if !known.contains(owner) && (doubtful || !node.identity.is_meant_by(owner, namespace)) {
                        tasks.push(Task::Delete(uid.into()));
                    }
                }
                None => {
                    let node = Node {
                        identity: Identity::of_owner(owner, namespace),
                        dependents: BTreeSet::from([uid.to_owned()]),
                        is_virtual: true,
                        ..Node::default()
                    };
                    self.nodes.insert(owner.uid.clone(), node);
                    tasks.push(Task::Delete(owner.uid.clone()));
                }
            }
        }
    }

    /// A watch reported the deletion of the object.
    pub(crate) fn gone(&mut self, uid: &str) -> Vec<Task> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut tasks = Vec::new();
        if !node.dependents.is_empty() {
            self.absent.insert(node.identity);
            tasks.extend(node.dependents.into_iter().map(Task::Delete));
        }
        for owner in &node.owners {
            if let Some(owner_node) = self.nodes.get_mut(&owner.uid) {
                owner_node.dependents.remove(uid);
                if owner_node.deleting_dependents {
                    tasks.push(Task::Delete(owner.uid.clone()));
                }
            }
        }
        tasks
    }

    /// A live read did not find the object under this identity, although no watch reported its deletion.
    pub(crate) fn missing(&mut self, identity: &Identity) -> Vec<Task> {
        let Some(node) = self.nodes.get(&identity.uid) else { return Vec::new() };
        let others = self.dependents_not_meaning(node, identity);
        let same = node.identity == *identity;
        if (node.is_virtual && others.is_empty()) || (!node.is_virtual && same) {
            return self.gone(&identity.uid);
        }
        let mistaken: KeyedSet<&String> = others.iter().collect();
        let meant = node.dependents.iter().filter(|uid| !mistaken.contains(uid));
        let mut tasks: Vec<Task> = meant.cloned().map(Task::Delete).collect();
        if node.is_virtual && same {
            let next = self.next_identity(&identity.uid, identity, &others);
            if let (Some(next), Some(node)) = (next, self.nodes.get_mut(&identity.uid)) {
                node.identity = next;
                tasks.push(Task::Delete(identity.uid.clone()));
            }
        }
        self.absent.insert(identity.clone());
        tasks
    }

    /// The next identity under which some dependent names the owner, in a fixed order, wrapping around.
    fn next_identity(&self, uid: &str, after: &Identity, dependents: &[String]) -> Option<Identity> {
        let mut candidates = BTreeSet::new();
        for dependent in dependents.iter().filter_map(|uid| self.nodes.get(uid)) {
            let owners = dependent.owners.iter().filter(|owner| owner.uid == uid);
            candidates.extend(owners.map(|owner| Identity::of_owner(owner, &dependent.identity.namespace)));
        }
        candidates.iter().find(|candidate| *candidate > after).or(candidates.first()).cloned()
    }

    fn dependents_not_meaning(&self, node: &Node, identity: &Identity) -> Vec<String> {
        let means = |dependent: &Node| {
            let namespace = &dependent.identity.namespace;
            dependent.owners.iter().any(|owner| identity.is_meant_by(owner, namespace))
        };
        let dependents = node.dependents.iter().filter(|uid| !self.nodes.get(*uid).is_some_and(means));
        dependents.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(uid: &str, owners: &[(&str, bool)]) -> ObjectMeta {
        let owner = |(uid, blocking): &(&str, bool)| OwnerReference {
            api_version: "v1".into(),
            kind: "Thing".into(),
            name: (*uid).into(),
            uid: (*uid).into(),
            controller: None,
            block_owner_deletion: Some(*blocking),
        };
        ObjectMeta {
            name: uid.into(),
            namespace: "ns".into(),
            uid: uid.into(),
            owner_references: owners.iter().map(owner).collect(),
            ..ObjectMeta::default()
        }
    }

    fn delete(uid: &str) -> Task {
        Task::Delete(uid.into())
    }

    #[test]
    fn an_unseen_owner_is_asked_for_and_its_loss_wakes_the_dependents() {
        let mut graph = Graph::default();
        assert_eq!(graph.present("v1", "Thing", &meta("child", &[("owner", true)])), [delete("owner")]);
        assert!(graph.node("owner").unwrap().is_virtual);
        let identity = graph.node("owner").unwrap().identity.clone();
        assert_eq!(graph.missing(&identity), [delete("child")]);
        assert!(graph.is_absent(&identity) && graph.node("owner").is_none());
    }

    #[test]
    fn a_seen_owner_that_goes_wakes_the_dependents() {
        let mut graph = Graph::default();
        assert_eq!(graph.present("v1", "Thing", &meta("owner", &[])), []);
        assert_eq!(graph.present("v1", "Thing", &meta("child", &[("owner", true)])), []);
        assert_eq!(graph.gone("owner"), [delete("child")]);
    }

    #[test]
    fn foreground_deletion_wakes_dependents_then_the_owner_as_they_go() {
        let mut graph = Graph::default();
        graph.present("v1", "Thing", &meta("owner", &[]));
        graph.present("v1", "Thing", &meta("child", &[("owner", true)]));
        let mut deleting = meta("owner", &[]);
        deleting.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        deleting.finalizers = vec![FOREGROUND.into()];
        assert_eq!(graph.present("v1", "Thing", &deleting), [delete("child"), delete("owner")]);
        assert_eq!(graph.present("v1", "Thing", &deleting), [], "reported once");
        assert_eq!(graph.blocking_dependents("owner"), Some(vec!["child".to_owned()]));
        let mut child = meta("child", &[("owner", true)]);
        child.deletion_timestamp = deleting.deletion_timestamp;
        graph.present("v1", "Thing", &child);
        assert_eq!(graph.blocking_dependents("owner"), Some(Vec::new()), "it goes already");
        assert_eq!(graph.gone("child"), [delete("owner")]);
        assert_eq!(graph.blocking_dependents("owner"), None);
    }

    #[test]
    fn orphaning_is_asked_for_once() {
        let mut graph = Graph::default();
        let mut deleting = meta("owner", &[]);
        deleting.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        deleting.finalizers = vec![ORPHAN.into()];
        assert_eq!(graph.present("v1", "Thing", &deleting), [Task::Orphan("owner".into())]);
        assert_eq!(graph.present("v1", "Thing", &deleting), []);
    }

    #[test]
    fn references_that_stop_blocking_wake_the_owner() {
        let mut graph = Graph::default();
        graph.present("v1", "Thing", &meta("owner", &[]));
        graph.present("v1", "Thing", &meta("child", &[("owner", true)]));
        assert_eq!(graph.present("v1", "Thing", &meta("child", &[("owner", false)])), [delete("owner")]);
        assert_eq!(graph.present("v1", "Thing", &meta("child", &[])), []);
        assert!(graph.node("owner").unwrap().dependents.is_empty());
    }

    #[test]
    fn a_dependent_that_means_another_namespace_is_looked_at() {
        let mut graph = Graph::default();
        let mut elsewhere = meta("owner", &[]);
        elsewhere.namespace = "other".into();
        graph.present("v1", "Thing", &elsewhere);
        assert_eq!(graph.present("v1", "Thing", &meta("child", &[("owner", true)])), [delete("child")]);
    }

    #[test]
    fn absent_owners_are_remembered_within_bounds() {
        let mut graph = Graph::default();
        let identity = |n: usize| Identity { uid: n.to_string(), ..Identity::default() };
        (0..=ABSENT_OWNERS_MAX).for_each(|n| graph.set_absent(identity(n)));
        assert!(!graph.is_absent(&identity(0)) && graph.is_absent(&identity(ABSENT_OWNERS_MAX)));
    }
}
