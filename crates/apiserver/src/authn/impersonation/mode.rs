//! The ways to impersonate. Four are constrained: besides the right to the user, they ask for the right to do under
//! that user what the request does. The oldest asks for the right to the user alone.

use std::collections::BTreeMap;

use bayplan_model::label::subdomain_errors;
use bayplan_model::status::Status;

use crate::authn::{ANONYMOUS, GROUP_UNAUTHENTICATED, authenticated};
use crate::authz::{Action, Attributes, Authorizer, forbidden};
use crate::request::{RequestInfo, Verb};
use crate::serviceaccounts;
use crate::user::{GROUP_MASTERS, User};

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const NODE_USER_PREFIX: &str = "system:node:";
const GROUP_NODES: &str = "system:nodes";
/// The extra key in which the token of a pod names the pod's node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many groups or extra values on, a constrained mode asks first whether all are allowed, as upstream.
const MANY: usize = 4;

/// A way to impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A service account as the node that its pod runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account.
    ServiceAccount,
    /// Anybody else.
    UserInfo,
    /// Everybody, for whatever the user may do.
    Legacy,
}

impl Mode {
    /// In the order in which they are tried.
    pub(super) const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    /// Whether the mode is meant for this user.
    pub(super) fn applies(self, wanted: &User, requestor: &User) -> bool {
        let only_name = || wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let account = || serviceaccounts::split_user_name(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = requestor.extra.get(NODE_NAME).and_then(|names| <&[String; 1]>::try_from(&**names).ok());
                only_name()
                    && serviceaccounts::split_user_name(&requestor.name).is_some()
                    && node_name(&wanted.name).is_some_and(|node| own.is_some_and(|[own]| own == node))
            }
            Mode::ArbitraryNode => only_name() && node_name(&wanted.name).is_some(),
            Mode::ServiceAccount => only_name() && account().is_some(),
            Mode::UserInfo => node_name(&wanted.name).is_none() && account().is_none(),
            Mode::Legacy => true,
        }
    }

    /// The user who acts, if the requestor has every right that the mode asks for.
    pub(super) fn check(
        self,
        requestor: &User,
        wanted: &User,
        request: &RequestInfo,
        authorizer: &Authorizer,
    ) -> Result<User, Status> {
        let verb = match self.constraint() {
            Some(name) => {
                let verb = Verb::from(&*format!("impersonate-on:{name}:{}", request.verb));
                authorizer.check(&Attributes {
                    user: requestor,
                    verb: &verb,
                    action: Action::of(request),
                    field_selector: "",
                })?;
                Verb::from(&*format!("impersonate:{name}"))
            }
            None => Verb::Impersonate,
        };
        let rights = Rights { mode: self, verb, requestor, authorizer };
        let actual = rights.name(wanted)?;
        if !wanted.uid.is_empty() {
            rights.check(AUTHENTICATION_GROUP, "uids", "", &wanted.uid)?;
        }
        rights.groups(&wanted.groups)?;
        rights.extra(&wanted.extra)?;
        Ok(complete(actual))
    }

    /// The name in the verbs of a constrained mode.
    fn constraint(self) -> Option<&'static str> {
        match self {
            Mode::AssociatedNode => Some("associated-node"),
            Mode::ArbitraryNode => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }
}

/// The rights to the parts of a user, under the verb of a mode.
struct Rights<'a> {
    mode: Mode,
    verb: Verb,
    requestor: &'a User,
    authorizer: &'a Authorizer,
}

