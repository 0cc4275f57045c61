//! The rules of pod volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::core::persistent_volume_claim;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, text};

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

pub(super) fn volumes(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let mut seen = BTreeSet::new();
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "name");
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else {
            errors.all_invalid(path.child("name"), name, names::dns_label(name));
        }
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
        source(errors, path, volume, spec);
    }
}

fn source(errors: &mut ErrorList, path: Path<'_>, volume: &Value, spec: &Value) {
    let mut found = false;
    for (field, shown) in SOURCES {
        let source = &volume[field];
        if source.is_null() {
            continue;
        }
        if found {
            errors.forbidden(path.child(shown), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let source_path = path.child(field);
        match field {
            "secret" => {
                need(errors, source_path, source, "secretName");
                mode(errors, source_path.child("defaultMode"), source, "defaultMode");
                items(errors, source_path.child("items"), list(source, "items"));
            }
            "configMap" => {
                need(errors, source_path, source, "name");
                mode(errors, source_path.child("defaultMode"), source, "defaultMode");
                items(errors, source_path.child("items"), list(source, "items"));
            }
            "persistentVolumeClaim" => need(errors, source_path, source, "claimName"),
            "hostPath" => {
                need(errors, source_path, source, "path");
                backsteps(errors, source_path.child("path"), text(source, "path"));
            }
            "nfs" => {
                need(errors, source_path, source, "server");
                need(errors, source_path, source, "path");
                if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') {
                    errors.invalid(source_path.child("path"), text(source, "path"), "must be an absolute path");
                }
            }
            "projected" => projected(errors, source_path, source, spec),
            "ephemeral" => {
                if given(source, "volumeClaimTemplate") {
                    let template = source_path.child("volumeClaimTemplate");
                    persistent_volume_claim::spec_rules(
                        errors,
                        template.child("spec"),
                        &source["volumeClaimTemplate"]["spec"],
                    );
                } else {
                    errors.required(source_path.child("volumeClaimTemplate"), "");
                }
            }
            "csi" => need(errors, source_path, source, "driver"),
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn need(errors: &mut ErrorList, path: Path<'_>, source: &Value, field: &str) {
    if text(source, field).is_empty() {
        errors.required(path.child(field), "");
    }
}

fn mode(errors: &mut ErrorList, path: Path<'_>, source: &Value, field: &str) {
    if let Some(mode) = source[field].as_i64()
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn items(errors: &mut ErrorList, path: Path<'_>, items: &[Value]) {
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        need(errors, path, item, "key");
        need(errors, path, item, "path");
        local_path(errors, path.child("path"), text(item, "path"));
        mode(errors, path.child("mode"), item, "mode");
    }
}

/// A path that stays inside the volume.
fn local_path(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    backsteps(errors, path, value);
    if value.starts_with("..") && !value.starts_with("../") && value != ".." {
        errors.invalid(path, value, "must not start with '..'");
    }
}

fn backsteps(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

fn projected(errors: &mut ErrorList, path: Path<'_>, source: &Value, spec: &Value) {
    mode(errors, path.child("defaultMode"), source, "defaultMode");
    let sources = path.child("sources");
    for (index, entry) in list(source, "sources").iter().enumerate() {
        let path = sources.index(index);
        let mut count = 0;
        for kind in
            ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"]
        {
            if !given(entry, kind) {
                continue;
            }
            count += 1;
            let kind_path = path.child(kind);
            if count > 1 {
                errors.forbidden(path, "may not specify more than 1 volume type per source");
                continue;
            }
            match kind {
                "secret" | "configMap" => {
                    need(errors, kind_path, &entry[kind], "name");
                    items(errors, kind_path.child("items"), list(&entry[kind], "items"));
                }
                "serviceAccountToken" => {
                    need(errors, kind_path, &entry[kind], "path");
                    if text(spec, "serviceAccountName").is_empty() {
                        errors.forbidden(kind_path, "must not be specified when serviceAccountName is not set");
                    }
                }
                _ => {}
            }
        }
    }
}
