//! The server's own address: under `default/kubernetes`, and as an identity lease in `kube-system`.
//!
//! ```text
//!   each server, every 10 s   masterleases/<address> for 15 s ─▶ all leases that live ─▶ Endpoints and EndpointSlice
//! ```
//!
//! Upstream's lease reconciler, in its stored form: servers of either kind see each other's addresses, and those of a
//! server that died are gone within its lease. A store that no other server shares needs no leases: the address is
//! this one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_kinds::stored_value::SERVER_LEASES;
use bayplan_model::status::{Status, reason};
use bayplan_store::{Entry, Revision, Store, WriteError};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::BootstrapOptions;
use crate::registry::{Objects, Registry, SystemObjects, SystemWrite};
use crate::status_errors;
use crate::watch_cache::prefix_end;

/// How often a server renews its leases, as upstream.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// How long an address is known without being renewed, as upstream.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// How long another server's lease may stay as it is before it counts as expired, for stores that keep it: two of its
/// times, because its server's renewal may be late.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// How long the identity of a server is valid, in seconds, as upstream.
const IDENTITY_SECONDS: i64 = 3600;
/// The letters of base 32, in lower case.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// How much of a hash names a server, as upstream.
const IDENTITY_BYTES: usize = 16;

/// Keeps one server's address.
pub(crate) struct ServerAddress {
    registry: Arc<Registry>,
    address: IpAddr,
    port: u16,
    shared: bool,
    /// Who holds the identity: this run of the server.
    holder: String,
    /// The leases that were seen: their revision, and when it was seen first.
    seen: BTreeMap<String, (Revision, Timestamp)>,
}

impl ServerAddress {
    pub(crate) fn new(registry: Arc<Registry>, options: &BootstrapOptions) -> ServerAddress {
        let (address, port) = (options.advertise_address, options.advertise_port);
        let holder = format!("{}_{}", identity(address, port), crate::chance::uuid());
        ServerAddress { registry, address, port, shared: options.shared_store, holder, seen: BTreeMap::new() }
    }

    /// Publishes the address when the server starts: its ports too, which are not changed later.
    pub(crate) async fn publish(&mut self) -> Result<(), Status> {
        self.reconcile(true).await
    }

    /// Renews the leases as long as the server runs.
    pub(crate) async fn keep(mut self) {
        while self.shared {
            tokio::time::sleep(RENEW_INTERVAL).await;
            if let Err(status) = self.reconcile(false).await {
                tracing::warn!(%status, "the address of this server could not be renewed");
            }
        }
    }

    async fn reconcile(&mut self, with_ports: bool) -> Result<(), Status> {
        let addresses = if self.shared {
            self.renew_identity().await?;
            self.renew_lease().await?;
            self.living().await?
        } else {
            BTreeSet::from([self.address.to_string()])
        };
        self.write_endpoints(&addresses, with_ports).await?;
        self.write_slice(&addresses, with_ports).await
    }

    async fn renew_lease(&self) -> Result<(), Status> {
        let key = format!("{SERVER_LEASES}{}", self.address);
        let store = self.registry.store();
        loop {
            let found = store.get(&key).await.map_err(status_errors::read)?;
            // Counted so that every renewal is another value.
            let generation = found.as_ref().map_or(0, generation_of).saturating_add(1);
            let lease = json!({
                "kind": "Endpoints", "apiVersion": "v1", "metadata": {"generation": generation},
                "subsets": [{"addresses": [{"ip": self.address}]}],
            });
            match put_expiring(&**store, &key, lease.to_string().into(), found.as_ref()).await {
                Ok(_) => return Ok(()),
                Err(WriteError::Conflict { .. }) => {}
                Err(error) => return Err(status_errors::write(error)),
            }
        }
    }

    /// The addresses of all servers that renew their leases.
    async fn living(&mut self) -> Result<BTreeSet<String>, Status> {
        let store = self.registry.store().clone();
        let range = store.range(SERVER_LEASES, &prefix_end(SERVER_LEASES), None, 0).await;
        let now = self.registry.now();
        let mut living = BTreeSet::from([self.address.to_string()]);
        let mut seen = BTreeMap::new();
        for entry in range.map_err(status_errors::read)?.entries {
            let Some(address) = entry.key.strip_prefix(SERVER_LEASES).filter(|name| name.parse::<IpAddr>().is_ok())
            else {
                continue;
            };
            let first = match self.seen.get(address) {
                Some((revision, first)) if *revision == entry.mod_revision => *first,
                _ => now,
            };
            if now.duration_since(first) >= STALE_AFTER && address != self.address.to_string() {
                // It may have been renewed just now: then it stays.
                _ = store.delete(&entry.key, entry.mod_revision).await;
                continue;
            }
            living.insert(address.to_owned());
            seen.insert(address.to_owned(), (entry.mod_revision, first));
        }
        self.seen = seen;
        Ok(living)
    }

