//! The rules of pod volumes: one source each, whatever it is.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path_rules::{backsteps, descending_path};
use super::projected_rules::{self, mode};
use super::{resource_rules, storage_rules};
use crate::core::persistent_volume_claim;
use crate::field::{ErrorList, Path};
use crate::object::{given, list, text};
use crate::{metadata, names};

/// The volumes of a pod by name.
pub(super) type Volumes<'v> = BTreeMap<&'v str, &'v Value>;

/// Volume sources in the order in which upstream checks them: the field, and its name in messages.
const SOURCES: [(&str, &str); 30] = [
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Checks the volumes of a pod of that name, which templates have none of; returns those that can be mounted because
/// nothing is wrong with them.
pub(super) fn volumes<'v>(errors: &mut ErrorList, path: Path<'_>, spec: &'v Value, pod: Option<&str>) -> Volumes<'v> {
    let mut valid = Volumes::default();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let before = errors.count();
        source(errors, path, volume, pod);
        match text(volume, "name") {
            "" => errors.required(path.child("name"), ""),
            name => errors.all_invalid(path.child("name"), name, names::dns_label(name)),
        }
        let name = text(volume, "name");
        if valid.contains_key(name) {
            errors.duplicate(path.child("name"), name);
        }
        if errors.count() == before {
            valid.insert(name, volume);
        }
    }
    valid
}

fn source(errors: &mut ErrorList, path: Path<'_>, volume: &Value, pod: Option<&str>) {
    let mut found = false;
    for (field, shown) in SOURCES {
        let source = &volume[field];
        if source.is_null() {
            continue;
        }
        if found {
            errors.forbidden(path.child(shown), "may not specify more than 1 volume type");
        } else {
            found = true;
            of_kubernetes(errors, path.child(field), field, source, pod);
            storage_rules::source(errors, path.child(field), field, source);
            if field == "ephemeral" {
                claim_name(errors, path, text(volume, "name"), pod);
            }
        }
        if field == "iscsi" && given(source, "initiatorName") {
            storage_rules::initiator_target(errors, path, text(volume, "name"), source);
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

/// Sources that Kubernetes itself fills.
fn of_kubernetes(errors: &mut ErrorList, path: Path<'_>, field: &str, source: &Value, pod: Option<&str>) {
    match field {
        "emptyDir" if resource_rules::quantity(&source["sizeLimit"]).is_some_and(|limit| limit.sign() < 0) => {
            errors.forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "secret" | "configMap" => {
            need(errors, path, source, if field == "secret" { "secretName" } else { "name" });
            mode(errors, path.child("defaultMode"), source, "defaultMode");
            projected_rules::items(errors, path.child("items"), list(source, "items"));
        }
        "persistentVolumeClaim" => need(errors, path, source, "claimName"),
        "hostPath" => host_path(errors, path, source),
        "gitRepo" => {
            need(errors, path, source, "repository");
            descending_path(errors, path.child("directory"), text(source, "directory"));
        }
        "downwardAPI" => {
            mode(errors, path.child("defaultMode"), source, "defaultMode");
            for file in list(source, "items") {
                projected_rules::downward_file(errors, path, file);
            }
        }
        "projected" => projected_rules::projected(errors, path, source),
        "csi" => csi(errors, path, source),
        "ephemeral" => ephemeral(errors, path, source),
        "image" => {
            if pod.is_some() {
                need(errors, path, source, "reference");
            }
            let policies = ["Always", "IfNotPresent", "Never"];
            errors.one_of(path.child("pullPolicy"), text(source, "pullPolicy"), &policies);
        }
        _ => {}
    }
}

pub(super) fn need(errors: &mut ErrorList, path: Path<'_>, source: &Value, field: &str) {
    if text(source, field).is_empty() {
        errors.required(path.child(field), "");
    }
}

fn host_path(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if text(source, "path").is_empty() {
        return errors.required(path.child("path"), "");
    }
    backsteps(errors, path.child("path"), text(source, "path"));
    if !TYPES.contains(&text(source, "type")) {
        errors.not_supported(path.child("type"), text(source, "type"), &TYPES);
    }
}

fn csi(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const DRIVER_NAME_MAX: usize = 63;
    let (driver, driver_path) = (text(source, "driver"), path.child("driver"));
    if driver.is_empty() {
        errors.required(driver_path, "");
    }
    if driver.len() > DRIVER_NAME_MAX {
        errors.too_long(driver_path, DRIVER_NAME_MAX);
    }
    errors.all_invalid(driver_path, driver, names::dns_subdomain(&driver.to_lowercase()));
    if given(source, "nodePublishSecretRef") {
        match text(&source["nodePublishSecretRef"], "name") {
            "" => errors.required(path.child("nodePublishSecretRef").child("name"), ""),
            name => errors.all_invalid(path.child("name"), name, names::dns_subdomain(name)),
        }
    }
}

fn ephemeral(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const NOT_KEPT: &str = "cannot be set";
    let path = path.child("volumeClaimTemplate");
    let template = &source["volumeClaimTemplate"];
    if template.is_null() {
        return errors.required(path, "");
    }
    let meta = path.child("metadata");
    metadata::annotations(errors, meta.child("annotations"), &template["metadata"]["annotations"]);
    metadata::labels(errors, meta.child("labels"), &template["metadata"]["labels"]);
    for (field, value) in template["metadata"].as_object().into_iter().flatten() {
        let empty = matches!(value, Value::Null) || value.as_str() == Some("") || *value == 0;
        if !empty && !matches!(field.as_str(), "annotations" | "labels") {
            errors.forbidden(meta.child(go_field(field)), NOT_KEPT);
        }
    }
    persistent_volume_claim::spec_rules(errors, path.child("spec"), &template["spec"]);
}

/// A field of the metadata as its Go name with a lower first letter.
fn go_field(field: &str) -> &str {
    match field {
        "uid" => "uID",
        other => other,
    }
}

/// The claim that is made for the volume has the names of both.
fn claim_name(errors: &mut ErrorList, path: Path<'_>, volume: &str, pod: Option<&str>) {
    let Some(pod) = pod.filter(|pod| !pod.is_empty() && !volume.is_empty()) else { return };
    let claim = format!("{pod}-{volume}");
    for problem in names::dns_subdomain(&claim) {
        errors.invalid(path.child("name"), volume, &format!("PVC name {claim:?}: {problem}"));
    }
}
