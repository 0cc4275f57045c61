//! Persistent volumes, claims, and the kinds of `storage.k8s.io`.

use serde_json::{Value, json};

use super::{Object, child, child_or_new, default, round_requirements, round_resource_list, volumes};

pub(super) fn persistent_volume(object: &mut Object) {
    if let Some(status) = child_or_new(object, "status") {
        default(status, "phase", "Pending");
    }
    if let Some(spec) = child(object, "spec") {
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        default(spec, "volumeMode", "Filesystem");
        round_resource_list(spec, "capacity");
        volumes::block_sources(spec);
    }
}

pub(super) fn persistent_volume_claim(object: &mut Object) {
    if let Some(status) = child_or_new(object, "status") {
        default(status, "phase", "Pending");
        round_resource_list(status, "capacity");
        round_resource_list(status, "allocatedResources");
    }
    if let Some(spec) = child(object, "spec") {
        claim_spec(spec);
    }
}

pub(super) fn claim_spec(spec: &mut Object) {
    default(spec, "volumeMode", "Filesystem");
    round_requirements(child(spec, "resources"));
}

pub(super) fn storage_class(object: &mut Object) {
    default(object, "reclaimPolicy", "Delete");
    default(object, "volumeBindingMode", "Immediate");
}

pub(super) fn csi_driver(object: &mut Object) {
    let Some(spec) = child_or_new(object, "spec") else { return };
    default(spec, "attachRequired", true);
    default(spec, "podInfoOnMount", false);
    default(spec, "storageCapacity", false);
    default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
    default(spec, "requiresRepublish", false);
    default(spec, "seLinuxMount", false);
}

pub(super) fn volume_attachment(object: &mut Object) {
    let source = child(object, "spec").and_then(|spec| child(spec, "source"));
    if let Some(volume) = source.and_then(|source| child(source, "inlineVolumeSpec")) {
        round_resource_list(volume, "capacity");
        volumes::block_sources(volume);
    }
}
