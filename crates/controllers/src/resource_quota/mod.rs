//! ResourceQuotas: counts what a namespace uses, and writes it where admission looks.
//!
//! Admission adds what is created; this loop counts again when something goes, when a quota changes, and now and then.
//! Both measure with [`bayplan_model::quota`].

mod object;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::{HasMeta, PartialObjectMetadata};
use bayplan_model::quota::{self, PodMeasure, Scope, Usage, VolumeClaimMeasure};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cache::{AnyDelta, Cache, Kind, Store};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::discovery::{ApiResource, Resources};
use crate::error::Error;
use crate::requests::{self, RESOURCE_QUOTAS};
use object::QuotaStatus;
pub use object::ResourceQuota;

/// Upstream's `--resource-quota-sync-period`: every quota is counted again this often.
pub const SYNC_PERIOD: Duration = Duration::from_secs(300);

/// The key of the loop that counts everything again. No quota has this key: it has no namespace.
const ALL: &str = "all";

const PODS: (&str, &str) = ("", "pods");
const SERVICES: (&str, &str) = ("", "services");
const VOLUME_CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");
const DEVICE_CLAIMS: (&str, &str) = ("resource.k8s.io", "resourceclaims");

/// The resources whose objects are measured, and not only numbered.
const MEASURED: [(&str, &str); 4] = [PODS, SERVICES, VOLUME_CLAIMS, DEVICE_CLAIMS];

/// The number of a namespace's objects, by group and plural.
type Numbers = BTreeMap<(String, String), usize>;

/// The ResourceQuota controller.
pub struct ResourceQuotaController {
    cache: Arc<Cache>,
    resources: Resources,
    period: Duration,
    /// By namespace; the objects of every kind that is not measured.
    numbers: Mutex<KeyedMap<String, Numbers>>,
}

impl ResourceQuotaController {
    /// A controller over this cache, which counts everything again once in a period; never when that is zero.
    pub fn new(cache: Arc<Cache>, resources: Resources, period: Duration) -> Self {
        ResourceQuotaController { cache, resources, period, numbers: Mutex::default() }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(quota) = self.cache.resource_quotas().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let hard = &quota.spec.hard;
        let counted = self.usage(namespace, hard, &quota.spec.scopes(), context.now);
        let mut used = quota.status.used.clone().unwrap_or_default();
        used.extend(counted);
        used.retain(|name, _| hard.contains_key(name));
        let known = (quota.status.hard.as_ref(), quota.status.used.as_ref());
        if known == (Some(hard), Some(&used)) {
            return Ok(Requeue::OnChange);
        }
        let mut quota = (*quota).clone();
        quota.status = QuotaStatus { hard: Some(quota.spec.hard.clone()), used: Some(used) };
        let _: ResourceQuota = requests::update_status(context.api, &RESOURCE_QUOTAS, &quota.metadata, &quota).await?;
        Ok(Requeue::OnChange)
    }

    /// What the namespace uses of what is limited. Names that nobody counts are left out.
    fn usage(&self, namespace: &str, hard: &Usage, scopes: &[Scope], now: Timestamp) -> Usage {
        let mut used = Usage::new();
        for (resource, total) in self.totals(namespace, hard, scopes, now) {
            let counted = |name: &&String| quota::is_counted_by(&resource.0, &resource.1, name);
            for name in hard.keys().filter(counted) {
                // A sum that starts with nothing takes over how the first amount is written.
                let sum = used.entry(name.clone()).or_insert_with(|| quota::number(0));
                if let Some(amount) = total.get(name) {
                    sum.add(amount);
                }
            }
        }
        used
    }

