//! IP addresses and ranges in older fields. What is stored may have leading zeros, which Go's parser once read; what is
//! new may not. Upstream: `netutils.ParseCIDRSloppy`, `IsValidCIDRForLegacyField`, `GetWarningsForCIDR`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is wrong with an address.
pub(crate) fn address_problem(text: &str) -> Option<&'static str> {
    match (parse_address(text), text.parse::<IpAddr>()) {
        (None, _) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        (_, Err(_)) => Some("must not have leading 0s"),
        (_, Ok(address)) => is_mapped(address).then_some("must not be an IPv4-mapped IPv6 address"),
    }
}

/// What is wrong with a range.
pub(crate) fn range_problems(text: &str) -> Vec<&'static str> {
    let Some(range) = Range::parse(text) else {
        return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"];
    };
    let mut problems = Vec::new();
    if !has_no_leading_zeros(text) {
        problems.push("must not have leading 0s in IP or prefix length");
    } else if is_mapped(range.address) {
        problems.push("must not have an IPv4-mapped IPv6 address");
    }
    if range.network() != range.address {
        problems.push("must not have bits set beyond the prefix length");
    }
    problems
}

fn has_no_leading_zeros(range: &str) -> bool {
    range.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<IpAddr>().is_ok() && (prefix == "0" || !prefix.starts_with('0'))
    })
}

/// An address; leading zeros count for nothing.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return parse_ipv4(text).map(IpAddr::V4);
    }
    let address = match text.parse::<Ipv6Addr>() {
        Ok(address) => address,
        // Its last part may be an IPv4 address with leading zeros.
        Err(_) => {
            let (head, tail) = text.rsplit_once(':')?;
            let tail = tail.contains('.').then(|| parse_ipv4(tail))??;
            format!("{head}:{tail}").parse().ok()?
        }
    };
    Some(IpAddr::V6(address))
}

fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(digits(parts.next()?)?).ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// A number of digits alone.
fn digits(text: &str) -> Option<u32> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

/// A range: an address in it, and how many bits are the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    address: IpAddr,
    prefix: u32,
}

impl Range {
    pub(crate) fn parse(text: &str) -> Option<Range> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_address(address)?;
        let prefix = digits(prefix).filter(|prefix| *prefix <= bits(address))?;
        Some(Range { address, prefix })
    }

    pub(crate) fn prefix(self) -> u32 {
        self.prefix
    }

    /// The first address of the range.
    pub(crate) fn network(self) -> IpAddr {
        masked(self.address, self.prefix)
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.prefix) == self.network()
    }

    /// The range in Go's spelling.
    fn canonical(self) -> String {
        match (self.network().to_canonical(), self.network()) {
            (IpAddr::V4(mapped), IpAddr::V6(_)) => format!("{mapped}/{}", self.prefix.saturating_sub(96)),
            (_, network) => format!("{network}/{}", self.prefix),
        }
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// What to warn of: a spelling that newer releases refuse, or a range that is meant otherwise.
pub(crate) fn range_warnings(path: &str, text: &str) -> Vec<String> {
    let Some(range) = Range::parse(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    let canonical = range.canonical();
    if range.network() != range.address {
        let single = format!("{}/{}", range.address.to_canonical(), bits(range.address));
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {single:?}?)"
        ));
    }
    if !has_no_leading_zeros(text) || is_mapped(range.address) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: \
             use {canonical:?}"
        ));
    } else if range.address.is_ipv6() {
        let spelled = format!("{}/{}", range.address, range.prefix);
        if spelled != text {
            warnings
                .push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({spelled:?})"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_leading_zeros() {
        for (text, read) in [
            ("10.0.0.0/8", Some(("10.0.0.0", 8))),
            ("010.000.0.1/08", Some(("10.0.0.1", 8))),
            ("fd00::/108", Some(("fd00::", 108))),
            ("::ffff:010.0.0.0/104", Some(("::ffff:10.0.0.0", 104))),
            ("10.0.0.0/33", None),
            ("10.0.0.0", None),
            ("10.0.0/8", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.256/8", None),
            ("here/8", None),
        ] {
            let found = Range::parse(text).map(|range| (range.address.to_string(), range.prefix));
            assert_eq!(found, read.map(|(address, prefix)| (address.to_owned(), prefix)), "{text}");
        }
    }

    #[test]
    fn a_range_contains_addresses_of_its_family() {
        let range = Range::parse("10.20.0.0/16").expect("a range");
        assert!(range.contains([10, 20, 255, 1].into()));
        assert!(!range.contains([10, 21, 0, 0].into()));
        assert!(!range.contains(Ipv6Addr::LOCALHOST.into()));
        assert!(Range::parse("::/0").expect("a range").contains(Ipv6Addr::LOCALHOST.into()));
    }

    #[test]
    fn new_ranges_and_addresses_have_no_leading_zeros() {
        for (text, problem) in [
            ("10.0.0.0/8", None),
            ("FD00:0::/8", None),
            ("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length")),
            ("::ffff:10.0.0.0/104", Some("must not have an IPv4-mapped IPv6 address")),
            ("10.0.0.1/8", Some("must not have bits set beyond the prefix length")),
            ("10.0.0.0/33", Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
        ] {
            assert_eq!(range_problems(text), problem.into_iter().collect::<Vec<_>>(), "{text}");
        }
        for (text, problem) in [
            ("10.0.0.1", None),
            ("10.0.0.01", Some("must not have leading 0s")),
            ("::ffff:1.2.3.4", Some("must not be an IPv4-mapped IPv6 address")),
            ("1.2.3", Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")),
        ] {
            assert_eq!(address_problem(text), problem, "{text}");
        }
    }

    #[test]
    fn odd_spellings_are_warned_of() {
        let warnings = |text: &str| range_warnings("p", text);
        assert_eq!(warnings("10.0.0.0/8"), [""; 0]);
        assert_eq!(warnings("fd00::/8"), [""; 0]);
        assert_eq!(
            warnings("10.0.0.1/8"),
            ["p: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \
                 \"10.0.0.1/32\"?)"]
        );
        let standard = "will be considered invalid in a future Kubernetes release: use \"10.0.0.0/8\"";
        assert_eq!(warnings("010.0.0.0/8"), [format!("p: non-standard CIDR value \"010.0.0.0/8\" {standard}")]);
        let mapped = "::ffff:10.0.0.0/104";
        assert_eq!(warnings(mapped), [format!("p: non-standard CIDR value {mapped:?} {standard}")]);
        assert_eq!(
            warnings("FD00:0::/8"),
            ["p: IPv6 CIDR value \"FD00:0::/8\" should be in RFC 5952 canonical format (\"fd00::/8\")"]
        );
    }
}
