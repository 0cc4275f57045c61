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
mod families;
mod node_ports;
mod ports;
mod ranges;
mod repair;
mod service_range;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{Call, Registry, metadata};
use crate::status_errors::{self, FieldError};
use addresses::Owner;
use families::{Spec, text, texts};
pub(crate) use node_ports::NODE_PORTS;
use ports::Wanted;
pub(crate) use repair::keep_service_addresses;
use service_range::Family;
pub use service_range::{ServiceRange, ServiceRangeError};

/// What a write of a service has claimed, and what it makes free.
#[derive(Default)]
pub(super) struct Allocation {
    namespace: String,
    name: String,
    /// What the service had before.
    had: Holdings,
    claimed: Holdings,
}

/// Addresses and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holdings {
    addresses: BTreeSet<String>,
    ports: BTreeSet<i64>,
}

/// Why nothing was allocated: the request's fault, or the store's.
enum Failure {
    Invalid(Vec<FieldError>),
    Failed(Status),
}

impl From<FieldError> for Failure {
    fn from(error: FieldError) -> Failure {
        Failure::Invalid(vec![error])
    }
}

impl From<Vec<FieldError>> for Failure {
    fn from(errors: Vec<FieldError>) -> Failure {
        Failure::Invalid(errors)
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
        let namespace = call.namespace.to_owned();
        let mut allocation = Allocation { namespace, name: name.clone(), had, claimed: Holdings::default() };
        let outcome = self.allocate(object, old, call.dry_run, &mut allocation).await;
        match outcome {
            Ok(()) => Ok(Some(allocation).filter(|_| !call.dry_run)),
            Err(failure) => {
                if !call.dry_run {
                    self.settle_service(Some(allocation), None).await;
                }
                Err(match failure {
                    Failure::Failed(status) => status,
                    Failure::Invalid(errors) => status_errors::invalid_object(call.resource, &name, &errors),
                })
            }
        }
    }

    /// Releases what a service no longer has, as it is stored now, or, if it was not stored, what was claimed for it.
    /// What cannot be released now is found by the next repair.
    pub(super) async fn settle_service(&self, allocation: Option<Allocation>, stored: Option<&Value>) {
        let Some(Allocation { namespace, name, had, claimed }) = allocation else { return };
        let owner = Owner { namespace: &namespace, name: &name, dry_run: false };
        let free = stored.map_or(claimed, |stored| had.without(&Holdings::of(&stored["spec"])));
        self.release(owner, free).await;
    }

