//! What a request is about: method, path and query become a [`RequestInfo`] and options.

mod options;

use bayplan_kinds::{Kind, Subresource};
use bayplan_model::field_selector::FieldSelector;

pub use bayplan_kinds::Verb;
pub(crate) use options::{
    DeleteOptions, FieldValidation, GetOptions, IncludeObject, ListOptions, Preconditions, Query, VersionMatch,
    WriteOptions,
};

/// What a request is about, for authorization and routing; upstream's `RequestInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub(crate) path: String,
    pub(crate) verb: Verb,
    /// True below `/api/<version>/` and `/apis/<group>/<version>/`.
    pub(crate) is_resource: bool,
    /// Empty for core.
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty at cluster scope; for the resource `namespaces` itself the name of the namespace.
    pub(crate) namespace: String,
    pub(crate) plural: String,
    /// The name of the object; for lists and watches the name that their field selector demands.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// The path below the subresource (the rest of a proxy path, say); nothing that is served has one.
    pub(crate) rest: String,
    /// True if the path names the object, not only a field selector.
    pub(crate) named: bool,
}

impl RequestInfo {
    /// Reads method, path and query; upstream's `RequestInfoFactory`.
    pub(crate) fn parse(method: &http::Method, path: &str, query: &Query) -> RequestInfo {
        let mut info = RequestInfo::non_resource(path, Verb::from(&*method.as_str().to_ascii_lowercase()));
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
            info.verb = Verb::Watch;
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
        info.apply_query(query);
        info
    }

    fn non_resource(path: &str, verb: Verb) -> RequestInfo {
        RequestInfo {
            path: path.to_owned(),
            verb,
            is_resource: false,
            group: String::new(),
            version: String::new(),
            namespace: String::new(),
            plural: String::new(),
            name: String::new(),
            subresource: String::new(),
            rest: String::new(),
            named: false,
        }
    }

    /// Settles the verb of a collection, which depends on the query.
    fn apply_query(&mut self, query: &Query) {
        if self.named && self.verb != Verb::Watch {
            return;
        }
        self.verb = match self.verb {
            Verb::Get if query.flag("watch") => Verb::Watch,
            Verb::Get => Verb::List,
            Verb::Delete => Verb::DeleteCollection,
            _ => return,
        };
        // A right to single names is a right to lists and watches of one of them, never to delete a collection.
        if self.verb == Verb::DeleteCollection {
            return;
        }
        if let Some(name) = query.get("fieldSelector").and_then(name_of_field_selector) {
            self.name = name;
        }
    }

    /// The row of the resource.
    pub(crate) fn resource(&self) -> Option<&'static Kind> {
        bayplan_kinds::find(&self.group, &self.version, &self.plural)
    }

    /// The row of the subresource.
    pub(crate) fn subresource(&self) -> Option<&'static Subresource> {
        self.resource()?.subresource(&self.subresource)
    }

    /// True for requests without a time limit.
    pub(crate) fn long_running(&self) -> bool {
        let is_stream = ["log", "exec", "attach", "portforward", "proxy"].contains(&self.subresource.as_str());
        self.is_resource && (self.verb == Verb::Watch || is_stream)
    }
}

/// The verb of a method on an object. Methods that no resource has get an empty verb, which nothing allows.
fn verb_of(method: &http::Method) -> Verb {
    match method.as_str() {
        "POST" => Verb::Create,
        "GET" | "HEAD" => Verb::Get,
        "PUT" => Verb::Update,
        "PATCH" => Verb::Patch,
        "DELETE" => Verb::Delete,
        _ => Verb::Other("".into()),
    }
}

/// The name that a field selector demands, if any. Read by the parser that selects, so that rights asked for one name
/// are never answered with the objects of others.
fn name_of_field_selector(selector: &str) -> Option<String> {
    let selector = FieldSelector::parse(selector).ok()?;
    let name = selector.exact_value("metadata.name")?;
    let is_segment = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%']);
    is_segment.then(|| name.to_owned())
}

fn decode_segment(segment: &str) -> String {
    options::percent_decode(segment, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// method and URL, then verb, group, version, namespace, resource, name and subresource; `-` is empty
    const REQUESTS: &str = "
        GET    /api/v1/namespaces                                          list - v1 - namespaces - -
        GET    /api/v1/namespaces/a                                        get - v1 a namespaces a -
        PUT    /api/v1/namespaces/a/finalize                               update - v1 a namespaces a finalize
        GET    /api/v1/namespaces/a/pods                                   list - v1 a pods - -
        GET    /api/v1/pods?watch=1                                        watch - v1 - pods - -
        GET    /api/v1/pods?watch=false                                    list - v1 - pods - -
        GET    /api/v1/pods?fieldSelector=metadata.name%3Dx                list - v1 - pods x -
        GET    /api/v1/watch/namespaces/a/pods                             watch - v1 a pods - -
        POST   /api/v1/namespaces/a/pods/p/binding                         create - v1 a pods p binding
        DELETE /apis/apps/v1/namespaces/a/deployments                      deletecollection apps v1 a deployments - -
        PATCH  /apis/apps/v1/namespaces/a/deployments/d/scale              patch apps v1 a deployments d scale
        DELETE /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx   deletecollection - v1 a pods - -
        GET    /api/v1/pods?fieldSelector=spec.nodeName!=%5C,metadata.name%3Dx  list - v1 - pods - -
        GET    /api/v1/pods?fieldSelector=metadata.name%3Da/b              list - v1 - pods - -
        GET    /apis/apps/v1                                               get - - - - - -
        GET    /version                                                    get - - - - - -
    ";

    #[test]
    fn paths_and_methods_become_request_infos() {
        for line in REQUESTS.lines().filter(|line| !line.trim().is_empty()) {
            let [method, url, expected @ ..] = &*line.split_whitespace().collect::<Vec<_>>() else { panic!("{line}") };
            let uri: http::Uri = url.parse().unwrap();
            let query = Query::parse(uri.query().unwrap_or(""));
            let info = RequestInfo::parse(&method.parse().unwrap(), uri.path(), &query);
            let resource = [&info.group, &info.version, &info.namespace, &info.plural, &info.name, &info.subresource];
            let shown = resource.map(|part| if part.is_empty() { "-" } else { part.as_ref() });
            let got: Vec<&str> = std::iter::once(info.verb.as_str()).chain(shown).collect();
            assert_eq!(got, expected, "{method} {url}");
        }
    }
}
