//! Escalation: the writer of a role or binding must hold the rights it grants, or the right to `escalate` or `bind`.
//!
//! Upstream checks this between mutating admission and validation, so here it is the last mutating plugin. The policy
//! is read from the store each time, so that no decision rests on an old one; roles seldom change.

use std::sync::Arc;

use bayplan_model::status::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AdmissionContext, Operation, list, row, text};
use crate::authz::policy::{Binding, GROUP, Policy, Role, RoleSource, Rule};
use crate::authz::{Action, Attributes, escalation, rbac};
use crate::request::Verb;
use crate::status_errors;
use crate::user::GROUP_MASTERS;

/// What the garbage collector changes, and what says who changed it.
const GARBAGE_COLLECTION_FIELDS: [&str; 4] = ["ownerReferences", "finalizers", "selfLink", "managedFields"];

pub(super) async fn admit(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let relevant = context.resource.group == GROUP && context.operation != Operation::Delete;
    if !relevant || context.user.in_group(GROUP_MASTERS) {
        return Ok(());
    }
    match context.resource.plural {
        "roles" | "clusterroles" => check_role(context, object, old).await,
        "rolebindings" | "clusterrolebindings" => check_binding(context, object, old).await,
        _ => Ok(()),
    }
}

async fn check_role(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if old.is_some_and(|old| only_garbage_collection_fields_differ(object, old)) {
        return Ok(());
    }
    let policy = load(context).await?;
    // As upstream by the name in the URL, which a create does not have.
    if may(context, &policy, &Verb::Escalate, context.resource.plural, context.requested_name) {
        return Ok(());
    }
    let refuse = |why: String| refuse(context, object, why);
    confirm(context, &policy, &decode::<Role>(object)?.rules).map_err(refuse)?;
    // An aggregated role may collect any rule later, and one that was aggregated keeps what it has collected.
    if aggregates(object) || old.is_some_and(aggregates) {
        let why = "must have cluster-admin privileges to use the aggregationRule";
        confirm(context, &policy, &everything()).map_err(|_| refuse(why.to_owned()))?;
    }
    Ok(())
}

async fn check_binding(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if old.is_some_and(|old| only_garbage_collection_fields_differ(object, old)) {
        return Ok(());
    }
    let policy = load(context).await?;
    let role_ref = decode::<Binding>(object)?.role_ref;
    let (plural, role) = match role_ref.kind.as_str() {
        "ClusterRole" => ("clusterroles", policy.cluster_role(&role_ref.name)),
        "Role" => ("roles", policy.role(context.namespace, &role_ref.name)),
        kind => return Err(status_errors::plain(format!("unsupported role reference kind: {kind:?}"))),
    };
    if may(context, &policy, &Verb::Bind, plural, &role_ref.name) {
        return Ok(());
    }
    let role = role.ok_or_else(|| not_found(plural, &role_ref.name))?;
    confirm(context, &policy, &role.rules).map_err(|why| refuse(context, object, why))
}

/// Whether a write changes at most what the garbage collector changes. Any other change of a role or binding is judged
/// as if the whole were new: labels, too, give rights, where a role collects the rules of others.
fn only_garbage_collection_fields_differ(new: &Value, old: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !GARBAGE_COLLECTION_FIELDS.contains(&key.as_str()));
        }
        object
    };
    same(&without(new), &without(old))
}

/// Equality in which a field that is empty is the same as one that is missing.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => one
            .keys()
            .chain(other.keys())
            .all(|key| same(one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null))),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => one == other || is_empty(one) && is_empty(other),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

fn aggregates(role: &Value) -> bool {
    list(role, "/aggregationRule/clusterRoleSelectors").next().is_some()
}

fn refuse(context: &AdmissionContext<'_>, object: &Value, why: String) -> Status {
    status_errors::forbidden(context.resource, text(object, "/metadata/name"), why)
}

fn not_found(plural: &str, name: &str) -> Status {
    row(GROUP, plural).map_or_else(|status| status, |resource| status_errors::not_found(resource, name))
}

fn may(context: &AdmissionContext<'_>, policy: &Policy, verb: &Verb, resource: &str, name: &str) -> bool {
    let action = Action::Resource { group: GROUP, resource, subresource: "", name, namespace: context.namespace };
    rbac::authorize(policy, &Attributes { user: context.user, verb, action, field_selector: "" }).allowed
}

/// Whether the user holds all these rights; if not, why, in upstream's words.
fn confirm(context: &AdmissionContext<'_>, policy: &Policy, rules: &[Rule]) -> Result<(), String> {
    let (held, unresolved) = rbac::rules_for(policy, context.user, context.namespace);
    let missing = escalation::uncovered(&held, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut why = escalation::refusal(context.user, &missing);
    if let Some(unresolved) = rbac::aggregate(&unresolved) {
        why.push_str(&format!("; resolution errors: [{unresolved}]"));
    }
    Err(why)
}

fn everything() -> Vec<Rule> {
    let all = || vec!["*".to_owned()];
    vec![
        Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

async fn load(context: &AdmissionContext<'_>) -> Result<Policy, Status> {
    let mut policy = Policy::default();
    for role in all::<Role>(context, "clusterroles", "").await? {
        policy.cluster_roles.insert(role.metadata.name.clone(), role);
    }
    for binding in all::<Binding>(context, "clusterrolebindings", "").await? {
        policy.cluster_role_bindings.insert(binding.metadata.name.clone(), binding);
    }
    if !context.namespace.is_empty() {
        let roles = policy.roles.entry(context.namespace.to_owned()).or_default();
        for role in all::<Role>(context, "roles", context.namespace).await? {
            roles.insert(role.metadata.name.clone(), role);
        }
        let bindings = policy.role_bindings.entry(context.namespace.to_owned()).or_default();
        for binding in all::<Binding>(context, "rolebindings", context.namespace).await? {
            bindings.insert(binding.metadata.name.clone(), binding);
        }
    }
    Ok(policy)
}

async fn all<T: DeserializeOwned>(
    context: &AdmissionContext<'_>,
    plural: &str,
    namespace: &str,
) -> Result<Vec<Arc<T>>, Status> {
    let objects = context.objects.list(row(GROUP, plural)?, namespace).await?;
    // An unreadable role or binding grants nothing.
    Ok(objects.iter().filter_map(|object| T::deserialize(&**object).ok()).map(Arc::new).collect())
}

fn decode<T: DeserializeOwned>(object: &Value) -> Result<T, Status> {
    T::deserialize(object).map_err(|error| status_errors::bad_request(error.to_string()))
}
