//! The ranges of Services' addresses: one stays while an address depends on it alone, and says whether it can be used.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{PatchKind, Request, Verb, encode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta, PartialObjectMetadata};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup};
use crate::error::{Error, not_found};
use crate::requests::{self, SERVICE_CIDRS};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

const READY: &str = "Kubernetes Service CIDR is ready";
const IN_USE: &str =
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// How long a range that nobody needs stays, so that every API server knows that nothing comes from it any more.
const DELETION_GRACE: Duration = Duration::from_secs(10);

/// A failing range is tried again so often.
const RETRIES_MAX: u32 = 15;

/// A ServiceCIDR as the controller reads it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceCidr {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    pub spec: ServiceCidrSpec,
    /// What was said of it.
    pub status: ServiceCidrStatus,
}

/// `ServiceCIDR.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceCidrSpec {
    /// One range, or one of each family.
    pub cidrs: Vec<String>,
}

/// `ServiceCIDR.status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceCidrStatus {
    /// The conditions, as they are.
    pub conditions: Vec<Value>,
}

impl HasMeta for ServiceCidr {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// A network: its first bits, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    family: u32,
    bits: u128,
    length: u32,
}

impl Network {
    fn of_address(address: IpAddr) -> Network {
        match address {
            IpAddr::V4(address) => Network { family: 32, bits: u128::from(u32::from(address)), length: 32 },
            IpAddr::V6(address) => Network { family: 128, bits: u128::from(address), length: 128 },
        }
    }

    fn parse(text: &str) -> Option<Network> {
        let (address, length) = text.split_once('/')?;
        let whole = Network::of_address(address.parse().ok()?);
        let length = length.parse().ok().filter(|length| *length <= whole.family)?;
        Some(Network { length, ..whole })
    }

    fn contains(self, other: Network) -> bool {
        let rest = self.family - self.length;
        let first = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
        self.family == other.family && self.length <= other.length && first(self.bits) == first(other.bits)
    }
}

impl ServiceCidr {
    fn networks(&self) -> impl Iterator<Item = Network> {
        self.spec.cidrs.iter().filter_map(|text| Network::parse(text))
    }

    fn contains(&self, network: Network) -> bool {
        self.networks().any(|own| own.contains(network))
    }
}

/// The network of an address that the API server gave to a Service.
fn given(address: &PartialObjectMetadata) -> Option<Network> {
    let managed = address.metadata.labels.get(MANAGED_BY).is_some_and(|manager| *manager == ALLOCATOR);
    managed.then(|| address.metadata.name.parse().ok().map(Network::of_address))?
}

/// The controller.
pub struct ServiceCidrController {
    cache: Arc<Cache>,
}

impl ServiceCidrController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        ServiceCidrController { cache }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(range) = self.cache.service_cidrs().get("", name) else { return Ok(Requeue::OnChange) };
        let has_finalizer = range.metadata.finalizers.iter().any(|known| known == FINALIZER);
        let Some(deleted) = range.metadata.deletion_timestamp else {
            if !has_finalizer {
                let finalizers = json!({"metadata": {"finalizers": [FINALIZER]}});
                if !patch(&range, &finalizers, context).await? {
                    return Ok(Requeue::OnChange);
                }
            }
            return self.say(&range, "True", "", READY, context).await;
        };
        if !has_finalizer {
            return Ok(Requeue::OnChange);
        }
        if self.is_needed(&range) {
            return self.say(&range, "False", "Terminating", IN_USE, context).await;
        }
        let waited = Duration::try_from(context.now.duration_since(deleted)).unwrap_or(Duration::ZERO);
        if waited < DELETION_GRACE {
            return Ok(Requeue::After(DELETION_GRACE - waited));
        }
        let finalizers = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
        patch(&range, &finalizers, context).await?;
        Ok(Requeue::OnChange)
    }

    /// Whether an address would be in no range without this one.
    fn is_needed(&self, range: &ServiceCidr) -> bool {
        let ranges = self.cache.service_cidrs();
        let others: Vec<_> = ranges.all().filter(|other| other.metadata.name != range.metadata.name).collect();
        let covered = |network: Network| others.iter().any(|other| other.contains(network));
        if range.networks().all(covered) {
            return false;
        }
        let addresses = self.cache.service_addresses();
        addresses.all().filter_map(|address| given(address)).any(|address| range.contains(address) && !covered(address))
    }

    /// Writes the condition Ready, unless it says so already.
    async fn say(
        &self,
        range: &ServiceCidr,
        status: &str,
        reason: &str,
        message: &str,
        context: Context<'_>,
    ) -> Result<Requeue, Error> {
        let mut conditions = range.status.conditions.clone();
        let known = conditions.iter().position(|condition| condition["type"] == "Ready");
        if known.is_some_and(|at| conditions[at]["status"] == status) {
            return Ok(Requeue::OnChange);
        }
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": context.second(),
        });
        match known {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
        let body = encode(&json!({"status": {"conditions": conditions}}));
        let verb = Verb::Patch(PatchKind::Merge, body);
        let request = Request::object(&SERVICE_CIDRS, "", &range.metadata.name, verb).subresource("status");
        match context.api.call(request).await {
            Err(error) if !not_found(&error) => {
                if status == "True" {
                    let note = "The ServiceCIDR Status can not be set to Ready=True".to_owned();
                    let regarding =
                        crate::workload::event_reference("networking.k8s.io/v1", "ServiceCIDR", &range.metadata);
                    context.warning(regarding, "KubernetesServiceCIDRError", note);
                }
                Err(error.into())
            }
            _ => Ok(Requeue::OnChange),
        }
    }
}

/// Patches a range; false when it is gone.
async fn patch(range: &ServiceCidr, body: &Value, context: Context<'_>) -> Result<bool, Error> {
    match requests::patch(context.api, &SERVICE_CIDRS, &range.metadata, PatchKind::Strategic, body).await {
        Err(status) if not_found(&status) => Ok(false),
        answer => answer.map(|_| true).map_err(Error::from),
    }
}

impl Controller for ServiceCidrController {
    fn name(&self) -> &'static str {
        "service-cidr-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::ServiceCidr, Kind::ServiceAddress]
    }

    fn max_retries(&self) -> u32 {
        RETRIES_MAX
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        let ranges = self.cache.service_cidrs();
        let wake = |range: &Arc<ServiceCidr>| Wakeup::now(range.metadata.name.clone());
        match delta {
            // One that comes or goes lets others go, or keeps them.
            AnyDelta::ServiceCidr(_) => ranges.all().map(wake).collect(),
            AnyDelta::ServiceAddress(Delta::Added(address) | Delta::Deleted(address)) => match given(address) {
                Some(address) => ranges.all().filter(|range| range.contains(address)).map(wake).collect(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