    /// What the objects of each resource use together, of those resources that any name is about.
    fn totals(
        &self,
        namespace: &str,
        hard: &Usage,
        scopes: &[Scope],
        now: Timestamp,
    ) -> Vec<((String, String), Usage)> {
        let asked = |(group, plural): (&str, &str)| hard.keys().any(|name| quota::is_counted_by(group, plural, name));
        let owned = |(group, plural): (&str, &str)| (group.to_owned(), plural.to_owned());
        let mut totals = Vec::new();
        if asked(PODS) {
            let selected = |pod: &PodMeasure| scopes.iter().all(|scope| pod.is_in(scope));
            totals.push((owned(PODS), sum(&self.cache.counted_pods(), namespace, selected, |pod| pod.usage(now))));
        }
        let selected = |claim: &VolumeClaimMeasure| scopes.iter().all(|scope| claim.is_in(scope));
        if asked(VOLUME_CLAIMS) {
            let claims = self.cache.counted_volume_claims();
            totals.push((owned(VOLUME_CLAIMS), sum(&claims, namespace, selected, VolumeClaimMeasure::usage)));
        }
        // No scope speaks of anything else, and what is in no scope is not counted.
        let unscoped = scopes.is_empty();
        if asked(SERVICES) {
            let services = self.cache.counted_services();
            totals.push((owned(SERVICES), sum(&services, namespace, |_| unscoped, |service| service.usage())));
        }
        if asked(DEVICE_CLAIMS) {
            let claims = self.cache.counted_device_claims();
            totals.push((owned(DEVICE_CLAIMS), sum(&claims, namespace, |_| unscoped, |claim| claim.usage())));
        }
        let numbers = lock(&self.numbers).get(namespace).cloned().unwrap_or_default();
        for resource in self.resources.all().iter().filter(|resource| self.follows(resource)) {
            let resource = (resource.resource.group.as_ref(), resource.resource.plural.as_ref());
            if !asked(resource) {
                continue;
            }
            let number = numbers.get(&owned(resource)).copied().filter(|_| unscoped).unwrap_or(0);
            let names = quota::count_names(resource.0, resource.1).into_iter();
            totals.push((owned(resource), names.map(|name| (name, quota::number(number))).collect()));
        }
        totals
    }

    /// The quotas of a namespace that limit what objects of a resource use.
    fn concerned(&self, namespace: &str, (group, plural): (&str, &str)) -> Vec<Wakeup> {
        let quotas = self.cache.resource_quotas();
        let limits = |quota: &&Arc<ResourceQuota>| {
            let hard = quota.status.hard.as_ref();
            hard.is_some_and(|hard| hard.keys().any(|name| quota::is_counted_by(group, plural, name)))
        };
        quotas.namespace(namespace).filter(limits).map(|quota| Wakeup::now(quota.metadata.key())).collect()
    }

    /// The quotas that a change of a measured object concerns: creations are charged by admission.
    fn observe_measured<T: HasMeta>(
        &self,
        delta: &Delta<Arc<T>>,
        resource: (&str, &str),
        differs: impl Fn(&T, &T) -> bool,
    ) -> Vec<Wakeup> {
        match delta {
            Delta::Added(_) => Vec::new(),
            Delta::Updated { old, new } if !differs(old, new) => Vec::new(),
            Delta::Updated { new: object, .. } | Delta::Deleted(object) => {
                self.concerned(&object.meta().namespace, resource)
            }
        }
    }

    fn count_all(&self) -> Requeue {
        let quotas = self.cache.resource_quotas();
        let mut keys: Vec<Wakeup> = quotas.all().map(|quota| Wakeup::now(quota.metadata.key())).collect();
        keys.push(Wakeup::after(ALL, self.period));
        Requeue::Keys { keys, again: false }
    }
}

/// The usage of a namespace's selected objects together.
fn sum<T: HasMeta>(
    store: &Store<T>,
    namespace: &str,
    selected: impl Fn(&T) -> bool,
    usage: impl Fn(&T) -> Usage,
) -> Usage {
    let mut total = Usage::new();
    for object in store.namespace(namespace).filter(|object| selected(object)) {
        quota::add(&mut total, &usage(object));
    }
    total
}

