//! The object of a cluster event, before and after the change, by kind.

use bayplan_model::delta::Delta;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::resource_slice::DeviceClass;
use bayplan_model::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};

use crate::cluster::Object;

/// The object of a cluster event before and after the change; absent where it did not exist.
#[derive(Clone, Copy)]
pub struct ObjectChange<'a> {
    /// The object before the change; none when it was added.
    pub old: Option<&'a Object>,
    /// The object after the change; none when it was deleted.
    pub new: Option<&'a Object>,
}

impl<'a> ObjectChange<'a> {
    /// Both versions in a delta; none for an event without an object.
    pub fn of(delta: Option<&'a Delta<Object>>) -> Self {
        match delta {
            None => ObjectChange { old: None, new: None },
            Some(Delta::Added(new)) => ObjectChange { old: None, new: Some(new) },
            Some(Delta::Updated { old, new }) => ObjectChange { old: Some(old), new: Some(new) },
            Some(Delta::Deleted(old)) => ObjectChange { old: Some(old), new: None },
        }
    }
}

macro_rules! versions_of_kind {
    ($($(#[$meta:meta])* $method:ident, $kind:ident;)*) => {
        impl<'a> ObjectChange<'a> {$(
            $(#[$meta])*
            pub fn $method(&self) -> (Option<&'a $kind>, Option<&'a $kind>) {
                let version = |object: Option<&'a Object>| match object {
                    Some(Object::$kind(object)) => Some(&**object),
                    _ => None,
                };
                (version(self.old), version(self.new))
            }
        )*}
    };
}

versions_of_kind! {
    /// Both versions, when the event is about a Pod.
    pods, Pod;
    /// Both versions, when the event is about a Node.
    nodes, Node;
    /// Both versions, when the event is about a PersistentVolume.
    persistent_volumes, PersistentVolume;
    /// Both versions, when the event is about a PersistentVolumeClaim.
    persistent_volume_claims, PersistentVolumeClaim;
    /// Both versions, when the event is about a StorageClass.
    storage_classes, StorageClass;
    /// Both versions, when the event is about a CSINode.
    csi_nodes, CsiNode;
    /// Both versions, when the event is about a CSIDriver.
    csi_drivers, CsiDriver;
    /// Both versions, when the event is about a CSIStorageCapacity.
    csi_storage_capacities, CsiStorageCapacity;
    /// Both versions, when the event is about a VolumeAttachment.
    volume_attachments, VolumeAttachment;
    /// Both versions, when the event is about a DeviceClass.
    device_classes, DeviceClass;
    /// Both versions, when the event is about a ResourceClaim.
    resource_claims, ResourceClaim;
}
