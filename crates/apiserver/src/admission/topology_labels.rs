//! PodTopologyLabels: a pod carries the zone and region of the node it is bound to.

use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, map_mut, row, text};

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// `object` is the Binding, whose labels the binding hands on to the pod, or a pod that is created on a node.
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
    // A node nobody knows has no topology; whether it may be bound to is not decided here.
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
