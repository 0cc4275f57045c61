//! What fields that hold an IP address or a range accept, and what clients are warned of. Upstream: `IsValidIP`,
//! `IsValidIPForLegacyField`, `IsValidCIDR` and their like, with `StrictIPCIDRValidation` on.
//!
//! Old fields once read addresses as Go did before 1.17: zeros before a number count for nothing. Such spellings are
//! refused today, but what is stored already stays.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{ErrorList, Path};

const NOT_AN_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_RANGE: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
/// The bits of an IPv6 address before the IPv4 address that it maps.
const MAPPED_PREFIX: u32 = 96;

/// Reads an address; zeros before a number count for nothing.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return ipv4(text).map(IpAddr::V4);
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(address));
    }
    let part = |part: &str| match part.contains('.') {
        true => ipv4(part).map(|address| address.to_string()),
        false => Some(part.get(part.len().saturating_sub(4)..)?.to_owned()).filter(|_| surplus_is_zero(part)),
    };
    let parts: Option<Vec<String>> = text.split(':').map(part).collect();
    parts?.join(":").parse().ok().map(IpAddr::V6)
}

/// Whether all but the last four digits are zeros.
fn surplus_is_zero(part: &str) -> bool {
    part.bytes().rev().skip(4).all(|byte| byte == b'0')
}

fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(number(parts.next()?)?).ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

fn number(digits: &str) -> Option<u32> {
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all { digits.parse().ok() } else { None }
}

/// Whether a text is an IPv6 address; one that maps an IPv4 address is not, as in Go.
pub(crate) fn is_ipv6(text: &str) -> bool {
    address(text).is_some_and(|address| address.to_canonical().is_ipv6())
}

fn is_mapped(address: IpAddr) -> bool {
    address.is_ipv6() && address.to_canonical().is_ipv4()
}