    /// Releases what a service had that was removed, and removes its Endpoints, so that no service of its name finds
    /// them.
    pub(super) async fn release_service(&self, call: &Call<'_>, service: &Value) {
        if is_service(call) && !call.dry_run {
            let owner = Owner { namespace: call.namespace, name: call.name, dry_run: false };
            if let Err(status) = self.remove_endpoints(owner).await {
                tracing::warn!(name = call.name, %status, "the Endpoints of a removed service stay");
            }
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
        dry_run: bool,
        allocation: &mut Allocation,
    ) -> Result<(), Failure> {
        let before = old.and_then(|old| old["spec"].as_object());
        {
            let Some(spec) = service["spec"].as_object_mut() else { return Ok(()) };
            if let Some(before) = before {
                families::keep_given(spec, before);
            }
            families::unite_addresses(spec, before);
        }
        let keeps = service["spec"].as_object().is_some_and(|spec| families::keeps_preference(spec, before));
        if service["spec"]["type"] != "ExternalName" && !keeps {
            if let Some(spec) = service["spec"].as_object_mut() {
                families::default_policy(spec, before);
            }
            let errors = bayplan_kinds::service_address_errors(service, old);
            if !errors.is_empty() {
                return Err(Failure::Invalid(errors));
            }
            if let Some(spec) = service["spec"].as_object_mut() {
                families::settle(spec, before, self.service_range.families())?;
                self.claim_addresses(spec, before, dry_run, allocation).await?;
            }
        }
        let Some(spec) = service["spec"].as_object_mut() else { return Ok(()) };
        let wanted = Wanted::of(spec, before)?;
        let claimed = self.claim_wanted(spec, &wanted, dry_run).await?;
        if !dry_run {
            allocation.claimed.ports.extend(claimed);
        }
        Ok(())
    }

    /// Claims the addresses that a service has not yet. Upstream: `allocClusterIPs`, `updateClusterIPs`.
    async fn claim_addresses(
        &self,
        spec: &mut Spec,
        old: Option<&Spec>,
        dry_run: bool,
        allocation: &mut Allocation,
    ) -> Result<(), Failure> {
        let had = match old {
            Some(old) if text(old, "type") != "ExternalName" => texts(old.get("clusterIPs")),
            _ => Vec::new(),
        };
        let mut addresses = texts(spec.get("clusterIPs"));
        let headless = |addresses: &[String]| addresses.first().is_some_and(|first| first == "None");
        if headless(&addresses) || headless(&had) {
            return Ok(());
        }
        let families: Vec<Family> = texts(spec.get("ipFamilies")).iter().map(|family| Family::read(family)).collect();
        // One that is there already is not given again; that it does not change is for validation to see.
        for (index, family) in families.iter().enumerate().skip(had.len()) {
            let given = addresses.get(index).cloned().unwrap_or_default();
            addresses.resize(addresses.len().max(index + 1), String::new());
            let owner = Owner { namespace: &allocation.namespace, name: &allocation.name, dry_run };
            let claimed = self.claim_named_or_free(&given, *family, &addresses, owner).await?;
            if !dry_run {
                allocation.claimed.addresses.insert(claimed.clone());
            }
            addresses[index] = claimed;
        }
        spec.insert("clusterIP".to_owned(), json!(addresses.first()));
        spec.insert("clusterIPs".to_owned(), json!(addresses));
        Ok(())
    }

    async fn claim_named_or_free(
        &self,
        given: &str,
        family: Family,
        shown: &[String],
        owner: Owner<'_>,
    ) -> Result<String, Failure> {
        let ranges = self.address_ranges(family).await?;
        if given.is_empty() {
            let example = ranges.first().map(|range| range.network().to_string()).unwrap_or_default();
            if let Some(why) = addresses::refused_owner(&example, owner) {
                let detail = format!("failed to allocate IP: {why}");
                return Err(FieldError::invalid("spec.clusterIPs", json!(shown), detail).into());
            }
            return match self.claim_free_address(&ranges, owner).await? {
                Some(address) => Ok(address),
                None => Err(Failure::Failed(status_errors::internal(format!(
                    "failed to allocate a serviceIP for Service {:?}: range is full",
                    owner.name
                )))),
            };
        }
        let address = given.parse::<IpAddr>().ok();
        let within = address.is_some_and(|address| ranges.iter().any(|range| range.contains(address)));
        let refused = match ranges.first() {
            Some(range) if !within && owner.dry_run => {
                format!("the provided IP ({given}) is not in the valid range. The range of valid IPs is {range}")
            }
            _ if !within => "the provided network does not match the current range".to_owned(),
            _ if owner.dry_run => return Ok(given.to_owned()),
            _ => {
                let canonical = address.map_or_else(|| given.to_owned(), |address| address.to_string());
                match addresses::refused_owner(&canonical, owner) {
                    Some(why) => why,
                    None if self.claim_address(&canonical, owner).await? => return Ok(given.to_owned()),
                    None => "provided IP is already allocated".to_owned(),
                }
            }
        };
        let detail = format!("failed to allocate IP {given}: {refused}");
        Err(FieldError::invalid("spec.clusterIPs", json!(shown), detail).into())
    }
}

fn is_service(call: &Call<'_>) -> bool {
    call.resource.group.is_empty() && call.resource.plural == "services"
}
