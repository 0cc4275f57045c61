//! Mirrors Endpoints that users keep for Services without a selector into EndpointSlices, which is all that newer
//! clients read.

mod mirror;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::DeleteOptions;
use bayplan_model::delta::Delta;
use bayplan_model::work_queue::RetryLimits;
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::endpoint_slice::{EndpointSlice, Tracker};
use crate::endpoints::Endpoints;
use crate::error::{Error, namespace_terminating, not_found};
use crate::requests::{self, ENDPOINT_SLICES};
use crate::service::{LEADER_ELECTION, RETRIES_MAX};
use crate::workload::event_reference;
use mirror::{Mirror, Plan};

/// This loop as the manager of slices.
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

/// The label of Endpoints that are not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Upstream's `--mirroring-max-endpoints-per-subset`.
const ENDPOINTS_PER_SUBSET: usize = 1000;

/// The loop's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointSliceMirroringConfig {
    /// No more addresses of a subset are mirrored; upstream's `--mirroring-max-endpoints-per-subset`.
    pub endpoints_max: usize,
    /// How long changes of slices are collected; upstream's `--mirroring-endpointslice-updates-batch-period`.
    pub batch_period: Duration,
}

impl Default for EndpointSliceMirroringConfig {
    fn default() -> Self {
        EndpointSliceMirroringConfig { endpoints_max: ENDPOINTS_PER_SUBSET, batch_period: Duration::ZERO }
    }
}

/// The EndpointSliceMirroring controller.
pub struct EndpointSliceMirroringController {
    cache: Arc<Cache>,
    endpoints_max: usize,
    tracker: Tracker,
}

/// Whether Endpoints are to be mirrored, if their Service agrees.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let skipped = endpoints.metadata.labels.get(SKIP).is_some_and(|skip| skip == "true");
    !skipped && !endpoints.metadata.annotations.contains_key(LEADER_ELECTION)
}

impl EndpointSliceMirroringController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>, config: EndpointSliceMirroringConfig) -> Self {
        let tracker = Tracker::new(MANAGER, config.batch_period);
        EndpointSliceMirroringController { cache, endpoints_max: config.endpoints_max, tracker }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let endpoints = self.cache.endpoints().get(namespace, name).filter(|endpoints| is_mirrored(endpoints));
        let service = self.cache.services().get(namespace, name);
        let slices = self.tracker.slices(key, &self.cache);
        let wanted = service.is_some_and(|service| service.spec.selector.is_empty());
        let Some(endpoints) = endpoints.filter(|_| wanted) else {
            self.tracker.forget(key);
            return remove(key, &slices, context).await;
        };
        self.tracker.check(key, &slices, &self.cache)?;
        let mirror = Mirror::new(&endpoints, self.endpoints_max);
        let regarding = || event_reference("v1", "Endpoints", &endpoints.metadata);
        if mirror.invalid > 0 {
            let note = format!("Skipped {} invalid IP addresses when mirroring to EndpointSlices", mirror.invalid);
            context.warning(regarding(), "InvalidIPAddress", note);
        }
        if mirror.skipped > mirror.invalid {
            let (max, skipped) = (self.endpoints_max, mirror.skipped);
            let note = format!(
                "A max of {max} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses \
                 were skipped"
            );
            context.warning(regarding(), "TooManyAddressesToMirror", note);
        }
        let mut plan = mirror.plan(slices);
        for slice in plan.unchanged.iter().filter(|slice| !self.tracker.knows(slice)) {
            self.tracker.wrote(slice);
        }
        plan.reuse();
        self.send(&endpoints, key, plan, context).await?;
        Ok(Requeue::OnChange)
    }

    /// Writes the changes, up to the first that fails.
    async fn send(&self, endpoints: &Endpoints, key: &str, plan: Plan, context: Context<'_>) -> Result<(), Error> {
        // Nothing new for Endpoints that are being deleted.
        let alive = endpoints.metadata.deletion_timestamp.is_none();
        for slice in plan.create.iter().filter(|_| alive) {
            let namespace = &endpoints.metadata.namespace;
            match requests::create::<_, EndpointSlice>(context.api, &ENDPOINT_SLICES, namespace, slice).await {
                Ok(created) => self.tracker.wrote(&created),
                Err(status) if namespace_terminating(&status) => return Ok(()),
                Err(why) => {
                    let doing = format!("failed to create EndpointSlice for Endpoints {key}");
                    return Err(Error::Step { doing, why });
                }
            }
        }
        for slice in &plan.update {
            match requests::update(context.api, &ENDPOINT_SLICES, &slice.metadata, slice).await {
                Ok(updated) => self.tracker.wrote(&updated),
                Err(why) => {
                    let doing = format!("failed to update {} EndpointSlice for Endpoints {key}", slice.metadata.name);
                    return Err(Error::Step { doing, why });
                }
            }
        }
        for slice in &plan.delete {
            match requests::delete(context.api, &ENDPOINT_SLICES, &slice.metadata, DeleteOptions::default()).await {
                Ok(()) => self.tracker.deleted(slice),
                Err(why) => {
                    let doing = format!("failed to delete {} EndpointSlice for Endpoints {key}", slice.metadata.name);
                    return Err(Error::Step { doing, why });
                }
            }
        }
        Ok(())
    }
}

/// Deletes what was mirrored before; the garbage collector may be faster.
async fn remove(key: &str, slices: &[Arc<EndpointSlice>], context: Context<'_>) -> Result<Requeue, Error> {
    let mut failures = Vec::new();
    for slice in slices {
        match requests::delete(context.api, &ENDPOINT_SLICES, &slice.metadata, DeleteOptions::default()).await {
            Err(status) if !not_found(&status) => failures.push(status),
            _ => {}
        }
    }
    let count = failures.len();
    match failures.into_iter().next() {
        None => Ok(Requeue::OnChange),
        Some(why) => {
            let all = slices.len();
            let doing = format!("error(s) deleting {count}/{all} EndpointSlices for {key} Endpoints, including");
            Err(Error::Step { doing, why })
        }
    }
}

impl Controller for EndpointSliceMirroringController {
    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    fn component(&self) -> &'static str {
        "endpoint-slice-mirroring-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Service, Kind::Endpoints, Kind::EndpointSlice]
    }

    fn max_retries(&self) -> u32 {
        RETRIES_MAX
    }

    fn retry_limits(&self) -> RetryLimits {
        let (delay_min, delay_max) = (Duration::from_secs(1), Duration::from_secs(100));
        RetryLimits { delay_min, delay_max, ..RetryLimits::default() }
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Service(Delta::Added(service) | Delta::Deleted(service)) if service.spec.selector.is_empty() => {
                vec![Wakeup::now(service.metadata.key())]
            }
            AnyDelta::Service(Delta::Updated { old, new })
                if old.spec.selector.is_empty() != new.spec.selector.is_empty() =>
            {
                vec![Wakeup::now(new.metadata.key())]
            }
            AnyDelta::Endpoints(Delta::Added(endpoints) | Delta::Deleted(endpoints)) if is_mirrored(endpoints) => {
                vec![Wakeup::now(endpoints.metadata.key())]
            }
            AnyDelta::Endpoints(Delta::Updated { old, new }) if is_mirrored(old) || is_mirrored(new) => {
                vec![Wakeup::now(new.metadata.key())]
            }
            AnyDelta::EndpointSlice(delta) => self.tracker.observe(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
