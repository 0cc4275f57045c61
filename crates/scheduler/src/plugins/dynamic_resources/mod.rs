//! DynamicResources: a pod goes where devices for its ResourceClaims can be allocated (KEP-4381).
//!
//! PreFilter prepares the pod's claims and compiles their selectors. The cluster keeps slices by node and pool, and the
//! devices in use. Filter searches for devices on one node. Reserve marks what was found as in use; PreBind writes it
//! into the claims and waits for devices with binding conditions.

mod allocator;
#[cfg(test)]
mod allocator_tests;
mod bind;
#[cfg(test)]
mod bind_tests;
mod capacity;
mod constraint;
mod device_config;
mod device_usage;
#[cfg(test)]
mod differential_tests;
mod extended_resources;
mod pod_claims;
mod pools;
mod requests;
#[cfg(test)]
mod tests;
mod work;
#[cfg(test)]
mod work_tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_model::affinity::NodeMatcher;
use bayplan_model::api::Request;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::node::Node;
use bayplan_model::resource_claim::{ResourceClaim, ResourceClaimSpec};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::{ClaimKey, Cluster, EXTENDED_RESOURCE_CLAIM_ANNOTATION, NodeInfo, PodInfo};
use crate::config::args::{DynamicResourcesArgs, read};
use crate::framework::*;
use crate::plugins::node_resources_fit::resource_dependencies;
use allocator::{Allocation, AllocationError};
use bind::Reservation;
pub(super) use device_usage::DeviceUsage;
use extended_resources::Mapping;
use requests::{ClaimRequests, Compiler};
use work::{Allowance, AttemptWork};

/// The plugin with its arguments and compiled selectors.
pub(super) struct DynamicResources {
    /// How long a pod waits for binding conditions.
    binding_timeout: Duration,
    /// How long the search on one node may take, as work; zero for any time.
    filter_timeout: Duration,
    /// The compiled selectors of all claims and classes.
    compiler: Mutex<Compiler>,
    allowance: Mutex<Allowance>,
}

/// What is kept for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    /// PreFilter ran. If not, PostFilter answers with an error, as upstream does.
    ran: bool,
    prepared: Option<Arc<Prepared>>,
    reserved: Option<Arc<Reservation>>,
}

/// What PreFilter prepares.
struct Prepared {
    claims: Vec<PodClaim>,
    /// By extended resource: the DeviceClass that backs it, if any. Empty when no class backs any of them.
    extended: BTreeMap<String, Option<String>>,
    /// By node: what Filter allocated, for Score and Reserve.
    found: Mutex<KeyedMap<Arc<str>, Arc<NodeAllocations>>>,
    /// What the attempt has left for its searches.
    work: AttemptWork,
}

/// A claim of the pod.
struct PodClaim {
    claim: Arc<ResourceClaim>,
    state: ClaimState,
}

enum ClaimState {
    /// It is allocated; its devices can be used on nodes that the matcher matches, or on all.
    Allocated(Option<NodeMatcher>),
    /// It needs an allocation.
    Unallocated(Box<ClaimRequests>),
    /// It provides extended resources; what it requests depends on the node.
    ExtendedResources,
}

/// What was allocated on a node.
#[derive(Default)]
struct NodeAllocations {
    /// Allocations, with the indices of their claims among the pod's.
    allocations: Vec<(usize, Allocation)>,
    /// The spec of the claim for extended resources.
    extended: ResourceClaimSpec,
    mappings: Vec<Mapping>,
}

