//! PodTopologyLabels: a pod gets the zone and region labels of its node.

use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, map_mut, row, text};

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Labels a Binding, whose labels go to the pod, or a pod that is created with a node.
pub(super) async fn admit(context: &AdmissionContext<'_>, object: &mut Value) -> Result<(), Status> {
    let core = context.operation == Operation::Create && context.resource.group.is_empty();
    let node = match (context.resource.plural, context.subresource) {
        ("pods", "binding") | ("bindings", "") if core => match text(object, "/target/kind") {
            "" | "Node" => text(object, "/target/name"),
            _ => "",
        },
        ("pods", "") if core => text(object, "/spec/nodeName"),
        _ => "",
    };
    if node.is_empty() {
        return Ok(());
    }
    // A missing node has no topology; other checks decide whether it may be bound to.
    let Some(topology) = context.objects.labels(row("", "nodes")?, "", node).await? else { return Ok(()) };
    for label in LABELS {
        if let Some(value) = topology.get(label)
            && map_mut(object, "metadata").is_some()
            && let Some(labels) = map_mut(&mut object["metadata"], "labels")
        {
            labels.insert(label.to_owned(), value.clone().into());
        }
    }
    Ok(())
}
