//! IP addresses and networks in expressions, by Kubernetes' rules: no IPv4-mapped IPv6 addresses and no zones.

use std::net::IpAddr;

use crate::Error;
use crate::value::Value;

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped).then_some(address)
}

fn network(text: &str) -> Option<Cidr> {
    let (address_text, bits) = text.split_once('/')?;
    let address = address(address_text)?;
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let bits: u8 = bits.parse().ok().filter(|_| plain)?;
    (bits <= width(address)).then_some(Cidr { address, bits })
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Cidr {
    /// The bytes of the address that count.
    pub(crate) fn size(self) -> u64 {
        u64::from(self.bits).div_ceil(8)
    }

    /// The address without the bits that do not count.
    fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(v4) => {
                IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0)).into())
            }
        };
        Cidr { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Cidr { address, bits: self.bits }.masked().address == self.masked().address
    }
}

fn read_address(text: &str) -> Result<IpAddr, Error> {
    address(text)
        .ok_or_else(|| Error::runtime(format!("IP Address {text:?} parse error during conversion from string")))
}

fn read_network(text: &str) -> Result<Cidr, Error> {
    network(text)
        .ok_or_else(|| Error::runtime(format!("network address parse error during conversion from string: {text:?}")))
}

/// Functions of a text.
pub(super) fn of_text(name: &str, text: &str) -> Result<Value, Error> {
    match name {
        "ip" => read_address(text).map(Value::Ip),
        "isIP" => Ok(Value::Bool(address(text).is_some())),
        "ip.isCanonical" => read_address(text).map(|address| Value::Bool(address.to_string() == text)),
        "cidr" => read_network(text).map(Value::Cidr),
        _ => Ok(Value::Bool(network(text).is_some())),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local(address))
}

/// Methods of an address.
pub(super) fn of_address(name: &str, address: IpAddr, rest: &[Value]) -> Result<Value, Error> {
    if !rest.is_empty() {
        return Err(Error::no_such_overload());
    }
    Ok(match name {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(is_link_local_multicast(address)),
        "isLinkLocalUnicast" => Value::Bool(is_link_local(address)),
        "isGlobalUnicast" => Value::Bool(is_global_unicast(address)),
        _ => return Err(Error::no_such_overload()),
    })
}

/// Methods of a network.
pub(super) fn of_network(name: &str, network: Cidr, rest: &[Value]) -> Result<Value, Error> {
    Ok(match (name, rest) {
        ("ip", []) => Value::Ip(network.address),
        ("prefixLength", []) => Value::Int(network.bits.into()),
        ("masked", []) => Value::Cidr(network.masked()),
        ("containsIP", [Value::Ip(address)]) => Value::Bool(network.contains(*address)),
        ("containsIP", [Value::String(text)]) => Value::Bool(network.contains(read_address(text)?)),
        ("containsCIDR", [Value::Cidr(other)]) => Value::Bool(contains_network(network, *other)),
        ("containsCIDR", [Value::String(text)]) => Value::Bool(contains_network(network, read_network(text)?)),
        _ => return Err(Error::no_such_overload()),
    })
}

fn contains_network(network: Cidr, other: Cidr) -> bool {
    network.bits <= other.bits && network.contains(other.masked().address)
}
