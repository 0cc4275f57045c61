//! RBAC: recorded decisions and escalation checks.

use bayplan_apiserver::authz::policy::{Binding, Role, RoleSource, Rule};
use bayplan_apiserver::authz::{Action, Attributes, escalation, rbac};
use bayplan_apiserver::{User, Verb};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

/// Roles and bindings in the recorded order, which decides the reason.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    roles: Vec<Role>,
    cluster_roles: Vec<Role>,
    role_bindings: Vec<Binding>,
    cluster_role_bindings: Vec<Binding>,
}

impl RoleSource for Listed {
    fn cluster_role(&self, name: &str) -> Option<&Role> {
        self.cluster_roles.iter().find(|role| role.metadata.name == name)
    }

    fn role(&self, namespace: &str, name: &str) -> Option<&Role> {
        self.roles.iter().find(|role| role.metadata.name == name && role.metadata.namespace == namespace)
    }

    fn cluster_role_bindings(&self) -> impl Iterator<Item = &Binding> {
        self.cluster_role_bindings.iter()
    }

    fn role_bindings(&self, namespace: &str) -> impl Iterator<Item = &Binding> {
        self.role_bindings.iter().filter(move |binding| binding.metadata.namespace == namespace)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    user: String,
    groups: Vec<String>,
    verb: String,
    api_group: String,
    resource: String,
    subresource: String,
    name: String,
    namespace: String,
    non_resource: bool,
    path: String,
}

pub(super) fn check(case: &Value) -> Outcome {
    let input = &case["input"];
    let actual = match case["type"].as_str() {
        Some("authorize") => authorize(input)?,
        Some("covers") => covers(input)?,
        other => return Err(Mismatch::Unreadable(format!("unknown type {other:?}"))),
    };
    Ok(compare(&case["expect"], &actual)?)
}

fn authorize(input: &Value) -> Result<Value, serde_json::Error> {
    let listed = Listed::deserialize(input)?;
    let requests = Vec::<Request>::deserialize(&input["requests"])?;
    let decisions: Vec<Value> = requests.iter().map(|request| decide(&listed, request)).collect();
    Ok(json!({ "decisions": decisions }))
}

fn decide(listed: &Listed, request: &Request) -> Value {
    let user = User { name: request.user.clone(), groups: request.groups.clone(), ..User::default() };
    let action = if request.non_resource {
        Action::Path(&request.path)
    } else {
        Action::Resource {
            group: &request.api_group,
            resource: &request.resource,
            subresource: &request.subresource,
            name: &request.name,
            namespace: &request.namespace,
        }
    };
    let decision = rbac::authorize(
        listed,
        &Attributes { user: &user, verb: &Verb::from(&*request.verb), action, field_selector: "" },
    );
    json!({"allowed": decision.allowed, "reason": decision.reason})
}

fn covers(input: &Value) -> Result<Value, serde_json::Error> {
    let rules = |key: &str| Vec::<Rule>::deserialize(&input[key]);
    let (owner, servant) = (rules("owner")?, rules("servant")?);
    let uncovered = escalation::uncovered(&owner.iter().collect::<Vec<_>>(), &servant);
    Ok(json!({"covers": uncovered.is_empty(), "uncovered": uncovered.listed()}))
}
