//! Volumes indexed for binding: available ones by class and node label, reserved ones by claim; attachments by node,
//! and capacity by class. Kept up to date as objects and assumptions change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayplan_model::affinity::{NodeMatcher, NodeSelector, NodeSelectorRequirement};
use bayplan_model::keyed::KeyedMap;
use bayplan_model::label_selector::Selector;
use bayplan_model::meta::Map;
use bayplan_model::node::Node;
use bayplan_model::storage::{CsiStorageCapacity, PersistentVolume, VolumeAttachment};

/// The hostname label; a volume that requires a value of it is on one node.
const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";

/// Volumes, attachments and capacity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Storage {
    /// By name; the assumed version where there is one.
    volumes: KeyedMap<String, Arc<IndexedVolume>>,
    /// Volumes without a claim, by class.
    available: KeyedMap<String, AvailableVolumes>,
    /// Names of volumes reserved for a claim, by the claim's namespace and name.
    reserved: KeyedMap<String, KeyedMap<String, BTreeSet<String>>>,
    /// By node, then by name.
    attachments: KeyedMap<String, BTreeMap<String, Arc<VolumeAttachment>>>,
    /// By class, then by namespace and name.
    capacities: KeyedMap<String, BTreeMap<(String, String), IndexedCapacity>>,
}

/// A PersistentVolume with what is computed from it once.
#[derive(Debug)]
pub(crate) struct IndexedVolume {
    pub(crate) volume: Arc<PersistentVolume>,
    pub(crate) capacity: i64,
    /// The nodes that can access the volume; all when absent.
    affinity: Option<NodeMatcher>,
    /// A label and the only value of it that a node may have to access the volume.
    required_label: Option<(String, String)>,
}

/// Volumes of a class, smallest first, then by name.
type VolumesBySize = BTreeMap<(i64, String), Arc<IndexedVolume>>;

#[derive(Clone, Debug, Default)]
struct AvailableVolumes {
    /// By the required label and its value.
    by_label: BTreeMap<String, KeyedMap<String, VolumesBySize>>,
    others: VolumesBySize,
}

/// A CSIStorageCapacity with what is computed from it once.
#[derive(Clone, Debug)]
struct IndexedCapacity {
    largest: Option<i64>,
    /// None when the topology is absent or invalid: no node can use it.
    nodes: Option<Selector>,
}

/// The largest volume that can be provisioned from this capacity, in bytes.
pub(crate) fn largest_volume(capacity: &CsiStorageCapacity) -> Option<i64> {
    capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref()).map(|size| size.value())
}

/// A label and value that every node matching the selector has; the hostname if it is among them.
fn required_label(selector: &NodeSelector) -> Option<(String, String)> {
    let mut terms = selector.node_selector_terms.iter().filter(|term| !term.is_empty());
    let (Some(term), None) = (terms.next(), terms.next()) else { return None };
    let one_value = |r: &&NodeSelectorRequirement| r.operator == "In" && r.values.len() == 1;
    let mut single_valued = term.match_expressions.iter().filter(one_value);
    let hostname = single_valued.clone().find(|r| r.key == LABEL_HOSTNAME);
    hostname.or_else(|| single_valued.next()).map(|r| (r.key.clone(), r.values[0].clone()))
}

impl IndexedVolume {
    fn new(volume: Arc<PersistentVolume>) -> Self {
        let selector = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        IndexedVolume {
            capacity: volume.capacity(),
            affinity: selector.map(NodeMatcher::new),
            required_label: selector.and_then(required_label),
            volume,
        }
    }

    /// True when the volume can be accessed from a node. Volumes read only labels of nodes, not names.
    pub(crate) fn is_reachable_from(&self, node: &Node) -> bool {
        self.affinity.as_ref().is_none_or(|matcher| matcher.matches_labels(&node.metadata.labels, ""))
    }

    fn order(&self) -> (i64, String) {
        (self.capacity, self.volume.metadata.name.clone())
    }
}

impl AvailableVolumes {
    fn is_empty(&self) -> bool {
        self.by_label.is_empty() && self.others.is_empty()
    }

    fn insert(&mut self, known: &Arc<IndexedVolume>) {
        let ordered = match &known.required_label {
            None => &mut self.others,
            Some((label, value)) => self.by_label.entry(label.clone()).or_default().entry(value.clone()).or_default(),
        };
        ordered.insert(known.order(), known.clone());
    }

    fn remove(&mut self, known: &IndexedVolume) {
        let Some((label, value)) = &known.required_label else {
            self.others.remove(&known.order());
            return;
        };
        let Some(values) = self.by_label.get_mut(label) else { return };
        if let Some(ordered) = values.get_mut(value) {
            ordered.remove(&known.order());
            if ordered.is_empty() {
                values.remove(value);
            }
        }
        if values.is_empty() {
            self.by_label.remove(label);
        }
    }
}

