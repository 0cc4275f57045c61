//! The rules of volume sources. Upstream: `validate…VolumeSource`.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

/// A volume source: its field, its names in messages, what it needs, and what else it must satisfy.
struct Source {
    field: &'static str,
    /// The last step of the path when another source is there already.
    beside: &'static str,
    /// The last step of the paths of its own fields.
    path: &'static str,
    /// Its fields that may not be empty.
    required: &'static [&'static str],
    rules: fn(&mut ErrorList, Path<'_>, &Value),
}

const fn source(field: &'static str, required: &'static [&'static str]) -> Source {
    Source { field, beside: field, path: field, required, rules: |_, _, _| {} }
}

const fn checked(
    field: &'static str,
    required: &'static [&'static str],
    rules: fn(&mut ErrorList, Path<'_>, &Value),
) -> Source {
    Source { rules, ..source(field, required) }
}

/// The sources of PersistentVolumes, in the order in which upstream checks them.
static SOURCES: [Source; 21] = [
    checked("hostPath", &["path"], host_path),
    Source { path: "persistentDisk", ..checked("gcePersistentDisk", &["pdName"], partition) },
    checked("awsElasticBlockStore", &["volumeID"], partition),
    checked("glusterfs", &["endpoints", "path"], glusterfs),
    checked("flocker", &[], flocker),
    checked("nfs", &["server", "path"], nfs),
    source("rbd", &["monitors", "image"]),
    checked("quobyte", &["volume"], quobyte),
    Source { beside: "cephFS", ..source("cephfs", &["monitors"]) },
    checked("iscsi", &["targetPortal", "iqn"], iscsi),
    checked("cinder", &["volumeID"], |errors, path, source| secret(errors, path, source, "secretRef")),
    checked("fc", &[], fibre_channel),
    checked("flexVolume", &["driver"], flex_volume),
    checked("azureFile", &["secretName", "shareName"], azure_file),
    source("vsphereVolume", &["volumePath"]),
    source("photonPersistentDisk", &["pdID"]),
    source("portworxVolume", &["volumeID"]),
    checked("azureDisk", &["diskName", "diskURI"], azure_disk),
    source("scaleIO", &["gateway", "system", "volumeName"]),
    checked("local", &["path"], |errors, path, source| no_backsteps(errors, path.child("path"), text(source, "path"))),
    checked("storageos", &["volumeName"], storage_os),
];

/// Checks the source of a volume, of which there is one; `volume` is the name of the volume.
pub(super) fn rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value, volume: &str) {
    let mut found = false;
    for source in SOURCES.iter().filter(|source| given(spec, source.field)) {
        // Upstream does not ask for others beside this one.
        if found && source.field != "flexVolume" {
            errors.forbidden(path.child(source.beside), "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        let (path, value) = (path.child(source.path), &spec[source.field]);
        for field in source.required {
            if text(value, field).is_empty() && list(value, field).is_empty() {
                errors.required(path.child(field), "");
            }
        }
        (source.rules)(errors, path, value);
        if source.field == "iscsi" {
            portal_length(errors, path, value, volume);
        }
    }
    if !given(spec, "csi") {
        if !found {
            errors.required(path, "must specify a volume type");
        }
    } else if found {
        errors.forbidden(path.child("csi"), "may not specify more than 1 volume type");
    } else {
        csi(errors, path.child("csi"), &spec["csi"]);
    }
}

pub(super) fn no_backsteps(errors: &mut ErrorList, path: Path<'_>, value: &str) {
    if value.split('/').any(|part| part == "..") {
        errors.invalid(path, value, "must not contain '..'");
    }
}

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn host_path(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    if text(source, "path").is_empty() {
        return;
    }
    no_backsteps(errors, path.child("path"), text(source, "path"));
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(path.child("type"), kind, &HOST_PATH_TYPES);
    }
}

fn partition(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    // 0 is no partition; the message leaves it out.
    let partition = number(source, "partition");
    if !(0..=255).contains(&partition) {
        errors.invalid(path.child("partition"), partition, "must be between 1 and 255, inclusive");
    }
}

fn logical_unit(errors: &mut ErrorList, path: Path<'_>, unit: i64) {
    if !(0..=255).contains(&unit) {
        errors.invalid(path.child("lun"), unit, "must be between 0 and 255, inclusive");
    }
}

fn glusterfs(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let path = path.child("endpointsNamespace");
    match source["endpointsNamespace"].as_str() {
        Some("") => errors.invalid(path, "", "if the endpointnamespace is set, it must be a valid namespace name"),
        Some(namespace) => errors.all_invalid(path, namespace, names::dns_label(namespace)),
        None => {}
    }
}

fn flocker(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let name = text(source, "datasetName");
    match (name.is_empty(), text(source, "datasetUUID").is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            errors.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(path.child("datasetName"), name, "must not contain '/'");
    }
}

fn nfs(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let directory = text(source, "path");
    if !directory.starts_with('/') {
        errors.invalid(path.child("path"), directory, "must be an absolute path");
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
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(path.child("registry"), registry, PAIRS);
        }
    }
}

