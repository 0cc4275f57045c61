//! Escalation: the writer of a role or binding must hold the rights it grants, or the right to `escalate` or `bind`.
//!
//! Upstream checks this between mutating admission and validation, so here it is the last mutating plugin. The policy
//! is read from the store each time, so that no decision rests on an old one; roles seldom change.

use std::sync::Arc;

use bayplan_model::status::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{AdmissionContext, Operation, row, text};
use crate::authz::policy::{Binding, GROUP, Policy, Role, RoleSource, Rule};
use crate::authz::{Action, Attributes, escalation, rbac};
use crate::request::Verb;
use crate::status_errors;
use crate::user::GROUP_MASTERS;

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
    if old.is_some_and(|old| ["rules", "aggregationRule"].iter().all(|part| old[*part] == object[*part])) {
        return Ok(());
    }
    let policy = load(context).await?;
    if may(context, &policy, &Verb::Escalate, context.resource.plural, text(object, "/metadata/name")) {
        return Ok(());
    }
    // An aggregated role may collect any rule later, so its writer must hold all of them.
    let aggregated = object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    let mut rules = if aggregated { everything() } else { Vec::new() };
    rules.extend(decode::<Role>(object)?.rules);
    confirm(context, object, &policy, &rules)
}

async fn check_binding(context: &AdmissionContext<'_>, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if old.is_some_and(|old| ["roleRef", "subjects"].iter().all(|part| old[*part] == object[*part])) {
        return Ok(());
    }
    let policy = load(context).await?;
    let role_ref = decode::<Binding>(object)?.role_ref;
    let (plural, role) = match role_ref.kind.as_str() {
        "ClusterRole" => ("clusterroles", policy.cluster_role(&role_ref.name)),
        _ => ("roles", policy.role(context.namespace, &role_ref.name)),
    };
    if may(context, &policy, &Verb::Bind, plural, &role_ref.name) {
        return Ok(());
    }
    let role = role.ok_or_else(|| not_found(plural, &role_ref.name))?;
    confirm(context, object, &policy, &role.rules)
}

fn not_found(plural: &str, name: &str) -> Status {
    row(GROUP, plural).map_or_else(|status| status, |resource| status_errors::not_found(resource, name))
}

fn may(context: &AdmissionContext<'_>, policy: &Policy, verb: &Verb, resource: &str, name: &str) -> bool {
    let action = Action::Resource { group: GROUP, resource, subresource: "", name, namespace: context.namespace };
    rbac::authorize(policy, &Attributes { user: context.user, verb, action }).allowed
}

fn confirm(context: &AdmissionContext<'_>, object: &Value, policy: &Policy, rules: &[Rule]) -> Result<(), Status> {
    let (held, _) = rbac::rules_for(policy, context.user, context.namespace);
    let missing = escalation::uncovered(&held, rules);
    if missing.is_empty() {
        return Ok(());
    }
    Err(context.refuse(object, escalation::refusal(context.user, &missing)))
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
