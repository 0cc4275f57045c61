//! VolumeBinding: a pod goes where its volumes are, or where volumes for its claims exist or can be provisioned.
//!
//! Bound claims tie the pod to their volumes. Those that wait for their first consumer are matched with free volumes of
//! their class, or left to a provisioner, for each node separately. Reserve assumes what was found for the chosen node;
//! PreBind writes it to the API server and waits until the claims are bound.

mod bind;
#[cfg(test)]
mod bind_tests;
mod claims;
#[cfg(test)]
mod differential_tests;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::Request;
use bayplan_model::csi_migration::MIGRATED_PLUGINS_ANNOTATION;
use bayplan_model::storage::{CsiDriver, CsiNode, CsiStorageCapacity};
use futures::future::BoxFuture;
use serde_json::Value;

use crate::cluster::storage::largest_volume;
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::config::args::{VolumeBindingArgs, read};
use crate::framework::*;
use bind::AssumedBindings;
use claims::PodVolumeClaims;

/// The plugin with its arguments.
pub(super) struct VolumeBinding {
    bind_timeout: Duration,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    claims: Arc<PodVolumeClaims>,
    reserved: ReservedVolumes,
}

/// What Reserve did.
#[derive(Clone, Default)]
enum ReservedVolumes {
    /// It has not run.
    #[default]
    Nothing,
    /// All claims are bound already.
    AllBound,
    /// Volumes and claims are assumed for the pod.
    Assumed(Arc<AssumedBindings>),
}

impl VolumeBinding {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: VolumeBindingArgs = read(args)?;
        Ok(VolumeBinding { bind_timeout: Duration::from_secs(args.bind_timeout_seconds) })
    }
}

fn migrated_plugins(node: &CsiNode) -> Option<&String> {
    node.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION)
}

fn publishes_capacity(driver: &CsiDriver) -> bool {
    driver.spec.storage_capacity == Some(true)
}

/// Whether larger volumes can be provisioned than before.
fn grew(old: &CsiStorageCapacity, new: &CsiStorageCapacity) -> bool {
    match (largest_volume(old), largest_volume(new)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new > old,
    }
}

impl Plugin for VolumeBinding {
    type State = State;

    fn name(&self) -> PluginName {
        "VolumeBinding"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
            .union(ExtensionPoints::RESERVE)
            .union(ExtensionPoints::PRE_BIND)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(if cx.pod.claim_names().next().is_none() { Reads::Pod } else { Reads::Cluster })
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        use EventResource::*;
        vec![
            EventRegistration::with_hint(StorageClass, action::ADD | action::UPDATE),
            EventRegistration::with_hint(PersistentVolumeClaim, action::ADD | action::UPDATE),
            EventRegistration::always(PersistentVolume, action::ADD | action::UPDATE),
            EventRegistration::always(Node, action::ADD | action::UPDATE_NODE_LABEL),
            EventRegistration::with_hint(CsiNode, action::ADD | action::UPDATE),
            EventRegistration::with_hint(CsiDriver, action::UPDATE),
            EventRegistration::with_hint(CsiStorageCapacity, action::ADD | action::UPDATE),
        ]
    }

    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        // The claim of an ephemeral volume is named after its pod.
        event.resource != EventResource::PersistentVolumeClaim
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let pod = cx.pod;
        let helps = if let (Some(old), Some(new)) = changed.storage_classes() {
            old.allowed_topologies != new.allowed_topologies
        } else if let (_, Some(claim)) = changed.persistent_volume_claims() {
            claim.metadata.namespace == pod.metadata.namespace
                && pod.claim_names().any(|(_, name, _)| name == claim.metadata.name)
        } else if let (Some(old), Some(new)) = changed.csi_nodes() {
            migrated_plugins(old) != migrated_plugins(new)
        } else if let (Some(old), Some(new)) = changed.csi_drivers() {
            let uses =
                |driver: &str| pod.spec.volumes.iter().any(|v| v.csi.as_ref().is_some_and(|c| c.driver == driver));
            uses(&new.metadata.name) && publishes_capacity(old) && !publishes_capacity(new)
        } else if let (Some(old), Some(new)) = changed.csi_storage_capacities() {
            grew(old, new)
        } else {
            true
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        if let Err(reason) = claims::check(cx.cluster, cx.pod) {
            return Status::unresolvable(reason).into();
        }
        if cx.pod.claim_names().next().is_none() {
            return Status::skip().into();
        }
        match PodVolumeClaims::of(cx.cluster, cx.pod) {
            Err(reason) => Status::error(reason).into(),
            Ok(claims) if claims.has_immediate => {
                Status::unresolvable("pod has unbound immediate PersistentVolumeClaims").into()
            }
            Ok(claims) => {
                state.claims = Arc::new(claims);
                PreFilter::default()
            }
        }
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        match search::search(cx.cluster, &state.claims, node.node()) {
            Err(reason) => Status::error(reason),
            Ok(found) => found.status(),
        }
    }

    fn pre_score(&self, _cx: &Cycle<'_>, _state: &mut State, _nodes: &[&NodeInfo]) -> Status {
        // Scoring by capacity is behind the gate StorageCapacityScoring, which is off.
        Status::skip()
    }

    fn reserve(&self, cluster: &mut Cluster, state: &mut State, _pod: &PodInfo, node: &str) -> Status {
        if state.claims.to_bind.is_empty() {
            state.reserved = ReservedVolumes::AllBound;
            return Status::SUCCESS;
        }
        let Some(info) = cluster.node(node) else { return Status::error(format!("node {node:?} not found")) };
        let assumed = search::search(cluster, &state.claims, info.node())
            .and_then(|found| AssumedBindings::assume(cluster, found, node).map_err(|error| error.to_string()));
        match assumed {
            Err(reason) => Status::error(reason),
            Ok(bindings) => {
                state.reserved = ReservedVolumes::Assumed(Arc::new(bindings));
                Status::SUCCESS
            }
        }
    }

    fn unreserve(&self, cluster: &mut Cluster, state: &mut State, _pod: &PodInfo, _node: &str) -> Vec<Request> {
        if let ReservedVolumes::Assumed(bindings) = std::mem::take(&mut state.reserved) {
            bindings.revert(cluster);
        }
        Vec::new()
    }

    fn pre_bind_pre_flight(&self, state: &State, _pod: &PodInfo, node: &str) -> PreFlight {
        let status = match &state.reserved {
            ReservedVolumes::Nothing => Status::error(format!("no pod volume found for node {node:?}")),
            ReservedVolumes::AllBound => Status::skip(),
            ReservedVolumes::Assumed(_) => Status::SUCCESS,
        };
        PreFlight { status, allow_parallel: true }
    }

    fn pre_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a State) -> BoxFuture<'a, Status> {
        Box::pin(async move {
            let ReservedVolumes::Assumed(bindings) = &state.reserved else { return Status::SUCCESS };
            match bindings.bind(&cx, self.bind_timeout).await {
                Ok(()) => Status::SUCCESS,
                Err(reason) => Status::error(reason),
            }
        })
    }
}
