//! The rules of volumes that are made of keys, fields and tokens.

use std::collections::BTreeSet;

use serde_json::Value;

use super::environment_rules::{self, VOLUME_FIELDS};
use super::path_rules::local_path;
use super::volume_rules::need;
use crate::field::{ErrorList, GoValue, Path};
use crate::object::{given, list, number, text};
use crate::{label_selector, names};

pub(super) fn mode(errors: &mut ErrorList, path: Path<'_>, source: &Value, field: &str) {
    if let Some(mode) = source[field].as_i64()
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// Keys and the paths they are written to.
pub(super) fn items(errors: &mut ErrorList, path: Path<'_>, items: &[Value]) {
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        need(errors, path, item, "key");
        need(errors, path, item, "path");
        local_path(errors, path.child("path"), text(item, "path"));
        mode(errors, path.child("mode"), item, "mode");
    }
}

/// A file with a field of the pod. Upstream reports under the path of the whole list.
pub(super) fn downward_file(errors: &mut ErrorList, path: Path<'_>, file: &Value) {
    need(errors, path, file, "path");
    local_path(errors, path.child("path"), text(file, "path"));
    if given(file, "fieldRef") {
        environment_rules::field_reference(errors, path.child("fieldRef"), &file["fieldRef"], &VOLUME_FIELDS);
        if given(file, "resourceFieldRef") {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
    } else if given(file, "resourceFieldRef") {
        let path = path.child("resourceFieldRef");
        environment_rules::resource_reference(errors, path, &file["resourceFieldRef"], true);
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(errors, path.child("mode"), file, "mode");
}

pub(super) fn projected(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    const KINDS: [&str; 6] =
        ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];
    mode(errors, path.child("defaultMode"), source, "defaultMode");
    let sources = path.child("sources");
    let mut taken = BTreeSet::new();
    for (index, entry) in list(source, "sources").iter().enumerate() {
        let entry_path = sources.index(index);
        for kind in KINDS.into_iter().filter(|kind| given(entry, kind)) {
            one(errors, path, entry_path.child(kind), kind, &entry[kind], &mut taken);
        }
        if KINDS.iter().filter(|kind| given(entry, kind)).count() > 1 {
            errors.forbidden(entry_path, "may not specify more than 1 volume type per source");
        }
    }
}

/// One source; `path` is that of the volume, under which upstream reports paths that two sources want.
fn one<'v>(
    errors: &mut ErrorList,
    path: Path<'_>,
    source_path: Path<'_>,
    kind: &str,
    source: &'v Value,
    taken: &mut BTreeSet<&'v str>,
) {
    let mut take = |errors: &mut ErrorList, file: &'v str, shown: &str| {
        if !taken.insert(file) {
            errors.invalid(path, shown, "conflicting duplicate paths");
        }
    };
    match kind {
        "secret" | "configMap" => {
            need(errors, source_path, source, "name");
            items(errors, source_path.child("items"), list(source, "items"));
            for file in list(source, "items").iter().map(|item| text(item, "path")).filter(|file| !file.is_empty()) {
                take(errors, file, text(source, "name"));
            }
        }
        "downwardAPI" => {
            for file in list(source, "items") {
                downward_file(errors, source_path, file);
                let file = text(file, "path");
                if !file.is_empty() {
                    take(errors, file, file);
                }
            }
        }
        "serviceAccountToken" => token(errors, path, source_path, source),
        "clusterTrustBundle" => {
            trust_bundle(errors, source_path, source);
            let file = text(source, "path");
            need(errors, source_path, source, "path");
            local_path(errors, source_path.child("path"), file);
            take(errors, file, file);
        }
        "podCertificate" => certificate(errors, source_path, source, &mut take),
        _ => {}
    }
}

fn token(errors: &mut ErrorList, path: Path<'_>, source_path: Path<'_>, source: &Value) {
    const SECONDS_MIN: i64 = 10 * 60;
    const SECONDS_MAX: i64 = 1 << 32;
    let (seconds, seconds_path) = (number(source, "expirationSeconds"), source_path.child("expirationSeconds"));
    if seconds < SECONDS_MIN {
        errors.invalid(seconds_path, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > SECONDS_MAX {
        errors.invalid(seconds_path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    match text(source, "path") {
        "" => errors.required(path.child("path"), ""),
        file => local_path(errors, path.child("path"), file),
    }
}

fn trust_bundle(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    match (given(source, "name"), given(source, "signerName")) {
        (true, true) => {
            let shown = GoValue("io.k8s.api.core.v1.ClusterTrustBundleProjection", source);
            errors.invalid(path, shown, "only one of name and signerName may be used");
        }
        (true, false) => {
            let name = text(source, "name");
            if name.is_empty() {
                errors.required(path.child("name"), "must be a valid object name");
            }
            // A bundle of a signer has the signer's name before its own.
            let own = name.rsplit(':').next().unwrap_or(name);
            for problem in names::dns_subdomain(own) {
                let detail = format!("not a valid clustertrustbundlename: {problem}");
                errors.invalid(path.child("name"), name, &detail);
            }
            if given(source, "labelSelector") {
                let detail = "labelSelector must be unset if name is specified";
                let shown = label_selector::shown(&source["labelSelector"]);
                errors.invalid(path.child("labelSelector"), shown, detail);
            }
        }
        (false, true) => {
            if text(source, "signerName").is_empty() {
                errors.required(path.child("signerName"), "must be a valid signer name");
            }
            label_selector::rules(errors, path.child("labelSelector"), &source["labelSelector"]);
        }
        (false, false) => errors.required(path, "either name or signerName must be specified"),
    }
}

fn certificate<'v>(
    errors: &mut ErrorList,
    path: Path<'_>,
    source: &'v Value,
    take: &mut impl FnMut(&mut ErrorList, &'v str, &str),
) {
    const KEY_TYPES: [&str; 6] = ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];
    const SECONDS_MIN: i64 = 60 * 60;
    const SECONDS_MAX: i64 = 91 * 24 * 60 * 60;
    need(errors, path, source, "signerName");
    if !KEY_TYPES.contains(&text(source, "keyType")) {
        errors.not_supported(path.child("keyType"), text(source, "keyType"), &KEY_TYPES);
    }
    if let Some(seconds) = source["maxExpirationSeconds"].as_i64() {
        let detail = if seconds < SECONDS_MIN {
            "if provided, maxExpirationSeconds must be >= 3600"
        } else {
            "if provided, maxExpirationSeconds must be <= 7862400"
        };
        if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) {
            errors.invalid(path.child("maxExpirationSeconds"), seconds, detail);
        }
    }
    let files = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    if files.iter().all(|field| text(source, field).is_empty()) {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
    for field in files {
        let file = text(source, field);
        if !file.is_empty() {
            local_path(errors, path.child(field), file);
            take(errors, file, file);
        }
    }
}
