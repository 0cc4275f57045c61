//! The table of served resources: one row a kind. Discovery, OpenAPI, routing, rights and storage all read it.

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the cluster as a whole.
    Cluster,
    /// In a namespace.
    Namespaced,
}

/// One served resource.
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
}
