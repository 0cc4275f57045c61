//! Cluster IPs and node ports of services, allocated so that each is unique in the cluster.
//!
//! ```text
//!   before a service is stored   claim: create IPAddress objects, set bits of the node ports' range
//!   stored                       release what the service had and has no longer
//!   not stored                   release what was claimed
//!   each few minutes             repair: what a server that died left behind, what is missing
//! ```
//!
//! Both are in the store in upstream's form, so that servers of either kind never give one twice.

mod addresses;
mod node_ports;
mod repair;
mod service_range;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use bayplan_model::status::Status;
use serde_json::{Map, Value, json};

use super::{Call, Registry, metadata};
use crate::status_errors::{self, FieldError};
use addresses::Owner;
pub(crate) use node_ports::NODE_PORTS;
use node_ports::{Refused, shown};
pub(crate) use repair::keep_service_addresses;
pub use service_range::{ServiceRange, ServiceRangeError};

/// The reason of the error that says that a range is full.
const FULL: &str = "InternalError";

/// What a write of a service has claimed, and what it makes free.
#[derive(Default)]
pub(super) struct Allocation {
    namespace: String,
    name: String,
    claimed: Holdings,
    freed: Holdings,
}

/// Addresses and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holdings {
    addresses: BTreeSet<String>,
    ports: BTreeSet<i64>,
}

/// Why nothing was allocated: the request's fault, or the store's.
enum Failure {
    Invalid(FieldError),
    Failed(Status),
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Failure {
        Failure::Invalid(error)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Failed(status)
    }
}

impl Holdings {
    fn of(spec: &Value) -> Holdings {
        let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let addresses = addresses.chain(spec["clusterIP"].as_str()).filter(|address| !matches!(*address, "" | "None"));
        let ports = spec["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64());
        let ports = ports.chain(spec["healthCheckNodePort"].as_i64()).filter(|port| *port != 0);
        Holdings { addresses: addresses.map(str::to_owned).collect(), ports: ports.collect() }
    }

    fn without(&self, other: &Holdings) -> Holdings {
        Holdings {
            addresses: self.addresses.difference(&other.addresses).cloned().collect(),
            ports: self.ports.difference(&other.ports).copied().collect(),
        }
    }
}

impl Registry {
    /// Claims the cluster IP and the node ports that a service is given or asks for; `old` is the service as it is
    /// stored. The caller says with [`settle_service`](Self::settle_service) how the write went.
    pub(super) async fn allocate_service(
        &self,
        call: &Call<'_>,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<Option<Allocation>, Status> {
        if !is_service(call) || !call.subresource.is_empty() {
            return Ok(None);
        }
        let name = metadata::text(object, "name").to_owned();
        let had = old.map(|old| Holdings::of(&old["spec"])).unwrap_or_default();
        let mut allocation =
            Allocation { namespace: call.namespace.to_owned(), name: name.clone(), ..Allocation::default() };
        let outcome = self.allocate(object, old, &had, call.dry_run, &mut allocation).await;
        match outcome {
            Ok(()) => {
                allocation.freed = had.without(&Holdings::of(&object["spec"]));
                if call.dry_run {
                    return Ok(None);
                }
                Ok(Some(allocation))
            }
            Err(failure) => {
                if !call.dry_run {
                    self.settle_service(Some(allocation), false).await;
                }
                Err(match failure {
                    Failure::Failed(status) => status,
                    Failure::Invalid(error) => status_errors::invalid_object(call.resource, &name, &[error]),
                })
            }
        }
    }

    /// Releases what a service no longer has, or, if it was not stored, what was claimed for it. What cannot be
    /// released now is found by the next repair.
    pub(super) async fn settle_service(&self, allocation: Option<Allocation>, stored: bool) {
        let Some(Allocation { namespace, name, claimed, freed }) = allocation else { return };
        let owner = Owner { namespace: &namespace, name: &name, dry_run: false };
        self.release(owner, if stored { freed } else { claimed }).await;
    }

    /// Releases what a service had that was removed.
    pub(super) async fn release_service(&self, call: &Call<'_>, service: &Value) {
        if is_service(call) && !call.dry_run {
            let owner = Owner { namespace: call.namespace, name: call.name, dry_run: false };
            self.release(owner, Holdings::of(&service["spec"])).await;
        }
    }

