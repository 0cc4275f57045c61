//! The rules of PersistentVolumes. Upstream: `ValidatePersistentVolumeSpec`, `ValidatePersistentVolumeUpdate`.

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::super::persistent_volume_claim::access_mode_rules;
use super::{PLAIN_FIELDS, sources};
use crate::field::{At, Change, ErrorList, GoValue, Path};
use crate::names;
use crate::object::{given, list, text};
use crate::pod_spec::node_selector;

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// The sources whose volumes are mounted with options.
const WITH_MOUNT_OPTIONS: [&str; 13] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "vsphereVolume",
];

pub(super) fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let (path, spec, metadata) = (Path::root("spec"), &object["spec"], &object["metadata"]);
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "");
    }
    access_mode_rules(errors, path, modes);
    capacity(errors, path.child("capacity"), &spec["capacity"]);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Recycle" | "Retain") {
        errors.not_supported(path.child("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    let affinity = path.child("nodeAffinity");
    if given(spec, "nodeAffinity") {
        match &spec["nodeAffinity"]["required"] {
            Value::Null => errors.required(affinity.child("required"), "must specify required node constraints"),
            required => node_selector(errors, affinity.child("required"), required),
        }
    }
    sources::rules(errors, path, spec, text(metadata, "name"));
    if given(spec, "local") && !given(spec, "nodeAffinity") && sources_before_local(spec) == 0 {
        errors.required(affinity, "Local volume requires node affinity");
    }
    if policy == "Recycle" && given(spec, "hostPath") && is_root(text(&spec["hostPath"], "path")) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden(path.child("persistentVolumeReclaimPolicy"), detail);
    }
    classes(errors, path, spec);
    let mode = text(spec, "volumeMode");
    if given(spec, "volumeMode") && !matches!(mode, "Block" | "Filesystem") {
        errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    if given(&metadata["annotations"], MOUNT_OPTIONS) && !WITH_MOUNT_OPTIONS.iter().any(|field| given(spec, field)) {
        let root = Path::root("metadata");
        let annotations = root.child("annotations");
        errors.forbidden(annotations.child(MOUNT_OPTIONS), "may not specify mount options for this volume type");
    }
}

/// How many sources are given that upstream checks before `local`.
fn sources_before_local(spec: &Value) -> usize {
    let fields = spec.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let others = fields.filter(|(name, _)| !PLAIN_FIELDS.contains(&name.as_str()));
    others.filter(|(name, _)| !matches!(name.as_str(), "local" | "storageos" | "csi")).count()
}

fn capacity(errors: &mut ErrorList, path: Path<'_>, capacity: &Value) {
    let resources = capacity.as_object();
    if resources.is_none_or(serde_json::Map::is_empty) {
        errors.required(path, "");
    }
    if !given(capacity, "storage") || resources.is_some_and(|resources| resources.len() > 1) {
        errors.not_supported(path, capacity, &["storage"]);
    }
    for (name, quantity) in resources.into_iter().flatten() {
        let Ok(quantity) = quantity.as_str().unwrap_or("0").parse::<Quantity>() else { continue };
        let path = path.key(name);
        if quantity.value() < 0 {
            errors.invalid(path, quantity.value(), "must be a valid resource quantity");
        }
        if quantity.sign() <= 0 {
            errors.invalid(path, quantity.to_string().as_str(), "must be greater than zero");
        }
    }
}

/// Whether a path is that of the root folder, whatever its spelling.
fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.saturating_sub(1),
            _ => depth += 1,
        }
    }
    path.starts_with('/') && depth == 0
}

fn classes(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.all_invalid(path.child("storageClassName"), class, names::dns_subdomain(class));
    }
    let Some(class) = spec["volumeAttributesClassName"].as_str() else { return };
    let class_path = path.child("volumeAttributesClassName");
    match class {
        "" => errors.required(class_path, "an empty string is disallowed"),
        class => errors.all_invalid(class_path, class, names::dns_subdomain(class)),
    }
    if !given(spec, "csi") {
        errors.required(path.child("csi"), "has to be specified when using volumeAttributesClassName");
    }
}

