//! VolumeAttachments and CSIDrivers as the controller reads them.

use bayplan_model::meta::{HasMeta, ObjectMeta};
use serde::Deserialize;

/// A VolumeAttachment: what an external attacher is asked to do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: VolumeAttachmentSpec,
    /// What came of it.
    pub status: VolumeAttachmentStatus,
}

/// `VolumeAttachment.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The CSI driver.
    pub attacher: String,
    /// The node.
    pub node_name: String,
    /// The volume.
    pub source: VolumeAttachmentSource,
}

/// `VolumeAttachment.spec.source`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// The PersistentVolume; none of a volume that a pod describes itself.
    pub persistent_volume_name: Option<String>,
}

/// `VolumeAttachment.status`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentStatus {
    /// Whether the volume is attached.
    pub attached: bool,
    /// Why it is not.
    pub attach_error: Option<VolumeError>,
}

/// What an external attacher could not do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct VolumeError {
    /// Why.
    pub message: String,
}

impl HasMeta for VolumeAttachment {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What it is like.
    pub spec: CsiDriverSpec,
}

/// `CSIDriver.spec`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Whether its volumes are attached before they are mounted; yes when absent.
    pub attach_required: Option<bool>,
}

impl HasMeta for CsiDriver {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
