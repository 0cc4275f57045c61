//! Cluster IPs and node ports of services, allocated so that each is unique in the cluster.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use bayplan_model::status::Status;
use jiff::{SignedDuration, Timestamp};
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

/// The reason of the error that says that a range is full.
const FULL: &str = "InternalError";
/// How soon all services are listed again after a range was found full: a deleted service's address may be told taken
/// for so long, and a client that asks again and again does not make the server list them each time.
const RELIST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// How much larger the index may grow than it was when all services were listed, and how much larger still.
const GROWTH_MAX: usize = 2;
const GROWTH_FREE: usize = 1_000;

/// Which service was given which address and which port. It knows every service that has one, and some that no longer
/// do: who asks for what is taken has the holder looked at.
#[derive(Default)]
pub(super) struct Allocated {
    /// By address, the service's `namespace/name`.
    addresses: HashMap<String, Arc<str>>,
    ports: HashMap<i64, Arc<str>>,
    /// When all services were listed, and how many entries that made.
    listed: Option<(Timestamp, usize)>,
}

/// The allocations, and the service that asks for one.
struct Claimant<'a> {
    allocated: &'a mut Allocated,
    key: Arc<str>,
}

impl Registry {
    /// Allocates the cluster IP and the node ports of a service. The guard must live until the service is stored, so
    /// that no other service gets the same.
    pub(super) async fn allocate_service<'a>(
        &'a self,
        call: &Call<'_>,
        object: &mut Value,
    ) -> Result<Option<MutexGuard<'a, Allocated>>, Status> {
        if call.resource.plural != "services" || !call.subresource.is_empty() {
            return Ok(None);
        }
        let mut allocated = self.services.lock().await;
        let key: Arc<str> = format!("{}/{}", call.namespace, metadata::text(object, "name")).into();
        if allocated.is_large() {
            *allocated = self.list_allocated(call).await?;
        }
        self.forget_gone(call, &object["spec"], &key, &mut allocated).await?;
        let mut outcome = Claimant { allocated: &mut allocated, key: key.clone() }.allocate(object, self.service_range);
        if outcome.as_ref().is_err_and(|error| error.reason == FULL) && allocated.is_old(self.now()) {
            *allocated = self.list_allocated(call).await?;
            outcome = Claimant { allocated: &mut allocated, key }.allocate(object, self.service_range);
        }
        let name = metadata::text(object, "name");
        outcome.map_err(|error| status_errors::invalid_object(call.resource, name, &[error]))?;
        Ok(Some(allocated))
    }

    /// What all services have.
    async fn list_allocated(&self, call: &Call<'_>) -> Result<Allocated, Status> {
        let mut allocated = Allocated::default();
        for service in Objects::list(self, call.resource, "").await? {
            let key = format!("{}/{}", metadata::text(&service, "namespace"), metadata::text(&service, "name"));
            allocated.add(&service["spec"], &key.into());
        }
        allocated.listed = Some((self.now(), allocated.len()));
        Ok(allocated)
    }

    /// Looks at the holders of what a service asks for by name, and forgets those that hold it no longer.
    async fn forget_gone(
        &self,
        call: &Call<'_>,
        spec: &Value,
        key: &Arc<str>,
        allocated: &mut Allocated,
    ) -> Result<(), Status> {
        for holder in allocated.holders(spec).into_iter().filter(|holder| holder != key) {
            let (namespace, name) = holder.split_once('/').unwrap_or_default();
            let service = Objects::get(self, call.resource, namespace, name).await?;
            allocated.forget(&holder, spec);
            if let Some(service) = service {
                allocated.add(&service["spec"], &holder);
            }
        }
        Ok(())
    }
}

fn addresses_of(spec: &Value) -> impl Iterator<Item = &str> {
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    addresses.chain(spec["clusterIP"].as_str()).filter(|address| !matches!(*address, "" | "None"))
}

fn ports_of(spec: &Value) -> impl Iterator<Item = i64> {
    let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64());
    ports.chain(spec["healthCheckNodePort"].as_i64()).filter(|port| *port != 0)
}

impl Allocated {
    fn len(&self) -> usize {
        self.addresses.len() + self.ports.len()
    }

    /// Nothing was listed yet, or most of what is known may be of services that are gone.
    fn is_large(&self) -> bool {
        self.listed.is_none_or(|(_, listed)| self.len() > GROWTH_MAX * listed + GROWTH_FREE)
    }

    fn is_old(&self, now: Timestamp) -> bool {
        self.listed.is_none_or(|(at, _)| now.duration_since(at) >= RELIST_INTERVAL)
    }

    fn add(&mut self, spec: &Value, key: &Arc<str>) {
        self.addresses.extend(addresses_of(spec).map(|address| (address.to_owned(), key.clone())));
        self.ports.extend(ports_of(spec).map(|port| (port, key.clone())));
    }

