//! OwnerReferencesPermissionEnforcement: who changes the owners of an object must be allowed to delete it, and who
//! makes an object hold up the deletion of its owner must be allowed to set the owner's finalizers.

use bayplan_kinds::Scheme;
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, list, text};
use crate::authz::{Action, Attributes};
use crate::request::Verb;

pub(super) fn validate(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if context.operation == Operation::Delete {
        return Ok(());
    }
    let owners = |object: &Value| -> Vec<Value> { list(object, "/metadata/ownerReferences").cloned().collect() };
    let (new, old) = (owners(object), old.map(owners).unwrap_or_default());
    if new == old {
        return Ok(());
    }
    if context.operation == Operation::Update {
        let action = Action::Resource {
            group: context.resource.group,
            resource: context.resource.plural,
            subresource: context.subresource,
            name: context.name,
            namespace: context.namespace,
        };
        may(context, &Verb::Delete, action).map_err(|why| {
            context.refuse(object, format!("cannot set an ownerRef on a resource you can't delete: {why}, <nil>"))
        })?;
    }
    let blocks = |owner: &&Value| owner["blockOwnerDeletion"] == true;
    let held = |owner: &Value| old.iter().filter(blocks).any(|old| old["uid"] == owner["uid"]);
    for owner in new.iter().filter(blocks).filter(|owner| !held(owner)) {
        check_owner(context, object, owner)?;
    }
    Ok(())
}

fn check_owner(context: &AdmissionContext<'_>, object: &Value, owner: &Value) -> Result<(), Status> {
    let (api_version, kind) = (text(owner, "/apiVersion"), text(owner, "/kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut kinds = Scheme::built_in()
        .kinds()
        .filter(|known| known.stored() && known.group == group && known.version == version && known.kind == kind);
    let Some(known) = kinds.next() else {
        let why = format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} \
             Kind {kind}: no matches for kind {kind:?} in version {api_version:?}"
        );
        return Err(context.refuse(object, why));
    };
    let action = Action::Resource {
        group: known.group,
        resource: known.plural,
        subresource: "finalizers",
        name: text(owner, "/name"),
        namespace: if known.namespaced() { context.namespace } else { "" },
    };
    may(context, &Verb::Update, action).map_err(|why| {
        let why = format!(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: \
             {why}, <nil>"
        );
        context.refuse(object, why)
    })
}

/// Whether the user may do more than the write itself; the authorizer's reason why not.
fn may(context: &AdmissionContext<'_>, verb: &Verb, action: Action<'_>) -> Result<(), String> {
    let decision = context.authorizer.authorize(&Attributes { user: context.user, verb, action, field_selector: "" });
    if decision.allowed { Ok(()) } else { Err(decision.reason) }
}
