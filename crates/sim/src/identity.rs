//! The names and addresses of simulated nodes.

use std::net::Ipv4Addr;

/// Nodes a fleet may have: each needs a /24 of 10.0.0.0/8 outside 10.96.0.0/12, where services live.
pub const NODES_MAX: usize = (256 - 16) * 256;

/// What stands for the number of a node in a pattern.
pub(crate) const INDEX: &str = "{index}";

/// How the nodes of a fleet are named: a text with the node's number in it, which has four digits or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNames {
    before: String,
    after: String,
}

impl Default for NodeNames {
    fn default() -> Self {
        Self::prefixed("node-")
    }
}

impl NodeNames {
    /// The number follows this text.
    pub fn prefixed(prefix: &str) -> Self {
        NodeNames { before: prefix.to_owned(), after: String::new() }
    }

    /// The number stands where the pattern has `{index}`, or else behind it: `gpu-{index}.example`, `gpu`.
    pub fn pattern(pattern: &str) -> Self {
        match pattern.split_once(INDEX) {
            Some((before, after)) => NodeNames { before: before.to_owned(), after: after.to_owned() },
            None => Self::prefixed(&format!("{pattern}-")),
        }
    }

    /// The name of the node with this index; numbers count from 1.
    pub fn name(&self, index: usize) -> String {
        format!("{}{}{}", self.before, number(index), self.after)
    }

    /// The index of the node with this name, if it is a name of this form.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        let digits = name.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let index = digits.parse::<usize>().ok()?.checked_sub(1)?;
        (index < NODES_MAX && number(index) == digits).then_some(index)
    }
}

/// The number of the node with this index, as names have it.
pub(crate) fn number(index: usize) -> String {
    format!("{:04}", index + 1)
}

/// Who a node is: stable over restarts for nodes that a fleet made.
#[derive(Clone, Debug)]
pub(crate) struct NodeIdentity {
    /// Names the node inside its fleet, and never another one.
    pub(crate) id: usize,
    /// Decides about its addresses.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) pod_network: Ipv4Addr,
}

impl NodeIdentity {
    /// The node with this index.
    pub(crate) fn new(names: &NodeNames, index: usize) -> Self {
        Self::with_name(index, index, names.name(index))
    }

    /// A node that had its name before.
    pub(crate) fn with_name(id: usize, index: usize, name: String) -> Self {
        debug_assert!(index < NODES_MAX);
        let network = if index >= 96 * 256 { index + 16 * 256 } else { index };
        let [_, _, high, low] = octets(network);
        // 172.16.0.0/12 has room for a million nodes.
        let [_, top, middle, bottom] = octets(index + 2);
        NodeIdentity {
            id,
            index,
            name,
            address: Ipv4Addr::new(172, 16 + top, middle, bottom),
            pod_network: Ipv4Addr::new(10, high, low, 0),
        }
    }

    pub(crate) fn pod_cidr(&self) -> String {
        format!("{}/24", self.pod_network)
    }
}

/// An index as four bytes; fleets are smaller than four of them can count.
fn octets(index: usize) -> [u8; 4] {
    u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;

    #[test]
    fn every_node_has_its_own_name_address_and_pod_network_outside_the_services() {
        let names = NodeNames::default();
        let nodes: Vec<NodeIdentity> = (0..NODES_MAX).map(|index| NodeIdentity::new(&names, index)).collect();
        let distinct = |of: fn(&NodeIdentity) -> String| nodes.iter().map(of).collect::<FxHashSet<_>>().len();
        assert_eq!(distinct(|n| n.name.clone()), NODES_MAX);
        assert_eq!(distinct(|n| n.address.to_string()), NODES_MAX);
        assert_eq!(distinct(|n| n.pod_network.to_string()), NODES_MAX);
        assert!(nodes.iter().all(|n| !(96..112).contains(&n.pod_network.octets()[1])));
        assert_eq!(nodes[0].name, "node-0001");
        assert_eq!(nodes[300].pod_cidr(), "10.1.44.0/24");
    }

    #[test]
    fn a_name_leads_back_to_its_index_and_other_names_to_none() {
        for (names, name, index) in [
            (NodeNames::default(), "node-0001", Some(0)),
            (NodeNames::default(), "node-12345", Some(12_344)),
            (NodeNames::default(), "node-01", None),
            (NodeNames::default(), "node-0000", None),
            (NodeNames::default(), "node-00010", None),
            (NodeNames::default(), "node-99999999", None),
            (NodeNames::default(), "worker-0001", None),
            (NodeNames::pattern("gpu-{index}.example"), "gpu-0007.example", Some(6)),
            (NodeNames::pattern("gpu-{index}.example"), "gpu-0007", None),
            (NodeNames::pattern("gpu"), "gpu-0007", Some(6)),
            (NodeNames::pattern("{index}"), "0007", Some(6)),
        ] {
            assert_eq!(names.index_of(name), index, "{name}");
            assert!(index.is_none_or(|index| names.name(index) == name), "{name}");
        }
    }
}
