//! What upstream fills into volumes and their sources.

use serde_json::{Map, Value};

use super::image;
use crate::core::persistent_volume_claim;
use crate::defaulting::{child, children, default, default_absent};
use crate::object::{Object, text};

/// The file mode of mounted keys unless another is given: 0644.
const DEFAULT_MODE: i64 = 0o644;

pub(super) fn volume(volume: &mut Object) {
    let has_source = volume.iter().any(|(name, source)| name != "name" && !source.is_null());
    if !has_source {
        volume.insert("emptyDir".into(), Value::Object(Map::new()));
        return;
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(volume, source) {
            default(source, "defaultMode", DEFAULT_MODE);
        }
    }
    if let Some(downward) = child(volume, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = child(volume, "projected") {
        for source in children(projected, "sources") {
            if let Some(downward) = child(source, "downwardAPI") {
                downward_items(downward);
            }
            if let Some(token) = child(source, "serviceAccountToken") {
                default(token, "expirationSeconds", 3600);
            }
        }
    }
    if let Some(image) = child(volume, "image") {
        let policy = image::pull_policy(text(image, "reference"));
        default(image, "pullPolicy", policy);
    }
    if let Some(template) = child(volume, "ephemeral").and_then(|source| child(source, "volumeClaimTemplate"))
        && let Some(spec) = child(template, "spec")
    {
        persistent_volume_claim::spec_defaults(spec);
    }
    source_defaults(volume);
}

/// Defaults of the volume sources that pods and persistent volumes share.
pub(crate) fn source_defaults(volume: &mut Object) {
    if let Some(host_path) = child(volume, "hostPath")
        && host_path.get("type").is_none_or(Value::is_null)
    {
        host_path.insert("type".into(), "".into());
    }
    if let Some(rbd) = child(volume, "rbd") {
        default(rbd, "pool", "rbd");
        default(rbd, "user", "admin");
        default(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(iscsi) = child(volume, "iscsi") {
        default(iscsi, "iscsiInterface", "default");
    }
    if let Some(azure) = child(volume, "azureDisk") {
        default_absent(azure, "cachingMode", "ReadWrite");
        default_absent(azure, "fsType", "ext4");
        default_absent(azure, "readOnly", false);
        default_absent(azure, "kind", "Shared");
    }
    if let Some(scale_io) = child(volume, "scaleIO") {
        default(scale_io, "storageMode", "ThinProvisioned");
        default(scale_io, "fsType", "xfs");
    }
}

fn downward_items(source: &mut Object) {
    for item in children(source, "items") {
        if let Some(field) = child(item, "fieldRef") {
            default(field, "apiVersion", "v1");
        }
    }
}
