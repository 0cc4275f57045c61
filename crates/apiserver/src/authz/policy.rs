//! The parts of the `rbac.authorization.k8s.io` kinds that decide about rights.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// What may be done with which resources or paths; upstream's `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Allowed verbs, `*` for all.
    #[serde(deserialize_with = "null_as_empty")]
    pub verbs: Vec<String>,
    /// API groups, `*` for all.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// `pods`, `pods/status`, `*/scale`, or `*`.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names that the rule is limited to; empty for any.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths that name no resource; a `*` at the end makes a prefix.
    #[serde(rename = "nonResourceURLs", deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Who gets the role of a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// API group of the subject's kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Name of the user, group or service account.
    pub name: String,
    /// Namespace of a service account; empty for the namespace of the binding.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The role that a binding grants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    /// API group of the role.
    pub api_group: String,
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
}

/// The metadata that authorization needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Name of the role or binding.
    pub name: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
}

/// A `Role` or a `ClusterRole`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Name and namespace.
    pub metadata: Meta,
    /// What the role allows.
    #[serde(deserialize_with = "null_as_empty")]
    pub rules: Vec<Rule>,
}

/// A `RoleBinding` or a `ClusterRoleBinding`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    /// Name and namespace.
    pub metadata: Meta,
    /// Who gets the role.
    #[serde(deserialize_with = "null_as_empty")]
    pub subjects: Vec<Subject>,
    /// The role.
    pub role_ref: RoleRef,
}

/// All roles and bindings of a cluster at one moment; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// By name.
    pub cluster_roles: BTreeMap<String, Arc<Role>>,
    /// By namespace, then name.
    pub roles: BTreeMap<String, BTreeMap<String, Arc<Role>>>,
    /// By name.
    pub cluster_role_bindings: BTreeMap<String, Arc<Binding>>,
    /// By namespace, then name.
    pub role_bindings: BTreeMap<String, BTreeMap<String, Arc<Binding>>>,
}

/// The roles and bindings that the evaluator reads.
pub trait RoleSource {
    /// A cluster role by name.
    fn cluster_role(&self, name: &str) -> Option<&Role>;
    /// A role by namespace and name.
    fn role(&self, namespace: &str, name: &str) -> Option<&Role>;
    /// Every cluster role binding.
    fn cluster_role_bindings(&self) -> impl Iterator<Item = &Binding>;
    /// The role bindings of one namespace.
    fn role_bindings(&self, namespace: &str) -> impl Iterator<Item = &Binding>;
}

impl RoleSource for Policy {
    fn cluster_role(&self, name: &str) -> Option<&Role> {
        self.cluster_roles.get(name).map(|role| &**role)
    }

    fn role(&self, namespace: &str, name: &str) -> Option<&Role> {
        self.roles.get(namespace)?.get(name).map(|role| &**role)
    }

    fn cluster_role_bindings(&self) -> impl Iterator<Item = &Binding> {
        self.cluster_role_bindings.values().map(|binding| &**binding)
    }

    fn role_bindings(&self, namespace: &str) -> impl Iterator<Item = &Binding> {
        self.role_bindings.get(namespace).into_iter().flat_map(BTreeMap::values).map(|binding| &**binding)
    }
}

fn null_as_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}
