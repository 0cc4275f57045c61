//! Addresses of pods and Services, and their families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// A family of addresses, as `Service.spec.ipFamilies` and `EndpointSlice.addressType` name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Family {
    /// Four bytes.
    #[default]
    IPv4,
    /// Sixteen bytes.
    IPv6,
    /// Host names, or a family that this version does not know.
    #[serde(rename = "FQDN", other)]
    Other,
}

impl Family {
    /// The family of an address.
    pub fn of(ip: &IpAddr) -> Self {
        if ip.is_ipv4() { Family::IPv4 } else { Family::IPv6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Family::IPv4 => "IPv4",
            Family::IPv6 => "IPv6",
            Family::Other => "FQDN",
        })
    }
}

/// Reads an address as Kubernetes always has: numbers may begin with zeros, and an IPv4 address in IPv6's clothes is an
/// IPv4 address.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(ip) => Some(ip.to_canonical()),
        Err(_) => with_leading_zeros(text).map(IpAddr::V4),
    }
}

fn with_leading_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.');
    let mut octets = [0; 4];
    for octet in &mut octets {
        let digits = parts.next().filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))?;
        *octet = digits.parse::<u8>().ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}
