//! What a request asks for: URL path and method → [`RequestInfo`].

mod options;

use std::borrow::Cow;

pub use options::{
    DeleteOptions, FieldValidation, GetOptions, IncludeObject, ListOptions, Preconditions, Query, VersionMatch,
    WriteOptions,
};

use crate::resources::{self, Resource, Subresource};

/// What a request asks for, as authorization and routing read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The URL path.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the lower-case method for
    /// paths that name no resource.
    pub verb: Cow<'static, str>,
    /// True below `/api/<version>` and `/apis/<group>/<version>`.
    pub is_resource: bool,
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty at cluster scope; for the resource `namespaces` itself the name of the namespace.
    pub namespace: String,
    /// Plural name of the resource.
    pub plural: String,
    /// Name of the object; for lists and watches the name their field selector fixes.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// What lies below the subresource (the rest of a proxy path, say); must be empty for everything served here.
    pub rest: String,
    /// True when the URL itself names the object (not just a field selector).
    pub named: bool,
}

impl RequestInfo {
    /// Reads a method, a path and a query.
    pub fn parse(method: &http::Method, path: &str, query: &Query) -> RequestInfo {
        let mut info = RequestInfo {
            path: path.to_owned(),
            verb: Cow::Owned(method.as_str().to_ascii_lowercase()),
            ..RequestInfo::default()
        };
        let mut parts = path.trim_matches('/').split('/').filter(|p| !p.is_empty()).map(decode_segment).peekable();
        match parts.next().as_deref() {
            Some("api") => {}
            Some("apis") => match parts.next() {
                Some(group) => info.group = group,
                None => return info,
            },
            _ => return info,
        }
        let Some(version) = parts.next() else {
            info.group.clear();
            return info;
        };
        if parts.peek().is_none() {
            info.group.clear();
            return info;
        }
        info.version = version;
        info.is_resource = true;
        info.verb = verb_of(method);
        if parts.peek().is_some_and(|p| p == "watch") {
            // The deprecated /watch/ prefix forces a watch.
            parts.next();
            info.verb = Cow::Borrowed("watch");
        }
        let mut parts: Vec<String> = parts.collect();
        if parts.len() > 1 && parts[0] == "namespaces" {
            info.namespace.clone_from(&parts[1]);
            if parts.len() > 2 && !matches!(parts[2].as_str(), "status" | "finalize") {
                parts.drain(..2);
            }
        }
        let mut parts = parts.into_iter();
        info.plural = parts.next().unwrap_or_default();
        info.name = parts.next().unwrap_or_default();
        info.subresource = parts.next().unwrap_or_default();
        info.rest = parts.collect::<Vec<_>>().join("/");
        info.named = !info.name.is_empty();
        info.settle_verb(query);
        info
    }

    fn settle_verb(&mut self, query: &Query) {
        if self.named && self.verb != "watch" {
            return;
        }
        self.verb = match &*self.verb {
            "get" if query.flag("watch") => Cow::Borrowed("watch"),
            "get" => Cow::Borrowed("list"),
            "delete" => Cow::Borrowed("deletecollection"),
            _ => return,
        };
        if let Some(name) = query.get("fieldSelector").and_then(name_of_field_selector) {
            self.name = name;
        }
    }

    /// The row of the resource asked for.
    pub fn resource(&self) -> Option<&'static Resource> {
        resources::find(&self.group, &self.version, &self.plural)
    }

    /// The row of the subresource asked for.
    pub fn subresource(&self) -> Option<&'static Subresource> {
        self.resource()?.subresource(&self.subresource)
    }

    /// True for requests that may last as long as they like.
    pub fn long_running(&self) -> bool {
        self.is_resource && self.verb == "watch"
    }
}

fn verb_of(method: &http::Method) -> Cow<'static, str> {
    Cow::Borrowed(match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    })
}

/// The name a field selector pins the list to, if it does.
fn name_of_field_selector(selector: &str) -> Option<String> {
    selector.split(',').find_map(|term| {
        let value = term.strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty()).then(|| value.to_owned())
    })
}

fn decode_segment(segment: &str) -> String {
    options::percent_decode(segment, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_become_request_infos() {
        // method, url, verb, group, version, namespace, plural, name, subresource
        let table = [
            ("GET", "/api/v1/namespaces", "list", "", "v1", "", "namespaces", "", ""),
            ("GET", "/api/v1/namespaces/a", "get", "", "v1", "a", "namespaces", "a", ""),
            ("PUT", "/api/v1/namespaces/a/finalize", "update", "", "v1", "a", "namespaces", "a", "finalize"),
            ("GET", "/api/v1/namespaces/a/pods", "list", "", "v1", "a", "pods", "", ""),
            ("GET", "/api/v1/pods?watch=1", "watch", "", "v1", "", "pods", "", ""),
            ("GET", "/api/v1/pods?watch=false", "list", "", "v1", "", "pods", "", ""),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list", "", "v1", "", "pods", "x", ""),
            ("GET", "/api/v1/watch/namespaces/a/pods", "watch", "", "v1", "a", "pods", "", ""),
            ("POST", "/api/v1/namespaces/a/pods/p/binding", "create", "", "v1", "a", "pods", "p", "binding"),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection",
                "apps",
                "v1",
                "a",
                "deployments",
                "",
                "",
            ),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "patch",
                "apps",
                "v1",
                "a",
                "deployments",
                "d",
                "scale",
            ),
            ("GET", "/apis/apps/v1", "get", "", "", "", "", "", ""),
            ("GET", "/version", "get", "", "", "", "", "", ""),
        ];
        for (method, url, verb, group, version, namespace, plural, name, subresource) in table {
            let uri: http::Uri = url.parse().unwrap();
            let query = Query::parse(uri.query().unwrap_or(""));
            let info = RequestInfo::parse(&method.parse().unwrap(), uri.path(), &query);
            let got = (
                &*info.verb,
                &*info.group,
                &*info.version,
                &*info.namespace,
                &*info.plural,
                &*info.name,
                &*info.subresource,
            );
            assert_eq!(got, (verb, group, version, namespace, plural, name, subresource), "{method} {url}");
        }
    }
}
