//! ResourceQuota: what a write adds to the namespace's usage must fit into every quota that counts it.
//!
//! Quotas are enforced by their status: until a controller (or an administrator) has filled in `status.hard` and
//! `status.used`, a quota limits nothing.

use bayplan_kinds::admission::resource_quota::{
    charge, check_stated, difference, limited, matches_scopes, measured_on_update, usage,
};
use bayplan_model::quantity::Quantity;
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};
use crate::registry::SystemWrite;

pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let resize = context.resizes();
    if context.namespace.is_empty()
        || !(context.subresource.is_empty() || resize)
        || context.operation == Operation::Delete
    {
        return Ok(());
    }
    let delta = match (context.operation, old) {
        (Operation::Update, Some(old)) if resize || measured_on_update(context.resource) => {
            difference(usage(context.resource, object), &usage(context.resource, old))
        }
        (Operation::Update, _) => return Ok(()),
        _ => usage(context.resource, object),
    };
    if delta.values().all(Quantity::is_zero) {
        return Ok(());
    }
    let resource = row("", "resourcequotas")?;
    let quotas = context.objects.list(resource, context.namespace).await?;
    let refuse = |why: String| context.refuse(object, why);
    let mut charged = Vec::new();
    for quota in quotas.iter().filter(|quota| matches_scopes(quota, context.resource, object)) {
        let relevant = limited(quota, &delta);
        if relevant.is_empty() {
            continue;
        }
        check_stated(context.resource, object, quota).map_err(refuse)?;
        charge(quota, &relevant).map_err(refuse)?;
        charged.push(text(quota, "/metadata/name"));
    }
    if context.dry_run {
        return Ok(());
    }
    for name in charged {
        context
            .objects
            .update_unchecked(SystemWrite::QuotaUsage, resource, context.namespace, name, &mut |quota| {
                // Others may have been charged in between: judge again by what is there now.
                let relevant = limited(quota, &delta);
                let used = charge(quota, &relevant).map_err(refuse)?;
                quota["status"]["used"] = used.into();
                Ok(())
            })
            .await?;
    }
    Ok(())
}
