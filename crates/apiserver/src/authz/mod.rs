//! Authorization: `system:masters` may do everything, everybody else what RBAC allows.
//!
//! ```text
//!   store ─watch▶ index (roles, bindings) ─▶ rbac::authorize(policy, Attributes) ─▶ Decision ─▶ 403, worded as upstream
//!                                              escalation::uncovered ─▶ who writes roles grants only what he holds
//! ```

use std::sync::Arc;

use bayplan_model::status::{Details, Status, reason};

use crate::user::{GROUP_MASTERS, User};

pub mod escalation;
pub mod index;
pub mod policy;
pub mod rbac;

pub use index::Index;

/// What is asked: who wants to do what.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Who.
    pub user: &'a User,
    /// `get`, `list`, `create`, … or the lower-case HTTP method for paths.
    pub verb: &'a str,
    /// With what.
    pub action: Action<'a>,
}

/// The object of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A resource.
    Resource {
        /// API group, empty for core.
        group: &'a str,
        /// Plural.
        resource: &'a str,
        /// Subresource, empty for none.
        subresource: &'a str,
        /// Object name, empty for collections.
        name: &'a str,
        /// Namespace, empty for the cluster scope.
        namespace: &'a str,
    },
    /// A path outside the resource tree.
    Path(&'a str),
}

/// The answer, with the reason reviews report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may proceed.
    pub allowed: bool,
    /// Which binding allowed it, or which role was missing; may be empty.
    pub reason: String,
}

/// Decides requests by the live roles and bindings.
#[derive(Clone, Default)]
pub struct Authorizer {
    /// The live roles and bindings.
    pub index: Arc<Index>,
}

impl Authorizer {
    /// Decides one request.
    pub fn authorize(&self, request: &Attributes<'_>) -> Decision {
        if request.user.in_group(GROUP_MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        rbac::authorize(&*self.index.policy(), request)
    }

    /// Decides one request; a refusal is the 403 to answer.
    pub fn check(&self, request: &Attributes<'_>) -> Result<(), Status> {
        let decision = self.authorize(request);
        if decision.allowed { Ok(()) } else { Err(forbidden(request, &decision.reason)) }
    }
}

/// The 403 for a request that is not allowed.
pub fn forbidden(request: &Attributes<'_>, why: &str) -> Status {
    let (user, verb) = (&request.user.name, request.verb);
    let (message, details) = match request.action {
        Action::Path(path) => (format!("forbidden: User {user:?} cannot {verb} path {path:?}"), Details::default()),
        Action::Resource { group, resource, subresource, name, namespace } => {
            let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            let object = if name.is_empty() { qualified } else { format!("{qualified} {name:?}") };
            let with_sub =
                if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let message = format!(
                "{object} is forbidden: User {user:?} cannot {verb} resource {with_sub:?} in API group {group:?} {place}"
            );
            (message, Details { name: name.into(), group: group.into(), kind: resource.into(), ..Details::default() })
        }
    };
    let message = if why.is_empty() { message } else { format!("{message}: {why}") };
    Status::failure(403, reason::FORBIDDEN, message).with_details(details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_worded_as_upstream() {
        let user = User { name: "alice".into(), ..User::default() };
        let pods = Action::Resource { group: "", resource: "pods", subresource: "status", name: "x", namespace: "ns" };
        let deployments =
            Action::Resource { group: "apps", resource: "deployments", subresource: "", name: "", namespace: "" };
        for (verb, action, expected) in [
            (
                "patch",
                pods,
                r#"pods "x" is forbidden: User "alice" cannot patch resource "pods/status" in API group "" in the namespace "ns""#,
            ),
            (
                "list",
                deployments,
                r#"deployments.apps is forbidden: User "alice" cannot list resource "deployments" in API group "apps" at the cluster scope"#,
            ),
            ("get", Action::Path("/metrics"), r#"forbidden: User "alice" cannot get path "/metrics""#),
        ] {
            let refusal = Authorizer::default().check(&Attributes { user: &user, verb, action }).unwrap_err();
            assert_eq!(refusal.message, expected);
            assert_eq!(refusal.code, 403);
        }
    }

    #[test]
    fn masters_may_do_everything() {
        let user = User { name: "root".into(), groups: vec![GROUP_MASTERS.into()], ..User::default() };
        assert!(Authorizer::default().check(&Attributes { user: &user, verb: "x", action: Action::Path("/") }).is_ok());
    }
}
