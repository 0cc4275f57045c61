//! ResourceQuota: what a write adds to the namespace's usage must fit into every quota that counts it.
//!
//! Quotas are enforced by their status: until a controller (or an administrator) has filled in `status.hard`, a quota
//! limits nothing. Usage is charged by compare-and-swap, so that writes at the same time never exceed a quota together.

use bayplan_kinds::admission::resource_quota::{Change, is_ignored, measures_update};
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};
use crate::registry::SystemWrite;

pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let kind = context.resource;
    let measured = match (context.operation, old) {
        (Operation::Create, _) => context.subresource.is_empty(),
        (Operation::Update, Some(old)) => measures_update(kind, context.subresource, object, old),
        (Operation::Update, None) | (Operation::Delete, _) => false,
    };
    if !measured || context.namespace.is_empty() || is_ignored(kind) {
        return Ok(());
    }
    let resource = row("", "resourcequotas")?;
    let quotas = context.objects.list(resource, context.namespace).await?;
    if quotas.is_empty() {
        return Ok(());
    }
    let refuse = |why: String| context.refuse(object, why);
    let old = old.filter(|_| context.operation == Operation::Update);
    let change = Change::measure(kind, object, old).map_err(refuse)?;
    let mut charged = Vec::new();
    for quota in &quotas {
        if change.charge(kind, object, quota).map_err(refuse)?.is_some() {
            charged.push(text(quota, "/metadata/name"));
        }
    }
    if context.dry_run {
        return Ok(());
    }
    for name in charged {
        context
            .objects
            .update_unchecked(SystemWrite::QuotaUsage, resource, context.namespace, name, &mut |quota| {
                // Others may have been charged in between: judge again by what is there now.
                if let Some(used) = change.charge(kind, object, quota).map_err(refuse)? {
                    quota["status"]["used"] = used.into();
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}
