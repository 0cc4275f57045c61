//! One count of pods by topology domain, kept up to date as pods and nodes come and go.

use std::sync::Arc;

use bayplan_model::node::Node;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cluster::NodeId;
use crate::framework::{Scope, Tally};

/// Stands for a domain or count that a node does not have.
pub(super) const ABSENT: i64 = i64::MIN;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Domain {
    count: i64,
    /// Nodes whose pods count.
    nodes: u32,
}

/// What of a node is accounted for.
#[derive(Clone, Copy, Debug)]
struct Seat {
    domain: u32,
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
    /// Nodes are told apart by their domain's count, not by their domain: right for many small domains.
    by_value: bool,
    seats: Vec<Seat>,
    names: FxHashMap<Arc<str>, u32>,
    domains: Vec<Domain>,
    /// All nodes of each domain; only kept where they move together.
    members: Vec<Vec<NodeId>>,
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
    /// Counts of nothing; `labels` are the values of the scope's label over all nodes.
    pub(super) fn new<'a>(scope: &Scope, nodes: usize, mut labels: impl Iterator<Item = &'a str>) -> Self {
        let by_value = match scope {
            Scope::Node { .. } => true,
            Scope::Domain { distinct: true, .. } => false,
            Scope::Domain { .. } => {
                let mut domains = FxHashSet::default();
                labels.any(|label| domains.insert(label) && domains.len() * LARGE_DOMAIN > nodes)
            }
        };
        // With many nodes, growing step by step would cost more than all of the counting.
        let own_domains = if matches!(scope, Scope::Node { .. }) { nodes } else { 0 };
        Counts {
            scope: scope.clone(),
            by_value,
            seats: Vec::with_capacity(nodes),
            names: FxHashMap::default(),
            domains: Vec::with_capacity(own_domains),
            members: Vec::new(),
            inhabited: 0,
            nonzero: 0,
            lowest: 0,
            at_lowest: 0,
        }
    }

    fn seat(&mut self, node: NodeId) -> &mut Seat {
        let at = node.0 as usize;
        if self.seats.len() <= at {
            self.seats.resize(at + 1, Seat::default());
        }
        &mut self.seats[at]
    }

    /// A node came, changed or went (then it is absent). Tells nodes whose keys may have changed.
    pub(super) fn set_node(
        &mut self,
        node: NodeId,
        object: Option<&Node>,
        included: bool,
        stale: &mut dyn FnMut(NodeId),
    ) {
        let value = object.and_then(|object| object.metadata.labels.get(self.scope.label()));
        let domain = match (&self.scope, value) {
            (_, None) => NOWHERE,
            (Scope::Node { .. }, Some(_)) => {
                if self.domains.len() <= node.0 as usize {
                    self.domains.resize(node.0 as usize + 1, Domain::default());
                }
                node.0
            }
            (Scope::Domain { .. }, Some(value)) => match self.names.get(value.as_str()) {
                Some(domain) => *domain,
                None => {
                    self.domains.push(Domain::default());
                    self.names.insert(value.as_str().into(), self.domains.len() as u32 - 1);
                    self.domains.len() as u32 - 1
                }
            },
        };
        let before = *self.seat(node);
        if before.domain == domain && before.included == included {
            return;
        }
        let keeps_members = self.by_value && matches!(self.scope, Scope::Domain { .. });
        if before.domain != NOWHERE {
            if before.included {
                self.inhabit(before.domain, -1);
                self.shift(before.domain, -before.load, stale);
            }
            if keeps_members {
                self.members[before.domain as usize].retain(|member| *member != node);
            }
        }
        *self.seat(node) = Seat { domain, included, load: before.load };
        if domain != NOWHERE {
            if keeps_members {
                self.members.resize_with(self.domains.len(), Vec::new);
                self.members[domain as usize].push(node);
            }
            if included {
                self.shift(domain, before.load, stale);
                self.inhabit(domain, 1);
            }
        }
    }

    /// Pods came to a node or left it.
    pub(super) fn add(&mut self, node: NodeId, by: i64, stale: &mut dyn FnMut(NodeId)) {
        let seat = self.seat(node);
        seat.load += by;
        if seat.included && seat.domain != NOWHERE {
            let domain = seat.domain;
            self.shift(domain, by, stale);
        }
    }

    fn inhabit(&mut self, domain: u32, by: i32) {
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

    fn shift(&mut self, domain: u32, by: i64, stale: &mut dyn FnMut(NodeId)) {
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
                Scope::Domain { .. } => self.members[domain as usize].iter().for_each(|member| stale(*member)),
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