    async fn write_endpoints(&self, addresses: &BTreeSet<String>, with_ports: bool) -> Result<(), Status> {
        let addresses: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
        let own_ports = self.ports();
        let change = |endpoints: &mut Value| {
            let subsets = endpoints["subsets"].as_array().map_or(0, Vec::len);
            let ports = endpoints.pointer("/subsets/0/ports").cloned().unwrap_or_default();
            let ports = if with_ports || !ports.is_array() || subsets != 1 { own_ports.clone() } else { ports };
            endpoints["subsets"] = json!([{"addresses": addresses, "ports": ports}]);
        };
        self.change("", "endpoints", &change).await
    }

    async fn write_slice(&self, addresses: &BTreeSet<String>, with_ports: bool) -> Result<(), Status> {
        let endpoints: Vec<Value> =
            addresses.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
        let own_ports = self.ports();
        let change = |slice: &mut Value| {
            slice["endpoints"] = json!(endpoints);
            if with_ports || !slice["ports"].is_array() {
                slice["ports"] = own_ports.clone();
            }
        };
        self.change("discovery.k8s.io", "endpointslices", &change).await
    }

    fn ports(&self) -> Value {
        json!([{"name": "https", "port": self.port, "protocol": "TCP"}])
    }

    /// Changes `default/kubernetes` of a kind, if that makes a difference.
    async fn change(&self, group: &str, plural: &str, change: &(dyn Fn(&mut Value) + Sync)) -> Result<(), Status> {
        let kind = bayplan_kinds::find(group, "v1", plural).expect("a row of the table");
        let Some(found) = Objects::get(&*self.registry, kind, "default", "kubernetes").await? else { return Ok(()) };
        let mut wanted = Value::clone(&found);
        change(&mut wanted);
        if wanted == *found {
            return Ok(());
        }
        let mut update = |object: &mut Value| {
            change(object);
            if let Some(generation) = object["metadata"]["generation"].as_i64() {
                object["metadata"]["generation"] = json!(generation.saturating_add(1));
            }
            Ok(())
        };
        let why = SystemWrite::ServerAddress;
        self.registry.update_unchecked(why, kind, "default", "kubernetes", &mut update).await?;
        Ok(())
    }

    async fn renew_identity(&self) -> Result<(), Status> {
        let kind = bayplan_kinds::find("coordination.k8s.io", "v1", "leases").expect("a row of the table");
        let name = identity(self.address, self.port);
        let renewed = self.registry.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let spec = json!({
            "holderIdentity": self.holder, "leaseDurationSeconds": IDENTITY_SECONDS, "renewTime": renewed,
        });
        let why = SystemWrite::ServerAddress;
        let mut update = |lease: &mut Value| {
            lease["spec"] = spec.clone();
            Ok(())
        };
        match self.registry.update_unchecked(why, kind, "kube-system", &name, &mut update).await {
            Err(status) if status.is(reason::NOT_FOUND) => {}
            other => return other.map(drop),
        }
        let lease = json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": name, "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
            "spec": spec,
        });
        self.registry.create_unchecked(why, kind, "kube-system", lease).await.map(drop)
    }
}

/// Writes a key that is gone after a lease's time. The embedded store keeps it; `STALE_AFTER` stands in for that.
async fn put_expiring(
    store: &dyn Store,
    key: &str,
    value: Bytes,
    over: Option<&Entry>,
) -> Result<Revision, WriteError> {
    match over {
        Some(entry) => store.update_expiring(key, value, entry.mod_revision, LEASE_TIME).await,
        None => store.create_expiring(key, value, LEASE_TIME).await,
    }
}

