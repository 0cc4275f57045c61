//! Endpoints: the addresses of a Service's pods in one object, for clients that do not know EndpointSlices.
//!
//! ```text
//!   pods ─▶ addresses ─▶ subsets (by ports) ─▶ truncate ─▶ create or update
//! ```

mod object;
mod subsets;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::DeleteOptions;
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::{Map, ObjectMeta};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::consistency::is_behind;
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, namespace_terminating, not_found};
use crate::pod::Pod;
use crate::requests::{self, ENDPOINTS};
use crate::service::{
    Family, HEADLESS, LEADER_ELECTION, RETRIES_MAX, Selecting, Service, ServicePort, TargetRef, TriggerTimes, annotate,
    has_endpoint, parse_ip,
};
use crate::workload::event_reference;
pub use object::{Address, Endpoints, Port, Subset};
pub(crate) use subsets::repack;
use subsets::{Packer, truncate};

/// The label that says that this loop made Endpoints.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Its value.
const MANAGER: &str = "endpoint-controller";
/// The annotation of Endpoints that had to leave addresses out.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The Endpoints controller.
pub struct EndpointsController {
    cache: Arc<Cache>,
    /// How long changes of pods are collected; upstream's `--endpoint-updates-batch-period`.
    batch_period: Duration,
    selecting: Mutex<Selecting>,
    trigger_times: Mutex<TriggerTimes>,
    written: Mutex<KeyedMap<String, Written>>,
}

/// The last write of a Service's Endpoints.
#[derive(Debug)]
struct Written {
    /// The version that it replaced; empty when it created them.
    replaced: String,
    version: String,
    /// Whether a reconcile waits until the cache has it.
    awaited: bool,
}