/// Whether a text is a host and a port, as Go splits them.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']'),
        None => Some(host).filter(|host| !host.contains(':')),
    };
    host.is_some_and(|host| !host.contains(['[', ']'])) && !port.contains(['[', ']'])
}

fn iscsi(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let name = text(source, "iqn");
    if !name.is_empty() && !is_iscsi_name(name) {
        errors.invalid(path.child("iqn"), name, "must be valid format");
    }
    logical_unit(errors, path, number(source, "lun"));
    let authenticated = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
    if authenticated && !given(source, "secretRef") {
        errors.required(path.child("secretRef"), "");
    }
    if given(source, "secretRef") && text(&source["secretRef"], "name").is_empty() {
        let secret = path.child("secretRef");
        errors.required(secret.child("name"), "");
    }
    if let Some(initiator) = source["initiatorName"].as_str().filter(|name| !is_iscsi_name(name)) {
        errors.invalid(path.child("initiatorname"), initiator, "must be valid format");
    }
}

fn portal_length(errors: &mut ErrorList, path: Path<'_>, source: &Value, volume: &str) {
    const LENGTH_MAX: usize = 64;
    let portal = text(source, "targetPortal");
    if given(source, "initiatorName") && volume.len() + 1 + portal.len() > LENGTH_MAX {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                      iscsi.initiatorName is specified.";
        errors.invalid(path.child("targetportal"), portal, detail);
    }
}

/// `iqn.2001-04.com.example:disk`, `eui.` with 16 digits or letters, or `naa.` with 32 of them.
fn is_iscsi_name(name: &str) -> bool {
    let coded = |rest: &str, length: usize| {
        let mut rest = rest.chars();
        rest.next().is_some_and(|separator| separator != '\n') && {
            let code = rest.as_str();
            code.len() == length && code.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }
    };
    match name.get(..3) {
        Some("eui") => coded(&name[3..], 16),
        Some("naa") => coded(&name[3..], 32),
        // What upstream looks for may begin anywhere.
        Some("iqn") => name.match_indices("iqn.").any(|(start, _)| is_qualified_name(&name[start + 4..])),
        _ => false,
    }
}

/// A year and month, an authority, and behind a colon what it names.
fn is_qualified_name(name: &str) -> bool {
    let Some((date, rest)) = name.split_at_checked(8) else { return false };
    let dated = date.bytes().enumerate().all(|(at, byte)| match at {
        4 => byte == b'-',
        7 => byte == b'.',
        _ => byte.is_ascii_digit(),
    });
    let Some((authority, named)) = rest.split_once(':') else { return false };
    let authority =
        !authority.is_empty() && authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    dated
        && authority
        && !named.is_empty()
        && !named.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\x0c'])
}

