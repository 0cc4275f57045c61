//! The ranges that cluster IPs come from: those of the ServiceCIDRs that are ready; upstream's `MetaAllocator`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use bayplan_model::status::Status;
use serde_json::Value;

use super::super::{Objects, Registry, metadata};
use super::families::texts;
use super::repair::RANGE_NAME;
use super::service_range::Family;

/// One network of cluster IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressRange {
    network: IpAddr,
    prefix: u32,
    /// Of IPv4 neither the network's own address nor the broadcast address, of IPv6 all but the network's own.
    first: u128,
    last: u128,
    /// Whether the first address is the `kubernetes` service's.
    first_is_taken: bool,
}

impl AddressRange {
    fn read(text: &str, first_is_taken: bool) -> Option<AddressRange> {
        let (network, prefix) = text.split_once('/')?;
        let network: IpAddr = network.parse().ok()?;
        let prefix: u32 = prefix.parse().ok()?;
        let (bits, start, above) = match network {
            IpAddr::V4(address) => (32, u128::from(address.to_bits()), 1),
            IpAddr::V6(address) => (128, address.to_bits(), 0),
        };
        let hosts = 1_u128.checked_shl(bits - prefix.min(bits)).map_or(u128::MAX, |size| size - 1);
        let last = start.saturating_add(hosts).saturating_sub(above);
        Some(AddressRange { network, prefix, first: start.saturating_add(1), last, first_is_taken })
    }

    pub(super) fn network(self) -> IpAddr {
        self.network
    }

    fn family(self) -> Family {
        if self.network.is_ipv4() { Family::IPv4 } else { Family::IPv6 }
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        address.is_ipv4() == self.network.is_ipv4() && (self.first..=self.last).contains(&number)
    }

    /// The address of a number.
    pub(super) fn address(self, number: u128) -> IpAddr {
        match self.network {
            IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
        }
    }

    /// The numbers of the addresses that the server chooses from first; the lower ones are left to those who name
    /// theirs (KEP-3070). Upstream: `calculateRangeOffset`.
    pub(super) fn preferred(self) -> RangeInclusive<u128> {
        const MIN: u128 = 16;
        const MAX: u128 = 256;
        const STEP: u128 = 16;
        let size = self.last.saturating_sub(self.first).saturating_add(1);
        let offset = if size < MIN { 0 } else { (size / STEP).clamp(MIN, MAX).min(size - 1) };
        let skipped = u128::from(offset == 0 && self.first_is_taken);
        self.first + offset + skipped..=self.last
    }

    /// All addresses, the preferred ones first.
    pub(super) fn all(self) -> impl Iterator<Item = IpAddr> {
        let preferred = self.preferred();
        let first = self.first + u128::from(self.first_is_taken);
        let rest = first..*preferred.start();
        preferred.chain(rest).map(move |number| self.address(number))
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl Registry {
    /// The ranges of a family, this server's own first.
    pub(super) async fn address_ranges(&self, family: Family) -> Result<Vec<AddressRange>, Status> {
        let kind = bayplan_kinds::find("networking.k8s.io", "v1", "servicecidrs").expect("a row of the table");
        let own = self.service_range.networks();
        let listed = Objects::list(self, kind, "").await?;
        let mut ranges = Vec::new();
        if !listed.iter().any(|object| metadata::text(object, "name") == RANGE_NAME) {
            ranges.extend(own.iter().filter_map(|network| AddressRange::read(network, true)));
        }
        for object in listed.iter().filter(|object| is_ready(object)) {
            for network in texts(object["spec"].get("cidrs")) {
                ranges.extend(AddressRange::read(&network, own.contains(&network)));
            }
        }
        ranges.retain(|range| range.family() == family);
        ranges.sort_by_key(|range| !range.first_is_taken);
        ranges.dedup();
        Ok(ranges)
    }
}

/// Whether addresses may be given from a ServiceCIDR; one that nobody has judged is ready.
fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.is_none_or(|condition| condition["status"] == "True") && !metadata::deleting(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(text: &str) -> AddressRange {
        AddressRange::read(text, false).expect("a range")
    }

    #[test]
    fn the_ends_of_a_range_are_not_given() {
        for (text, address, expected) in [
            ("10.0.0.0/24", "10.0.0.0", false),
            ("10.0.0.0/24", "10.0.0.1", true),
            ("10.0.0.0/24", "10.0.0.254", true),
            ("10.0.0.0/24", "10.0.0.255", false),
            ("10.0.0.0/24", "::a00:1", false),
            ("fd00::/112", "fd00::", false),
            ("fd00::/112", "fd00::1", true),
            ("fd00::/112", "fd00::ffff", true),
            ("fd00::/112", "fd00::1:0", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(range(text).contains(address), expected, "{text} {address}");
        }
    }

    #[test]
    fn the_lower_addresses_are_left_to_those_who_name_theirs() {
        for (text, lowest) in [
            ("10.0.0.0/24", "10.0.0.17"),
            ("10.0.0.0/28", "10.0.0.1"),
            ("10.0.0.0/16", "10.0.1.1"),
            ("fd00::/112", "fd00::101"),
        ] {
            let range = range(text);
            assert_eq!(range.address(*range.preferred().start()).to_string(), lowest, "{text}");
        }
        let own = AddressRange::read("10.0.0.0/28", true).expect("a range");
        assert_eq!((own.all().count(), range("10.0.0.0/28").all().count()), (13, 14));
        assert_eq!(range("10.0.0.0/24").all().count(), 254);
    }

    #[test]
    fn a_range_is_ready_until_somebody_says_otherwise() {
        let with = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        for (object, expected) in [
            (json!({}), true),
            (with("True"), true),
            (with("False"), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false),
        ] {
            assert_eq!(is_ready(&object), expected, "{object}");
        }
    }
}
