//! One count of pods by topology domain, kept up to date as pods and nodes come and go.

use super::topology::{DomainId, Topologies, Topology};
use crate::cluster::{Cluster, NodeId};
use crate::framework::{Scope, Tally};

/// Stands for a domain or count that a node does not have.
pub(super) const ABSENT: i64 = i64::MIN;
const NOWHERE: DomainId = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    count: i64,
    /// Nodes whose pods count.
    nodes: u32,
}

/// What of a node is accounted for.
#[derive(Clone, Copy, Debug)]
struct Seat {
    domain: DomainId,
    /// Whether its pods count.
    included: bool,
    /// What its pods amount to, counted or not.
    load: i64,
}

impl Default for Seat {
    fn default() -> Self {
        Seat { domain: NOWHERE, included: false, load: 0 }
    }
}

/// Pods by domain.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    scope: Scope,
    /// The place of its label's domains.
    topology: usize,
    /// Nodes are told apart by their domain's count, not by their domain: right for many small domains.
    by_value: bool,
    seats: Vec<Seat>,
    /// By the domain's id, or by node where every node is a domain.
    domains: Vec<Domain>,
    /// Domains with nodes whose pods count.
    inhabited: usize,
    /// Domains whose count is not 0.
    nonzero: usize,
    lowest: i64,
    /// How many inhabited domains have the lowest count; 0 when it must be looked for.
    at_lowest: usize,
}

/// Domains are large when they have at least this many nodes on average: a decision then looks at each domain, and a
/// placed pod moves no nodes.
const LARGE_DOMAIN: usize = 8;

impl Counts {
    /// Counts of nothing.
    pub(super) fn new(scope: &Scope, cluster: &Cluster, topologies: &mut Topologies) -> Self {
        let topology = topologies.place(cluster, scope.label());
        let by_value = match scope {
            Scope::Node { .. } => true,
            Scope::Domain { distinct: true, .. } => false,
            Scope::Domain { .. } => topologies.get(topology).len() * LARGE_DOMAIN > cluster.node_count(),
        };
        Counts {
            scope: scope.clone(),
            topology,
            by_value,
            seats: vec![Seat::default(); cluster.places()],
            domains: Vec::new(),
            inhabited: 0,
            nonzero: 0,
            lowest: 0,
            at_lowest: 0,
        }
    }

    /// Makes room for nodes and domains that came.
    pub(super) fn reserve(&mut self, places: usize, topologies: &Topologies) {
        let domains = match self.scope {
            Scope::Node { .. } => places,
            Scope::Domain { .. } => topologies.get(self.topology).end(),
        };
        if self.seats.len() < places {
            self.seats.resize(places, Seat::default());
        }
        if self.domains.len() < domains {
            self.domains.resize(domains, Domain::default());
        }
    }

    /// A node came, changed or went. Tells nodes whose keys may have changed.
    pub(super) fn set_node(
        &mut self,
        node: NodeId,
        included: bool,
        topologies: &Topologies,
        stale: &mut impl FnMut(NodeId),
    ) {
        let topology = topologies.get(self.topology);
        let domain = match (topology.domain(node), &self.scope) {
            (None, _) => NOWHERE,
            (Some(_), Scope::Node { .. }) => node.0,
            (Some(domain), Scope::Domain { .. }) => domain,
        };
        let seat = &mut self.seats[node.0 as usize];
        let before = *seat;
        (seat.domain, seat.included) = (domain, included);
        if before.domain == domain && before.included == included {
            return;
        }
        if before.domain != NOWHERE && before.included {
            self.inhabit(before.domain, -1);
            self.shift(before.domain, -before.load, topology, stale);
        }
        if domain != NOWHERE && included {
            self.shift(domain, before.load, topology, stale);
            self.inhabit(domain, 1);
        }
    }

    /// Pods came to a node or left it.
    pub(super) fn add(&mut self, node: NodeId, by: i64, topologies: &Topologies, stale: &mut impl FnMut(NodeId)) {
        let seat = &mut self.seats[node.0 as usize];
        seat.load += by;
        if seat.included && seat.domain != NOWHERE {
            let domain = seat.domain;
            self.shift(domain, by, topologies.get(self.topology), stale);
        }
    }

    fn inhabit(&mut self, domain: DomainId, by: i32) {
        let Domain { count, nodes, .. } = &mut self.domains[domain as usize];
        let (was, count) = (*nodes, *count);
        *nodes = nodes.checked_add_signed(by).expect("no more nodes leave a domain than came");
        match (was, *nodes) {
            (0, _) => {
                self.inhabited += 1;
                if self.inhabited == 1 || count < self.lowest {
                    (self.lowest, self.at_lowest) = (count, 1);
                } else if count == self.lowest && self.at_lowest > 0 {
                    self.at_lowest += 1;
                }
            }
            (_, 0) => {
                self.inhabited -= 1;
                if count == self.lowest && self.at_lowest > 0 {
                    self.at_lowest -= 1;
                }
            }
            _ => {}
        }
    }

    fn shift(&mut self, domain: DomainId, by: i64, topology: &Topology, stale: &mut impl FnMut(NodeId)) {
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
            if self.inhabited == 1 || now < self.lowest {
                (self.lowest, self.at_lowest) = (now, 1);
            } else if now == self.lowest && self.at_lowest > 0 {
                self.at_lowest += 1;
            }
        }
        if self.by_value {
            match self.scope {
                Scope::Node { .. } => stale(NodeId(domain)),
                Scope::Domain { .. } => topology.members(domain).for_each(stale),
            }
        }
    }

    /// What is known over all domains.
    pub(super) fn tally(&mut self) -> Tally {
        if self.at_lowest == 0 && self.inhabited > 0 {
            let inhabited = self.domains.iter().filter(|domain| domain.nodes > 0).map(|domain| domain.count);
            self.lowest = inhabited.clone().min().unwrap_or(0);
            self.at_lowest = inhabited.filter(|count| *count == self.lowest).count();
        }
        let lowest = if self.inhabited > 0 { self.lowest } else { 0 };
        Tally { domains: self.inhabited, lowest, any: self.nonzero > 0 }
    }

    /// What tells a node apart from others in a bucket's key.
    pub(super) fn component(&self, node: NodeId) -> i64 {
        match self.seats.get(node.0 as usize) {
            None => ABSENT,
            Some(seat) if seat.domain == NOWHERE => ABSENT,
            Some(seat) if self.by_value => self.domains[seat.domain as usize].count,
            Some(seat) => i64::from(seat.domain),
        }
    }

    /// The count that a component of a key stands for.
    pub(super) fn here(&self, component: i64) -> Option<i64> {
        match component {
            ABSENT => None,
            count if self.by_value => Some(count),
            domain => Some(self.domains[domain as usize].count),
        }
    }

    /// Whether components of keys name domains that are to be told apart in number.
    pub(super) fn is_distinct(&self) -> bool {
        matches!(self.scope, Scope::Domain { distinct: true, .. })
    }
}