/// The reason for a node from which the devices of an allocated claim cannot be reached.
const NOT_AVAILABLE: &str = "resourceclaim not available on the node";
/// The name of a claim that is not created yet.
const UNNAMED_CLAIM: &str = "<extended-resources>";
/// The score of the first alternative of a request, which may have this many; each later one scores one less.
const ALTERNATIVES_MAX: i64 = 8;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding these locks; a poisoned one is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DynamicResources {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: DynamicResourcesArgs = read(args)?;
        Ok(DynamicResources {
            binding_timeout: args.binding_timeout()?,
            filter_timeout: args.filter_timeout()?,
            compiler: Mutex::default(),
            allowance: Mutex::default(),
        })
    }

    fn prepare(&self, cx: &Cycle<'_>) -> Result<Option<Prepared>, Status> {
        let user = pod_claims::of(cx.cluster, cx.pod).map_err(Status::unresolvable)?;
        let mut extended = extended_resources::asked_for(cx.cluster, cx.pod);
        if extended.values().all(Option::is_none) {
            extended.clear();
        }
        if user.is_empty() && extended.is_empty() {
            return Ok(None);
        }
        let class = |name: &str| cx.cluster.objects.device_classes.get("", name).cloned();
        let mut claims = Vec::new();
        for claim in user {
            let state = match &claim.status.allocation {
                Some(_) => ClaimState::Allocated(matcher(&claim)?),
                None if cx.cluster.is_in_flight(&claim) => {
                    return Err(Status::unresolvable(format!(
                        "resource claim {} is in the process of being allocated",
                        claim.metadata.key()
                    )));
                }
                None => {
                    pod_claims::check_requests(cx.cluster, &claim)?;
                    ClaimState::Unallocated(Box::new(lock(&self.compiler).claim(claim.clone(), class)))
                }
            };
            claims.push(PodClaim { claim, state });
        }
        if !extended.is_empty() {
            claims.push(PodClaim { claim: extended_claim(cx), state: ClaimState::ExtendedResources });
        }
        let work = lock(&self.allowance).attempt(cx.now);
        Ok(Some(Prepared { claims, extended, found: Mutex::default(), work }))
    }

    /// Whether an allocated claim cannot be used on a node, or its devices have failed.
    fn is_unavailable(&self, claim: &PodClaim, node: &Node, now: Timestamp) -> bool {
        let ClaimState::Allocated(matcher) = &claim.state else { return false };
        matcher.as_ref().is_some_and(|matcher| !matcher.matches(node))
            || bind::has_failed(&claim.claim, self.binding_timeout, now)
    }

    fn find(&self, cx: &Cycle<'_>, prepared: &Prepared, node: &NodeInfo) -> Result<NodeAllocations, Status> {
        let mut found = NodeAllocations::default();
        let extended = self.extended_requests(cx, prepared, node, &mut found)?;
        let mut wanted: Vec<(usize, &ClaimRequests)> = Vec::new();
        for (i, claim) in prepared.claims.iter().enumerate() {
            match &claim.state {
                ClaimState::Unallocated(requests) => wanted.push((i, requests)),
                ClaimState::ExtendedResources => wanted.extend(extended.as_ref().map(|requests| (i, requests))),
                ClaimState::Allocated(_) => {}
            }
        }
        if !wanted.is_empty() {
            let claims: Vec<&ClaimRequests> = wanted.iter().map(|(_, claim)| *claim).collect();
            let mut work = prepared.work.node(self.filter_timeout);
            let allocated = allocator::allocate(&cx.cluster.objects.devices, &claims, node.node(), &mut work);
            prepared.work.spend(work.spent());
            lock(&self.allowance).spend(work.spent());
            let allocations = allocated.map_err(|failure| match failure {
                AllocationError::NoSolution => Status::unresolvable("cannot allocate all claims"),
                AllocationError::InvalidPools => Status::unresolvable("invalid resource pools were encountered"),
                AllocationError::TimedOut => {
                    Status::error(format!("node {}: timed out trying to allocate devices", node.name))
                }
                AllocationError::Error(error) => Status::error(error),
            })?;
            found.allocations = wanted.iter().map(|(i, _)| *i).zip(allocations).collect();
        }
        if prepared.claims.iter().any(|claim| self.is_unavailable(claim, node.node(), cx.now)) {
            return Err(Status::unresolvable(NOT_AVAILABLE));
        }
        Ok(found)
    }

    /// The requests of the claim for extended resources on a node; none when the node provides them itself.
    fn extended_requests(
        &self,
        cx: &Cycle<'_>,
        prepared: &Prepared,
        node: &NodeInfo,
        found: &mut NodeAllocations,
    ) -> Result<Option<ClaimRequests>, Status> {
        let special = prepared.claims.iter().find(|claim| matches!(claim.state, ClaimState::ExtendedResources));
        let Some(special) = special else { return Ok(None) };
        if !special.claim.spec.devices.requests.is_empty() {
            // The claim is left over from an earlier attempt; PostFilter deletes it.
            return Err(Status::unresolvable("cannot schedule extended resource claim"));
        }
        let provided = extended_resources::provided_by_devices(&prepared.extended, node);
        let provided = provided.ok_or_else(|| Status::unresolvable("cannot fit resource"))?;
        if provided.is_empty() {
            return Ok(None);
        }
        let (requests, mappings) = extended_resources::requests(cx.pod, &provided);
        let mut claim = (*special.claim).clone();
        claim.spec.devices.requests = requests;
        found.extended = claim.spec.clone();
        found.mappings = mappings;
        let class = |name: &str| cx.cluster.objects.device_classes.get("", name).cloned();
        Ok(Some(lock(&self.compiler).claim(Arc::new(claim), class)))
    }
}

