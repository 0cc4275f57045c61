//! Object metadata: the fields of `metav1.ObjectMeta` that are read.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::sorted_map::SortedMap;

/// Labels or annotations.
pub type Map = SortedMap<String>;

/// An object's metadata, without `managedFields` and `selfLink`.
#[derive(Clone, Debug, Default, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Unique in its namespace (and resource) at one time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Prefix the server completes into a name when `name` is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub generate_name: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique over all time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The revision of the last write.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Counts the changes of the desired state.
    #[serde(skip_serializing_if = "is_zero")]
    pub generation: i64,
    /// When the server first stored the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// Set once deletion began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    /// The grace the deletion gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Key-value pairs that selectors match.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub labels: Map,
    /// Key-value pairs that selectors do not match.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub annotations: Map,
    /// The names that have to be removed before the object is deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// The owners; the garbage collector deletes the object with the last of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}

/// One owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner, in the same namespace or cluster-scoped.
    pub name: String,
    /// UID of the owner.
    pub uid: String,
    /// True for the one owner that manages the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// True when a foreground deletion of the owner waits for this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl ObjectMeta {
    /// `namespace/name`, or just the name for cluster-scoped objects: the key of work queues and caches.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// The owner that manages this object, if any.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|r| r.controller == Some(true))
    }
}

/// A view of an object with metadata: what caches and informers need.
pub trait HasMeta {
    /// The object's metadata.
    fn meta(&self) -> &ObjectMeta;
}

/// The view of a caller that reads metadata only; the API's `meta.k8s.io/v1 PartialObjectMetadata`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartialObjectMetadata {
    /// The object's metadata.
    pub metadata: ObjectMeta,
}

impl HasMeta for PartialObjectMetadata {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

fn is_zero(generation: &i64) -> bool {
    *generation == 0
}
