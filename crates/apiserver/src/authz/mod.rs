//! Authorization: members of `system:masters` may do everything, other users what RBAC allows, and kubelets what the
//! pods of their node need.
//!
//! ```text
//!   store ─watch▶ index (roles, bindings) ─▶ rbac::authorize(policy, Attributes) ─▶ Decision ─▶ 403
//!                                              escalation::uncovered ─▶ nobody grants rights that they do not hold
//! ```

use std::sync::Arc;

use bayplan_model::status::{Details, Status, reason};

use crate::request::{RequestInfo, Verb};
use crate::user::{GROUP_MASTERS, User};

pub mod escalation;
mod index;
mod node;
pub mod policy;
pub mod rbac;

pub(crate) use index::PolicyIndex;
pub(crate) use node::{NodeGraph, node_of};

/// A request for a right: who wants to do what. Upstream's `authorizer.Attributes`.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The user who wants to act.
    pub user: &'a User,
    /// What the user wants to do.
    pub verb: &'a Verb,
    /// What the user wants to do it with.
    pub action: Action<'a>,
    /// What a list or watch is limited to; empty for everything.
    pub field_selector: &'a str,
}

/// What a verb is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A resource.
    Resource {
        /// API group, empty for core.
        group: &'a str,
        /// Plural name.
        resource: &'a str,
        /// Subresource, empty for none.
        subresource: &'a str,
        /// Object name, empty for collections.
        name: &'a str,
        /// Namespace, empty for the cluster scope.
        namespace: &'a str,
    },
    /// A path that names no resource.
    Path(&'a str),
}

impl<'a> Action<'a> {
    /// What a request is about.
    pub(crate) fn of(info: &'a RequestInfo) -> Self {
        if !info.is_resource {
            return Action::Path(&info.path);
        }
        Action::Resource {
            group: &info.group,
            resource: &info.plural,
            subresource: &info.subresource,
            name: &info.name,
            namespace: &info.namespace,
        }
    }
}

/// The decision, with the reason that access reviews report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// True if the user may act.
    pub allowed: bool,
    /// The binding that allows it, or the roles that are missing; may be empty.
    pub reason: String,
}

/// Who decides about rights; upstream's `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Roles and bindings.
    Rbac,
    /// Kubelets: what the pods of their node need.
    Node,
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
}

/// Decides by the current roles and bindings, and by what else is asked.
#[derive(Clone)]
pub(crate) struct Authorizer {
    pub(crate) index: Arc<PolicyIndex>,
    pub(crate) nodes: Arc<NodeGraph>,
    modes: Arc<[AuthorizationMode]>,
}

impl Default for Authorizer {
    fn default() -> Self {
        Authorizer::new(Arc::default(), vec![AuthorizationMode::Rbac])
    }
}

impl Authorizer {
    /// Asks these in turn; the first that allows a request decides.
    pub(crate) fn new(index: Arc<PolicyIndex>, modes: Vec<AuthorizationMode>) -> Self {
        Authorizer { index, nodes: Arc::default(), modes: modes.into() }
    }

    /// True if kubelets are judged by the pods of their node.
    pub(crate) fn knows_nodes(&self) -> bool {
        self.modes.contains(&AuthorizationMode::Node)
    }

    pub(crate) fn authorize(&self, request: &Attributes<'_>) -> Decision {
        if request.user.in_group(GROUP_MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut reasons: Vec<String> = Vec::new();
        for mode in &*self.modes {
            let decision = match mode {
                AuthorizationMode::Rbac => rbac::authorize(&*self.index.policy(), request),
                AuthorizationMode::Node => node::authorize(&self.nodes, request),
                AuthorizationMode::AlwaysAllow => Decision { allowed: true, reason: String::new() },
                AuthorizationMode::AlwaysDeny => {
                    Decision { allowed: false, reason: "Everything is forbidden.".to_owned() }
                }
            };
            if decision.allowed {
                return decision;
            }
            if !decision.reason.is_empty() {
                reasons.push(decision.reason);
            }
        }
        Decision { allowed: false, reason: reasons.join("\n") }
    }

    /// Decides one request; a refusal is a 403.
    pub(crate) fn check(&self, request: &Attributes<'_>) -> Result<(), Status> {
        let decision = self.authorize(request);
        if decision.allowed { Ok(()) } else { Err(forbidden(request, &decision.reason)) }
    }
}

/// The 403 for a request that is not allowed.
pub(crate) fn forbidden(request: &Attributes<'_>, why: &str) -> Status {
    let (user, verb) = (&request.user.name, request.verb);
    let (object, refusal, details) = match request.action {
        Action::Path(path) => (String::new(), format!("User {user:?} cannot {verb} path {path:?}"), Details::default()),
        Action::Resource { group, resource, subresource, name, namespace } => {
            let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            let object = if name.is_empty() { format!("{qualified} is ") } else { format!("{qualified} {name:?} is ") };
            let with_sub =
                if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let refusal = format!("User {user:?} cannot {verb} resource {with_sub:?} in API group {group:?} {scope}");
            let details =
                Details { name: name.into(), group: group.into(), kind: resource.into(), ..Details::default() };
            (object, refusal, details)
        }
    };
    // A browser must not take what the client sent for HTML.
    let refusal = refusal.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let message = format!("{object}forbidden: {refusal}{why}");
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
                Verb::Patch,
                pods,
                "pods \"x\" is forbidden: User \"alice\" cannot patch resource \"pods/status\" in API group \"\" in \
                 the namespace \"ns\"",
            ),
            (
                Verb::List,
                deployments,
                "deployments.apps is forbidden: User \"alice\" cannot list resource \"deployments\" in API group \
                 \"apps\" at the cluster scope",
            ),
            (Verb::Get, Action::Path("/metrics"), "forbidden: User \"alice\" cannot get path \"/metrics\""),
            (Verb::Get, Action::Path("/<b>&"), "forbidden: User \"alice\" cannot get path \"/&lt;b&gt;&amp;\""),
        ] {
            let refusal = Authorizer::default()
                .check(&Attributes { user: &user, verb: &verb, action, field_selector: "" })
                .unwrap_err();
            assert_eq!(refusal.message, expected);
            assert_eq!(refusal.code, 403);
        }
    }

    #[test]
    fn masters_may_do_everything() {
        let user = User { name: "root".into(), groups: vec![GROUP_MASTERS.into()], ..User::default() };
        let anything =
            Attributes { user: &user, verb: &Verb::from("x"), action: Action::Path("/"), field_selector: "" };
        assert!(Authorizer::default().check(&anything).is_ok());
    }
}
