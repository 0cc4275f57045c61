//! Repairs what was allocated: a server may die between the claim and the service, or between the service and the
//! release. Upstream's `repair` controllers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::{Status, reason};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::ownership::Writer;
use super::super::{Objects, Registry, SystemObjects, SystemWrite, metadata};
use super::Holdings;
use super::addresses::{self, MANAGED_BY, MANAGER, Owner, belongs_to};
use super::node_ports::Bitmap;

/// The ServiceCIDR that a server creates for its range, as upstream.
pub(super) const RANGE_NAME: &str = "kubernetes";
/// Who finds it ready.
const RANGE_MANAGER: &str = "kubernetes-service-cidr-controller";
/// How often, as upstream.
const INTERVAL: Duration = Duration::from_secs(3 * 60);
/// How old an IPAddress must be to count as left behind: its service is stored within a request's time.
const LEAK_AGE: SignedDuration = SignedDuration::from_secs(60);
/// How many repairs in a row must find a port without a service before it is free: a port has no time of its own.
const LEAK_REPAIRS: u32 = 3;

/// What earlier repairs found.
#[derive(Default)]
pub(super) struct Leaks {
    /// Ports without a service, and how often they were found.
    ports: BTreeMap<i64, u32>,
}

/// Repairs again and again; the first time is before anything is served.
pub(crate) async fn keep_service_addresses(registry: Arc<Registry>) {
    let mut leaks = Leaks::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(status) = registry.repair_services(&mut leaks).await {
            tracing::warn!(%status, "cluster IPs and node ports could not be repaired");
        }
    }
}

impl Registry {
    /// Publishes the range, and repairs once, so that services of before have their addresses.
    pub(crate) async fn repair_services_at_start(&self) -> Result<(), Status> {
        self.publish_range().await?;
        self.repair_services(&mut Leaks::default()).await
    }

    /// Creates the ServiceCIDR of this server's range, unless there is one.
    async fn publish_range(&self) -> Result<(), Status> {
        let kind = bayplan_kinds::find("networking.k8s.io", "v1", "servicecidrs").expect("a row of the table");
        let own = json!(self.service_range.networks());
        if let Some(found) = Objects::get(self, kind, "", RANGE_NAME).await? {
            if found["spec"]["cidrs"] != own {
                tracing::warn!(stored = %found["spec"]["cidrs"], %own, "the cluster has another range of cluster IPs");
            }
            return Ok(());
        }
        let object = json!({
            "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": RANGE_NAME},
            "spec": {"cidrs": own},
        });
        match self.create_unchecked(SystemWrite::Bootstrap, kind, "", object).await {
            Err(status) if status.is(reason::ALREADY_EXISTS) => return Ok(()),
            other => _ = other?,
        }
        let ready = json!({
            "type": "Ready", "status": "True", "lastTransitionTime": metadata::time(self.now()),
            "message": "Kubernetes default Service CIDR is ready",
        });
        let applied = json!({
            "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": RANGE_NAME},
            "status": {"conditions": [ready]},
        });
        let mut change = |range: &mut Value| {
            let writer = Writer { resource: kind, subresource: "status", manager: RANGE_MANAGER };
            if let Some(changed) = writer.applied(range, &applied, self.now())? {
                *range = changed;
            }
            Ok(())
        };
        self.update_unchecked(SystemWrite::ServiceRange, kind, "", RANGE_NAME, &mut change).await.map(drop)
    }

    pub(super) async fn repair_services(&self, leaks: &mut Leaks) -> Result<(), Status> {
        let kind = bayplan_kinds::find("", "v1", "services").expect("a row of the table");
        // Addresses first: one whose service is stored in between is then too young, and its service is found.
        let given = Objects::list(self, addresses::kind(), "").await?;
        let (entry, bitmap) = self.port_bitmap().await?;
        let services = Objects::list(self, kind, "").await?;
        self.repair_addresses(&given, &services).await?;
        let used = bitmap.with(services.iter().flat_map(|service| Holdings::of(&service["spec"]).ports));
        let repaired = leaks.ports_to_keep(&bitmap, &used);
        if repaired != bitmap || entry.is_none() {
            // Another writer was faster: the next repair sees what it made of it.
            self.write_ports(entry.as_ref(), &repaired).await?;
        }
        Ok(())
    }

    async fn repair_addresses(&self, given: &[Arc<Value>], services: &[Arc<Value>]) -> Result<(), Status> {
        let known: BTreeMap<&str, &Arc<Value>> = given.iter().map(|a| (metadata::text(a, "name"), a)).collect();
        let mut used = BTreeSet::new();
        for service in services {
            let (namespace, name) = (metadata::text(service, "namespace"), metadata::text(service, "name"));
            for address in Holdings::of(&service["spec"]).addresses {
                let owner = Owner { namespace, name, dry_run: false };
                match known.get(address.as_str()) {
                    Some(found) if belongs_to(found, namespace, name) => _ = used.insert(address),
                    None => _ = self.claim_address(&address, owner).await?,
                    Some(found) => tracing::warn!(
                        address, namespace, name, holder = %found["spec"]["parentRef"],
                        "a service has a cluster IP that belongs to another"
                    ),
                }
            }
        }
        let oldest = self.now().checked_sub(LEAK_AGE).unwrap_or(Timestamp::MIN);
        for address in given.iter().filter(|address| !used.contains(metadata::text(address, "name"))) {
            let created = metadata::text(address, "creationTimestamp").parse::<Timestamp>();
            let managed = address["metadata"]["labels"][MANAGED_BY] == MANAGER;
            if managed && created.is_ok_and(|created| created < oldest) {
                tracing::info!(
                    address = metadata::text(address, "name"),
                    "a cluster IP without a service is free again"
                );
                self.remove_address(address).await?;
            }
        }
        Ok(())
    }
}

impl Leaks {
    /// The ports that stay allocated: those of services, and those that have none only since shortly.
    fn ports_to_keep(&mut self, allocated: &Bitmap, used: &Bitmap) -> Bitmap {
        let mut found = BTreeMap::new();
        for port in allocated.ports().difference(used.ports()) {
            let times = self.ports.get(port).copied().unwrap_or(0).saturating_add(1);
            if times < LEAK_REPAIRS {
                found.insert(*port, times);
            } else {
                tracing::info!(port, "a node port without a service is free again");
            }
        }
        let kept = used.with(used.ports().iter().chain(found.keys()).copied());
        self.ports = found;
        kept
    }
}
