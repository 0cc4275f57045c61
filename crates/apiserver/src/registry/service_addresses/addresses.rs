//! Cluster IPs: each is an IPAddress object whose creation is the lock, as upstream's allocator writes them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};

use bayplan_kinds::Kind;
use bayplan_model::status::{Status, reason};
use bayplan_store::WriteError;
use jiff::{SignedDuration, Timestamp};
use rand::RngExt;
use serde_json::{Value, json};

use super::super::{Objects, Registry, SystemObjects, SystemWrite, metadata};
use super::ranges::AddressRange;
use crate::{chance, status_errors};

/// Random attempts before a systematic search.
const TRIES: usize = 16;
/// How soon all addresses are looked through again after the range was found full: a freed address may be told taken
/// for so long, and a client that asks again and again does not make the server look each time.
const RELIST_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Who owns an IPAddress; upstream's allocator, for both kinds of server.
pub(super) const MANAGER: &str = "ipallocator.k8s.io";
pub(super) const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";

/// The service that asks for an address.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// Write nothing, only see what is free.
    pub(super) dry_run: bool,
}

pub(super) fn kind() -> &'static Kind {
    bayplan_kinds::find("networking.k8s.io", "v1", "ipaddresses").expect("a row of the table")
}

impl Registry {
    /// Claims an address for a service; false if another has it.
    pub(super) async fn claim_address(&self, address: &str, owner: Owner<'_>) -> Result<bool, Status> {
        let object = object_of(address, owner);
        match self.create_unchecked(SystemWrite::ServiceAddress, kind(), "", object).await {
            Ok(_) => Ok(true),
            Err(status) if status.is(reason::ALREADY_EXISTS) => Ok(false),
            Err(status) => Err(status),
        }
    }

    /// Gives an address back, if it is still of this service.
    pub(super) async fn release_address(&self, address: &str, owner: Owner<'_>) -> Result<(), Status> {
        loop {
            let Some(found) = Objects::get(self, kind(), "", address).await? else { return Ok(()) };
            if !belongs_to(&found, owner.namespace, owner.name) || self.remove_address(&found).await? {
                return Ok(());
            }
        }
    }

    /// Removes an IPAddress as it was read; false if it was written since.
    pub(super) async fn remove_address(&self, found: &Arc<Value>) -> Result<bool, Status> {
        self.remove_read(kind(), "", found).await
    }

    /// Removes an object as it was read; false if it was written since.
    async fn remove_read(&self, kind: &'static Kind, namespace: &str, found: &Arc<Value>) -> Result<bool, Status> {
        let revision = metadata::text(found, "resourceVersion").parse().unwrap_or(0);
        match self.store().delete(&Self::key(kind, namespace, metadata::text(found, "name")), revision).await {
            Ok(_) | Err(WriteError::Conflict { found: None }) => Ok(true),
            Err(WriteError::Conflict { .. }) => Ok(false),
            Err(error) => Err(status_errors::write(error)),
        }
    }

    /// Removes the Endpoints of a service.
    pub(super) async fn remove_endpoints(&self, owner: Owner<'_>) -> Result<(), Status> {
        let kind = bayplan_kinds::find("", "v1", "endpoints").expect("a row of the table");
        loop {
            let Some(found) = Objects::get(self, kind, owner.namespace, owner.name).await? else { return Ok(()) };
            if self.remove_read(kind, owner.namespace, &found).await? {
                return Ok(());
            }
        }
    }

    /// Claims a free address of the ranges: first at random, then by looking at all. `None` if there is none.
    pub(super) async fn claim_free_address(
        &self,
        ranges: &[AddressRange],
        owner: Owner<'_>,
    ) -> Result<Option<String>, Status> {
        if owner.dry_run {
            // As upstream, which looks for none: the address of the network.
            return Ok(ranges.first().map(|range| range.network().to_string()));
        }
        for range in ranges {
            for _ in 0..TRIES {
                let preferred = range.preferred();
                if preferred.is_empty() {
                    break;
                }
                let address = range.address(chance::rng().random_range(preferred)).to_string();
                if self.claim_address(&address, owner).await? {
                    return Ok(Some(address));
                }
            }
        }
        let now = self.now();
        let recently = |at: Timestamp| now.duration_since(at).abs() < RELIST_INTERVAL;
        if self.found_full().is_some_and(|(at, count)| recently(at) && count == ranges.len()) {
            return Ok(None);
        }
        let (start, end) = Self::bounds(kind(), "");
        let listed = self.store().range(&start, &end, None, 0).await.map_err(status_errors::read)?;
        let taken: HashSet<IpAddr> = listed.entries.iter().filter_map(|e| e.key[start.len()..].parse().ok()).collect();
        for address in ranges.iter().flat_map(|range| range.all()).filter(|address| !taken.contains(address)) {
            let address = address.to_string();
            if self.claim_address(&address, owner).await? {
                return Ok(Some(address));
            }
        }
        *self.found_full() = Some((now, ranges.len()));
        Ok(None)
    }

    fn found_full(&self) -> MutexGuard<'_, Option<(Timestamp, usize)>> {
        self.range_full.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an IPAddress is a service's.
pub(super) fn belongs_to(address: &Value, namespace: &str, name: &str) -> bool {
    let parent = &address["spec"]["parentRef"];
    let text = |field: &str| parent[field].as_str().unwrap_or_default();
    text("group").is_empty() && text("resource") == "services" && text("namespace") == namespace && text("name") == name
}

fn object_of(address: &str, owner: Owner<'_>) -> Value {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    json!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address,
            "labels": {"ipaddress.kubernetes.io/ip-family": family, MANAGED_BY: MANAGER},
        },
        "spec": {"parentRef": {"resource": "services", "namespace": owner.namespace, "name": owner.name}},
    })
}

/// Why no address can belong to a service of such a name.
pub(super) fn refused_owner(address: &str, owner: Owner<'_>) -> Option<String> {
    let path_segment = !owner.name.is_empty() && !owner.name.contains(['/', '%']) && !matches!(owner.name, "." | "..");
    if path_segment || owner.dry_run {
        return None;
    }
    let errors = kind().validate_create(&object_of(address, owner));
    (!errors.is_empty()).then(|| status_errors::invalid_object(kind(), address, &errors).message)
}
