//! NamespaceLifecycle: nothing is created in a namespace that is missing or being deleted.

use bayplan_model::status::{Cause, Status};
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};
use crate::status_errors;

/// The namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

pub(super) async fn admit(context: &AdmissionContext<'_>, object: &Value) -> Result<(), Status> {
    let namespaces = context.resource.group.is_empty() && context.resource.plural == "namespaces";
    if context.operation == Operation::Delete {
        return if namespaces && context.subresource.is_empty() && IMMORTAL.contains(&context.name) {
            Err(context.refuse(object, "this namespace may not be deleted"))
        } else {
            Ok(())
        };
    }
    // An access review names a namespace, but creates nothing in it.
    if namespaces || context.namespace.is_empty() || context.resource.plural == "localsubjectaccessreviews" {
        return Ok(());
    }
    let resource = row("", "namespaces")?;
    let Some(namespace) = context.objects.get(resource, "", context.namespace).await? else {
        return Err(status_errors::not_found(resource, context.namespace));
    };
    if context.operation == Operation::Create && text(&namespace, "/status/phase") == "Terminating" {
        return Err(terminating(context, object));
    }
    Ok(())
}

fn terminating(context: &AdmissionContext<'_>, object: &Value) -> Status {
    let namespace = context.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut refusal = context.refuse(object, why);
    if let Some(details) = &mut refusal.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    refusal
}
