//! EndpointSlices: which pods a Service's clients may talk to, in pieces small enough that one pod's change is one
//! small write.
//!
//! ```text
//!   pods, nodes ──▶ desired ─▶ changes (pack) ─▶ hints, topology ─▶ reuse ─▶ create, update, delete
//!   slices ─────────────────────┘                                              │
//!      ▲── tracker: waits until the cache has these writes ◀───────────────────┘
//! ```

mod changes;
mod desired;
mod hints;
mod object;
#[cfg(test)]
mod tests;
mod topology;
mod tracker;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::{DeleteOptions, EventType};
use bayplan_model::delta::Delta;
use bayplan_model::node::LABEL_ZONE;
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, namespace_terminating};
use crate::node::Node;
use crate::pod::Pod;
use crate::requests::{self, ENDPOINT_SLICES};
use crate::service::{Family, RETRIES_MAX, Selecting, Service, TriggerTimes, annotate, parse_ip};
pub(crate) use changes::name_prefix;
pub use changes::{Changes, Packing};
use hints::TrafficDistribution;
pub use object::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, Place};
pub(crate) use object::{Identity, sorted};
use topology::{HintEvent, Topology};
pub(crate) use tracker::Tracker;

/// The label with the name of a slice's Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the manager of a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// This loop as the manager of slices.
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Upstream's `--max-endpoints-per-slice`.
pub const ENDPOINTS_PER_SLICE: usize = 100;

/// The key under which the shares of the zones are computed; keys of Services have a slash.
const NODES_KEY: &str = "nodes";

/// How long the Service of a slice that somebody else changed waits at least: such changes come in numbers.
const SLICE_CHANGE_DELAY: Duration = Duration::from_secs(1);

/// The loop's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointSliceConfig {
    /// No slice gets more endpoints; upstream's `--max-endpoints-per-slice`.
    pub endpoints_max: usize,
    /// How long changes of pods are collected; upstream's `--endpointslice-updates-batch-period`.
    pub batch_period: Duration,
}

impl Default for EndpointSliceConfig {
    fn default() -> Self {
        EndpointSliceConfig { endpoints_max: ENDPOINTS_PER_SLICE, batch_period: Duration::ZERO }
    }
}

/// The EndpointSlice controller.
pub struct EndpointSliceController {
    cache: Arc<Cache>,
    config: EndpointSliceConfig,
    selecting: Mutex<Selecting>,
    tracker: Tracker,
    trigger_times: Mutex<TriggerTimes>,
    topology: Mutex<Topology>,
}

/// The families of which a Service has slices; upstream's `getAddressTypesForService`.
fn families(service: &Service) -> Vec<Family> {
    let mut families: Vec<Family> =
        service.spec.ip_families.iter().copied().filter(|family| *family != Family::Other).collect();
    families.sort();
    families.dedup();
    if !families.is_empty() {
        return families;
    }
    // A server that knows no families yet.
    match service.has_address() {
        true => vec![parse_ip(&service.spec.cluster_ip).map_or(Family::IPv4, |ip| Family::of(&ip))],
        false => vec![Family::IPv4, Family::IPv6],
    }
}

/// Whether a Service asks for hints by the shares of the zones.
fn asks_for_topology(service: &Service) -> bool {
    let annotations = &service.metadata.annotations;
    let mode = annotations.get("service.kubernetes.io/topology-aware-hints");
    let mode = mode.or_else(|| annotations.get("service.kubernetes.io/topology-mode"));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

impl EndpointSliceController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>, config: EndpointSliceConfig) -> Self {
        let delay = config.batch_period.max(SLICE_CHANGE_DELAY);
        EndpointSliceController {
            cache,
            config,
            selecting: Mutex::default(),
            tracker: Tracker::new(MANAGER, delay),
            trigger_times: Mutex::default(),
            topology: Mutex::default(),
        }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(service) = self.cache.services().get(namespace, name) else {
            // The garbage collector deletes the slices: the Service owns them.
            lock(&self.trigger_times).forget(key);
            self.tracker.forget(key);
            return Ok(Requeue::OnChange);
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
        let mut slices = self.tracker.slices(key, &self.cache);
        slices.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        self.tracker.check(key, &slices, &self.cache)?;
        let time = lock(&self.trigger_times).next(&service, &pods);
        if let Err(error) = self.write(&service, &pods, slices, time, context).await {
            let note = format!("Error updating Endpoint Slices for Service {key}: {error}");
            context.warning(service.regarding(), "FailedToUpdateEndpointSlices", note);
            return Err(error);
        }
        Ok(Requeue::OnChange)
    }

