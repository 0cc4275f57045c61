//! Reads of a state that is yet to come wait for it before they take a seat.

use crate::registry::list;
use crate::request::{GetOptions, ListOptions, Query, RequestInfo, Verb};

/// The revision that a read will wait for. Options that cannot be read are left to the verb, which refuses them.
pub(super) fn revision(info: &RequestInfo, query: &Query) -> Option<u64> {
    // Most reads name none, and are told apart from the others without being looked at closely.
    let named = !matches!(query.get("resourceVersion"), None | Some("" | "0")) || query.get("continue").is_some();
    if !named || !info.is_resource || !info.resource()?.stored() {
        return None;
    }
    match info.verb {
        Verb::Get => GetOptions::parse(query).resource_version.parse().ok(),
        Verb::List => list::awaited_revision(&ListOptions::parse(query).ok()?),
        Verb::Watch => {
            let options = ListOptions::parse(query).ok()?;
            let with_initial_state = list::watch_options(&options).ok()?;
            with_initial_state.then(|| options.resource_version.parse().ok()).flatten()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_for_the_version_that_they_name() {
        let continued = "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NTAsInN0YXJ0IjoiYVx1MDAwMCJ9";
        for (method, url, expected) in [
            ("GET", "/api/v1/namespaces/a/pods/p?resourceVersion=7", Some(7)),
            ("GET", "/api/v1/namespaces/a/pods/p?resourceVersion=0", None),
            ("GET", "/api/v1/namespaces/a/pods/p?resourceVersion=x", None),
            ("GET", "/api/v1/namespaces/a/pods/p", None),
            ("GET", "/api/v1/pods?resourceVersion=9", Some(9)),
            ("GET", "/api/v1/pods?resourceVersion=9&resourceVersionMatch=Exact", Some(9)),
            ("GET", "/api/v1/pods?resourceVersion=9&resourceVersionMatch=Bogus", None),
            ("GET", &format!("/api/v1/pods?{continued}"), Some(50)),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=9", None),
            (
                "GET",
                "/api/v1/pods?watch=1&resourceVersion=9&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Some(9),
            ),
            ("DELETE", "/api/v1/namespaces/a/pods/p?resourceVersion=7", None),
            ("GET", "/version?resourceVersion=7", None),
            ("GET", "/api/v1/nonsense?resourceVersion=7", None),
        ] {
            let uri: http::Uri = url.parse().unwrap();
            let query = Query::parse(uri.query().unwrap_or_default());
            let info = RequestInfo::parse(&method.parse().unwrap(), uri.path(), &query);
            assert_eq!(revision(&info, &query), expected, "{url}");
        }
    }
}
