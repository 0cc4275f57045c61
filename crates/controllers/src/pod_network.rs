//! How a pod is reached, as the control loops read it.

use std::net::IpAddr;

/// How a pod is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// `status.podIPs`.
    pub ips: Vec<IpAddr>,
    /// `spec.hostname`.
    pub hostname: String,
    /// `spec.subdomain`.
    pub subdomain: String,
    /// The named ports of its containers, and then of its sidecars.
    pub ports: Vec<NamedPort>,
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// Its name.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub number: i32,
}
