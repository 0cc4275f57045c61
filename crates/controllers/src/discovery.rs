//! The resources the API server serves, for the loops that handle objects of every kind.

use std::sync::{Arc, PoisonError, RwLock};

use bayplan_model::api::Resource;
use serde::Deserialize;

/// One resource in its preferred version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// Its group, version and plural name, as in URLs.
    pub resource: Resource,
    /// Its kind, as in objects.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// The verbs it supports.
    pub verbs: Vec<String>,
}

impl ApiResource {
    /// `group/version`, or just the version in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.resource)
    }

    /// Whether it supports all of these verbs.
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

/// The resources found by the last discovery; clones share one state, which the shell refreshes.
#[derive(Clone, Debug, Default)]
pub struct Resources(Arc<RwLock<Served>>);

#[derive(Clone, Debug, Default)]
struct Served {
    resources: Arc<Vec<ApiResource>>,
    failures: Arc<Vec<Failure>>,
}

/// A group version whose resources are unknown because the server behind it does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .version.name())]
pub struct Failure {
    /// The group version.
    pub version: GroupVersion,
    /// What went wrong.
    pub why: String,
}

impl Resources {
    /// Every resource.
    pub fn all(&self) -> Arc<Vec<ApiResource>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).resources.clone()
    }

    /// The group versions whose discovery failed.
    pub fn failures(&self) -> Arc<Vec<Failure>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).failures.clone()
    }

    /// Replaces the resources; returns whether anything changed.
    pub fn replace(&self, resources: Vec<ApiResource>) -> bool {
        self.replace_partly(resources, Vec::new())
    }

    /// Replaces the resources except in group versions whose discovery failed: the resources known of those stay,
    /// because a server that does not answer has not lost its objects.
    pub fn replace_partly(&self, mut resources: Vec<ApiResource>, failures: Vec<Failure>) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for known in current.resources.iter() {
            let failed = failures.iter().any(|failure| failure.version.serves(&known.resource));
            let same = |found: &ApiResource| {
                found.resource.group == known.resource.group && found.resource.plural == known.resource.plural
            };
            if failed && !resources.iter().any(same) {
                resources.push(known.clone());
            }
        }
        let changed = *current.resources != resources;
        *current = Served { resources: Arc::new(resources), failures: Arc::new(failures) };
        changed
    }

    /// The resource of a kind. An owner may be named by any version of its group; the preferred one serves it.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<ApiResource> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.all().iter().find(|r| r.kind == kind && r.resource.group == group).cloned()
    }
}

/// One version of a group, as URLs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupVersion {
    /// API group, empty for core.
    pub group: String,
    /// API version.
    pub version: String,
}

impl GroupVersion {
    /// `group/version`, or just the version in the core group.
    pub fn name(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    fn serves(&self, resource: &Resource) -> bool {
        resource.group == self.group && resource.version == self.version
    }

    /// Where its resources are listed.
    pub fn path(&self) -> String {
        match self.group.is_empty() {
            true => format!("/api/{}", self.version),
            false => format!("/apis/{}/{}", self.group, self.version),
        }
    }
}

/// The answer of a server at `/api` or `/apis`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// Aggregated discovery: the resources themselves.
    Resources {
        /// The resources that are served.
        found: Vec<ApiResource>,
        /// The versions whose server does not answer.
        failures: Vec<Failure>,
    },
    /// Discovery without aggregation: the versions to query one by one, each group's preferred one first.
    Versions(Vec<GroupVersion>),
}

/// Decodes the answer of a server at `/api` or `/apis`: `APIGroupDiscoveryList`, `APIVersions` or `APIGroupList`.
pub fn read_root(json: &[u8]) -> Result<Root, serde_json::Error> {
    let root: wire::Root = serde_json::from_slice(json)?;
    let group_version = |group: &str, version: String| GroupVersion { group: group.into(), version };
    Ok(match root.kind.as_str() {
        "APIVersions" => Root::Versions(root.versions.into_iter().map(|version| group_version("", version)).collect()),
        "APIGroupList" => {
            let mut versions = Vec::new();
            for mut group in root.groups {
                group.versions.sort_by_key(|each| each.version != group.preferred_version.version);
                versions.extend(group.versions.into_iter().map(|each| group_version(&group.name, each.version)));
            }
            Root::Versions(versions)
        }
        _ => aggregated(root.items),
    })
}

/// Adds the resources of an `APIResourceList` that no earlier, more preferred version serves.
pub fn add_version(found: &mut Vec<ApiResource>, from: &GroupVersion, json: &[u8]) -> Result<(), serde_json::Error> {
    let list: wire::ResourceList = serde_json::from_slice(json)?;
    // Subresources are listed beside the resources they belong to.
    for resource in list.resources.into_iter().filter(|resource| !resource.name.contains('/')) {
        add(found, from, resource.name, resource.kind, resource.namespaced, resource.verbs);
    }
    Ok(())
}

fn aggregated(groups: Vec<wire::Group>) -> Root {
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for group in groups {
        for version in group.versions {
            let from = GroupVersion { group: group.metadata.name.clone(), version: version.version };
            if version.freshness == "Stale" {
                let why = format!("stale GroupVersion discovery: {}", from.name());
                failures.push(Failure { version: from, why });
                continue;
            }
            for resource in version.resources {
                let namespaced = resource.scope == "Namespaced";
                add(&mut found, &from, resource.resource, resource.response_kind.kind, namespaced, resource.verbs);
            }
        }
    }
    Root::Resources { found, failures }
}

