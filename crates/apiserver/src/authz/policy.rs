//! Roles and bindings as data: the deciding part of the `rbac.authorization.k8s.io` kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// The API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// One rule: what may be done (`verbs`) with which resources or paths.
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
    /// Names the rule is limited to; empty for any.
    #[serde(deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    /// Paths outside the resource tree, with `*` as last character for a prefix.
    #[serde(rename = "nonResourceURLs", deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Whom a binding speaks of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `User`, `Group` or `ServiceAccount`.
    pub kind: String,
    /// API group of the subject's kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Name.
    pub name: String,
    /// Namespace of a service account; empty means the binding's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Which role a binding grants.
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

/// The metadata that decides something here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Name.
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

/// All roles and bindings of a cluster at one moment. Cloning shares everything that did not change.
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

/// Where the evaluator finds roles and bindings, in the order in which they are asked.
pub trait RoleSource {
    /// The rules of a cluster role.
    fn cluster_role(&self, name: &str) -> Option<&Role>;
    /// The rules of a role.
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
