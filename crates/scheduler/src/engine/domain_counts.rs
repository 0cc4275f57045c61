//! A count of pods by topology domain, kept up to date as pods and nodes come and go.

use super::topology::{DomainId, Topologies, Topology};
use crate::cluster::{Cluster, NodeId};
use crate::framework::{CountScope, DomainSummary};

/// In a bucket's key: the node lacks the topology label.
pub(super) const ABSENT: i64 = i64::MIN;
const NO_DOMAIN: DomainId = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct DomainCount {
    count: i64,
    /// The number of nodes whose pods count.
    nodes: u32,
}

/// A node's membership in a domain.
#[derive(Clone, Copy, Debug)]
struct DomainMembership {
    domain: DomainId,
    /// True when the node's pods count.
    included: bool,
    /// What the node's pods add up to, whether they count or not.
    load: i64,
}

impl Default for DomainMembership {
    fn default() -> Self {
        DomainMembership { domain: NO_DOMAIN, included: false, load: 0 }
    }
}

/// The pods of each domain of one topology key.
#[derive(Clone, Debug)]
pub(super) struct DomainCounts {
    scope: CountScope,
    /// The index of the topology key in [`Topologies`].
    topology: usize,
    /// True when bucket keys contain the domain's count, false when they contain the domain. The count is better for
    /// many small domains.
    keyed_by_count: bool,
    memberships: Vec<DomainMembership>,
    /// By domain id, or by node when every node is a domain.
    domains: Vec<DomainCount>,
    /// The number of domains that have nodes whose pods count.
    domains_with_nodes: usize,
    /// The number of domains whose count is not 0.
    nonzero: usize,
    lowest: i64,
    /// How many domains with nodes have the lowest count; 0 when the lowest must be searched again.
    at_lowest: usize,
}

/// Domains of at least this many nodes on average are keyed by domain: a decision then looks at each domain, and a
/// placed pod moves no nodes between buckets.
const LARGE_DOMAIN: usize = 8;

impl DomainCounts {
    /// Counts without any pod or node.
    pub(super) fn new(scope: &CountScope, cluster: &Cluster, topologies: &mut Topologies) -> Self {
        let topology = topologies.index_of(cluster, scope.label());
        let keyed_by_count = match scope {
            CountScope::Node { .. } => true,
            CountScope::Domain { distinct: true, .. } => false,
            CountScope::Domain { .. } => topologies.get(topology).len() * LARGE_DOMAIN > cluster.node_count(),
        };
        DomainCounts {
            scope: scope.clone(),
            topology,
            keyed_by_count,
            memberships: vec![DomainMembership::default(); cluster.slot_count()],
            domains: Vec::new(),
            domains_with_nodes: 0,
            nonzero: 0,
            lowest: 0,
            at_lowest: 0,
        }
    }

    /// Makes space for nodes and domains that were added.
    pub(super) fn reserve(&mut self, slot_count: usize, topologies: &Topologies) {
        let domains = match self.scope {
            CountScope::Node { .. } => slot_count,
            CountScope::Domain { .. } => topologies.get(self.topology).end(),
        };
        if self.memberships.len() < slot_count {
            self.memberships.resize(slot_count, DomainMembership::default());
        }
        if self.domains.len() < domains {
            self.domains.resize(domains, DomainCount::default());
        }
    }

    /// Updates a node's membership; calls `stale` with the nodes whose keys may have changed.
    pub(super) fn set_node(
        &mut self,
        node: NodeId,
        included: bool,
        topologies: &Topologies,
        stale: &mut impl FnMut(NodeId),
    ) {
        let topology = topologies.get(self.topology);
        let domain = match (topology.domain(node), &self.scope) {
            (None, _) => NO_DOMAIN,
            (Some(_), CountScope::Node { .. }) => node.0,
            (Some(domain), CountScope::Domain { .. }) => domain,
        };
        let membership = &mut self.memberships[node.0 as usize];
        let before = *membership;
        (membership.domain, membership.included) = (domain, included);
        if before.domain == domain && before.included == included {
            return;
        }
        if before.domain != NO_DOMAIN && before.included {
            self.change_node_count(before.domain, -1);
            self.add_to_domain(before.domain, -before.load, topology, stale);
        }
        if domain != NO_DOMAIN && included {
            self.add_to_domain(domain, before.load, topology, stale);
            self.change_node_count(domain, 1);
        }
    }