/// The first version that serves a resource is the preferred one.
fn add(
    found: &mut Vec<ApiResource>,
    from: &GroupVersion,
    plural: String,
    kind: String,
    namespaced: bool,
    verbs: Vec<String>,
) {
    let known = |r: &ApiResource| r.resource.group == from.group && r.resource.plural == plural;
    if found.iter().any(known) {
        return;
    }
    let resource =
        Resource { group: from.group.clone().into(), version: from.version.clone().into(), plural: plural.into() };
    found.push(ApiResource { resource, kind, namespaced, verbs });
}

mod wire {
    use super::Deserialize;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Root {
        pub(super) kind: String,
        /// Of an `APIGroupDiscoveryList`.
        pub(super) items: Vec<Group>,
        /// Of an `APIVersions`.
        pub(super) versions: Vec<String>,
        /// Of an `APIGroupList`.
        pub(super) groups: Vec<LegacyGroup>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    pub(super) struct LegacyGroup {
        pub(super) name: String,
        pub(super) versions: Vec<LegacyVersion>,
        pub(super) preferred_version: LegacyVersion,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct LegacyVersion {
        pub(super) version: String,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct ResourceList {
        pub(super) resources: Vec<LegacyResource>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct LegacyResource {
        pub(super) name: String,
        pub(super) kind: String,
        pub(super) namespaced: bool,
        pub(super) verbs: Vec<String>,
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
    use serde_json::{Value, json};

    use super::*;

    fn thing(group: &str, version: &str, kind: &str) -> ApiResource {
        ApiResource {
            resource: Resource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                plural: "things".into(),
            },
            kind: kind.into(),
            namespaced: true,
            verbs: vec!["get".into(), "delete".into()],
        }
    }

    fn root(answer: Value) -> Root {
        read_root(answer.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_first_version_of_a_resource_is_the_preferred_one() {
        let resource = |kind: &str| {
            json!({"resource": "things", "scope": "Namespaced", "verbs": ["get", "delete"],
                "responseKind": {"kind": kind}})
        };
        let list = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "g"}, "versions": [
            {"version": "v3", "freshness": "Stale", "resources": [resource("NewThing")]},
            {"version": "v2", "freshness": "Current", "resources": [resource("Thing")]},
            {"version": "v1", "resources": [resource("OldThing")]},
        ]}]});
        let version = GroupVersion { group: "g".into(), version: "v3".into() };
        let failure = Failure { version, why: "stale GroupVersion discovery: g/v3".into() };
        assert_eq!(root(list), Root::Resources { found: vec![thing("g", "v2", "Thing")], failures: vec![failure] });
        let found = thing("g", "v2", "Thing");
        assert!(found.can(&["get", "delete"]) && !found.can(&["list"]));
        assert_eq!(found.api_version(), "g/v2");
    }

    #[test]
    fn what_was_known_of_a_group_stays_while_its_server_is_away() {
        let away = |group: &str, version: &str| {
            let version = GroupVersion { group: group.into(), version: version.into() };
            Failure { version, why: "away".into() }
        };
        let resources = Resources::default();
        resources.replace(vec![thing("a", "v1", "A"), thing("b", "v1", "B"), thing("c", "v1", "C")]);
        let changed = resources.replace_partly(vec![thing("a", "v1", "A")], vec![away("b", "v1"), away("c", "v2")]);
        let known: Vec<_> = resources.all().iter().map(|known| known.kind.clone()).collect();
        assert_eq!((changed, known), (true, vec!["A".to_owned(), "B".to_owned()]));
        assert_eq!(resources.failures().len(), 2);
        resources.replace(vec![thing("a", "v1", "A")]);
        assert_eq!((resources.all().len(), resources.failures().len()), (1, 0));
    }

    #[test]
    fn a_server_without_aggregated_discovery_names_its_versions_preferred_first() {
        let paths = |root| match root {
            Root::Versions(versions) => versions.iter().map(GroupVersion::path).collect::<Vec<_>>(),
            other @ Root::Resources { .. } => panic!("{other:?}"),
        };
        assert_eq!(paths(root(json!({"kind": "APIVersions", "versions": ["v1"]}))), ["/api/v1"]);
        let groups = json!([
            {"name": "g", "versions": [{"version": "v1"}, {"version": "v2"}, {"version": "v3"}],
                "preferredVersion": {"version": "v2"}},
            {"name": "h", "versions": [{"version": "v1beta1"}]},
        ]);
        let list = json!({"kind": "APIGroupList", "groups": groups});
        assert_eq!(paths(root(list)), ["/apis/g/v2", "/apis/g/v1", "/apis/g/v3", "/apis/h/v1beta1"]);
    }

    #[test]
    fn the_lists_of_the_versions_add_up_to_the_same() {
        let list = |kind: &str| {
            let resource =
                |name: &str| json!({"name": name, "kind": kind, "namespaced": true, "verbs": ["get", "delete"]});
            json!({"resources": [resource("things"), resource("things/status")]}).to_string()
        };
        let from = |version: &str| GroupVersion { group: "g".into(), version: version.into() };
        let mut found = Vec::new();
        add_version(&mut found, &from("v2"), list("Thing").as_bytes()).unwrap();
        add_version(&mut found, &from("v1"), list("OldThing").as_bytes()).unwrap();
        assert_eq!(found, [thing("g", "v2", "Thing")]);
    }
}
