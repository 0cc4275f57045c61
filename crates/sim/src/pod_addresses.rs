//! The addresses a node may give to its pods: the hosts of a /24.

use std::net::Ipv4Addr;

/// `.0` is the network, `.1` its gateway, `.255` its broadcast address.
const HOST_FIRST: u8 = 2;
const HOST_LAST: u8 = 254;

/// Which hosts of the network are taken.
#[derive(Debug)]
pub(crate) struct PodAddresses {
    network: Ipv4Addr,
    taken: [bool; 256],
    next: u8,
}

impl PodAddresses {
    pub(crate) fn new(network: Ipv4Addr) -> Self {
        PodAddresses { network, taken: [false; 256], next: HOST_FIRST }
    }

    /// Changes to the network of a Node (`10.1.2.0/24`), if that is another and has a whole /24 to take from; nothing
    /// is taken of it then.
    pub(crate) fn use_network(&mut self, cidr: &str) -> bool {
        let Some((address, length)) = cidr.split_once('/') else { return false };
        let (Ok(network), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u8>()) else { return false };
        let differs = length <= 24 && network.octets()[..3] != self.network.octets()[..3];
        if differs {
            *self = PodAddresses::new(network);
        }
        differs
    }

    /// A free address; the one freed last is used last, because others may still hold it in caches.
    pub(crate) fn take(&mut self) -> Option<Ipv4Addr> {
        let count = HOST_LAST - HOST_FIRST + 1;
        for _ in 0..count {
            let host = self.next;
            self.next = if host == HOST_LAST { HOST_FIRST } else { host + 1 };
            if !std::mem::replace(&mut self.taken[usize::from(host)], true) {
                let [a, b, c, _] = self.network.octets();
                return Some(Ipv4Addr::new(a, b, c, host));
            }
        }
        None
    }

    /// Marks an address a pod has already.
    pub(crate) fn keep(&mut self, address: Ipv4Addr) {
        self.mark(address, true);
    }

    pub(crate) fn free(&mut self, address: Ipv4Addr) {
        self.mark(address, false);
    }

    fn mark(&mut self, address: Ipv4Addr, taken: bool) {
        let ([a, b, c, host], [x, y, z, _]) = (address.octets(), self.network.octets());
        if [a, b, c] == [x, y, z] {
            self.taken[usize::from(host)] = taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_the_node_is_used_when_it_can_be() {
        let mut addresses = PodAddresses::new(Ipv4Addr::new(10, 0, 7, 0));
        for (cidr, changes) in [
            ("", false),
            ("10.0.7.0/24", false),
            ("fd00::/64", false),
            ("10.0.8.0/28", false),
            ("10.244.3.0/24", true),
            ("10.244.3.0/24", false),
        ] {
            assert_eq!(addresses.use_network(cidr), changes, "{cidr}");
        }
        assert_eq!(addresses.take(), Some(Ipv4Addr::new(10, 244, 3, 2)));
    }

    #[test]
    fn every_host_is_given_once_and_freed_ones_come_again() {
        let mut addresses = PodAddresses::new(Ipv4Addr::new(10, 0, 7, 0));
        addresses.keep(Ipv4Addr::new(10, 0, 7, 3));
        addresses.keep(Ipv4Addr::new(10, 0, 8, 4));
        let all: Vec<Ipv4Addr> = std::iter::from_fn(|| addresses.take()).collect();
        assert_eq!((all.len(), all[0], all[1]), (252, Ipv4Addr::new(10, 0, 7, 2), Ipv4Addr::new(10, 0, 7, 4)));
        addresses.free(all[100]);
        assert_eq!((addresses.take(), addresses.take()), (Some(all[100]), None));
    }
}
