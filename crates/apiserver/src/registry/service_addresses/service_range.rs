//! The range that cluster IPs are allocated from.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The shortest prefix of a range: the number of its addresses fits 32 bits.
const PREFIX_MIN: u32 = 8;
/// The longest prefix: a smaller range has few addresses beside network, `kubernetes` and broadcast.
const PREFIX_MAX: u32 = 29;
/// The shortest prefix of the second range: the number of its addresses fits 64 bits, as upstream's.
const SECOND_PREFIX_MIN: u32 = 65;
/// The longest prefix of the second range.
const SECOND_PREFIX_MAX: u32 = 125;

/// The range that cluster IPs are allocated from; upstream's `--service-cluster-ip-range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    start: u32,
    size: u32,
    second: Option<SecondRange>,
}

/// The range of the second cluster IPs of Services that have two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SecondRange {
    start: u128,
    size: u64,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    IPv4,
    IPv6,
}

/// A text that is not a service range.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a service range: an IPv4 network such as 10.96.0.0/12, with a prefix of {PREFIX_MIN} to {PREFIX_MAX} \
     and perhaps after a comma an IPv6 network, with a prefix of {SECOND_PREFIX_MIN} to {SECOND_PREFIX_MAX}"
)]
pub struct ServiceRangeError(String);

impl Default for ServiceRange {
    /// 10.96.0.0/12, kubeadm's default.
    fn default() -> ServiceRange {
        ServiceRange { start: Ipv4Addr::new(10, 96, 0, 0).to_bits(), size: 1 << 20, second: None }
    }
}

impl FromStr for ServiceRange {
    type Err = ServiceRangeError;

    fn from_str(text: &str) -> Result<ServiceRange, ServiceRangeError> {
        let read = || {
            let (first, second) = text.split_once(',').map_or((text, None), |(first, second)| (first, Some(second)));
            let (network, prefix) = first.split_once('/')?;
            let start = network.parse::<Ipv4Addr>().ok()?.to_bits();
            let prefix = prefix.parse().ok().filter(|prefix| (PREFIX_MIN..=PREFIX_MAX).contains(prefix))?;
            let size = 1 << (u32::BITS - prefix);
            let second = match second {
                Some(second) => Some(SecondRange::read(second)?),
                None => None,
            };
            (start % size == 0).then_some(ServiceRange { start, size, second })
        };
        read().ok_or_else(|| ServiceRangeError(text.to_owned()))
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.networks().join(","))
    }
}

impl SecondRange {
    fn read(text: &str) -> Option<SecondRange> {
        let (network, prefix) = text.split_once('/')?;
        let start = network.parse::<Ipv6Addr>().ok()?.to_bits();
        let prefix = prefix.parse().ok().filter(|prefix| (SECOND_PREFIX_MIN..=SECOND_PREFIX_MAX).contains(prefix))?;
        let size = 1_u64 << (u128::BITS - prefix);
        start.is_multiple_of(u128::from(size)).then_some(SecondRange { start, size })
    }

    fn address(self, offset: u64) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.start + u128::from(offset))
    }
}

impl ServiceRange {
    /// The first address, which belongs to the `kubernetes` service.
    pub fn first(self) -> Ipv4Addr {
        self.address(1)
    }

    /// The networks, as a ServiceCIDR lists them.
    pub(super) fn networks(self) -> Vec<String> {
        let first = format!("{}/{}", self.address(0), self.size.leading_zeros() + 1);
        let second = |range: SecondRange| format!("{}/{}", range.address(0), 65 + range.size.leading_zeros());
        std::iter::once(first).chain(self.second.map(second)).collect()
    }

    /// The families of which Services may have addresses.
    pub(super) fn families(self) -> &'static [Family] {
        match self.second {
            Some(_) => &[Family::IPv4, Family::IPv6],
            None => &[Family::IPv4],
        }
    }

    fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.start + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_know_their_addresses() {
        let range: ServiceRange = "10.0.0.0/24".parse().unwrap();
        assert_eq!((range.first(), range.to_string()), (Ipv4Addr::new(10, 0, 0, 1), "10.0.0.0/24".to_owned()));
        assert_eq!("10.96.0.0/12".parse::<ServiceRange>().unwrap(), ServiceRange::default());
        let dual: ServiceRange = "10.0.0.0/16,fd00:10::/112".parse().unwrap();
        assert_eq!(dual.to_string(), "10.0.0.0/16,fd00:10::/112");
        assert_eq!(dual.families(), [Family::IPv4, Family::IPv6]);
        for bad in [
            "",
            "10.96.0.0",
            "10.96.0.1/12",
            "10.0.0.0/30",
            "0.0.0.0/0",
            "fd00::/108",
            "10.0.0.0/x",
            "10.0.0.0/16,",
            "10.0.0.0/16,10.1.0.0/16",
            "10.0.0.0/16,fd00::1/112",
            "10.0.0.0/16,fd00::/64",
        ] {
            assert!(bad.parse::<ServiceRange>().is_err(), "{bad}");
        }
    }
}
