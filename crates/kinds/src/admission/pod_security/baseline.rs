//! The checks of the level `baseline`, sorted by upstream's names of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers::{all, bad_profiles, containers, named, plural, quoted, setters};
use super::{NEVER, Pod, Rule, Violation};
use crate::object::{given, list, number, text};

pub(super) const RULES: &[Rule] = &[
    Rule { since: 0, replaced: NEVER, check: app_armor },
    Rule { since: 0, replaced: 22, check: capabilities },
    Rule { since: 0, replaced: NEVER, check: host_namespaces },
    Rule { since: 0, replaced: 0, check: host_paths },
    Rule { since: 0, replaced: NEVER, check: host_ports },
    Rule { since: 34, replaced: NEVER, check: probe_hosts },
    Rule { since: 0, replaced: NEVER, check: privileged },
    Rule { since: 0, replaced: 35, check: proc_mounts_without_own_users },
    Rule { since: 0, replaced: NEVER, check: se_linux },
    Rule { since: 0, replaced: 19, check: seccomp },
    Rule { since: 0, replaced: NEVER, check: sysctls },
    Rule { since: 0, replaced: NEVER, check: host_process },
];

/// The prefix of the annotations that chose AppArmor profiles.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The annotation that chose the seccomp profile of a pod, and the prefix of those of its containers.
const SECCOMP: [&str; 2] =
    ["seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/"];

/// What containers may add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that only change the pod's own namespaces, and since which minor version they are allowed.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// The types that SELinux options may name, and since which minor version.
const SE_LINUX_TYPES: [(&str, u32); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];

fn is_confined(profile: &str) -> bool {
    matches!(profile, "RuntimeDefault" | "Localhost")
}

fn annotations<'a>(pod: &Pod<'a>) -> impl Iterator<Item = (&'a String, &'a str)> + use<'a> {
    let annotations = pod.metadata["annotations"].as_object();
    annotations.into_iter().flatten().map(|(key, value)| (key, value.as_str().unwrap_or_default()))
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let (of_pod, names, values) = bad_profiles(pod, "appArmorProfile", is_confined);
    let mut setters = setters(of_pod, &names);
    let mut values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    let allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let mut annotations: Vec<String> = annotations(pod)
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(plural(annotations.len(), "annotation", "annotations").to_owned());
        values.append(&mut annotations);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let detail = format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values));
    Violation::new(reason, detail)
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let names = named(pod, |container| {
        let all = list(&container["securityContext"]["capabilities"], "add").iter().filter_map(Value::as_str);
        let before = all.filter(|capability| !CAPABILITIES.contains(capability));
        let bad: Vec<&str> = before.collect();
        added.extend(bad.iter().copied());
        !bad.is_empty()
    });
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(added));
    Violation::new("non-default capabilities", detail)
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(pod.spec, "volumes").iter().filter(|volume| given(volume, "hostPath"));
    let names: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    Violation::new("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(&names)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = named(pod, |container| {
        let of_host = list(container, "ports").iter().map(|port| number(port, "hostPort")).filter(|port| *port != 0);
        let of_host: Vec<String> = of_host.map(|port| port.to_string()).collect();
        let any = !of_host.is_empty();
        ports.extend(of_host);
        any
    });
    if names.is_empty() {
        return None;
    }
    let ports: Vec<String> = ports.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural(names.len(), "uses", "use"),
        plural(ports.len(), "hostPort", "hostPorts"),
        ports.join(", ")
    );
    Violation::new("hostPort", detail)
}