/// Whether a pod may count for something else than before, apart from its object.
fn pod_differs(old: &PodMeasure, new: &PodMeasure) -> bool {
    let essence = |pod: &PodMeasure| (pod.is_terminal, pod.has_deadline);
    // One that should be gone by now stops counting at any update.
    essence(old) != essence(new) || old.requests != new.requests || old.limits != new.limits || new.gone_at.is_some()
}

fn claim_differs(old: &VolumeClaimMeasure, new: &VolumeClaimMeasure) -> bool {
    old.storage != new.storage || old.attribute_classes != new.attribute_classes
}

impl Controller for ResourceQuotaController {
    fn name(&self) -> &'static str {
        "resourcequota-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[
            Kind::ResourceQuota,
            Kind::CountedPod,
            Kind::CountedService,
            Kind::CountedVolumeClaim,
            Kind::CountedDeviceClaim,
        ]
    }

    fn start(&self) -> Vec<Wakeup> {
        if self.period.is_zero() { Vec::new() } else { vec![Wakeup::after(ALL, self.period)] }
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::ResourceQuota(Delta::Updated { old, new }) if old.spec.hard == new.spec.hard => Vec::new(),
            AnyDelta::ResourceQuota(
                Delta::Added(quota) | Delta::Updated { new: quota, .. } | Delta::Deleted(quota),
            ) => vec![Wakeup::now(quota.metadata.key())],
            AnyDelta::CountedPod(delta) => self.observe_measured(delta, PODS, pod_differs),
            AnyDelta::CountedService(delta) => self.observe_measured(delta, SERVICES, |old, new| {
                (old.node_ports, old.load_balancer) != (new.node_ports, new.load_balancer)
            }),
            AnyDelta::CountedVolumeClaim(delta) => self.observe_measured(delta, VOLUME_CLAIMS, claim_differs),
            AnyDelta::CountedDeviceClaim(delta) => {
                self.observe_measured(delta, DEVICE_CLAIMS, |old, new| old.devices != new.devices)
            }
            _ => Vec::new(),
        }
    }

    fn follows(&self, resource: &ApiResource) -> bool {
        let id = (resource.resource.group.as_ref(), resource.resource.plural.as_ref());
        let is_event = matches!(id, ("" | "events.k8s.io", "events"));
        resource.namespaced
            && resource.can(&["create", "list", "watch", "delete"])
            && !is_event
            && !MEASURED.contains(&id)
    }

    fn follows_objects(&self) -> bool {
        true
    }

    fn observe_metadata(&self, resource: &ApiResource, delta: &Delta<Arc<PartialObjectMetadata>>) -> Vec<Wakeup> {
        let (group, plural) = (resource.resource.group.as_ref(), resource.resource.plural.as_ref());
        let (object, goes) = match delta {
            Delta::Added(object) => (object, false),
            Delta::Updated { .. } => return Vec::new(),
            Delta::Deleted(object) => (object, true),
        };
        let namespace = &object.metadata.namespace;
        let mut numbers = lock(&self.numbers);
        let of_namespace = numbers.entry(namespace.clone()).or_default();
        let number = of_namespace.entry((group.to_owned(), plural.to_owned())).or_default();
        *number = if goes { number.saturating_sub(1) } else { *number + 1 };
        if *number == 0 {
            of_namespace.retain(|_, number| *number > 0);
            if of_namespace.is_empty() {
                numbers.remove(namespace);
            }
        }
        drop(numbers);
        if goes { self.concerned(namespace, (group, plural)) } else { Vec::new() }
    }

    fn forget_objects(&self, resource: &ApiResource) {
        let id = (resource.resource.group.to_string(), resource.resource.plural.to_string());
        let mut numbers = lock(&self.numbers);
        numbers.retain(|_, of_namespace| {
            of_namespace.remove(&id);
            !of_namespace.is_empty()
        });
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move {
            match key {
                ALL => Ok(self.count_all()),
                key => self.reconcile(key, context).await,
            }
        })
    }
}