/// The rules of a volume that is part of a VolumeAttachment.
pub(crate) fn inline_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    if given(spec, "claimRef") {
        errors.forbidden(path.child("claimRef"), INLINE);
    }
    if spec["capacity"].as_object().is_some_and(|capacity| !capacity.is_empty()) {
        errors.forbidden(path.child("capacity"), INLINE);
    }
    if !given(spec, "csi") {
        errors.required(path.child("csi"), "has to be specified in the context of inline volumes");
    }
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "");
    }
    access_mode_rules(errors, path, modes);
    if !matches!(text(spec, "persistentVolumeReclaimPolicy"), "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        errors.forbidden(path.child("persistentVolumeReclaimPolicy"), detail);
    }
    if given(spec, "nodeAffinity") {
        errors.forbidden(path.child("nodeAffinity"), INLINE);
    }
    sources::rules(errors, path, spec, "");
    if !text(spec, "storageClassName").is_empty() {
        errors.forbidden(path.child("storageClassName"), INLINE);
    }
    if given(spec, "volumeMode") && text(spec, "volumeMode") != "Filesystem" {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.forbidden(path.child("volumeMode"), detail);
    }
}

/// The source of a volume is immutable, and so is its affinity once it has one.
pub(super) fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    // Upstream checks a changed volume twice, and names each error twice.
    rules(errors, new, Some(old));
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    let source = |spec: &Value| {
        let mut source = spec.as_object().cloned().unwrap_or_default();
        source.retain(|field, _| !PLAIN_FIELDS.contains(&field.as_str()));
        source
    };
    let (mut source_now, source_before) = (source(new), source(old));
    // The secret for expansion may be added later.
    if old["csi"].is_object()
        && !given(&old["csi"], "controllerExpandSecretRef")
        && let Some(Value::Object(csi)) = source_now.get_mut("csi")
    {
        csi.remove("controllerExpandSecretRef");
    }
    if source_now != source_before {
        let detail = "spec.persistentvolumesource is immutable after creation";
        let (old, new) = (Value::Object(source_before), Value::Object(source_now));
        let definition = "io.k8s.api.core.v1.PersistentVolumeSource";
        let shown = Change { definition, old: &old, new: &new };
        errors.forbidden_change(path.child("persistentvolumesource"), detail, path, shown);
    }
    errors.immutable(Path::root("volumeMode"), &new["volumeMode"], &old["volumeMode"]);
    if given(old, "nodeAffinity") && with_current_labels(&old["nodeAffinity"], &new["nodeAffinity"]) {
        let detail = "field is immutable, except for updating from beta label to GA";
        let shown = GoValue("io.k8s.api.core.v1.VolumeNodeAffinity", &new["nodeAffinity"]);
        errors.invalid(Path::root("nodeAffinity"), At(path.child("nodeAffinity"), shown), detail);
    }
    if given(old, "volumeAttributesClassName") && !given(new, "volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(path.child("volumeAttributesClassName"), detail);
    }
}

/// Labels of nodes that have a newer name.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// Whether an affinity changed by more than the newer names of labels.
fn with_current_labels(old: &Value, new: &Value) -> bool {
    let mut old = old.clone();
    let (terms, new_terms) = (&mut old["required"]["nodeSelectorTerms"], &new["required"]["nodeSelectorTerms"]);
    for (at, term) in terms.as_array_mut().into_iter().flatten().enumerate() {
        for field in ["matchExpressions", "matchFields"] {
            let requirements = term.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten();
            for (index, requirement) in requirements.enumerate() {
                let key = &new_terms[at][field][index]["key"];
                // Upstream finds no newer name of any other label, and takes that for an empty one.
                let renamed = RENAMED_LABELS.iter().find(|(before, _)| requirement["key"] == *before);
                if *key == renamed.map_or("", |(_, now)| *now) {
                    requirement["key"] = key.clone();
                }
            }
        }
    }
    old != *new
}

pub(super) fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    if text(&new["metadata"], "resourceVersion").is_empty() {
        errors.required(Path::root("resourceVersion"), "");
    }
}