    /// Brings the slices of all families up to date, each as far as it goes.
    pub async fn write(
        &self,
        service: &Service,
        pods: &[Arc<Pod>],
        slices: Vec<Arc<EndpointSlice>>,
        time: Option<Timestamp>,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let key = service.metadata.key();
        let families = families(service);
        let (slices, foreign): (Vec<_>, Vec<_>) =
            slices.into_iter().partition(|slice| families.contains(&slice.address_type));
        let mut errors = Vec::new();
        for family in families {
            let existing = slices.iter().filter(|slice| slice.address_type == family).cloned().collect();
            let packing = Packing { service, family, endpoints_max: self.config.endpoints_max };
            let (mut changes, left_out) = packing.changes(pods, &self.cache.nodes(), existing);
            errors.extend(left_out);
            let event = self.hint(service, &key, family, &mut changes);
            changes.reuse(service);
            errors.extend(self.send(service, &key, changes, time, context).await.err());
            match event {
                Some((EventType::Normal, reason, note)) => context.normal(service.regarding(), reason, note),
                Some((EventType::Warning, reason, note)) => context.warning(service.regarding(), reason, note),
                None => {}
            }
        }
        for slice in foreign {
            lock(&self.topology).forget(&key, slice.address_type);
            match requests::delete(context.api, &ENDPOINT_SLICES, &slice.metadata, DeleteOptions::default()).await {
                Ok(()) => self.tracker.deleted(&slice),
                Err(why) => {
                    let doing = format!("error deleting {} EndpointSlice for Service {key}", slice.metadata.name);
                    errors.push(Error::Step { doing, why });
                }
            }
        }
        Error::collect(errors)
    }

    /// Gives hints, or takes them away.
    fn hint(&self, service: &Service, key: &str, family: Family, changes: &mut Changes) -> Option<HintEvent> {
        let mut topology = lock(&self.topology);
        if asks_for_topology(service) {
            return topology.apply(key, family, changes);
        }
        let event = topology.withdraw(key, family);
        match TrafficDistribution::of(service.spec.traffic_distribution.as_deref()) {
            Some(distribution) => distribution.apply(changes),
            None => hints::remove(changes),
        }
        event
    }

    /// Writes the changes, up to the first that fails.
    async fn send(
        &self,
        service: &Service,
        key: &str,
        changes: Changes,
        time: Option<Timestamp>,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let Changes { create, update, delete, .. } = changes;
        // The garbage collector is about to delete the slices of a Service that is being deleted.
        let alive = service.metadata.deletion_timestamp.is_none();
        for mut slice in create.into_iter().filter(|_| alive) {
            annotate(&mut slice.metadata.annotations, time);
            let namespace = &service.metadata.namespace;
            match requests::create(context.api, &ENDPOINT_SLICES, namespace, &slice).await {
                Ok(created) => self.tracker.wrote(&created),
                Err(status) if namespace_terminating(&status) => return Ok(()),
                Err(why) => {
                    let doing = format!("failed to create EndpointSlice for Service {key}");
                    return Err(Error::Step { doing, why });
                }
            }
        }
        for mut slice in update {
            annotate(&mut slice.metadata.annotations, time);
            match requests::update(context.api, &ENDPOINT_SLICES, &slice.metadata, &slice).await {
                Ok(updated) => self.tracker.wrote(&updated),
                Err(why) => {
                    let doing = format!("failed to update {} EndpointSlice for Service {key}", slice.metadata.name);
                    return Err(Error::Step { doing, why });
                }
            }
        }
        for slice in delete {
            match requests::delete(context.api, &ENDPOINT_SLICES, &slice.metadata, DeleteOptions::default()).await {
                Ok(()) => self.tracker.deleted(&slice),
                Err(why) => {
                    let doing = format!("failed to delete {} EndpointSlice for Service {key}", slice.metadata.name);
                    return Err(Error::Step { doing, why });
                }
            }
        }
        Ok(())
    }
}

/// Whether a change of a node changes the shares of the zones.
fn moves_shares(delta: &Delta<Arc<Node>>) -> bool {
    match delta {
        Delta::Updated { old, new } => {
            let zone = |node: &Node| node.metadata.labels.get(LABEL_ZONE).cloned();
            old.is_ready() != new.is_ready() || zone(old) != zone(new)
        }
        Delta::Added(_) | Delta::Deleted(_) => true,
    }
}

impl Controller for EndpointSliceController {
    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn component(&self) -> &'static str {
        "endpoint-slice-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Service, Kind::Pod, Kind::Node, Kind::EndpointSlice]
    }

    fn max_retries(&self) -> u32 {
        RETRIES_MAX
    }

    fn retry_limits(&self) -> RetryLimits {
        RetryLimits { delay_min: Duration::from_secs(1), ..RetryLimits::default() }
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
                concerned.into_iter().map(|key| Wakeup::after(key, self.config.batch_period)).collect()
            }
            AnyDelta::EndpointSlice(delta) => self.tracker.observe(delta),
            AnyDelta::Node(delta) if moves_shares(delta) => vec![Wakeup::now(NODES_KEY)],
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        if key == NODES_KEY {
            let overloaded = lock(&self.topology).set_nodes(&self.cache.nodes());
            let keys = overloaded.into_iter().map(Wakeup::now).collect();
            return Box::pin(std::future::ready(Ok(Requeue::Keys { keys, again: false })));
        }
        Box::pin(self.reconcile(key, context))
    }
}