/// What is wrong with an address of a field from before addresses were read strictly.
pub(crate) fn legacy_address_problems(text: &str) -> Vec<String> {
    let Some(found) = address(text) else { return vec![NOT_AN_ADDRESS.to_owned()] };
    let mut problems = Vec::new();
    if text.parse::<IpAddr>().is_err() {
        problems.push("must not have leading 0s".to_owned());
    } else if is_mapped(found) {
        problems.push("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    problems
}

/// What is wrong with an address that must have its one spelling.
pub(crate) fn address_problems(text: &str) -> Vec<String> {
    let mut problems = legacy_address_problems(text);
    if let (true, Some(address)) = (problems.is_empty(), address(text))
        && address.to_string() != text
    {
        problems.push(format!("must be in canonical form (\"{address}\")"));
    }
    problems
}

/// Checks an address of an old field; one that was `stored` before is left alone. Returns whether it is valid.
pub(crate) fn legacy_address(errors: &mut ErrorList, path: Path<'_>, text: &str, stored: &[&str]) -> bool {
    if stored.contains(&text) {
        return true;
    }
    let problems = legacy_address_problems(text);
    let valid = problems.is_empty();
    errors.all_invalid(path, text, problems);
    valid
}

/// Checks that traffic can be sent to an address. Upstream: `ValidateEndpointIP`.
pub(crate) fn endpoint_address(errors: &mut ErrorList, path: Path<'_>, text: &str) {
    let Some(found) = address(text) else {
        errors.invalid(path, text, "must be a valid IP address");
        return;
    };
    let canonical = found.to_canonical();
    if canonical.is_unspecified() {
        errors.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    let (link_local, link_local_multicast) = match canonical {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    for (found, what) in [
        (canonical.is_loopback(), "loopback range (127.0.0.0/8, ::1/128)"),
        (link_local, "link-local range (169.254.0.0/16, fe80::/10)"),
        (link_local_multicast, "link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        if found {
            errors.invalid(path, text, &format!("may not be in the {what}"));
        }
    }
}

/// A range as it was written: an address and how many of its bits are the network's.
#[derive(Clone, Copy)]
struct Range {
    address: IpAddr,
    prefix: u32,
}

impl Range {
    fn read(text: &str) -> Option<Range> {
        let (network, prefix) = text.split_once('/')?;
        let address = address(network)?;
        let prefix = number(prefix).filter(|prefix| *prefix <= bits(address))?;
        Some(Range { address, prefix })
    }

    fn network(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    /// The network and the prefix, of IPv4 where it maps one.
    fn canonical(self) -> String {
        let network = self.network();
        let prefix = if is_mapped(network) { self.prefix.saturating_sub(MAPPED_PREFIX) } else { self.prefix };
        format!("{}/{prefix}", network.to_canonical())
    }
}

fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether neither the address nor the prefix begins with zeros.
fn is_strict(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<IpAddr>().is_ok() && (prefix == "0" || !prefix.starts_with('0'))
    })
}

/// What is wrong with a range of a field from before ranges were read strictly.
pub(crate) fn legacy_range_problem(text: &str) -> Option<String> {
    let Some(range) = Range::read(text) else { return Some(NOT_A_RANGE.to_owned()) };
    let problem = if !is_strict(text) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(range.address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if range.network() != range.address {
        "must not have bits set beyond the prefix length"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// What is wrong with a range that must have its one spelling.
pub(crate) fn range_problem(text: &str) -> Option<String> {
    legacy_range_problem(text).or_else(|| {
        let canonical = Range::read(text)?.canonical();
        (canonical != text).then(|| format!("must be in canonical form ({canonical:?})"))
    })
}

/// The address and the prefix of a valid range.
pub(crate) fn range(text: &str) -> Option<(IpAddr, u32)> {
    Range::read(text).map(|range| (range.address, range.prefix))
}

/// What to warn of in an address of an old field. Upstream: `GetWarningsForIP`.
pub(crate) fn address_warnings(warnings: &mut Vec<String>, path: Path<'_>, text: &str) {
    let Some(found) = address(text) else { return };
    if text.parse::<IpAddr>().is_err() || is_mapped(found) {
        let canonical = found.to_canonical();
        warnings.push(format!("{path}: non-standard IP address {text:?} is invalid: use \"{canonical}\""));
    } else if found.is_ipv6() && found.to_string() != text {
        warnings.push(format!("{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{found}\")"));
    }
}

/// What to warn of in a range of an old field. Upstream: `GetWarningsForCIDR`.
pub(crate) fn range_warnings(warnings: &mut Vec<String>, path: Path<'_>, text: &str) {
    let Some(range) = Range::read(text) else { return };
    let (canonical, before) = (range.canonical(), warnings.len());
    if range.network() != range.address {
        let single = format!("{}/{}", range.address.to_canonical(), bits(range.address));
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {single:?}?)"
        ));
    }
    if !is_strict(text) || is_mapped(range.address) {
        warnings.push(format!("{path}: non-standard CIDR value {text:?} is invalid: use {canonical:?}"));
    }
    let spelled = format!("{}/{}", range.address, range.prefix);
    if warnings.len() == before && range.address.is_ipv6() && spelled != text {
        warnings.push(format!("{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({spelled:?})"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_go_once_did() {
        for (text, expected) in [
            ("10.0.0.1", Some("10.0.0.1")),
            ("010.000.0.01", Some("10.0.0.1")),
            ("fd00::1", Some("fd00::1")),
            ("fd00:0:00000a::1", Some("fd00:0:a::1")),
            ("::ffff:010.1.2.3", Some("::ffff:10.1.2.3")),
            ("::ffff:1.2.3.4", Some("::ffff:1.2.3.4")),
            ("10.0.0", None),
            ("10.0.0.0.1", None),
            ("256.0.0.1", None),
            ("+1.0.0.1", None),
            ("1.2.3.4:5", None),
            ("fd00::1%eth0", None),
            ("fd00::é", None),
            ("", None),
        ] {
            assert_eq!(address(text).map(|found| found.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn spellings_that_others_read_otherwise_are_refused() {
        for (text, legacy, strict) in [
            ("10.0.0.1", None, None),
            ("010.0.0.1", Some("must not have leading 0s"), Some("must not have leading 0s")),
            ("::ffff:1.2.3.4", Some("must not be an IPv4-mapped IPv6 address"), Some("must not be an IPv4-mapped")),
            ("FD00::1", None, Some("must be in canonical form (\"fd00::1\")")),
            ("here", Some(NOT_AN_ADDRESS), Some(NOT_AN_ADDRESS)),
        ] {
            let problems = [legacy_address_problems(text), address_problems(text)];
            for (found, expected) in problems.iter().zip([legacy, strict]) {
                assert_eq!(found.len(), usize::from(expected.is_some()), "{text}: {found:?}");
                assert!(expected.is_none_or(|expected| found[0].starts_with(expected)), "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn ranges_have_one_spelling() {
        for (text, expected) in [
            ("10.0.0.0/8", None),
            ("fd00::/8", None),
            ("0.0.0.0/0", None),
            ("::/0", None),
            ("10.0.0.1/8", Some("must not have bits set beyond the prefix length")),
            ("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length")),
            ("010.0.0.0/8", Some("must not have leading 0s in IP or prefix length")),
            ("::ffff:10.0.0.0/112", Some("must not have an IPv4-mapped IPv6 address")),
            ("FD00::/8", Some("must be in canonical form (\"fd00::/8\")")),
            ("10.0.0.0/33", Some(NOT_A_RANGE)),
            ("10.0.0.0/+8", Some(NOT_A_RANGE)),
            ("10.0.0.0", Some(NOT_A_RANGE)),
        ] {
            assert_eq!(range_problem(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn odd_spellings_are_warned_of() {
        let path = Path::root("p");
        for (text, expected) in [
            ("10.0.0.1", None),
            ("fd00::1", None),
            ("010.0.0.1", Some("p: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"")),
            ("::ffff:1.2.3.4", Some("p: non-standard IP address \"::ffff:1.2.3.4\" is invalid: use \"1.2.3.4\"")),
            ("FD00::1", Some("p: IPv6 address \"FD00::1\" should be in RFC 5952 canonical format (\"fd00::1\")")),
            ("10.0.0.0/8", None),
            ("010.0.0.0/8", Some("p: non-standard CIDR value \"010.0.0.0/8\" is invalid: use \"10.0.0.0/8\"")),
            (
                "10.0.0.1/8",
                Some(
                    "p: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \
                     \"10.0.0.1/32\"?)",
                ),
            ),
            ("FD00::/8", Some("p: IPv6 CIDR value \"FD00::/8\" should be in RFC 5952 canonical format (\"fd00::/8\")")),
        ] {
            let mut warnings = Vec::new();
            match text.contains('/') {
                true => range_warnings(&mut warnings, path, text),
                false => address_warnings(&mut warnings, path, text),
            }
            assert_eq!(warnings.first().map(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn some_addresses_are_no_endpoints() {
        for (text, expected) in [
            ("10.0.0.1", None),
            ("0.0.0.0", Some("may not be unspecified (0.0.0.0)")),
            ("127.1.2.3", Some("may not be in the loopback range (127.0.0.0/8, ::1/128)")),
            ("::1", Some("may not be in the loopback range (127.0.0.0/8, ::1/128)")),
            ("169.254.1.1", Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)")),
            ("fe80::1", Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)")),
            ("224.0.0.9", Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")),
            ("ff02::1", Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")),
            ("224.0.1.9", None),
            ("no", Some("must be a valid IP address")),
        ] {
            let mut errors = ErrorList::default();
            endpoint_address(&mut errors, Path::root("ip"), text);
            let found: Vec<String> = errors.into_vec().into_iter().map(|error| error.message).collect();
            let expected: Vec<String> =
                expected.iter().map(|expected| format!("Invalid value: {text:?}: {expected}")).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
