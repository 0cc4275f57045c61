//! The rules of volume sources that a storage system fills.

use serde_json::Value;

use super::volume_rules::need;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

/// What must be given, by the field of the source.
const NEEDED: [(&str, &[&str]); 13] = [
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["image"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

pub(super) fn source(errors: &mut ErrorList, path: Path<'_>, field: &str, source: &Value) {
    let needed = NEEDED.iter().find(|(name, _)| *name == field).map_or(&[] as &[&str], |(_, needed)| needed);
    for name in needed {
        need(errors, path, source, name);
    }
    match field {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = number(source, "partition");
            if !(0..=255).contains(&partition) {
                errors.invalid(path.child("partition"), partition, "must be between 1 and 255, inclusive");
            }
        }
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(path.child("path"), text(source, "path"), "must be an absolute path");
        }
        "iscsi" => iscsi(errors, path, source),
        "flocker" => flocker(errors, path, source),
        "rbd" | "cephfs" if list(source, "monitors").is_empty() => errors.required(path.child("monitors"), ""),
        "cinder" => secret(errors, path, source),
        "quobyte" => quobyte(errors, path, source),
        "fc" => fibre_channel(errors, path, source),
        "flexVolume" => options(errors, path.child("options"), &source["options"]),
        "azureDisk" => azure_disk(errors, path, source),
        "storageos" => storage_os(errors, path, source),
        _ => {}
    }
}

/// The total of both is what an initiator can show.
pub(super) fn initiator_target(errors: &mut ErrorList, path: Path<'_>, name: &str, source: &Value) {
    const TOTAL_MAX: usize = 64;
    const DETAIL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
        iscsi.initiatorName is specified.";
    if name.len() + 1 + text(source, "targetPortal").len() > TOTAL_MAX {
        errors.invalid(path.child("name"), name, DETAIL);
    }
}

fn iscsi(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const START: &str = "must be valid format starting with iqn, eui, or naa";
    let qualified = text(source, "iqn");
    if qualified.is_empty() {
        errors.required(path.child("iqn"), "");
    } else if !is_named(qualified) {
        errors.invalid(path.child("iqn"), qualified, START);
    } else if !is_iscsi_name(qualified) {
        errors.invalid(path.child("iqn"), qualified, "must be valid format");
    }
    lun(errors, path.child("lun"), number(source, "lun"));
    let authenticates = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
    if authenticates && !given(source, "secretRef") {
        errors.required(path.child("secretRef"), "");
    }
    if given(source, "initiatorName") {
        let initiator = text(source, "initiatorName");
        if !is_named(initiator) {
            errors.invalid(path.child("initiatorname"), initiator, START);
        } else if !is_iscsi_name(initiator) {
            errors.invalid(path.child("initiatorname"), initiator, "must be valid format");
        }
    }
}

fn is_named(name: &str) -> bool {
    ["iqn", "eui", "naa"].iter().any(|kind| name.starts_with(kind))
}

/// `iqn.2001-04.com.example:storage`, `eui.` and 16 digits, or `naa.` and 32; upstream's patterns take any character
/// for the dot of the latter two.
fn is_iscsi_name(name: &str) -> bool {
    let plain = |digits: usize| {
        let rest: String = name.chars().skip(4).collect();
        name.chars().count() == digits + 4 && rest.chars().all(|c| c.is_ascii_alphanumeric())
    };
    match name.get(..3) {
        Some("eui") => plain(16),
        Some("naa") => plain(32),
        _ => is_iqn(name),
    }
}

