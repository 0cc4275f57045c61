//! Requests as rights name them: a verb on a resource, of a namespace and a name.

use std::fmt;

use http::Method;

use super::recorder::Recorded;

/// What RBAC looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    /// With its subresource: `pods/status`.
    pub(crate) resource: String,
    /// Empty for the whole cluster.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes { verb, group, resource, namespace, name } = self;
        write!(f, "{verb} {resource}.{group} {namespace}/{name}")
    }
}

impl Attributes {
    /// Reads a request; none for paths that are no resource's.
    pub(crate) fn of(asked: &Recorded) -> Option<Attributes> {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let mut parts = path.trim_start_matches('/').split('/');
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let _version = parts.next()?;
        let mut rest: Vec<&str> = parts.collect();
        let mut namespace = String::new();
        if rest.len() > 2 && rest[0] == "namespaces" && !["status", "finalize"].contains(&rest[2]) {
            namespace = rest[1].to_owned();
            rest.drain(..2);
        }
        let plural = *rest.first()?;
        let name = rest.get(1).copied().unwrap_or_default().to_owned();
        let resource = rest.get(2).map_or_else(|| plural.to_owned(), |part| format!("{plural}/{part}"));
        let watches = query.split('&').any(|pair| matches!(pair, "watch=1" | "watch=true"));
        let verb = match (&asked.method, name.is_empty()) {
            (_, _) if asked.method == Method::POST => "create",
            (_, _) if asked.method == Method::PUT => "update",
            (_, _) if asked.method == Method::PATCH => "patch",
            (_, false) if asked.method == Method::DELETE => "delete",
            (_, true) if asked.method == Method::DELETE => "deletecollection",
            _ if watches => "watch",
            (_, false) => "get",
            (_, true) => "list",
        };
        Some(Attributes { verb, group, resource, namespace, name })
    }
}

#[test]
fn a_request_reads_as_rights_name_it() {
    for (method, path, expected) in [
        (Method::GET, "/api/v1/pods?limit=1", "list pods. /"),
        (Method::GET, "/api/v1/pods?watch=true&resourceVersion=1", "watch pods. /"),
        (Method::GET, "/api/v1/namespaces", "list namespaces. /"),
        (Method::POST, "/api/v1/namespaces/a/pods/b/binding", "create pods/binding. a/b"),
        (Method::PATCH, "/api/v1/persistentvolumes/v", "patch persistentvolumes. /v"),
        (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update leases.coordination.k8s.io a/l"),
        (Method::DELETE, "/api/v1/namespaces/a/pods/b", "delete pods. a/b"),
        (Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection pods. a/"),
        (Method::GET, "/api/v1/namespaces/a/configmaps/c", "get configmaps. a/c"),
    ] {
        let asked = Recorded { method, path: path.into(), code: 200 };
        assert_eq!(Attributes::of(&asked).unwrap().to_string(), expected, "{path}");
    }
    let version = Recorded { method: Method::GET, path: "/version".into(), code: 200 };
    assert_eq!(Attributes::of(&version), None);
}