impl EndpointsController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>, batch_period: Duration) -> Self {
        EndpointsController {
            cache,
            batch_period,
            selecting: Mutex::default(),
            trigger_times: Mutex::default(),
            written: Mutex::default(),
        }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(service) = self.cache.services().get(namespace, name) else {
            return self.remove(key, context).await;
        };
        if !service.selects() {
            return Ok(Requeue::OnChange);
        }
        let pods: Vec<Arc<Pod>> = self
            .cache
            .pods()
            .namespace(namespace)
            .filter(|pod| service.matches(&pod.metadata.labels))
            .cloned()
            .collect();
        let time = lock(&self.trigger_times).next(&service, &pods);
        let mut subsets = subsets_of(&service, &pods);
        let truncated = truncate(&mut subsets);
        let current = self.cache.endpoints().get(namespace, name);
        self.check(key, current.as_deref())?;
        if current.as_ref().is_some_and(|current| is_current(current, &service, &subsets, truncated)) {
            return Ok(Requeue::OnChange);
        }
        self.write(&service, current.as_deref(), subsets, truncated, time, context).await?;
        Ok(Requeue::OnChange)
    }

    /// Whether the cache has what this loop wrote.
    fn check(&self, key: &str, current: Option<&Endpoints>) -> Result<(), Error> {
        let mut written = lock(&self.written);
        let Some(Written { replaced, version, awaited }) = written.get_mut(key) else { return Ok(()) };
        let old = match current {
            Some(current) => (current.metadata.resource_version == *replaced).then_some(replaced.as_str()),
            None => is_behind(self.cache.endpoints().version(), version).then_some("0"),
        };
        let Some(old) = old else { return Ok(()) };
        *awaited = true;
        Err(Error::Outdated(format!(
            "endpoints informer cache is out of date, resource version {old} already processed for endpoints {key}"
        )))
    }

    /// The Service is gone, and its Endpoints go with it.
    async fn remove(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let meta = ObjectMeta { namespace: namespace.into(), name: name.into(), ..ObjectMeta::default() };
        match requests::delete(context.api, &ENDPOINTS, &meta, DeleteOptions::default()).await {
            Err(status) if !not_found(&status) => return Err(status.into()),
            _ => {}
        }
        lock(&self.trigger_times).forget(key);
        lock(&self.written).remove(key);
        Ok(Requeue::OnChange)
    }

    async fn write(
        &self,
        service: &Service,
        current: Option<&Endpoints>,
        subsets: Vec<Subset>,
        truncated: bool,
        time: Option<Timestamp>,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let new = ObjectMeta { name: service.metadata.name.clone(), ..ObjectMeta::default() };
        let mut metadata = current.map_or(new, |current| current.metadata.clone());
        metadata.labels = labels(service);
        annotate(&mut metadata.annotations, time);
        match truncated {
            true => drop(metadata.annotations.insert(OVER_CAPACITY.into(), "truncated".into())),
            false => drop(metadata.annotations.remove(OVER_CAPACITY)),
        }
        let endpoints = Endpoints { metadata, subsets, ..Endpoints::default() };
        let regarding = || event_reference("v1", "Endpoints", &endpoints.metadata);
        let key = service.metadata.key();
        let Some(current) = current else {
            let created: Result<Endpoints, _> =
                requests::create(context.api, &ENDPOINTS, &service.metadata.namespace, &endpoints).await;
            return match created {
                Err(status) if namespace_terminating(&status) => Ok(()),
                Err(status) => {
                    let note = format!("Failed to create endpoint for service {key}: {status}");
                    context.warning(regarding(), "FailedToCreateEndpoint", note);
                    Err(status.into())
                }
                Ok(created) => {
                    let version = created.metadata.resource_version;
                    lock(&self.written).insert(key, Written { replaced: String::new(), version, awaited: false });
                    Ok(())
                }
            };
        };
        let updated: Result<Endpoints, _> =
            requests::update(context.api, &ENDPOINTS, &current.metadata, &endpoints).await;
        match updated {
            Err(status) => {
                let note = format!("Failed to update endpoint {key}: {status}");
                context.warning(regarding(), "FailedToUpdateEndpoint", note);
                Err(status.into())
            }
            Ok(updated) => {
                // A write that changes nothing leaves the version as it is.
                let (version, replaced) = (updated.metadata.resource_version, &current.metadata.resource_version);
                if version != *replaced {
                    lock(&self.written).insert(key, Written { replaced: replaced.clone(), version, awaited: false });
                }
                Ok(())
            }
        }
    }
}

