//! What the cluster says about a write: the admission plugins, in upstream's order.

use crate::registry::Objects;
use crate::resources::Resource;
use crate::user::User;

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object, or a subresource that is created (binding, eviction).
    Create,
    /// A changed object.
    Update,
    /// A removal.
    Delete,
}

/// The write an admission plugin judges.
pub struct AdmissionContext<'a> {
    /// What it does.
    pub operation: Operation,
    /// To which resource.
    pub resource: &'static Resource,
    /// Through which subresource, empty for the object itself.
    pub subresource: &'a str,
    /// In which namespace, empty at cluster scope.
    pub namespace: &'a str,
    /// To which object; empty while a generated name is not yet known.
    pub name: &'a str,
    /// By whom.
    pub user: &'a User,
    /// Without consequences.
    pub dry_run: bool,
    /// The other objects.
    pub objects: &'a dyn Objects,
}