impl Storage {
    /// A volume by name; the assumed version if there is one.
    pub(crate) fn volume(&self, name: &str) -> Option<&Arc<IndexedVolume>> {
        self.volumes.get(name)
    }

    /// The volumes reserved for a claim, by name.
    pub(crate) fn reserved_for(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Arc<IndexedVolume>> {
        let names = self.reserved.get(namespace).and_then(|claims| claims.get(name));
        names.into_iter().flatten().filter_map(|name| self.volumes.get(name))
    }

    /// The smallest available volume of a class that has at least this many bytes, can be accessed from a node with
    /// these labels, and suits; of equally small ones the first by name.
    pub(crate) fn smallest_available(
        &self,
        class: &str,
        bytes: i64,
        labels: &Map,
        suits: impl Fn(&IndexedVolume) -> bool,
    ) -> Option<&Arc<IndexedVolume>> {
        let available = self.available.get(class)?;
        let here = available.by_label.iter().filter_map(|(label, values)| values.get(labels.get(label)?));
        let lists = here.chain([&available.others]);
        let first = |list: &'_ VolumesBySize| {
            list.range((bytes, String::new())..).find(|(_, known)| suits(known)).map(|(order, _)| order.clone())
        };
        let best = lists.filter_map(first).min()?;
        self.volumes.get(&best.1)
    }

    /// The volumes attached to a node.
    pub(crate) fn attachments(&self, node: &str) -> Option<&BTreeMap<String, Arc<VolumeAttachment>>> {
        self.attachments.get(node)
    }

    /// True when a volume of this many bytes can be provisioned for a class and a node with these labels.
    pub(crate) fn has_capacity(&self, class: &str, bytes: i64, labels: &Map) -> bool {
        let mut capacities = self.capacities.get(class).into_iter().flat_map(BTreeMap::values);
        capacities.any(|known| {
            known.largest.is_some_and(|largest| largest >= bytes)
                && known.nodes.as_ref().is_some_and(|nodes| nodes.matches(labels))
        })
    }

    /// Indexes a volume as it is now.
    pub(super) fn volume_changed(&mut self, name: &str, seen: Option<&Arc<PersistentVolume>>) {
        if let Some(known) = self.volumes.remove(name) {
            self.forget(&known);
        }
        let Some(volume) = seen else { return };
        let known = Arc::new(IndexedVolume::new(volume.clone()));
        match &volume.spec.claim_ref {
            None => self.available.entry(volume.class().to_owned()).or_default().insert(&known),
            Some(to) => {
                let claims = self.reserved.entry(to.namespace.clone()).or_default();
                claims.entry(to.name.clone()).or_default().insert(name.to_owned());
            }
        }
        self.volumes.insert(name.to_owned(), known);
    }

    fn forget(&mut self, known: &IndexedVolume) {
        let volume = &known.volume;
        let Some(to) = &volume.spec.claim_ref else {
            if let Some(available) = self.available.get_mut(volume.class()) {
                available.remove(known);
                if available.is_empty() {
                    self.available.remove(volume.class());
                }
            }
            return;
        };
        let Some(claims) = self.reserved.get_mut(&to.namespace) else { return };
        if let Some(names) = claims.get_mut(&to.name) {
            names.remove(&volume.metadata.name);
            if names.is_empty() {
                claims.remove(&to.name);
            }
        }
        if claims.is_empty() {
            self.reserved.remove(&to.namespace);
        }
    }

    pub(super) fn attachment_changed(&mut self, old: Option<&VolumeAttachment>, new: Option<&Arc<VolumeAttachment>>) {
        if let Some(old) = old
            && let Some(on_node) = self.attachments.get_mut(&old.spec.node_name)
        {
            on_node.remove(&old.metadata.name);
            if on_node.is_empty() {
                self.attachments.remove(&old.spec.node_name);
            }
        }
        if let Some(new) = new {
            let on_node = self.attachments.entry(new.spec.node_name.clone()).or_default();
            on_node.insert(new.metadata.name.clone(), new.clone());
        }
    }

    pub(super) fn capacity_changed(&mut self, old: Option<&CsiStorageCapacity>, new: Option<&CsiStorageCapacity>) {
        let key = |capacity: &CsiStorageCapacity| (capacity.metadata.namespace.clone(), capacity.metadata.name.clone());
        if let Some(old) = old
            && let Some(of_class) = self.capacities.get_mut(&old.storage_class_name)
        {
            of_class.remove(&key(old));
            if of_class.is_empty() {
                self.capacities.remove(&old.storage_class_name);
            }
        }
        if let Some(new) = new {
            let nodes = new.node_topology.as_ref().and_then(|topology| Selector::of(Some(topology)).ok());
            let known = IndexedCapacity { largest: largest_volume(new), nodes };
            self.capacities.entry(new.storage_class_name.clone()).or_default().insert(key(new), known);
        }
    }
}