/// The labels of a Service's Endpoints.
fn labels(service: &Service) -> Map {
    let mut labels = service.metadata.labels.clone();
    match service.has_address() {
        true => drop(labels.remove(HEADLESS)),
        false => drop(labels.insert(HEADLESS.into(), String::new())),
    }
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

/// Whether nothing has to be written.
fn is_current(current: &Endpoints, service: &Service, subsets: &[Subset], truncated: bool) -> bool {
    let own = |labels: &Map| -> Map {
        let others = labels.iter().filter(|(name, _)| ![HEADLESS, MANAGED_BY].contains(&name.as_str()));
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let labels = &current.metadata.labels;
    let labelled = labels.get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
        && own(labels) == own(&service.metadata.labels);
    labelled
        && current.metadata.annotations.contains_key(OVER_CAPACITY) == truncated
        && (are_equal(&current.subsets, subsets) || are_equal(&repack(&current.subsets), &repack(subsets)))
}

/// Whether subsets are equal, whatever version of a pod they mean.
fn are_equal(one: &[Subset], other: &[Subset]) -> bool {
    let same_target = |one: &Option<TargetRef>, other: &Option<TargetRef>| match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (one, other) => one.is_none() && other.is_none(),
    };
    let same_address = |(one, other): (&Address, &Address)| {
        one.ip == other.ip
            && one.hostname == other.hostname
            && one.node_name == other.node_name
            && same_target(&one.target_ref, &other.target_ref)
    };
    let same = |one: &[Address], other: &[Address]| one.len() == other.len() && one.iter().zip(other).all(same_address);
    let same_subset = |(one, other): (&Subset, &Subset)| {
        one.ports == other.ports
            && same(&one.addresses, &other.addresses)
            && same(&one.not_ready_addresses, &other.not_ready_addresses)
    };
    one.len() == other.len() && one.iter().zip(other).all(same_subset)
}

/// The subsets that a Service should have.
fn subsets_of(service: &Service, pods: &[Arc<Pod>]) -> Vec<Subset> {
    let mut packer = Packer::default();
    let publish = service.spec.publish_not_ready_addresses;
    for pod in pods.iter().filter(|pod| has_endpoint(pod, publish)) {
        let Some(address) = address(service, pod) else { continue };
        let ready = publish || pod.ready;
        let offered: Vec<Option<Port>> = match service.spec.ports.is_empty() {
            true if service.is_headless() => vec![None],
            _ => service.spec.ports.iter().filter_map(|port| port_of(service, port, pod)).map(Some).collect(),
        };
        if offered.is_empty() {
            continue;
        }
        let at = packer.add(address);
        offered.iter().for_each(|port| packer.offer(at, port.as_ref(), ready));
    }
    packer.pack()
}

fn port_of(service: &Service, port: &ServicePort, pod: &Pod) -> Option<Port> {
    Some(Port {
        name: port.name.clone(),
        port: service.port_of(port, pod)?,
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    })
}

/// The address of a pod in the Service's main family.
fn address(service: &Service, pod: &Pod) -> Option<Address> {
    let of_text = |text: &str| parse_ip(text).map(|ip| Family::of(&ip));
    let family = match service.spec.ip_families.first() {
        Some(family) => Some(*family),
        // A server that knows no families yet.
        None if service.has_address() => of_text(&service.spec.cluster_ip),
        None => pod.ips().first().map(Family::of),
    };
    let ip = pod.ips().iter().find(|ip| Family::of(ip) == family.unwrap_or_default())?;
    Some(Address {
        ip: ip.to_string(),
        hostname: service.hostname_of(pod).unwrap_or_default().to_owned(),
        node_name: Some(pod.node_name.clone()),
        target_ref: Some(TargetRef::pod(pod)),
    })
}

impl Controller for EndpointsController {
    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    fn component(&self) -> &'static str {
        "endpoint-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Service, Kind::Pod, Kind::Endpoints]
    }

    fn max_retries(&self) -> u32 {
        RETRIES_MAX
    }

    /// Endpoints whose Service was deleted while nobody looked.
    fn start(&self) -> Vec<Wakeup> {
        let endpoints = self.cache.endpoints();
        let left = endpoints.all().filter(|one| !one.metadata.annotations.contains_key(LEADER_ELECTION));
        left.map(|one| Wakeup::now(one.metadata.key())).collect()
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Service(delta) => {
                lock(&self.selecting).observe(delta);
                let (Delta::Added(service) | Delta::Updated { new: service, .. } | Delta::Deleted(service)) = delta;
                vec![Wakeup::now(service.metadata.key())]
            }
            AnyDelta::Pod(delta) => {
                let concerned = lock(&self.selecting).concerned(delta, &self.cache);
                concerned.into_iter().map(|key| Wakeup::after(key, self.batch_period)).collect()
            }
            // The cache may be away for longer than a reconcile is tried again.
            AnyDelta::Endpoints(Delta::Added(seen) | Delta::Updated { new: seen, .. }) => {
                let key = seen.metadata.key();
                let awaited = lock(&self.written).get_mut(&key).is_some_and(|last| std::mem::take(&mut last.awaited));
                awaited.then(|| Wakeup::now(key)).into_iter().collect()
            }
            // Those of a Service that is gone, too, need nothing more.
            AnyDelta::Endpoints(Delta::Deleted(gone)) => {
                let service = self.cache.services().get(&gone.metadata.namespace, &gone.metadata.name);
                service.map(|service| Wakeup::now(service.metadata.key())).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