fn matcher(claim: &ResourceClaim) -> Result<Option<NodeMatcher>, Status> {
    let selector = claim.status.allocation.as_ref().and_then(|allocation| allocation.node_selector.as_ref());
    let matcher = selector.map(NodeMatcher::new);
    match matcher.as_ref().and_then(|matcher| matcher.errors().first().map(|error| (*error).to_owned())) {
        Some(error) => Err(Status::error(error)),
        None => Ok(matcher),
    }
}

/// The claim for the pod's extended resources: the existing one, or a draft.
fn extended_claim(cx: &Cycle<'_>) -> Arc<ResourceClaim> {
    let meta = &cx.pod.metadata;
    if let Some(claim) = cx.cluster.extended_resource_claim(&meta.namespace, &meta.uid) {
        return claim.clone();
    }
    let mut draft = ResourceClaim::default();
    draft.metadata.name = UNNAMED_CLAIM.into();
    draft.metadata.namespace = meta.namespace.clone();
    draft.metadata.annotations.insert(EXTENDED_RESOURCE_CLAIM_ANNOTATION.into(), "true".into());
    Arc::new(draft)
}

impl Plugin for DynamicResources {
    type State = State;

    fn name(&self) -> PluginName {
        "DynamicResources"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_ENQUEUE
            .union(ExtensionPoints::PRE_FILTER)
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::POST_FILTER)
            .union(ExtensionPoints::SCORE)
            .union(ExtensionPoints::RESERVE)
            .union(ExtensionPoints::PRE_BIND)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let backed = resource_dependencies(cx).0 == Reads::Cluster;
        if cx.pod.spec.resource_claims.is_empty() && !backed {
            return Dependencies::filter(Reads::Pod);
        }
        // Score depends on which alternative was allocated.
        let claims = pod_claims::of(cx.cluster, cx.pod);
        let requests = claims.iter().flatten().flat_map(|claim| &claim.spec.devices.requests);
        let choice = backed || claims.is_err() || requests.into_iter().any(|r| !r.first_available.is_empty());
        let score = if choice { Reads::Cluster } else { Reads::Pod };
        let normalization = Normalization::Highest { reverse: false };
        Dependencies { filter: Reads::Cluster, score, normalization, post_filter: Reads::Cluster, version: 0 }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        use EventResource::*;
        vec![
            EventRegistration::always(Node, action::ADD | action::UPDATE_NODE_LABEL | action::UPDATE_NODE_ALLOCATABLE),
            EventRegistration::with_hint(ResourceClaim, action::ADD | action::UPDATE),
            EventRegistration::with_hint(Pod, action::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
            EventRegistration::always(DeviceClass, action::ADD | action::UPDATE),
            EventRegistration::always(ResourceSlice, action::ADD | action::UPDATE),
        ]
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let helps = if let (_, Some(pod)) = changed.pods() {
            pod.metadata.uid == cx.pod.metadata.uid && pod_claims::of(cx.cluster, cx.pod).is_ok()
        } else if let (old, Some(new)) = changed.resource_claims() {
            let freed = old.is_some_and(|old| old.status.allocation.is_some()) && new.status.allocation.is_none();
            // Most claims belong to other pods, which their names show without a lookup.
            let may_help = freed || pod_claims::names(cx.pod, &new.metadata);
            may_help
                && pod_claims::of(cx.cluster, cx.pod).is_ok_and(|claims| {
                    let is_ours = claims.iter().any(|claim| claim.metadata.uid == new.metadata.uid);
                    freed || (is_ours && old.is_none_or(|old| old.status != new.status))
                })
        } else {
            true
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        match pod_claims::of(cx.cluster, cx.pod) {
            Ok(_) => Status::SUCCESS,
            Err(reason) => Status::unresolvable(reason),
        }
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        state.ran = true;
        match self.prepare(cx) {
            Err(status) => status.into(),
            Ok(None) => Status::skip().into(),
            Ok(Some(prepared)) => {
                state.prepared = Some(Arc::new(prepared));
                PreFilter::default()
            }
        }
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        let Some(prepared) = &state.prepared else { return Status::SUCCESS };
        match self.find(cx, prepared, node) {
            Err(status) => status,
            Ok(found) => {
                lock(&prepared.found).insert(node.name.clone(), Arc::new(found));
                Status::SUCCESS
            }
        }
    }

    fn post_filter(&self, cx: &PostFilterContext<'_>, state: &mut State) -> PostFilter {
        if !state.ran {
            return Status::error("not found").into();
        }
        let Some(prepared) = &state.prepared else {
            return Status::unschedulable("no new claims to deallocate").into();
        };
        let Cycle { pod, cluster, now } = cx.cycle;
        let ours =
            cx.statuses.nodes.iter().filter(|(_, status)| status.reasons.iter().any(|reason| reason == NOT_AVAILABLE));
        let nodes: Vec<&NodeInfo> = ours.filter_map(|(name, _)| cluster.node(name)).collect();
        let unusable = prepared.claims.iter().find(|claim| {
            let reserved_for = &claim.claim.status.reserved_for;
            reserved_for.iter().all(|consumer| consumer.uid == pod.metadata.uid)
                && nodes.iter().any(|node| self.is_unavailable(claim, node.node(), now))
        });
        if let Some(claim) = unusable {
            let status = Status::unschedulable("deallocation of ResourceClaim completed");
            return PostFilter { calls: vec![bind::deallocate(&claim.claim)], ..PostFilter::from(status) };
        }
        let left_over = prepared.claims.iter().find(|claim| {
            matches!(claim.state, ClaimState::ExtendedResources) && claim.claim.metadata.name != UNNAMED_CLAIM
        });
        if let Some(claim) = left_over {
            let status = Status::unschedulable("deletion of ResourceClaim completed");
            let meta = &claim.claim.metadata;
            let calls = bind::delete(&meta.namespace, &meta.name, &meta.uid);
            return PostFilter { calls, ..PostFilter::from(status) };
        }
        Status::unschedulable("still not schedulable").into()
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        let Some(prepared) = &state.prepared else { return Ok(0) };
        let found = lock(&prepared.found).get(&node.name).cloned();
        let chosen = found.iter().flat_map(|found| &found.allocations).flat_map(|(_, a)| a.chosen.values());
        Ok(chosen.map(|index| ALTERNATIVES_MAX - *index as i64).sum())
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &State, scores: &mut [NodeScore]) -> Status {
        default_normalize(scores, false);
        Status::SUCCESS
    }

    fn reserve(&self, cluster: &mut Cluster, state: &mut State, pod: &PodInfo, node: &str) -> Status {
        let Some(prepared) = &state.prepared else { return Status::SUCCESS };
        let Some(found) = lock(&prepared.found).get(node).cloned() else {
            return Status::error("claim allocation not found for node");
        };
        let reservation = Reservation::new(prepared, &found, pod);
        for (key, allocation) in reservation.in_flight() {
            cluster.allocate_claim(key, allocation);
        }
        state.reserved = Some(Arc::new(reservation));
        Status::SUCCESS
    }

    fn unreserve(&self, cluster: &mut Cluster, state: &mut State, pod: &PodInfo, _node: &str) -> Vec<Request> {
        let Some(reservation) = state.reserved.take() else { return Vec::new() };
        for key in reservation.unwritten() {
            cluster.deallocate_claim(&key);
        }
        reservation.give_back(cluster, pod)
    }

    fn pre_bind_pre_flight(&self, state: &State, _pod: &PodInfo, _node: &str) -> PreFlight {
        let status = if state.reserved.is_some() { Status::SUCCESS } else { Status::skip() };
        PreFlight { status, allow_parallel: true }
    }

    fn pre_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a State) -> BoxFuture<'a, Status> {
        Box::pin(async move {
            let Some(reservation) = &state.reserved else { return Status::SUCCESS };
            match reservation.write(&cx, self.binding_timeout).await {
                Ok(()) => Status::SUCCESS,
                Err(reason) => Status::error(reason),
            }
        })
    }
}