    /// The services that have something of what a spec names, each once.
    fn holders(&self, spec: &Value) -> BTreeSet<Arc<str>> {
        let addresses = addresses_of(spec).filter_map(|address| self.addresses.get(address));
        addresses.chain(ports_of(spec).filter_map(|port| self.ports.get(&port))).cloned().collect()
    }

    /// A service has nothing of what a spec names.
    fn forget(&mut self, key: &Arc<str>, spec: &Value) {
        addresses_of(spec).for_each(|address| {
            if self.addresses.get(address) == Some(key) {
                self.addresses.remove(address);
            }
        });
        ports_of(spec).for_each(|port| {
            if self.ports.get(&port) == Some(key) {
                self.ports.remove(&port);
            }
        });
    }
}

impl Claimant<'_> {
    fn is_taken(&self, address: &str) -> bool {
        self.allocated.addresses.get(address).is_some_and(|holder| *holder != self.key)
    }

    fn is_port_taken(&self, port: i64) -> bool {
        self.allocated.ports.get(&port).is_some_and(|holder| *holder != self.key)
    }

    fn allocate(&mut self, service: &mut Value, range: ServiceRange) -> Result<(), FieldError> {
        allocate(service, range, self)?;
        self.allocated.add(&service["spec"], &self.key);
        Ok(())
    }
}

fn allocate(service: &mut Value, range: ServiceRange, claimant: &mut Claimant<'_>) -> Result<(), FieldError> {
    let Some(spec) = service["spec"].as_object_mut() else { return Ok(()) };
    let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (service_type, policy, given) = (text("type"), text("externalTrafficPolicy"), text("clusterIP"));
    if service_type == "ExternalName" {
        return Ok(());
    }
    let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
    let address = match given.as_str() {
        "None" => given,
        "" => free_address(range, claimant)?,
        _ => reserve(given, range, claimant)?,
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
        let port = free_port(claimant, &HashSet::new())?;
        spec.insert("healthCheckNodePort".to_owned(), json!(port));
    }
    if wants_ports {
        let health = spec.get("healthCheckNodePort").and_then(Value::as_i64);
        allocate_ports(spec.get_mut("ports").and_then(Value::as_array_mut), health, claimant)?;
    }
    Ok(())
}

fn allocate_ports(
    ports: Option<&mut Vec<Value>>,
    health: Option<i64>,
    claimant: &mut Claimant<'_>,
) -> Result<(), FieldError> {
    // The same number may serve two protocols of one service, but none that it chooses serves twice.
    let mut own: HashSet<i64> = health.into_iter().collect();
    for (index, port) in ports.into_iter().flatten().enumerate() {
        let field = format!("spec.ports[{index}].nodePort");
        match port["nodePort"].as_i64().unwrap_or(0) {
            0 => {
                let free = free_port(claimant, &own)?;
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
            given if claimant.is_port_taken(given) => {
                return Err(FieldError::invalid(field, given, "provided port is already allocated"));
            }
            given => {
                own.insert(given);
            }
        }
    }
    Ok(())
}

fn reserve(address: String, range: ServiceRange, claimant: &Claimant<'_>) -> Result<String, FieldError> {
    let why = match address.parse::<Ipv4Addr>() {
        Err(_) => return Ok(address),
        Ok(ip) if !range.contains(ip) => "the provided network does not match the current range",
        Ok(_) if claimant.is_taken(&address) => "provided IP is already allocated",
        Ok(_) => return Ok(address),
    };
    Err(FieldError::invalid("spec.clusterIPs", json!([address]), format!("failed to allocate IP {address}: {why}")))
}

fn free_address(range: ServiceRange, claimant: &Claimant<'_>) -> Result<String, FieldError> {
    let mut rng = rand::rng();
    let random = (0..TRIES).map(|_| rng.random_range(2..range.size - 1));
    let found = random
        .chain(2..range.size - 1)
        .map(|offset| range.address(offset).to_string())
        .find(|address| !claimant.is_taken(address));
    found.ok_or_else(|| FieldError::new(FULL, "spec.clusterIPs", "Internal error: range is full"))
}

fn free_port(claimant: &Claimant<'_>, own: &HashSet<i64>) -> Result<i64, FieldError> {
    let mut rng = rand::rng();
    let random = (0..TRIES).map(|_| rng.random_range(NODE_PORTS));
    let found = random.chain(NODE_PORTS).find(|port| !claimant.is_port_taken(*port) && !own.contains(port));
    found.ok_or_else(|| FieldError::new(FULL, "spec.ports", "Internal error: range is full"))
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
        for number in 0..5 {
            let claimant = Claimant { allocated: &mut allocated, key: number.to_string().into() };
            let address = free_address(range, &claimant).unwrap();
            allocated.add(&json!({"clusterIP": address}), &number.to_string().into());
        }
        assert!(free_address(range, &Claimant { allocated: &mut allocated, key: "6".into() }).is_err());
    }
}