fn generation_of(entry: &Entry) -> i64 {
    let object: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// The name of a server's identity lease: one for each address that servers listen on.
fn identity(address: IpAddr, port: u16) -> String {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, format!("{address}:{port}").as_bytes());
    let mut name = String::from("apiserver-");
    let bits: Vec<u8> =
        hash.as_ref()[..IDENTITY_BYTES].iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    for five in bits.chunks(5) {
        let index = (0..5).fold(0_usize, |index, at| index << 1 | usize::from(five.get(at).copied().unwrap_or(0)));
        name.push(char::from(BASE32[index]));
    }
    name
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use bayplan_store::LogStore;

    use super::*;
    use crate::admission::AdmissionPlugins;
    use crate::authz::Authorizer;
    use crate::registry::ServiceRange;

    fn options(address: [u8; 4], shared_store: bool) -> BootstrapOptions {
        BootstrapOptions {
            advertise_address: address.into(),
            advertise_port: 6443,
            client_authority: "CA".into(),
            front_proxy: None,
            nobodys_authority: None,
            aggregate_roles: true,
            shared_store,
        }
    }

    fn registry(store: &Arc<dyn Store>, seconds: &Arc<AtomicI64>) -> Arc<Registry> {
        let clock = seconds.clone();
        let now = move || Timestamp::UNIX_EPOCH + SignedDuration::from_secs(clock.load(Ordering::Relaxed));
        let (plugins, range) = (AdmissionPlugins::default(), ServiceRange::default());
        Arc::new(Registry::new(store.clone(), Arc::new(now), plugins, range, Authorizer::default()))
    }

    async fn published(registry: &Registry) -> (Vec<String>, Vec<String>) {
        let get = async |group, plural| {
            let kind = bayplan_kinds::find(group, "v1", plural).unwrap();
            Objects::get(registry, kind, "default", "kubernetes").await.unwrap().unwrap()
        };
        let (endpoints, slice) = (get("", "endpoints").await, get("discovery.k8s.io", "endpointslices").await);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let one = endpoints["subsets"][0]["addresses"].as_array().unwrap().iter().map(|a| text(&a["ip"])).collect();
        let other = slice["endpoints"].as_array().unwrap().iter().map(|e| text(&e["addresses"][0])).collect();
        (one, other)
    }

    #[tokio::test]
    async fn servers_publish_each_others_addresses_until_one_dies() {
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().unwrap());
        let seconds = Arc::new(AtomicI64::new(0));
        let registry = registry(&store, &seconds);
        let first_options = options([192, 0, 2, 1], true);
        super::super::ensure(&*registry, [10, 96, 0, 1].into(), &first_options).await.unwrap();
        let mut first = ServerAddress::new(registry.clone(), &first_options);
        let mut second = ServerAddress::new(registry.clone(), &options([192, 0, 2, 2], true));
        first.publish().await.unwrap();
        second.publish().await.unwrap();
        let both = vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()];
        assert_eq!(published(&registry).await, (both.clone(), both.clone()));
        for (at, expected) in [(10, &both[..]), (20, &both[..]), (30, &both[1..]), (40, &both[1..])] {
            seconds.store(at, Ordering::Relaxed);
            second.reconcile(false).await.unwrap();
            assert_eq!(published(&registry).await, (expected.to_vec(), expected.to_vec()), "after {at} s");
        }
        let leases = bayplan_kinds::find("coordination.k8s.io", "v1", "leases").unwrap();
        let identities = Objects::list(&*registry, leases, "kube-system").await.unwrap();
        assert_eq!(identities.len(), 2);
        assert!(identities.iter().all(|lease| lease["spec"]["leaseDurationSeconds"] == 3600));
    }

    #[tokio::test]
    async fn a_store_of_its_own_has_only_this_server_and_no_leases() {
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().unwrap());
        let registry = registry(&store, &Arc::default());
        super::super::ensure(&*registry, [10, 96, 0, 1].into(), &options([192, 0, 2, 1], false)).await.unwrap();
        let before = registry.revision().await.unwrap();
        ServerAddress::new(registry.clone(), &options([192, 0, 2, 1], false)).publish().await.unwrap();
        assert_eq!(registry.revision().await.unwrap(), before, "nothing has changed");
        ServerAddress::new(registry.clone(), &options([192, 0, 2, 9], false)).publish().await.unwrap();
        let moved = vec!["192.0.2.9".to_owned()];
        assert_eq!(published(&registry).await, (moved.clone(), moved));
        assert!(
            store
                .range("/registry/masterleases/", "/registry/masterleases0", None, 0)
                .await
                .unwrap()
                .entries
                .is_empty()
        );
    }

    #[test]
    fn an_identity_is_upstreams_form() {
        let name = identity([192, 0, 2, 1].into(), 6443);
        assert_eq!(name.len(), "apiserver-wlv32tlttr4jl3gtroqexyxapa".len());
        assert_ne!(name, identity([192, 0, 2, 1].into(), 6444));
    }
}
