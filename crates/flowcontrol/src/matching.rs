//! Which flow schema a request belongs to.

use crate::config::{FlowSchema, NonResourceRule, ResourceRule, Rule, Subject};

/// What is known of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The user's groups.
    pub groups: &'a [String],
    /// `get`, `list`, `create` and so on.
    pub verb: &'a str,
    /// True for objects; what follows, but the path, is about them.
    pub is_resource: bool,
    /// Empty for the core group.
    pub group: &'a str,
    /// The resource in the plural.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// Empty at cluster scope.
    pub namespace: &'a str,
    /// The path.
    pub path: &'a str,
}

const ALL: &str = "*";

pub(crate) fn matches(schema: &FlowSchema, request: &Request<'_>) -> bool {
    schema.rules.iter().any(|rule| applies(rule, request))
}

fn applies(rule: &Rule, request: &Request<'_>) -> bool {
    let asked = |subject: &Subject| is(*subject, request);
    // The rules for objects are few and cheap, groups may be many.
    let covered = if request.is_resource {
        rule.resources.iter().any(|rule| covers_object(rule, request))
    } else {
        rule.paths.iter().any(|rule| covers_path(rule, request))
    };
    covered && rule.subjects.iter().any(asked)
}

fn is(subject: Subject, request: &Request<'_>) -> bool {
    match subject {
        Subject::User(name) => name == ALL || name == request.user,
        Subject::Group(name) => name == ALL || request.groups.iter().any(|group| group == name),
        Subject::ServiceAccount(namespace, name) => {
            let account = request.user.strip_prefix("system:serviceaccount:");
            let account = account.and_then(|rest| rest.strip_prefix(namespace)?.strip_prefix(':'));
            account.is_some_and(|account| name == ALL || name == account)
        }
    }
}

fn covers_object(rule: &ResourceRule, request: &Request<'_>) -> bool {
    let resource = |listed: &&str| match request.subresource {
        "" => *listed == request.resource,
        subresource => listed.split_once('/') == Some((request.resource, subresource)),
    };
    has(&rule.verbs, request.verb)
        && (rule.resources == [ALL] || rule.resources.iter().any(resource))
        && has(&rule.groups, request.group)
        && if request.namespace.is_empty() { rule.cluster_scope } else { has(&rule.namespaces, request.namespace) }
}

fn covers_path(rule: &NonResourceRule, request: &Request<'_>) -> bool {
    let path = |listed: &&str| {
        let below = || {
            let rest = request.path.strip_prefix(listed.trim_end_matches('*').trim_end_matches('/'));
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        *listed == ALL || *listed == request.path || below()
    };
    has(&rule.verbs, request.verb) && rule.paths.iter().any(path)
}

fn has(listed: &[&str], value: &str) -> bool {
    listed == [ALL] || listed.contains(&value)
}
