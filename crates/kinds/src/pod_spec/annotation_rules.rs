//! The rules of annotations that stand for fields of a pod, or once did.

use serde_json::Value;

use super::path_rules::descending_path;
use super::rules::toleration_rules;
use super::windows_rules::each_container;
use crate::field::{ErrorList, Path};
use crate::object::{given, list, text};

const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
pub(super) const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(super) const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations of a pod or template; `path` is that of the annotations.
pub(super) fn annotations(errors: &mut ErrorList, path: Path<'_>, annotations: &Value, spec: &Value) {
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let (key, value) = (key.as_str(), value.as_str().unwrap_or(""));
        if key == MIRROR && text(spec, "nodeName").is_empty() {
            errors.invalid(path.key(key), value, "must set spec.nodeName if mirror pod annotation is set");
        } else if key == TOLERATIONS && !value.is_empty() {
            match serde_json::from_str::<Vec<Value>>(value) {
                Ok(tolerations) => toleration_rules(errors, path.child(TOLERATIONS), &tolerations),
                Err(error) => errors.invalid(path, TOLERATIONS, &error.to_string()),
            }
        } else if key == DELETION_COST && !is_cost(value) {
            errors.invalid(path.key(key), value, "must be a 32bit integer");
        } else if key == SECCOMP_OF_POD || key.starts_with(SECCOMP_OF_CONTAINER) {
            seccomp(errors, path.child(key), value);
        } else if let Some(container) = key.strip_prefix(APP_ARMOR) {
            let mut found = false;
            each_container(path, spec, |_, known| found |= text(known, "name") == container);
            if !found {
                errors.invalid(path.key(key), container, "container not found");
            }
            if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
                errors.invalid(path.key(key), value, &format!("invalid AppArmor profile name: {value:?}"));
            }
        }
    }
}

/// A number of 32 bits, without a plus sign or zeros before it.
fn is_cost(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let plain = value == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    plain && value.parse::<i32>().is_ok()
}

fn seccomp(errors: &mut ErrorList, path: Path<'_>, profile: &str) {
    match profile.strip_prefix("localhost/") {
        Some(local) => descending_path(errors, path, local),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => errors.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

/// The kind of profile and its name, as annotations spell it.
fn says(annotation: &str) -> (&str, Option<&str>) {
    match (annotation, annotation.strip_prefix("localhost/")) {
        (_, Some(local)) => ("Localhost", Some(local)),
        ("runtime/default" | "docker/default", _) => ("RuntimeDefault", None),
        ("unconfined", _) => ("Unconfined", None),
        _ => ("", None),
    }
}

/// Where a profile has an annotation and a field, both say the same. `path` is that of the spec.
pub(crate) fn seccomp_agrees(errors: &mut ErrorList, path: Path<'_>, annotations: &Value, spec: &Value) {
    if !annotations.is_object() {
        return;
    }
    agree(errors, path, &annotations[SECCOMP_OF_POD], &spec["securityContext"]["seccompProfile"], "seccomp");
    each_container(path, spec, |path, container| {
        let annotation = &annotations[format!("{SECCOMP_OF_CONTAINER}{}", text(container, "name"))];
        agree(errors, path, annotation, &container["securityContext"]["seccompProfile"], "seccomp");
    });
}

/// The same for AppArmor, in new pods. Containers have the profile of the pod unless they have their own.
pub(crate) fn app_armor_agrees(errors: &mut ErrorList, path: Path<'_>, annotations: &Value, spec: &Value) {
    if !annotations.is_object() || text(&spec["os"], "name") == "windows" {
        return;
    }
    let of_pod = &spec["securityContext"]["appArmorProfile"];
    each_container(path, spec, |path, container| {
        let annotation = &annotations[format!("{APP_ARMOR}{}", text(container, "name"))];
        let own = &container["securityContext"]["appArmorProfile"];
        agree(errors, path, annotation, if own.is_null() { of_pod } else { own }, "apparmor");
    });
}

fn agree(errors: &mut ErrorList, path: Path<'_>, annotation: &Value, profile: &Value, what: &str) {
    let Some(annotation) = annotation.as_str().filter(|_| profile.is_object()) else { return };
    let path = path.child("securityContext");
    let path = path.child(if what == "seccomp" { "seccompProfile" } else { "appArmorProfile" });
    let (kind, local) = says(annotation);
    let kind = if what == "apparmor" && annotation == "docker/default" { "" } else { kind };
    if !matches!(text(profile, "type"), "Unconfined" | "RuntimeDefault" | "Localhost") {
        return;
    }
    if text(profile, "type") != kind {
        errors.forbidden(path.child("type"), &format!("{what} type in annotation and field must match"));
    } else if kind == "Localhost" && profile["localhostProfile"].as_str() != local {
        errors.forbidden(path.child("localhostProfile"), &format!("{what} profile in annotation and field must match"));
    }
}

/// What may not change in the annotations of a pod that exists.
pub(crate) fn annotation_changes(errors: &mut ErrorList, path: Path<'_>, new: &Value, old: &Value) {
    let kinds = [(APP_ARMOR, "AppArmor annotations"), (MIRROR, "mirror pod annotation")];
    let mut refuse = |key: &str, verb: &str| {
        for (kind, what) in kinds {
            if key == kind || (kind == APP_ARMOR && key.starts_with(kind)) {
                errors.forbidden(path.key(key), &format!("may not {verb} {what}"));
            }
        }
    };
    for (key, _) in old.as_object().into_iter().flatten().filter(|(key, value)| new.get(key) != Some(value)) {
        refuse(key, "remove or update");
    }
    for (key, _) in new.as_object().into_iter().flatten().filter(|(key, _)| !given(old, key)) {
        refuse(key, "add");
    }
}

/// Tokens of a pod without a service account have nobody to speak for.
pub(crate) fn tokens_need_an_account(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    if !text(spec, "serviceAccountName").is_empty() {
        return;
    }
    let volumes = path.child("volumes");
    for (index, volume) in list(spec, "volumes").iter().enumerate() {
        let path = volumes.index(index);
        let path = path.child("projected");
        let sources = path.child("sources");
        for (index, _) in list(&volume["projected"], "sources")
            .iter()
            .enumerate()
            .filter(|(_, source)| given(*source, "serviceAccountToken"))
        {
            let path = sources.index(index);
            let detail = "must not be specified when serviceAccountName is not set";
            errors.forbidden(path.child("serviceAccountToken"), detail);
        }
    }
}
