//! The rules of what containers mount: file systems and block devices.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path_rules::{descending_path, steps_back};
use super::volume_rules::Volumes;
use crate::field::{ErrorList, Path};
use crate::object::{given, list, text};

/// The values of a text field in a list.
fn all<'v>(entries: &'v [Value], field: &str) -> BTreeSet<&'v str> {
    entries.iter().map(|entry| text(entry, field)).collect()
}

pub(super) fn mounts(errors: &mut ErrorList, path: Path<'_>, container: &Value, volumes: &Volumes<'_>) {
    let (mounts, devices) = (list(container, "volumeMounts"), list(container, "volumeDevices"));
    let (device_names, device_paths) = (all(devices, "name"), all(devices, "devicePath"));
    let mut paths_seen = BTreeSet::new();
    let mounts_path = path.child("volumeMounts");
    for (index, mount) in mounts.iter().enumerate() {
        let path = mounts_path.index(index);
        let (name, at) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        let volume = volumes.get(name).copied();
        if volume.is_none() {
            errors.not_found(path.child("name"), name);
        }
        if at.is_empty() {
            errors.required(path.child("mountPath"), "");
        }
        if !paths_seen.insert(at) {
            errors.invalid(path.child("mountPath"), at, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(path.child("name"), name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(at) {
            errors.invalid(path.child("mountPath"), at, "must not already exist as a path in volumeDevices");
        }
        sub_paths(errors, path, mounts_path, mount, volume.is_some_and(|volume| given(volume, "image")));
        // Upstream reports these under the path of the whole list.
        propagation(errors, mounts_path.child("mountPropagation"), mount, container);
        read_only(errors, mounts_path.child("recursiveReadOnly"), mount);
    }
    device_rules(errors, path.child("volumeDevices"), mounts, devices, volumes);
}

fn sub_paths(errors: &mut ErrorList, path: Path<'_>, mounts_path: Path<'_>, mount: &Value, of_image: bool) {
    let (plain, expanded) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    for (field, value) in [("subPath", plain), ("subPathExpr", expanded)] {
        if of_image && !value.is_empty() {
            errors.invalid(path.child(field), value, "not allowed in image volume sources");
        }
    }
    if !plain.is_empty() {
        descending_path(errors, mounts_path.child("subPath"), plain);
    }
    if !expanded.is_empty() {
        if !plain.is_empty() {
            errors.invalid(path.child("subPathExpr"), expanded, "subPathExpr and subPath are mutually exclusive");
        }
        descending_path(errors, mounts_path.child("subPathExpr"), expanded);
    }
}

fn propagation(errors: &mut ErrorList, path: Path<'_>, mount: &Value, container: &Value) {
    if !given(mount, "mountPropagation") {
        return;
    }
    let mode = text(mount, "mountPropagation");
    if !matches!(mode, "Bidirectional" | "HostToContainer" | "None") {
        errors.not_supported(path, mode, &["Bidirectional", "HostToContainer", "None"]);
    }
    if mode == "Bidirectional" && container["securityContext"]["privileged"] != true {
        errors.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn read_only(errors: &mut ErrorList, path: Path<'_>, mount: &Value) {
    if !given(mount, "recursiveReadOnly") {
        return;
    }
    match text(mount, "recursiveReadOnly") {
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if mount["readOnly"] != true {
                errors.forbidden(path, "may only be specified when readOnly is true");
            }
            if given(mount, "mountPropagation") && text(mount, "mountPropagation") != "None" {
                errors.forbidden(path, "may only be specified when mountPropagation is None or not specified");
            }
        }
        other => errors.not_supported(path, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn device_rules(
    errors: &mut ErrorList,
    devices_path: Path<'_>,
    mounts: &[Value],
    devices: &[Value],
    volumes: &Volumes<'_>,
) {
    let (mount_names, mount_paths) = (all(mounts, "name"), all(mounts, "mountPath"));
    let (mut names_seen, mut paths_seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in devices.iter().enumerate() {
        let path = devices_path.index(index);
        let (name, at) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        if !name.is_empty() && !names_seen.insert(name) {
            errors.invalid(path.child("name"), name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(path.child("name"), name),
            Some(volume) if !given(*volume, "persistentVolumeClaim") && !given(*volume, "ephemeral") => errors.invalid(
                path.child("name"),
                name,
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
            ),
            Some(_) => {}
        }
        if at.is_empty() {
            errors.required(path.child("devicePath"), "");
        }
        if paths_seen.contains(at) {
            errors.invalid(path.child("devicePath"), at, "must be unique");
        }
        if steps_back(at) {
            errors.invalid(path.child("devicePath"), at, "can not contain backsteps ('..')");
        } else {
            paths_seen.insert(at);
        }
        if mount_names.contains(name) {
            errors.invalid(path.child("name"), name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(at) {
            errors.invalid(path.child("devicePath"), at, "must not already exist as a path in volumeMounts");
        }
    }
}
