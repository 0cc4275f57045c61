//! The RBAC evaluator: decides from roles and bindings alone whether a user may act.

use super::policy::{Binding, Role, RoleSource, Rule, Subject};
use super::{Action, Attributes, Decision};
use crate::user::User;

/// Decides one request. The reason is the first binding that allows it, or else the roles that bindings refer to and
/// that do not exist.
pub fn authorize(source: &impl RoleSource, request: &Attributes<'_>) -> Decision {
    let mut missing: Vec<MissingRole> = Vec::new();
    let namespace = match request.action {
        Action::Resource { namespace, .. } => namespace,
        Action::Path(_) => "",
    };
    for grant in grants(source, request.user, namespace) {
        match grant.role {
            Ok(role) if role.rules.iter().any(|rule| allows(rule, request)) => {
                return Decision { allowed: true, reason: format!("RBAC: allowed by {}", grant.describe()) };
            }
            Ok(_) => {}
            Err(error) => missing.push(error),
        }
    }
    let reason = aggregate(&missing).map(|missing| format!("RBAC: {missing}")).unwrap_or_default();
    Decision { allowed: false, reason }
}

/// The rules that a user has in a namespace, cluster-wide ones included, and the missing roles of their bindings.
pub fn rules_for<'a>(source: &'a impl RoleSource, user: &User, namespace: &str) -> (Vec<&'a Rule>, Vec<MissingRole>) {
    let mut rules = Vec::new();
    let mut missing = Vec::new();
    for grant in grants(source, user, namespace) {
        match grant.role {
            Ok(role) => rules.extend(&role.rules),
            Err(error) => missing.push(error),
        }
    }
    (rules, missing)
}

/// The role of a binding does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingRole {
    /// The binding refers to a `ClusterRole`.
    #[error("clusterrole not found")]
    ClusterRole,
    /// The binding refers to a `Role`.
    #[error("role not found")]
    Role,
}

/// One binding with the user among its subjects, and the role it grants.
struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
    role: Result<&'a Role, MissingRole>,
    cluster_wide: bool,
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let Binding { metadata, role_ref, .. } = self.binding;
        let binding = if self.cluster_wide {
            format!("ClusterRoleBinding {:?}", metadata.name)
        } else {
            format!("RoleBinding {:?}", format!("{}/{}", metadata.name, metadata.namespace))
        };
        let subject = match self.subject.kind.as_str() {
            "ServiceAccount" => format!("{}/{}", self.subject.name, account_namespace(self.subject, self.binding)),
            _ => self.subject.name.clone(),
        };
        format!("{binding} of {} {:?} to {} {subject:?}", role_ref.kind, role_ref.name, self.subject.kind)
    }
}

fn grants<'a>(source: &'a impl RoleSource, user: &User, namespace: &str) -> impl Iterator<Item = Grant<'a>> {
    let cluster = source.cluster_role_bindings().map(|binding| (binding, true));
    // An empty namespace is the cluster scope, where role bindings grant nothing.
    let namespaced = (!namespace.is_empty()).then(|| source.role_bindings(namespace).map(|binding| (binding, false)));
    cluster.chain(namespaced.into_iter().flatten()).filter_map(move |(binding, cluster_wide)| {
        let subject = binding.subjects.iter().find(|subject| applies(subject, user, binding))?;
        Some(Grant { binding, subject, role: resolve(source, binding), cluster_wide })
    })
}

fn resolve<'a>(source: &'a impl RoleSource, binding: &Binding) -> Result<&'a Role, MissingRole> {
    let name = &binding.role_ref.name;
    match binding.role_ref.kind.as_str() {
        "ClusterRole" => source.cluster_role(name).ok_or(MissingRole::ClusterRole),
        _ => source.role(&binding.metadata.namespace, name).ok_or(MissingRole::Role),
    }
}

/// The namespace of a service account; by default that of the binding.
fn account_namespace<'a>(subject: &'a Subject, binding: &'a Binding) -> &'a str {
    if subject.namespace.is_empty() { &binding.metadata.namespace } else { &subject.namespace }
}

fn applies(subject: &Subject, user: &User, binding: &Binding) -> bool {
    match subject.kind.as_str() {
        "User" => user.name == subject.name,
        "Group" => user.groups.contains(&subject.name),
        "ServiceAccount" => {
            let namespace = account_namespace(subject, binding);
            !namespace.is_empty()
                && user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
                    == Some((namespace, subject.name.as_str()))
        }
        _ => false,
    }
}

pub(super) fn allows(rule: &Rule, request: &Attributes<'_>) -> bool {
    if !contains(&rule.verbs, request.verb.as_str()) {
        return false;
    }
    match request.action {
        Action::Resource { group, resource, subresource, name, .. } => {
            contains(&rule.api_groups, group)
                && rule.resources.iter().any(|pattern| resource_matches(pattern, resource, subresource))
                && (rule.resource_names.is_empty() || rule.resource_names.iter().any(|allowed| allowed == name))
        }
        Action::Path(path) => rule.non_resource_urls.iter().any(|pattern| path_matches(pattern, path)),
    }
}

fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    match (pattern, pattern.split_once('/')) {
        ("*", _) => true,
        (_, None) => subresource.is_empty() && pattern == resource,
        (_, Some((parent, sub))) => {
            !subresource.is_empty() && sub == subresource && (parent == "*" || parent == resource)
        }
    }
}

/// `*` matches every path, `/apis/*` a prefix, any other pattern itself.
pub(super) fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}

fn contains(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Upstream prints an aggregate of errors without repetitions, in brackets if there are several.
pub(crate) fn aggregate(missing: &[MissingRole]) -> Option<String> {
    let mut distinct: Vec<String> = Vec::new();
    for text in missing.iter().map(MissingRole::to_string) {
        if !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    match distinct.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_patterns_match_like_upstream() {
        for (pattern, resource, subresource, expected) in [
            ("*", "pods", "log", true),
            ("pods", "pods", "", true),
            ("pods", "pods", "log", false),
            ("pods/log", "pods", "log", true),
            ("pods/*", "pods", "log", false),
            ("*/log", "pods", "log", true),
            ("*/log", "pods", "", false),
        ] {
            assert_eq!(
                resource_matches(pattern, resource, subresource),
                expected,
                "{pattern} {resource}/{subresource}"
            );
        }
    }

    #[test]
    fn path_patterns_match_like_upstream() {
        for (pattern, path, expected) in [
            ("*", "/anything", true),
            ("/apis/*", "/apis/apps", true),
            ("/apis/*", "/apis", false),
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
        ] {
            assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