    async fn release(&self, owner: Owner<'_>, holdings: Holdings) {
        for address in &holdings.addresses {
            if let Err(status) = self.release_address(address, owner).await {
                tracing::warn!(address, %status, "a cluster IP stays allocated until it is repaired");
            }
        }
        let ports: Vec<i64> = holdings.ports.into_iter().collect();
        if let Err(status) = self.release_ports(&ports).await {
            tracing::warn!(?ports, %status, "node ports stay allocated until they are repaired");
        }
    }

    async fn allocate(
        &self,
        service: &mut Value,
        old: Option<&Value>,
        had: &Holdings,
        dry_run: bool,
        allocation: &mut Allocation,
    ) -> Result<(), Failure> {
        let Some(spec) = service["spec"].as_object_mut() else { return Ok(()) };
        let text = |key: &str| spec.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (service_type, policy, given) = (text("type"), text("externalTrafficPolicy"), text("clusterIP"));
        if service_type == "ExternalName" {
            return Ok(());
        }
        let selects = spec.get("selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
        let address = self.allocate_address(given, had, dry_run, allocation).await?;
        let both = address == "None" && !selects;
        spec.entry("ipFamilies").or_insert_with(|| if both { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        spec.entry("ipFamilyPolicy").or_insert_with(|| json!(if both { "RequireDualStack" } else { "SingleStack" }));
        // A second address that another server gave stays.
        let before = old.map(|old| &old["spec"]["clusterIPs"]).filter(|before| before[0] == *address);
        spec.insert("clusterIPs".to_owned(), before.cloned().unwrap_or_else(|| json!([address])));
        spec.insert("clusterIP".to_owned(), json!(address));
        let balancer = service_type == "LoadBalancer";
        let wants_ports = service_type == "NodePort"
            || (balancer && spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)));
        let wanted = WantedPorts::of(spec, old, had, wants_ports, balancer && policy == "Local", self.port_range())?;
        let chosen = match self.claim_ports(&wanted.named, wanted.chosen.len(), dry_run).await {
            Ok(chosen) => chosen,
            Err(Refused::Taken(port)) => return Err(wanted.taken(spec, port).into()),
            Err(Refused::Full) => {
                return Err(FieldError::new(FULL, "spec.ports", "Internal error: range is full").into());
            }
            Err(Refused::Failed(status)) => return Err(status.into()),
        };
        if !dry_run {
            allocation.claimed.ports.extend(wanted.named.iter().chain(&chosen));
        }
        wanted.fill(spec, &chosen);
        Ok(())
    }

    async fn allocate_address(
        &self,
        given: String,
        had: &Holdings,
        dry_run: bool,
        allocation: &mut Allocation,
    ) -> Result<String, Failure> {
        if given == "None" || had.addresses.contains(&given) {
            return Ok(given);
        }
        let owner = Owner { namespace: &allocation.namespace, name: &allocation.name, dry_run };
        let address = if given.is_empty() {
            self.claim_free_address(owner).await??
        } else {
            let refused = match given.parse::<Ipv4Addr>() {
                Err(_) => return Ok(given),
                Ok(ip) if !self.service_range.contains(ip) => {
                    Some("the provided network does not match the current range")
                }
                Ok(_) if !self.claim_address(&given, owner).await? => Some("provided IP is already allocated"),
                Ok(_) => None,
            };
            if let Some(why) = refused {
                let detail = format!("failed to allocate IP {given}: {why}");
                return Err(FieldError::invalid("spec.clusterIPs", json!([given]), detail).into());
            }
            given
        };
        if !dry_run {
            allocation.claimed.addresses.insert(address.clone());
        }
        Ok(address)
    }
}

fn is_service(call: &Call<'_>) -> bool {
    call.resource.group.is_empty() && call.resource.plural == "services"
}

/// Where a chosen port goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    HealthCheck,
    Port(usize),
}

/// The ports that a service needs beyond those it has.
#[derive(Debug)]
struct WantedPorts {
    /// Those there are.
    range: RangeInclusive<i64>,
    /// Those it names.
    named: BTreeSet<i64>,
    /// Those that the server chooses.
    chosen: Vec<Slot>,
    /// Those that it had for the same port, though the new object does not say so.
    kept: Vec<(Slot, i64)>,
}

impl WantedPorts {
    fn of(
        spec: &Map<String, Value>,
        old: Option<&Value>,
        had: &Holdings,
        node_ports: bool,
        health_check: bool,
        range: RangeInclusive<i64>,
    ) -> Result<WantedPorts, FieldError> {
        let mut wanted = WantedPorts { range, named: BTreeSet::new(), chosen: Vec::new(), kept: Vec::new() };
        if health_check {
            let given = spec.get("healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
            let before = old.and_then(|old| old["spec"]["healthCheckNodePort"].as_i64()).unwrap_or(0);
            wanted.add(Slot::HealthCheck, given, before, had, "spec.healthCheckNodePort")?;
        }
        let ports = spec.get("ports").and_then(Value::as_array).filter(|_| node_ports);
        let mut before = old.map(|old| node_ports_of(&old["spec"])).unwrap_or_default();
        for port in ports.into_iter().flatten().filter_map(|port| port["nodePort"].as_i64()) {
            before.named.insert(port);
        }
        for (index, port) in ports.into_iter().flatten().enumerate() {
            let before = before.of(port);
            let given = port["nodePort"].as_i64().unwrap_or(0);
            wanted.add(Slot::Port(index), given, before, had, &format!("spec.ports[{index}].nodePort"))?;
        }
        Ok(wanted)
    }

    fn add(&mut self, slot: Slot, given: i64, before: i64, had: &Holdings, field: &str) -> Result<(), FieldError> {
        match given {
            0 if before != 0 => self.kept.push((slot, before)),
            0 => self.chosen.push(slot),
            _ if !self.range.contains(&given) => {
                let range = shown(&self.range);
                let detail = format!("provided port is not in the valid range. The range of valid ports is {range}");
                return Err(FieldError::invalid(field, given, detail));
            }
            // The same number may serve two protocols of one service.
            _ if had.ports.contains(&given) => {}
            _ => _ = self.named.insert(given),
        }
        Ok(())
    }

    /// The error about a port that another service has.
    fn taken(&self, spec: &Map<String, Value>, port: i64) -> FieldError {
        let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
        let index = ports.map(|port| port["nodePort"].as_i64()).position(|given| given == Some(port));
        let field = match index {
            Some(index) => format!("spec.ports[{index}].nodePort"),
            None => "spec.healthCheckNodePort".to_owned(),
        };
        FieldError::invalid(field, port, "provided port is already allocated")
    }

    /// Writes the chosen ports, and those that stay, into the service.
    fn fill(self, spec: &mut Map<String, Value>, chosen: &[i64]) {
        let chosen = self.chosen.into_iter().zip(chosen.iter().copied());
        for (slot, port) in chosen.chain(self.kept) {
            match slot {
                Slot::HealthCheck => _ = spec.insert("healthCheckNodePort".to_owned(), json!(port)),
                Slot::Port(index) => {
                    if let Some(entry) = spec.get_mut("ports").and_then(|ports| ports.get_mut(index)) {
                        entry["nodePort"] = json!(port);
                    }
                }
            }
        }
    }
}

/// The node ports of a service as it is stored, by port and protocol.
#[derive(Default)]
struct NodePorts {
    by_port: BTreeMap<(i64, String), i64>,
    /// Those that the new service names for some port: no other keeps them.
    named: BTreeSet<i64>,
}

impl NodePorts {
    /// The one that a port had, unless the new service names it.
    fn of(&self, port: &Value) -> i64 {
        let found = self.by_port.get(&port_and_protocol(port)).copied();
        found.filter(|found| !self.named.contains(found)).unwrap_or(0)
    }
}

fn port_and_protocol(port: &Value) -> (i64, String) {
    (port["port"].as_i64().unwrap_or(0), port["protocol"].as_str().unwrap_or_default().to_owned())
}

fn node_ports_of(spec: &Value) -> NodePorts {
    let ports = spec["ports"].as_array().into_iter().flatten();
    let by_port = ports.filter_map(|port| Some((port_and_protocol(port), port["nodePort"].as_i64()?))).collect();
    NodePorts { by_port, named: BTreeSet::new() }
}
