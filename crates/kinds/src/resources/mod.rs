//! The table of served resources: one row a kind. Discovery, OpenAPI, routing, rights and storage all read it.

mod table;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

pub use table::{RESOURCES, STANDARD_VERBS};

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the cluster as a whole.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// One served resource.
///
/// Rows are compared by identity: there is exactly one for each group, version and plural.
#[derive(Debug)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name, as in URLs.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Cluster-wide or namespaced.
    pub scope: Scope,
    /// What kubectl users type.
    pub short_names: &'static [&'static str],
    /// Groups of resources, `all` for example.
    pub categories: &'static [&'static str],
    /// Supported verbs, sorted; empty storage prefix means a virtual resource (reviews).
    pub verbs: &'static [&'static str],
    /// Subresources, sorted by name.
    pub subresources: &'static [Subresource],
    /// The storage folder under `/registry/`; empty for resources that are never stored.
    pub storage_prefix: &'static str,
}

/// One subresource of a [`Resource`].
#[derive(Debug)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, …
    pub name: &'static str,
    /// Group of the kind it speaks, empty for the parent's own group version.
    pub group: &'static str,
    /// Version of the kind it speaks, empty for the parent's own group version.
    pub version: &'static str,
    /// The kind it speaks.
    pub kind: &'static str,
    /// Supported verbs, sorted.
    pub verbs: &'static [&'static str],
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods` or `deployments.apps`: how messages name the resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// True for resources that live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// True for resources with objects in the store; reviews and bindings have none.
    pub fn stored(&self) -> bool {
        !self.storage_prefix.is_empty()
    }

    /// The row in whose version the objects are stored: another one only for second views, as `events.k8s.io` is of
    /// core events.
    pub fn storage(&'static self) -> &'static Resource {
        STORAGE.get(self.storage_prefix).copied().unwrap_or(self)
    }

    /// The subresource of that name.
    pub fn subresource(&'static self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// The kind of a collection, `PodList`.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Resource {}

static BY_PATH: LazyLock<FxHashMap<(&'static str, &'static str, &'static str), &'static Resource>> =
    LazyLock::new(|| RESOURCES.iter().map(|r| ((r.group, r.version, r.plural), r)).collect());

/// The first row of a storage prefix is the storage version.
static STORAGE: LazyLock<FxHashMap<&'static str, &'static Resource>> = LazyLock::new(|| {
    let mut rows = FxHashMap::default();
    for row in RESOURCES.iter().filter(|r| r.stored()) {
        rows.entry(row.storage_prefix).or_insert(row);
    }
    rows
});

/// The row of a resource as URLs name it.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    BY_PATH.get(&(group, version, plural)).copied()
}

/// The row of a kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.kind == kind)
}

/// True when any resource of the group version is served.
pub fn serves(group: &str, version: &str) -> bool {
    RESOURCES.iter().any(|r| r.group == group && r.version == version)
}