fn is_iqn(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let (date, rest) = rest.split_at_checked(8).unwrap_or(("", ""));
    let dated = date.bytes().enumerate().all(|(at, byte)| match at {
        4 => byte == b'-',
        7 => byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    let Some((authority, target)) = rest.split_once(':') else { return false };
    let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let kept = |c: char| !matches!(c, ',' | ';' | '*' | '&' | '$' | '|') && !c.is_ascii_whitespace();
    let targets = !target.is_empty() && target.chars().all(kept);
    !date.is_empty() && dated && !authority.is_empty() && authority.chars().all(host) && targets
}

fn lun(errors: &mut ErrorList, path: Path<'_>, lun: i64) {
    if !(0..=255).contains(&lun) {
        errors.invalid(path, lun, "must be between 0 and 255, inclusive");
    }
}

fn flocker(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
    }
    if name.contains('/') {
        errors.invalid(path.child("datasetName"), name, "must not contain '/'");
    }
}

fn secret(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    if given(source, "secretRef") && text(&source["secretRef"], "name").is_empty() {
        errors.required(path.child("secretRef").child("name"), "");
    }
}

fn quobyte(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const TENANT_MAX: usize = 64;
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.required(path.child("registry"), PAIRS);
    } else if text(source, "tenant").len() > TENANT_MAX {
        errors.required(path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_port(pair)) {
            errors.invalid(path.child("registry"), registry, PAIRS);
        }
    }
    need(errors, path, source, "volume");
}

/// Whether Go's `net.SplitHostPort` splits it.
fn is_host_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else { return false };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = bracketed.map_or(!host.contains([':', '[', ']']), |host| !host.contains(['[', ']']));
    plain && !port.contains(['[', ']'])
}

fn fibre_channel(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let (names, wwids) = (list(source, "targetWWNs"), list(source, "wwids"));
    if names.is_empty() && wwids.is_empty() {
        errors.required(path.child("targetWWNs"), "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !wwids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(path.child("targetWWNs"), &source["targetWWNs"], detail);
    }
    if !names.is_empty() {
        match source["lun"].as_i64() {
            None => errors.required(path.child("lun"), "lun is required if targetWWNs is specified"),
            Some(given) => lun(errors, path.child("lun"), given),
        }
    }
}

/// Options may not look like those that Kubernetes adds.
fn options(errors: &mut ErrorList, path: Path<'_>, options: &Value) {
    for key in options.as_object().into_iter().flatten().map(|(key, _)| key) {
        let namespace = format!(".{}", key.split('/').next().unwrap_or("").to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.invalid(path.key(key), key.as_str(), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    need(errors, path, source, "diskName");
    need(errors, path, source, "diskURI");
    for (field, known) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if given(source, field) && !known.contains(&text(source, field)) {
            errors.not_supported(path.child(field), text(source, field), &known);
        }
    }
    let uri = text(source, "diskURI");
    let (start, form) =
        if text(source, "kind") == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if given(source, "kind") && !uri.starts_with(start) {
        errors.not_supported(path.child("diskURI"), uri, &[form]);
    }
}

fn storage_os(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    match text(source, "volumeName") {
        "" => errors.required(path.child("volumeName"), ""),
        name => errors.all_invalid(path.child("volumeName"), name, names::dns_label(name)),
    }
    let namespace = text(source, "volumeNamespace");
    if !namespace.is_empty() {
        errors.all_invalid(path.child("volumeNamespace"), namespace, names::dns_label(namespace));
    }
    secret(errors, path, source);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names_are_of_three_kinds() {
        for (name, valid) in [
            ("iqn.2001-04.com.example:storage.kube.sys1.xyz", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.20-04.com.example:a", false),
            ("iqn.2001-04.com.example:a b", false),
            ("eui.0123456789ABCDEF", true),
            ("eui.0123456789ABCDE", false),
            ("naa.62004567BA64678D0123456789ABCDEF", true),
        ] {
            assert_eq!(is_iscsi_name(name), valid, "{name}");
        }
    }

    #[test]
    fn registries_are_hosts_with_ports() {
        for (pair, valid) in [("a:1", true), ("a", false), ("[::1]:7", true), ("::1:7", false), (":", true)] {
            assert_eq!(is_host_port(pair), valid, "{pair}");
        }
    }
}