fn fibre_channel(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let targets = path.child("targetWWNs");
    match (list(source, "targetWWNs").is_empty(), list(source, "wwids").is_empty()) {
        (true, true) => errors.required(targets, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => {
            let detail = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(targets, &source["targetWWNs"], detail);
        }
        _ => {}
    }
    if !list(source, "targetWWNs").is_empty() {
        match source["lun"].as_i64() {
            None => errors.required(path.child("lun"), "lun is required if targetWWNs is specified"),
            Some(unit) => logical_unit(errors, path, unit),
        }
    }
}

fn flex_volume(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    let path = path.child("options");
    for key in source["options"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace).to_lowercase();
        let within = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
        if within("kubernetes.io") || within("k8s.io") {
            errors.invalid(path.key(key), key.as_str(), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_file(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    if source["secretNamespace"] == "" {
        errors.required(path.child("secretNamespace"), "");
    }
}

const CACHING_MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const DISK_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED_URI: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_URI: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

fn azure_disk(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    for (field, supported) in [("cachingMode", CACHING_MODES), ("kind", DISK_KINDS)] {
        if let Some(value) = source[field].as_str().filter(|value| !supported.contains(value)) {
            errors.not_supported(path.child(field), value, &supported);
        }
    }
    let uri = text(source, "diskURI");
    let form = match source["kind"].as_str() {
        Some("Managed") if !uri.starts_with("/subscriptions/") => MANAGED_URI,
        Some("Managed") | None => return,
        Some(_) if uri.starts_with("https://") => return,
        Some(_) => BLOB_URI,
    };
    errors.not_supported(path.child("diskURI"), uri, &[form]);
}

fn storage_os(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    for field in ["volumeName", "volumeNamespace"] {
        let value = text(source, field);
        if !value.is_empty() {
            errors.all_invalid(path.child(field), value, names::dns_label(value));
        }
    }
    secret(errors, path, source, "secretRef");
}

/// A secret that is named must be named in full.
fn secret(errors: &mut ErrorList, path: Path<'_>, source: &Value, field: &str) {
    if given(source, field) {
        let path = path.child(field);
        for part in ["name", "namespace"] {
            if text(&source[field], part).is_empty() {
                errors.required(path.child(part), "");
            }
        }
    }
}

const CSI_SECRETS: [&str; 4] =
    ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];

fn csi(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    driver_name(errors, path.child("driver"), text(source, "driver"));
    if text(source, "volumeHandle").is_empty() {
        errors.required(path.child("volumeHandle"), "");
    }
    for field in CSI_SECRETS.into_iter().filter(|field| given(source, field)) {
        let (path, reference) = (path.child(field), &source[field]);
        secret_part(errors, path.child("name"), text(reference, "name"), names::dns_subdomain);
        secret_part(errors, path.child("namespace"), text(reference, "namespace"), names::dns_label);
    }
}

fn secret_part(errors: &mut ErrorList, path: Path<'_>, value: &str, rule: fn(&str) -> Vec<String>) {
    match value {
        "" => errors.required(path, ""),
        value => errors.all_invalid(path, value, rule(value)),
    }
}

/// Checks the name of a CSI driver. Upstream: `ValidateCSIDriverName`.
pub(crate) fn driver_name(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    const NAME_MAX: usize = 63;
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    if name.len() > NAME_MAX {
        errors.too_long(path, NAME_MAX);
    }
    errors.all_invalid(path, name, names::dns_subdomain(&name.to_lowercase()));
}

/// Warns of sources that no kubelet mounts any more.
pub(super) fn warnings(warnings: &mut Vec<String>, spec: &Value) {
    for (field, shown, since, gone) in [
        ("cephfs", "cephfs", "1.28", "1.31"),
        ("photonPersistentDisk", "photonPersistentDisk", "1.11", "1.16"),
        ("scaleIO", "scaleIO", "1.16", "1.22"),
        ("storageos", "storageOS", "1.22", "1.25"),
        ("glusterfs", "glusterfs", "1.25", "1.26"),
        ("rbd", "rbd", "1.28", "1.31"),
    ] {
        if given(spec, field) {
            warnings.push(format!("spec.{shown}: deprecated in v{since}, non-functional in v{gone}+"));
        }
    }
}
