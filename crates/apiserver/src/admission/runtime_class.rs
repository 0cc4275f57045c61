//! RuntimeClass: a pod takes over its class's overhead, node selector and tolerations.

use std::sync::Arc;

use bayplan_kinds::admission::runtime_class::{has_unfounded_overhead, set_overhead, set_scheduling};
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, row, text};

const GROUP: &str = "node.k8s.io";

pub(super) async fn admit(context: &AdmissionContext<'_>, pod: &mut Value) -> Result<(), Status> {
    let Some(class) = class_of(context, pod).await? else { return Ok(()) };
    set_overhead(pod, &class).and_then(|()| set_scheduling(pod, &class)).map_err(|why| context.refuse(pod, why))
}

pub(super) async fn validate(context: &AdmissionContext<'_>, pod: &Value) -> Result<(), Status> {
    if !context.is_new("", "pods") {
        return Ok(());
    }
    let class = class_of(context, pod).await?;
    if has_unfounded_overhead(pod, class.as_deref()) {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(context.refuse(pod, why));
    }
    Ok(())
}

async fn class_of(context: &AdmissionContext<'_>, pod: &Value) -> Result<Option<Arc<Value>>, Status> {
    let name = text(pod, "/spec/runtimeClassName");
    if !context.is_new("", "pods") || name.is_empty() {
        return Ok(None);
    }
    match context.objects.get(row(GROUP, "runtimeclasses")?, "", name).await? {
        Some(class) => Ok(Some(class)),
        None => Err(context.refuse(pod, format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}
