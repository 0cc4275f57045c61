//! LimitRanger: containers without requests and limits get the namespace's defaults; those out of bounds are refused.

use bayplan_kinds::admission::limit_range::{check_claim, check_pod, set_defaults};
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, aggregate, row};

pub(super) async fn admit(context: &AdmissionContext<'_>, object: &mut Value) -> Result<(), Status> {
    if !context.is_new("", "pods") {
        return Ok(());
    }
    for range in context.objects.list(row("", "limitranges")?, context.namespace).await? {
        set_defaults(&range, object).map_err(|why| context.refuse(object, why))?;
    }
    Ok(())
}

pub(super) async fn validate(context: &AdmissionContext<'_>, object: &Value) -> Result<(), Status> {
    // Only a resize changes the resources of containers; a claim can ask for more in any update.
    let pod = context.is_new("", "pods") || context.resizes();
    let claim = context.is("", "persistentvolumeclaims") && context.operation != Operation::Delete;
    if !pod && !claim {
        return Ok(());
    }
    for range in context.objects.list(row("", "limitranges")?, context.namespace).await? {
        let errors = if pod { check_pod(&range, object) } else { check_claim(&range, object) };
        if let Some(why) = aggregate(&errors) {
            return Err(context.refuse(object, why));
        }
    }
    Ok(())
}
