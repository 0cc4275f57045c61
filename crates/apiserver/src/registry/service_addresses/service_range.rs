//! The range that cluster IPs are allocated from.

use std::net::Ipv4Addr;
use std::str::FromStr;

/// The shortest prefix of a range: the number of its addresses fits 32 bits.
const PREFIX_MIN: u32 = 8;
/// The longest prefix: a smaller range has few addresses beside network, `kubernetes` and broadcast.
const PREFIX_MAX: u32 = 29;

/// The range that cluster IPs are allocated from; upstream's `--service-cluster-ip-range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    start: u32,
    size: u32,
}

/// A text that is not a service range.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a service range: an IPv4 network such as 10.96.0.0/12, with a prefix of {PREFIX_MIN} to {PREFIX_MAX}"
)]
pub struct ServiceRangeError(String);

impl Default for ServiceRange {
    /// 10.96.0.0/12, kubeadm's default.
    fn default() -> ServiceRange {
        ServiceRange { start: Ipv4Addr::new(10, 96, 0, 0).to_bits(), size: 1 << 20 }
    }
}

impl FromStr for ServiceRange {
    type Err = ServiceRangeError;

    fn from_str(text: &str) -> Result<ServiceRange, ServiceRangeError> {
        let read = || {
            let (network, prefix) = text.split_once('/')?;
            let start = network.parse::<Ipv4Addr>().ok()?.to_bits();
            let prefix = prefix.parse().ok().filter(|prefix| (PREFIX_MIN..=PREFIX_MAX).contains(prefix))?;
            let size = 1 << (u32::BITS - prefix);
            (start % size == 0).then_some(ServiceRange { start, size })
        };
        read().ok_or_else(|| ServiceRangeError(text.to_owned()))
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(0), self.size.leading_zeros() + 1)
    }
}

impl ServiceRange {
    /// The first address, which belongs to the `kubernetes` service.
    pub fn first(self) -> Ipv4Addr {
        self.address(1)
    }

    /// The addresses that may be chosen for a service: all but the network's, `kubernetes`' and the broadcast address.
    pub(super) fn free_offsets(self) -> std::ops::Range<u32> {
        2..self.size - 1
    }

    pub(super) fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.start + offset)
    }

    /// True for addresses that may be allocated: neither the network's own nor the broadcast address.
    pub(super) fn contains(self, address: Ipv4Addr) -> bool {
        (1..self.size - 1).contains(&address.to_bits().wrapping_sub(self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_know_their_addresses() {
        let range: ServiceRange = "10.0.0.0/24".parse().unwrap();
        assert_eq!((range.first(), range.to_string()), (Ipv4Addr::new(10, 0, 0, 1), "10.0.0.0/24".to_owned()));
        let inside = |text: &str| range.contains(text.parse().unwrap());
        assert_eq!(
            ["10.0.0.0", "10.0.0.1", "10.0.0.254", "10.0.0.255", "9.9.9.9"].map(inside),
            [false, true, true, false, false]
        );
        assert_eq!("10.96.0.0/12".parse::<ServiceRange>().unwrap(), ServiceRange::default());
        for bad in ["", "10.96.0.0", "10.96.0.1/12", "10.0.0.0/30", "0.0.0.0/0", "fd00::/108", "10.0.0.0/x"] {
            assert!(bad.parse::<ServiceRange>().is_err(), "{bad}");
        }
    }
}
