//! Which nodes are in which topology domain, by topology key; all scoreboards share it.

use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;

use crate::cluster::{Cluster, NodeChange, NodeId};

/// A domain of one topology key; reused after the domain's last node is gone.
///
/// Counts are added and taken away node by node, so the count of a domain is 0 when its id is reused.
pub(super) type DomainId = u32;

const NONE: u32 = u32::MAX;

/// The domains of one topology key.
#[derive(Default)]
pub(super) struct Topology {
    ids: KeyedMap<Arc<str>, DomainId>,
    domains: Vec<Domain>,
    free: Vec<DomainId>,
    links: Vec<DomainLink>,
}

struct Domain {
    name: Arc<str>,
    /// The first node of the domain's list.
    first: u32,
}

/// A node's domain and its neighbours in the domain's list. The lists are linked through one vector, because one vector
/// for each domain would cost more than all the counting.
#[derive(Clone, Copy)]
struct DomainLink {
    domain: DomainId,
    previous: u32,
    next: u32,
}

const UNLINKED: DomainLink = DomainLink { domain: NONE, previous: NONE, next: NONE };

impl Topology {
    fn of(cluster: &Cluster, label: &str) -> Self {
        let mut topology = Topology { links: vec![UNLINKED; cluster.slot_count()], ..Topology::default() };
        for node in cluster.nodes() {
            topology.set(node.id, node.label(label));
        }
        topology
    }

    /// The domain of a node; none when it lacks the label.
    pub(super) fn domain(&self, node: NodeId) -> Option<DomainId> {
        Some(self.links.get(node.0 as usize)?.domain).filter(|domain| *domain != NONE)
    }

    /// The nodes of a domain.
    pub(super) fn members(&self, domain: DomainId) -> impl Iterator<Item = NodeId> {
        let known = |node: u32| Some(node).filter(|node| *node != NONE);
        let first = self.domains.get(domain as usize).and_then(|domain| known(domain.first));
        std::iter::successors(first, move |node| known(self.links[*node as usize].next)).map(NodeId)
    }

    /// The number of domains with nodes.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// One more than the highest domain id.
    pub(super) fn end(&self) -> usize {
        self.domains.len()
    }

    /// Moves a node to the domain of its label's value.
    fn set(&mut self, node: NodeId, value: Option<&str>) {
        let at = node.0 as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, UNLINKED);
        }
        let before = self.links[at].domain;
        let is_same = match value {
            Some(value) => before != NONE && &*self.domains[before as usize].name == value,
            None => before == NONE,
        };
        if is_same {
            return;
        }
        self.leave(node);
        if let Some(value) = value {
            self.join(node, value);
        }
    }

    fn join(&mut self, node: NodeId, value: &str) {
        let domain = match self.ids.get(value) {
            Some(domain) => *domain,
            None => {
                let name: Arc<str> = value.into();
                let new = Domain { name: name.clone(), first: NONE };
                let id = match self.free.pop() {
                    Some(id) => {
                        self.domains[id as usize] = new;
                        id
                    }
                    None => {
                        self.domains.push(new);
                        self.domains.len() as DomainId - 1
                    }
                };
                self.ids.insert(name, id);
                id
            }
        };
        let next = std::mem::replace(&mut self.domains[domain as usize].first, node.0);
        self.links[node.0 as usize] = DomainLink { domain, previous: NONE, next };
        if next != NONE {
            self.links[next as usize].previous = node.0;
        }
    }

    fn leave(&mut self, node: NodeId) {
        let DomainLink { domain, previous, next } = std::mem::replace(&mut self.links[node.0 as usize], UNLINKED);
        if domain == NONE {
            return;
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        if previous != NONE {
            self.links[previous as usize].next = next;
            return;
        }
        let Domain { name, first } = &mut self.domains[domain as usize];
        *first = next;
        if next == NONE {
            self.ids.remove(name);
            self.free.push(domain);
        }
    }
}

/// The domains of all topology keys in use.
#[derive(Default)]
pub(super) struct Topologies {
    /// Few: the topology keys of spread constraints and affinity terms.
    all: Vec<(String, Topology)>,
    seen: u64,
}

impl Topologies {
    /// Reads the nodes that changed since the last call.
    pub(super) fn catch_up(&mut self, cluster: &Cluster) {
        let from = std::mem::replace(&mut self.seen, cluster.changes().end());
        let Some(changes) = cluster.changes().since(from) else {
            // Scoreboards that counted by the former domains missed the same changes and are rebuilt, too.
            self.all.iter_mut().for_each(|(label, topology)| *topology = Topology::of(cluster, label));
            return;
        };
        for (change, _) in changes {
            if let NodeChange::Object(node) = change {
                let object = cluster.node_by_id(node);
                for (label, topology) in &mut self.all {
                    topology.set(node, object.and_then(|node| node.label(label)));
                }
            }
        }
    }

    /// The index of a topology key, for [`Topologies::get`]; the key is added when it is new.
    pub(super) fn index_of(&mut self, cluster: &Cluster, label: &str) -> usize {
        self.all.iter().position(|(known, _)| known == label).unwrap_or_else(|| {
            self.all.push((label.to_owned(), Topology::of(cluster, label)));
            self.all.len() - 1
        })
    }

    /// The domains of a topology key.
    pub(super) fn get(&self, index: usize) -> &Topology {
        &self.all[index].1
    }

    /// Whether a topology key is indexed.
    pub(super) fn contains(&self, label: &str) -> bool {
        self.all.iter().any(|(known, _)| known == label)
    }

    /// The number of topology keys.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use bayplan_testkit::Rng;

    use super::*;

    #[test]
    fn nodes_are_found_in_their_domains_however_they_come_move_and_go() {
        let mut topology = Topology::default();
        let mut plain: BTreeMap<u32, String> = BTreeMap::new();
        let mut rng = Rng::new(11);
        for _ in 0..3000 {
            let (node, value) = (rng.below(20) as u32, format!("zone-{}", rng.below(7)));
            if rng.one_in(3) {
                topology.set(NodeId(node), None);
                plain.remove(&node);
            } else {
                topology.set(NodeId(node), Some(&value));
                plain.insert(node, value);
            }
            let names: BTreeSet<&String> = plain.values().collect();
            assert_eq!(topology.len(), names.len());
            assert!(topology.end() <= 7, "ids are used again");
            for node in 0..20 {
                let Some(name) = plain.get(&node) else {
                    assert_eq!(topology.domain(NodeId(node)), None);
                    continue;
                };
                let domain = topology.domain(NodeId(node)).unwrap();
                let mut members: Vec<u32> = topology.members(domain).map(|node| node.0).collect();
                members.sort_unstable();
                let expected: Vec<u32> = plain.iter().filter(|(_, n)| *n == name).map(|(node, _)| *node).collect();
                assert_eq!(members, expected);
            }
        }
    }
}
