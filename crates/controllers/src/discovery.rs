//! Which resources the API server serves, as the loops that care for every kind need to know it.

use std::sync::{Arc, PoisonError, RwLock};

use bayplan_model::api::Resource;
use serde::Deserialize;

/// One resource in its preferred version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// How URLs name it.
    pub resource: Resource,
    /// How objects name it.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

impl ApiResource {
    /// `group/version`, or just the version in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.resource)
    }

    /// Whether it can do all of this.
    pub fn can(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|known| known == verb))
    }
}

/// `group/version`, or just the version in the core group.
pub fn api_version(resource: &Resource) -> String {
    match resource.group.is_empty() {
        true => resource.version.to_string(),
        false => format!("{}/{}", resource.group, resource.version),
    }
}

/// The resources known at present; clones share one state, which the shell refreshes.
#[derive(Clone, Debug, Default)]
pub struct Resources(Arc<RwLock<Arc<Vec<ApiResource>>>>);

impl Resources {
    /// All of them.
    pub fn all(&self) -> Arc<Vec<ApiResource>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces them; answers whether anything changed.
    pub fn replace(&self, resources: Vec<ApiResource>) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let changed = **current != resources;
        *current = Arc::new(resources);
        changed
    }

    /// The resource of a kind. An owner may be named by any version of its group; the preferred one serves it.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<ApiResource> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.all().iter().find(|r| r.kind == kind && r.resource.group == group).cloned()
    }
}

/// Reads an answer of aggregated discovery (`APIGroupDiscoveryList`): the first version that serves a resource is the
/// preferred one.
pub fn read_aggregated(json: &[u8]) -> Result<Vec<ApiResource>, serde_json::Error> {
    let list: wire::GroupList = serde_json::from_slice(json)?;
    let mut found: Vec<ApiResource> = Vec::new();
    for group in list.items {
        for version in group.versions.into_iter().filter(|version| version.freshness != "Stale") {
            for resource in version.resources {
                let known =
                    |r: &ApiResource| r.resource.group == group.metadata.name && r.resource.plural == resource.resource;
                if found.iter().any(known) {
                    continue;
                }
                found.push(ApiResource {
                    resource: Resource {
                        group: group.metadata.name.clone().into(),
                        version: version.version.clone().into(),
                        plural: resource.resource.into(),
                    },
                    kind: resource.response_kind.kind,
                    namespaced: resource.scope == "Namespaced",
                    verbs: resource.verbs,
                });
            }
        }
    }
    Ok(found)
}

mod wire {
    use super::Deserialize;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct GroupList {
        pub(super) items: Vec<Group>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Group {
        pub(super) metadata: Name,
        pub(super) versions: Vec<Version>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Name {
        pub(super) name: String,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Version {
        pub(super) version: String,
        pub(super) freshness: String,
        pub(super) resources: Vec<Resource>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct Resource {
        pub(super) resource: String,
        pub(super) scope: String,
        pub(super) verbs: Vec<String>,
        pub(super) response_kind: Kind,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Kind {
        pub(super) kind: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_of_a_resource_is_the_preferred_one() {
        let resource = |kind: &str| serde_json::json!({"resource": "things", "scope": "Namespaced", "verbs": ["get", "delete"], "responseKind": {"kind": kind}});
        let list = serde_json::json!({"items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v2", "resources": [resource("Thing")]},
            {"version": "v1", "resources": [resource("OldThing")]},
        ]}]});
        let found = read_aggregated(list.to_string().as_bytes()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind.as_str(), found[0].api_version().as_str()), ("Thing", "g/v2"));
        assert!(found[0].namespaced && found[0].can(&["get", "delete"]) && !found[0].can(&["list"]));
    }
}