impl Rights<'_> {
    fn is_constrained(&self) -> bool {
        self.mode != Mode::Legacy
    }

    /// The API group of users and groups.
    fn api_group(&self) -> &'static str {
        if self.is_constrained() { AUTHENTICATION_GROUP } else { "" }
    }

    fn attributes<'a>(&'a self, action: Action<'a>) -> Attributes<'a> {
        Attributes { user: self.requestor, verb: &self.verb, action, field_selector: "" }
    }

    fn check(&self, group: &str, resource: &str, subresource: &str, name: &str) -> Result<(), Status> {
        let action = Action::Resource { group, resource, subresource, name, namespace: "" };
        self.authorizer.check(&self.attributes(action))
    }

    fn refuse(&self, group: &str, resource: &str, name: &str, why: &str) -> Status {
        let action = Action::Resource { group, resource, subresource: "", name, namespace: "" };
        forbidden(&self.attributes(action), why)
    }

    /// The right to the name; the user gets the groups that come with it.
    fn name(&self, wanted: &User) -> Result<User, Status> {
        let mut actual = wanted.clone();
        let group = self.api_group();
        if let Some((namespace, name)) = serviceaccounts::split_user_name(&wanted.name) {
            if wanted.groups.is_empty() {
                actual.groups = serviceaccounts::groups(namespace);
            }
            let action = Action::Resource { group, resource: "serviceaccounts", subresource: "", name, namespace };
            self.authorizer.check(&self.attributes(action))?;
        } else if let Some(node) = node_name(&wanted.name).filter(|_| self.is_constrained()) {
            actual.groups = vec![GROUP_NODES.to_owned()];
            // The right to one's own node is the same for every node.
            self.check(group, "nodes", "", if self.mode == Mode::AssociatedNode { "*" } else { node })?;
        } else {
            self.check(group, "users", "", &wanted.name)?;
        }
        Ok(actual)
    }

    fn groups(&self, groups: &[String]) -> Result<(), Status> {
        let api_group = self.api_group();
        if self.is_constrained() {
            if groups.iter().any(String::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(self.refuse(api_group, "groups", "", why));
            }
            if groups.iter().any(|group| group == GROUP_MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refuse(api_group, "groups", GROUP_MASTERS, why));
            }
            if groups.len() >= MANY && self.check(api_group, "groups", "", "*").is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check(api_group, "groups", "", group))
    }

    fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), Status> {
        if extra.is_empty() {
            return Ok(());
        }
        if self.is_constrained() {
            extra
                .iter()
                .try_for_each(|(key, values)| check_extra(key, values))
                .map_err(|why| self.refuse(AUTHENTICATION_GROUP, "userextras", "", &why))?;
            let many = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.check(AUTHENTICATION_GROUP, "userextras", "*", "*").is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            values.iter().try_for_each(|value| self.check(AUTHENTICATION_GROUP, "userextras", key, value))?;
        }
        Ok(())
    }
}

/// What a constrained mode takes for an extra value, in upstream's words.
fn check_extra(key: &str, values: &[String]) -> Result<(), String> {
    if key.is_empty() {
        return Err("impersonating the empty string key in extra is not allowed".into());
    }
    let errors = domain_prefixed_path_errors(key);
    if !errors.is_empty() {
        let errors = if let [one] = &*errors { one.clone() } else { format!("[{}]", errors.join(", ")) };
        return Err(format!("impersonating an invalid key in extra is not allowed: {errors}"));
    }
    if key.chars().any(char::is_uppercase) {
        return Err(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    if values.iter().any(String::is_empty) {
        return Err("impersonating the empty string value in extra is not allowed".into());
    }
    Ok(())
}

fn domain_prefixed_path_errors(key: &str) -> Vec<String> {
    const PATH_FORM: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    let invalid = |value: &str, why: &str| format!("extra.key: Invalid value: {value:?}: {why}");
    match key.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) {
        None => vec![invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")")],
        Some((host, path)) => {
            let mut errors: Vec<String> = subdomain_errors(host).iter().map(|why| invalid(host, why)).collect();
            if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
                errors.push(invalid(path, &format!("Invalid path (regex used for validation is '{PATH_FORM}')")));
            }
            errors
        }
    }
}

/// The node in the user name of a kubelet.
fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_USER_PREFIX).filter(|node| subdomain_errors(node).is_empty())
}

/// Adds the group that everybody has.
fn complete(mut user: User) -> User {
    if user.name == ANONYMOUS {
        if !user.in_group(GROUP_UNAUTHENTICATED) {
            user.groups.push(GROUP_UNAUTHENTICATED.to_owned());
        }
        return user;
    }
    if user.in_group(GROUP_UNAUTHENTICATED) { user } else { authenticated(user) }
}
