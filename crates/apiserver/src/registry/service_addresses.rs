//! Cluster IPs and node ports of services, allocated so that each is unique in the cluster.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::str::FromStr;

use bayplan_model::status::Status;
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

use super::{Call, Objects, Registry, metadata};
use crate::status_errors::{self, FieldError};

/// The shortest prefix of a range: the number of its addresses fits 32 bits.
const PREFIX_MIN: u32 = 8;
/// The longest prefix: a smaller range has few addresses beside network, `kubernetes` and broadcast.
const PREFIX_MAX: u32 = 29;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30000..=32767;
/// Random attempts before a systematic search.
const TRIES: usize = 16;

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

impl ServiceRange {
    /// The first address, which belongs to the `kubernetes` service.
    pub fn first(self) -> Ipv4Addr {
        self.address(1)
    }

    fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.start + offset)
    }

    /// True for addresses that may be allocated: neither the network's own nor the broadcast address.
    fn contains(self, address: Ipv4Addr) -> bool {
        (1..self.size - 1).contains(&address.to_bits().wrapping_sub(self.start))
    }
}

/// The addresses and ports of the other services.
#[derive(Default)]
struct Allocated {
    addresses: HashSet<String>,
    ports: HashSet<i64>,
}

impl Registry {
    /// Allocates the cluster IP and the node ports of a service. The guard must live until the service is stored, so
    /// that no other service gets the same.
    pub(super) async fn allocate_service<'a>(
        &'a self,
        call: &Call<'_>,
        object: &mut Value,
    ) -> Result<Option<MutexGuard<'a, ()>>, Status> {
        if call.resource.plural != "services" || !call.subresource.is_empty() {
            return Ok(None);
        }
        let guard = self.services.lock().await;
        let (namespace, name) = (call.namespace, metadata::text(object, "name").to_owned());
        let mut allocated = Allocated::default();
        for other in Objects::list(self, call.resource, "").await? {
            if metadata::text(&other, "namespace") != namespace || metadata::text(&other, "name") != name {
                allocated.add(&other["spec"]);
            }
        }
        allocate(object, self.service_range, &mut allocated)
            .map_err(|error| status_errors::invalid_object(call.resource, &name, &[error]))?;
        Ok(Some(guard))
    }
}

impl Allocated {
    fn add(&mut self, spec: &Value) {
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.addresses.extend(addresses.chain(spec["clusterIP"].as_str()).map(str::to_owned));
        self.ports.extend(spec["healthCheckNodePort"].as_i64());
        self.ports.extend(spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64()));
    }
}

fn allocate(service: &mut Value, range: ServiceRange, allocated: &mut Allocated) -> Result<(), FieldError> {
    let Some(spec) = service["spec"].as_object_mut() else { return Ok(()) };
    let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (service_type, policy, given) = (text("type"), text("externalTrafficPolicy"), text("clusterIP"));
    if service_type == "ExternalName" {
        return Ok(());
    }
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
    let address = match given.as_str() {
        "None" => given,
        "" => free_address(range, allocated)?,
        _ => reserve(given, range, allocated)?,
    };
    let both = address == "None" && !selects;
    spec.entry("ipFamilies").or_insert_with(|| if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!(if both { "RequireDualStack" } else { "SingleStack" }));
    spec.insert("clusterIPs".to_owned(), json!([address]));
    spec.insert("clusterIP".to_owned(), json!(address));
    let balancer = service_type == "LoadBalancer";
    let wants_ports = service_type == "NodePort"
        || (balancer && spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)));
    if balancer && policy == "Local" && spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0) == 0 {
        let port = free_port(allocated)?;
        spec.insert("healthCheckNodePort".to_owned(), json!(port));
    }
    if wants_ports {
        allocate_ports(spec.get_mut("ports").and_then(Value::as_array_mut), allocated)?;
    }
    Ok(())
}

fn allocate_ports(ports: Option<&mut Vec<Value>>, allocated: &mut Allocated) -> Result<(), FieldError> {
    // The same number may serve two protocols of one service.
    let mut own = HashSet::new();
    for (index, port) in ports.into_iter().flatten().enumerate() {
        let field = format!("spec.ports[{index}].nodePort");
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 => {
                let free = free_port(allocated)?;
                own.insert(free);
                port["nodePort"] = json!(free);
            }
            given if !NODE_PORTS.contains(&given) => {
                return Err(FieldError::invalid(
                    field,
                    given,
                    format!(
                        "provided port is not in the valid range. The range of valid ports is {}-{}",
                        NODE_PORTS.start(),
                        NODE_PORTS.end()
                    ),
                ));
            }
            given if allocated.ports.contains(&given) && !own.contains(&given) => {
                return Err(FieldError::invalid(field, given, "provided port is already allocated"));
            }
            given => {
                allocated.ports.insert(given);
                own.insert(given);
            }
        }
    }
    Ok(())
}

fn reserve(address: String, range: ServiceRange, allocated: &Allocated) -> Result<String, FieldError> {
    let why = match address.parse::<Ipv4Addr>() {
        Err(_) => return Ok(address),
        Ok(ip) if !range.contains(ip) => "the provided network does not match the current range",
        Ok(_) if allocated.addresses.contains(&address) => "provided IP is already allocated",
        Ok(_) => return Ok(address),
    };
    Err(FieldError::invalid("spec.clusterIPs", json!([address]), format!("failed to allocate IP {address}: {why}")))
}

fn free_address(range: ServiceRange, allocated: &Allocated) -> Result<String, FieldError> {
    let mut rng = rand::rng();
    let random = (0..TRIES).map(|_| rng.random_range(2..range.size - 1));
    let found = random
        .chain(2..range.size - 1)
        .map(|offset| range.address(offset).to_string())
        .find(|address| !allocated.addresses.contains(address));
    found.ok_or_else(|| FieldError::new("InternalError", "spec.clusterIPs", "Internal error: range is full"))
}

fn free_port(allocated: &mut Allocated) -> Result<i64, FieldError> {
    let mut rng = rand::rng();
    let random = (0..TRIES).map(|_| rng.random_range(NODE_PORTS));
    let found = random.chain(NODE_PORTS).find(|port| !allocated.ports.contains(port));
    let port = found.ok_or_else(|| FieldError::new("InternalError", "spec.ports", "Internal error: range is full"))?;
    allocated.ports.insert(port);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_know_their_addresses() {
        let range: ServiceRange = "10.0.0.0/24".parse().unwrap();
        assert_eq!(range.first(), Ipv4Addr::new(10, 0, 0, 1));
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

    #[test]
    fn a_full_range_says_so() {
        let range: ServiceRange = "10.0.0.0/29".parse().unwrap();
        let mut allocated = Allocated::default();
        for _ in 0..5 {
            let address = free_address(range, &allocated).unwrap();
            allocated.addresses.insert(address);
        }
        assert!(free_address(range, &allocated).is_err());
    }
}
