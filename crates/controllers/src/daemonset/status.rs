//! The status of a DaemonSet, and how it is written.

use bayplan_model::api::Api;
use bayplan_model::status::Status;
use jiff::Timestamp;

use super::NodeWithFit;
use super::object::{DaemonSet, DaemonSetStatus};
use super::pods::{PodsByNode, Revision, first};
use crate::requests::{self, DAEMON_SETS};

/// The status that follows from nodes and pods. Of several pods on a node the first one counts.
pub(super) fn calculate(
    ds: &DaemonSet,
    hash: &str,
    nodes: &[NodeWithFit],
    pods: &PodsByNode<'_>,
    now: Timestamp,
) -> DaemonSetStatus {
    let revision = Revision::new(ds, hash);
    let mut status = DaemonSetStatus {
        observed_generation: ds.status.observed_generation,
        collision_count: ds.status.collision_count,
        conditions: ds.status.conditions.clone(),
        ..DaemonSetStatus::default()
    };
    for (node, fit) in nodes {
        let pod = pods.get(node.metadata.name.as_str()).and_then(|pods| first(pods));
        status.desired_number_scheduled += i32::from(fit.should_run);
        let Some(pod) = pod else { continue };
        if !fit.should_run {
            status.number_misscheduled += 1;
            continue;
        }
        status.current_number_scheduled += 1;
        status.number_ready += i32::from(pod.ready);
        status.number_available += i32::from(pod.is_available(ds.spec.min_ready_seconds, now));
        status.updated_number_scheduled += i32::from(revision.is_of(pod));
    }
    status.number_unavailable = status.desired_number_scheduled - status.number_available;
    status
}

/// Writes the status if it changed; `acted_on` is the generation that was acted on, if any was. Returns the DaemonSet
/// as stored.
pub(super) async fn write(
    api: &dyn Api,
    ds: &DaemonSet,
    status: &DaemonSetStatus,
    acted_on: Option<i64>,
) -> Result<Option<DaemonSet>, Status> {
    if *status == ds.status && ds.status.observed_generation >= ds.metadata.generation {
        return Ok(None);
    }
    let put = async |onto: DaemonSet| {
        let observed_generation = acted_on.unwrap_or(onto.status.observed_generation);
        let (collision_count, conditions) = (onto.status.collision_count, onto.status.conditions.clone());
        let status = DaemonSetStatus { observed_generation, collision_count, conditions, ..status.clone() };
        let written = DaemonSet { status, ..onto };
        requests::update_status(api, &DAEMON_SETS, &ds.metadata, &written).await
    };
    if let Ok(stored) = put(ds.clone()).await {
        return Ok(Some(stored));
    }
    let fresh: DaemonSet = requests::get(api, &DAEMON_SETS, &ds.metadata.namespace, &ds.metadata.name).await?;
    put(fresh).await.map(Some)
}
