//! Which flow schema a request belongs to.
//!
//! The lists of a rule are kept sorted, so that a request is not slower because somebody wrote a long list.

use serde::Deserialize;

use crate::config::{FlowSchema, or_default};

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

/// A rule as it is written.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct RuleSpec {
    #[serde(deserialize_with = "or_default")]
    subjects: Vec<SubjectSpec>,
    #[serde(deserialize_with = "or_default")]
    resource_rules: Vec<ResourceRuleSpec>,
    #[serde(deserialize_with = "or_default", rename = "nonResourceRules")]
    path_rules: Vec<PathRuleSpec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SubjectSpec {
    kind: String,
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceRuleSpec {
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    api_groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    resources: Vec<String>,
    cluster_scope: bool,
    #[serde(deserialize_with = "or_default")]
    namespaces: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PathRuleSpec {
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default", rename = "nonResourceURLs")]
    paths: Vec<String>,
}

/// A rule applies when one of the subjects makes one of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    users: Names,
    groups: Names,
    /// Service accounts by namespace and name; `*` stands for all of a namespace.
    accounts: Vec<(String, String)>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

/// Requests for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    /// `nodes`, `nodes/status`.
    resources: Names,
    namespaces: Names,
    /// Requests without a namespace, too.
    cluster_scope: bool,
}

/// Requests for paths that name no object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathRule {
    verbs: Names,
    paths: Names,
    /// The paths with all that is below them, each with `/` at its end.
    prefixes: Names,
    /// The length of the longest prefix.
    longest: usize,
}

/// A list of names: all, or those that are listed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    all: bool,
    listed: Vec<String>,
}

impl Names {
    /// `*` alone stands for all.
    fn of(names: Vec<String>) -> Names {
        Names { all: names == [ALL], ..Names::with_any(names) }
    }

    /// `*` stands for all, wherever it is.
    fn with_any(mut names: Vec<String>) -> Names {
        names.sort_unstable();
        names.dedup();
        Names { all: names.iter().any(|name| name == ALL), listed: names }
    }

    fn has(&self, name: &str) -> bool {
        self.all || self.listed.binary_search_by(|listed| listed.as_str().cmp(name)).is_ok()
    }

    /// True if `resource` is listed, or `resource/subresource` if there is a subresource.
    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        if subresource.is_empty() {
            return self.has(resource);
        }
        let asked = || resource.bytes().chain(*b"/").chain(subresource.bytes());
        self.all || self.listed.binary_search_by(|listed| listed.bytes().cmp(asked())).is_ok()
    }
}

impl From<RuleSpec> for Rule {
    fn from(spec: RuleSpec) -> Rule {
        let (mut users, mut groups, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
        for SubjectSpec { kind, user, group, service_account } in spec.subjects {
            match kind.as_str() {
                "User" => users.extend(user.map(|user| user.name)),
                "Group" => groups.extend(group.map(|group| group.name)),
                "ServiceAccount" => accounts.extend(service_account.map(|account| (account.namespace, account.name))),
                _ => {}
            }
        }
        accounts.sort_unstable();
        Rule {
            users: Names::with_any(users),
            groups: Names::with_any(groups),
            accounts,
            resources: spec.resource_rules.into_iter().map(ResourceRule::from).collect(),
            paths: spec.path_rules.into_iter().map(PathRule::from).collect(),
        }
    }
}

impl From<ResourceRuleSpec> for ResourceRule {
    fn from(spec: ResourceRuleSpec) -> ResourceRule {
        ResourceRule {
            verbs: Names::of(spec.verbs),
            groups: Names::of(spec.api_groups),
            resources: Names::of(spec.resources),
            namespaces: Names::of(spec.namespaces),
            cluster_scope: spec.cluster_scope,
        }
    }
}

impl From<PathRuleSpec> for PathRule {
    fn from(spec: PathRuleSpec) -> PathRule {
        let prefix = |path: &String| {
            let path = path.strip_suffix('*').unwrap_or(path);
            format!("{}/", path.strip_suffix('/').unwrap_or(path))
        };
        let prefixes: Vec<String> = spec.paths.iter().map(prefix).collect();
        PathRule {
            verbs: Names::of(spec.verbs),
            longest: prefixes.iter().map(String::len).max().unwrap_or(0),
            prefixes: Names { all: false, ..Names::with_any(prefixes) },
            paths: Names::with_any(spec.paths),
        }
    }
}

pub(crate) fn matches(schema: &FlowSchema, request: &Request<'_>) -> bool {
    schema.rules.iter().any(|rule| rule.applies(request))
}

impl Rule {
    fn applies(&self, request: &Request<'_>) -> bool {
        // The rules for objects are few and cheap, groups may be many.
        let covered = if request.is_resource {
            self.resources.iter().any(|rule| rule.covers(request))
        } else {
            self.paths.iter().any(|rule| rule.covers(request))
        };
        covered && self.is_subject(request)
    }

    fn is_subject(&self, request: &Request<'_>) -> bool {
        self.users.has(request.user)
            || self.groups.all
            || request.groups.iter().any(|group| self.groups.has(group))
            || self.is_account(request.user)
    }

    fn is_account(&self, user: &str) -> bool {
        let Some((namespace, name)) =
            user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'))
        else {
            return false;
        };
        let listed = |name: &str| {
            let asked = (namespace, name);
            self.accounts.binary_search_by(|(namespace, name)| (namespace.as_str(), name.as_str()).cmp(&asked)).is_ok()
        };
        listed(ALL) || listed(name)
    }
}

impl ResourceRule {
    fn covers(&self, request: &Request<'_>) -> bool {
        self.verbs.has(request.verb)
            && self.resources.has_resource(request.resource, request.subresource)
            && self.groups.has(request.group)
            && if request.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(request.namespace) }
    }
}

impl PathRule {
    fn covers(&self, request: &Request<'_>) -> bool {
        self.verbs.has(request.verb) && (self.paths.has(request.path) || self.is_below(request.path))
    }

    fn is_below(&self, path: &str) -> bool {
        let parents = path.match_indices('/').map(|(at, slash)| at + slash.len());
        parents.take_while(|end| *end <= self.longest).any(|end| self.prefixes.has(&path[..end]))
    }
}
