//! The rules of security contexts: who processes run as, and what they may do.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path_rules::descending_path;
use super::windows_rules;
use crate::field::{ErrorList, GoValue, Path};
use crate::object::{given, list, text};

/// The largest user and group id.
const ID_MAX: i64 = i32::MAX as i64;

pub(crate) fn id(errors: &mut ErrorList, path: Path<'_>, id: &Value) {
    if let Some(id) = id.as_i64()
        && !(0..=ID_MAX).contains(&id)
    {
        errors.invalid(path, id, "must be between 0 and 2147483647, inclusive");
    }
}

/// The security context of a pod.
pub(super) fn pod(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, path.child(field), &context[field]);
    }
    let groups = path.child("supplementalGroups");
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        id(errors, groups.index(index), group);
    }
    if !context.is_null() && spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        errors.invalid(
            path.child("shareProcessNamespace"),
            &Value::Bool(true),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(errors, path.child("sysctls"), spec);
    for (field, known) in [
        ("fsGroupChangePolicy", &["Always", "OnRootMismatch"] as &[&str]),
        ("supplementalGroupsPolicy", &["Merge", "Strict"]),
        // The feature gate SELinuxMount is off.
        ("seLinuxChangePolicy", &["Recursive"]),
    ] {
        if given(context, field) && !known.contains(&text(context, field)) {
            errors.not_supported(path.child(field), text(context, field), known);
        }
    }
    profiles(errors, path, context);
}

/// The security context of a container in a pod that shares the users of its node, or does not.
pub(super) fn container(errors: &mut ErrorList, path: Path<'_>, context: &Value, shares_users: bool) {
    if context.is_null() {
        return;
    }
    if context["privileged"] == true && errors.refuses_privileged() {
        errors.forbidden(path.child("privileged"), "disallowed by cluster policy");
    }
    for field in ["runAsUser", "runAsGroup"] {
        id(errors, path.child(field), &context[field]);
    }
    if given(context, "procMount") {
        let (mount, mount_path) = (text(context, "procMount"), path.child("procMount"));
        if !matches!(mount, "Default" | "Unmasked") {
            errors.not_supported(mount_path, mount, &["Default", "Unmasked"]);
        }
        if shares_users && mount == "Unmasked" {
            errors.invalid(mount_path, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    if context["allowPrivilegeEscalation"] == false {
        let refused = |errors: &mut ErrorList, what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.invalid(path, GoValue("io.k8s.api.core.v1.SecurityContext", context), &detail);
        };
        if context["privileged"] == true {
            refused(errors, "`privileged` to true");
        }
        for _ in list(&context["capabilities"], "add").iter().filter(|capability| *capability == "CAP_SYS_ADMIN") {
            refused(errors, "`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    profiles(errors, path, context);
}

/// What containers and pods have in common.
fn profiles(errors: &mut ErrorList, path: Path<'_>, context: &Value) {
    seccomp(errors, path.child("seccompProfile"), &context["seccompProfile"]);
    windows_rules::options(errors, path.child("windowsOptions"), &context["windowsOptions"]);
    app_armor(errors, path.child("appArmorProfile"), &context["appArmorProfile"]);
}

/// The longest name of a profile on a node: that of a path.
pub(super) const PROFILE_NAME_MAX: usize = 4095;
const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn seccomp(errors: &mut ErrorList, path: Path<'_>, profile: &Value) {
    if profile.is_null() {
        return;
    }
    let kind = text(profile, "type");
    match kind {
        "" => errors.required(path.child("type"), "type is required when seccompProfile is set"),
        kind if !PROFILES.contains(&kind) => errors.not_supported(path.child("type"), kind, &PROFILES),
        _ => {}
    }
    let local = path.child("localhostProfile");
    match (kind, given(profile, "localhostProfile")) {
        ("Localhost", false) => errors.required(local, "must be set when seccomp type is Localhost"),
        ("Localhost", true) => descending_path(errors, local, text(profile, "localhostProfile")),
        (_, true) => {
            let shown = GoValue("io.k8s.api.core.v1.SeccompProfile", profile);
            errors.invalid(local, shown, "can only be set when seccomp type is Localhost");
        }
        _ => {}
    }
}

fn app_armor(errors: &mut ErrorList, path: Path<'_>, profile: &Value) {
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if profile.is_null() {
        return;
    }
    let (local, has_name) = (path.child("localhostProfile"), given(profile, "localhostProfile"));
    let name = text(profile, "localhostProfile");
    match text(profile, "type") {
        "Localhost" if !has_name => errors.required(local, NEEDED),
        "Localhost" => {
            if name.trim() != name {
                errors.invalid(local, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(local, NEEDED);
            }
            if name.len() > PROFILE_NAME_MAX {
                errors.too_long(local, PROFILE_NAME_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if has_name {
                errors.invalid(local, name, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(path.child("type"), "type is required when appArmorProfile is set"),
        other => errors.not_supported(path.child("type"), other, &PROFILES),
    }
}

/// Kernel parameters have names, once each, and none that the pod shares with its node.
fn sysctls(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    const NAME_MAX: usize = 253;
    const FORM: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = BTreeSet::new();
    for (index, sysctl) in list(&spec["securityContext"], "sysctls").iter().enumerate() {
        let (name, path) = (text(sysctl, "name"), path.index(index));
        let path = path.child("name");
        let repeated = !seen.insert(name);
        if name.is_empty() {
            errors.required(path, "");
        } else if name.len() > NAME_MAX || !name.split(['.', '/']).all(is_sysctl_part) {
            errors.invalid(path, name, &format!("must have at most {NAME_MAX} characters and match regex {FORM}"));
        } else if repeated {
            errors.duplicate(path, name);
        }
        for (host, own) in [("hostNetwork", Namespace::Network), ("hostIPC", Namespace::InterProcess)] {
            if spec[host] == true && namespace(name) == Some(own) {
                errors.invalid(path, name, &format!("may not be specified when '{host}' is true"));
                break;
            }
        }
    }
}

fn is_sysctl_part(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part = part.as_bytes();
    let ends = part.first().zip(part.last()).is_some_and(|(first, last)| word(*first) && word(*last));
    ends && part.iter().all(|b| word(*b) || matches!(b, b'-' | b'_'))
}

/// A namespace of Linux that has parameters of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Network,
    InterProcess,
}

fn namespace(sysctl: &str) -> Option<Namespace> {
    // The first separator says what the others are: a slash stands for a dot, and a dot for a slash.
    let name: String = match sysctl.find(['.', '/']) {
        Some(at) if sysctl[at..].starts_with('/') => sysctl
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => sysctl.to_owned(),
    };
    let of_processes = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name.starts_with("net.") {
        Some(Namespace::Network)
    } else if name == "kernel.sem" || of_processes.iter().any(|prefix| name.starts_with(prefix)) {
        Some(Namespace::InterProcess)
    } else {
        None
    }
}