    /// Adds pods of a node, or takes them away; calls `stale` with the nodes whose keys may have changed.
    pub(super) fn add(&mut self, node: NodeId, by: i64, topologies: &Topologies, stale: &mut impl FnMut(NodeId)) {
        let membership = &mut self.memberships[node.0 as usize];
        membership.load += by;
        if membership.included && membership.domain != NO_DOMAIN {
            let domain = membership.domain;
            self.add_to_domain(domain, by, topologies.get(self.topology), stale);
        }
    }

    fn change_node_count(&mut self, domain: DomainId, by: i32) {
        let DomainCount { count, nodes, .. } = &mut self.domains[domain as usize];
        let (was, count) = (*nodes, *count);
        *nodes = nodes.checked_add_signed(by).expect("no more nodes leave a domain than came");
        match (was, *nodes) {
            (0, _) => {
                self.domains_with_nodes += 1;
                if self.domains_with_nodes == 1 || count < self.lowest {
                    (self.lowest, self.at_lowest) = (count, 1);
                } else if count == self.lowest && self.at_lowest > 0 {
                    self.at_lowest += 1;
                }
            }
            (_, 0) => {
                self.domains_with_nodes -= 1;
                if count == self.lowest && self.at_lowest > 0 {
                    self.at_lowest -= 1;
                }
            }
            _ => {}
        }
    }

    fn add_to_domain(&mut self, domain: DomainId, by: i64, topology: &Topology, stale: &mut impl FnMut(NodeId)) {
        if by == 0 {
            return;
        }
        let entry = &mut self.domains[domain as usize];
        let before = entry.count;
        entry.count += by;
        let now = entry.count;
        match (before, now) {
            (0, _) => self.nonzero += 1,
            (_, 0) => self.nonzero -= 1,
            _ => {}
        }
        if entry.nodes > 0 {
            if before == self.lowest && self.at_lowest > 0 {
                self.at_lowest -= 1;
            }
            if self.domains_with_nodes == 1 || now < self.lowest {
                (self.lowest, self.at_lowest) = (now, 1);
            } else if now == self.lowest && self.at_lowest > 0 {
                self.at_lowest += 1;
            }
        }
        if self.keyed_by_count {
            match self.scope {
                CountScope::Node { .. } => stale(NodeId(domain)),
                CountScope::Domain { .. } => topology.members(domain).for_each(stale),
            }
        }
    }

    /// The values that filters read over all domains.
    pub(super) fn summary(&mut self) -> DomainSummary {
        if self.at_lowest == 0 && self.domains_with_nodes > 0 {
            let domains_with_nodes = self.domains.iter().filter(|domain| domain.nodes > 0).map(|domain| domain.count);
            self.lowest = domains_with_nodes.clone().min().unwrap_or(0);
            self.at_lowest = domains_with_nodes.filter(|count| *count == self.lowest).count();
        }
        let lowest = if self.domains_with_nodes > 0 { self.lowest } else { 0 };
        DomainSummary { domains: self.domains_with_nodes, lowest, any: self.nonzero > 0 }
    }

    /// The part of a bucket's key that this count contributes for a node.
    pub(super) fn key_component(&self, node: NodeId) -> i64 {
        match self.memberships.get(node.0 as usize) {
            None => ABSENT,
            Some(membership) if membership.domain == NO_DOMAIN => ABSENT,
            Some(membership) if self.keyed_by_count => self.domains[membership.domain as usize].count,
            Some(membership) => i64::from(membership.domain),
        }
    }

    /// The count of a domain, from its part of a bucket's key.
    pub(super) fn count_for(&self, key_component: i64) -> Option<i64> {
        match key_component {
            ABSENT => None,
            count if self.keyed_by_count => Some(count),
            domain => Some(self.domains[domain as usize].count),
        }
    }

    /// True when the number of different domains among the feasible nodes matters.
    pub(super) fn is_distinct(&self) -> bool {
        matches!(self.scope, CountScope::Domain { distinct: true, .. })
    }
}
