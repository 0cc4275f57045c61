//! What the level `restricted` checks besides or instead, sorted by upstream's names of the checks.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{proc_mounts, seccomp_set};
use super::containers::{bad_profiles, containers, named, plural, profile, quoted, setters};
use super::{NEVER, Pod, Rule, Violation};
use crate::object::{given, list, text};

pub(super) const RULES: &[Rule] = &[
    Rule { since: 8, replaced: NEVER, check: privilege_escalation },
    Rule { since: 22, replaced: NEVER, check: capabilities },
    Rule { since: 35, replaced: NEVER, check: proc_mounts },
    Rule { since: 0, replaced: NEVER, check: volumes },
    Rule { since: 0, replaced: NEVER, check: run_as_non_root },
    Rule { since: 23, replaced: NEVER, check: run_as_user },
    Rule { since: 19, replaced: NEVER, check: seccomp },
];

/// The sources of volumes that take nothing from their node.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The others, in the order in which upstream looks for them.
const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// Whether a check is none of Windows pods, which it is from 1.25 on.
fn spares(pod: &Pod<'_>) -> bool {
    pod.minor >= 25 && pod.is_windows()
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if spares(pod) {
        return None;
    }
    let names = named(pod, |container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if names.is_empty() {
        return None;
    }
    Violation::new(
        "allowPrivilegeEscalation != false",
        format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names)),
    )
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if spares(pod) {
        return None;
    }
    let keeping = named(pod, |container| {
        !list(&container["securityContext"]["capabilities"], "drop").iter().any(|dropped| dropped == "ALL")
    });
    let mut added = BTreeSet::new();
    let adding = named(pod, |container| {
        let capabilities = &container["securityContext"]["capabilities"];
        let bad = list(capabilities, "add").iter().filter_map(Value::as_str);
        let bad: Vec<&str> = bad.filter(|capability| *capability != "NET_BIND_SERVICE").collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(added)
        ));
    }
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let bad = list(pod.spec, "volumes").iter().filter(|volume| !VOLUMES.iter().any(|source| given(volume, source)));
    let names: Vec<&str> = bad
        .map(|volume| {
            types.insert(OTHER_VOLUMES.into_iter().find(|source| given(volume, source)).unwrap_or("unknown"));
            text(volume, "name")
        })
        .collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural(names.len(), "volume", "volumes"),
        quoted(&names),
        plural(names.len(), "uses", "use"),
        plural(types.len(), "restricted volume type", "restricted volume types"),
        quoted(types)
    );
    Violation::new("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.has_own_users() {
        return None;
    }
    let of_pod = pod.security()["runAsNonRoot"].as_bool();
    let of = |container: &Value| container["securityContext"]["runAsNonRoot"].as_bool();
    let setters = setters(of_pod == Some(false), &named(pod, |container| of(container) == Some(false)));
    if !setters.is_empty() {
        let who = setters.join(" and ");
        return Violation::new(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let silent = named(pod, |container| of(container).is_none() && of_pod != Some(true));
    if silent.is_empty() {
        return None;
    }
    Violation::new(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent)))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let is_root = |security: &Value| security["runAsUser"].as_i64() == Some(0);
    let setters = setters(is_root(pod.security()), &named(pod, |container| is_root(&container["securityContext"])));
    if setters.is_empty() {
        return None;
    }
    Violation::new("runAsUser=0", format!("{} must not set runAsUser=0", setters.join(" and ")))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if spares(pod) {
        return None;
    }
    let is_confined = |profile: &str| matches!(profile, "RuntimeDefault" | "Localhost");
    let (of_pod, names, values) = bad_profiles(pod, "seccompProfile", is_confined);
    let set = seccomp_set(&setters(of_pod, &names), values);
    if set.is_some() {
        return set;
    }
    let pod_is_confined = profile(pod.security(), "seccompProfile").is_some();
    let silent =
        named(pod, |container| !pod_is_confined && profile(&container["securityContext"], "seccompProfile").is_none());
    if silent.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&silent)
    );
    Violation::new("seccompProfile", detail)
}