/// Probes and hooks that ask another host make the kubelet ask it.
fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let mut names = BTreeSet::new();
    for container in all(pod) {
        let lifecycle = &container["lifecycle"];
        let handlers = [
            &container["livenessProbe"],
            &container["readinessProbe"],
            &container["startupProbe"],
            &lifecycle["postStart"],
            &lifecycle["preStop"],
        ];
        let asked = handlers.into_iter().flat_map(|handler| [handler.get("httpGet"), handler.get("tcpSocket")]);
        let asked = asked.flatten().map(|action| text(action, "host"));
        let asked: Vec<&str> = asked.filter(|host| !host.is_empty()).collect();
        if !asked.is_empty() {
            names.insert(text(container, "name"));
            hosts.extend(asked);
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural(names.len(), "uses", "use"),
        plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
        quoted(hosts)
    );
    Violation::new("probe or lifecycle host", detail)
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = named(pod, |container| container["securityContext"]["privileged"] == true);
    if names.is_empty() {
        return None;
    }
    Violation::new("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mounts_without_own_users(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mounts(pod) }
}

pub(super) fn proc_mounts(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let names = named(pod, |container| match container["securityContext"]["procMount"].as_str() {
        None | Some("Default") => false,
        Some(other) => {
            values.insert(other);
            true
        }
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(values));
    Violation::new("procMount", detail)
}

fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let minor = pod.minor;
    let mut is_bad = |security: &Value| {
        let Some(options) = security.get("seLinuxOptions").filter(|options| !options.is_null()) else { return false };
        let kind = text(options, "type");
        let known = SE_LINUX_TYPES.iter().any(|(name, since)| *name == kind && *since <= minor);
        if !known {
            types.insert(kind.to_owned());
        }
        let (sets_user, sets_role) = (!text(options, "user").is_empty(), !text(options, "role").is_empty());
        user |= sets_user;
        role |= sets_role;
        !known || sets_user || sets_role
    };
    let of_pod = is_bad(pod.security());
    let names = named(pod, |container| is_bad(&container["securityContext"]));
    let setters = setters(of_pod, &names);
    if setters.is_empty() {
        return None;
    }
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    }
    if user {
        what.push("user may not be set".to_owned());
    }
    if role {
        what.push("role may not be set".to_owned());
    }
    let detail = format!("{} set forbidden securityContext.seLinuxOptions: {}", setters.join(" and "), what.join("; "));
    Violation::new("seLinuxOptions", detail)
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 19 {
        return seccomp_annotations(pod);
    }
    let (of_pod, names, values) = bad_profiles(pod, "seccompProfile", is_confined);
    seccomp_set(&setters(of_pod, &names), values)
}

/// Somebody sets a profile that is none.
pub(super) fn seccomp_set(setters: &[String], values: BTreeSet<&str>) -> Option<Violation> {
    if setters.is_empty() {
        return None;
    }
    let who = setters.join(" and ");
    Violation::new(
        "seccompProfile",
        format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(values)),
    )
}

/// Before profiles were fields, they were annotations.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let [of_pod, prefix] = SECCOMP;
    let containers = all(pod).map(|container| format!("{prefix}{}", text(container, "name")));
    let allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let forbidden: BTreeSet<String> = std::iter::once(of_pod.to_owned())
        .chain(containers)
        .filter_map(|key| {
            let value = pod.metadata["annotations"][&key].as_str()?;
            (!allowed(value)).then(|| format!("{key}={value:?}"))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    let detail = format!("forbidden {} {}", plural(forbidden.len(), "annotation", "annotations"), forbidden.join(", "));
    Violation::new("seccompProfile", detail)
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && *since <= pod.minor);
    let names = list(pod.security(), "sysctls").iter().map(|sysctl| text(sysctl, "name"));
    let forbidden: Vec<&str> = names.filter(|name| !allowed(name)).collect();
    if forbidden.is_empty() { None } else { Violation::new("forbidden sysctls", forbidden.join(", ")) }
}

fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let asks = |security: &Value| security["windowsOptions"]["hostProcess"] == true;
    let setters = setters(asks(pod.security()), &named(pod, |container| asks(&container["securityContext"])));
    if setters.is_empty() {
        return None;
    }
    let who = setters.join(" and ");
    Violation::new("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
