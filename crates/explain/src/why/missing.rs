//! Which of the resources that a source lacks could matter for a pod.

use bayplan_model::pod::Volume;
use bayplan_scheduler::PodInfo;

use crate::State;

/// What protects pods from preemption.
pub(super) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// The missing resources that a decision about this pod reads.
pub(super) fn for_pod(state: &State, pod: &PodInfo) -> Vec<&'static str> {
    state.missing().iter().copied().filter(|resource| matters(state, pod, resource)).collect()
}

fn matters(state: &State, pod: &PodInfo, resource: &str) -> bool {
    let spec = &pod.spec;
    match resource {
        "namespaces" => pod.has_affinity() || state.cluster().nodes_with_affinity().next().is_some(),
        // Default spreading selects pods as they do; a pod with constraints of its own is not spread by default.
        "services" | "replicationcontrollers" | "replicasets.apps" | "statefulsets.apps" => {
            spec.topology_spread_constraints.is_empty() && !pod.metadata.labels.is_empty()
        }
        BUDGETS => {
            let lower = |other: &std::sync::Arc<PodInfo>| other.priority() < pod.priority();
            spec.preemption_policy.as_deref() != Some("Never")
                && state.cluster().nodes().any(|node| node.pods().iter().any(lower))
        }
        _ if resource.ends_with(".resource.k8s.io") => {
            !spec.resource_claims.is_empty() || !pod.usage.requested.scalars.is_empty()
        }
        _ if resource.ends_with(".storage.k8s.io") || resource.starts_with("persistentvolume") => {
            // Every pod has a volume with a token; only those that plugins read count.
            let is_read = |volume: &Volume| *volume != Volume { name: volume.name.clone(), ..Volume::default() };
            spec.volumes.iter().any(is_read)
        }
        _ => true,
    }
}
