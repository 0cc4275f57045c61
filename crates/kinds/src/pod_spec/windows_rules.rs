//! The rules of pods for Windows, and of what only pods for Linux or Windows have.

use serde_json::Value;

use super::container_rules::CONTAINERS;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, text};

const CREDENTIALS_MAX: usize = 64 * 1024;
const DOMAIN_MAX: usize = 256;
const USER_MAX: usize = 104;

pub(super) fn options(errors: &mut ErrorList, path: Path<'_>, options: &Value) {
    if given(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        errors.all_invalid(path.child("gmsaCredentialSpecName"), name, names::dns_subdomain(name));
    }
    if given(options, "gmsaCredentialSpec") {
        let (spec, path) = (text(options, "gmsaCredentialSpec"), path.child("gmsaCredentialSpec"));
        if spec.is_empty() {
            errors.invalid(path, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIALS_MAX {
            errors.invalid(path, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if given(options, "runAsUserName") {
        let name = text(options, "runAsUserName");
        for problem in user_name(name) {
            errors.invalid(path.child("runAsUserName"), name, &problem);
        }
    }
}

/// What is wrong with `DOMAIN\user` or `user`.
fn user_name(name: &str) -> Vec<String> {
    let problem = |text: &str| vec![format!("runAsUserName{text}")];
    if name.is_empty() {
        return problem(" cannot be an empty string");
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return problem(" cannot contain control characters");
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>()[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return problem(" cannot contain more than one backslash"),
    };
    let mut problems = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
        problems.push(format!("runAsUserName's Domain length must be under {DOMAIN_MAX} characters"));
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_domain(domain)) {
        problems.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > USER_MAX {
        problems.push(format!("runAsUserName's User length must not be longer than {USER_MAX} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        problems.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let characters = r#""/\:;|=,+*?<>@[]"#;
        problems.push(format!("runAsUserName's User cannot contain the following characters: {characters}"));
    }
    problems
}

fn is_net_bios(domain: &str) -> bool {
    const LENGTH_MAX: usize = 15;
    let fits = !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
    fits && !domain.starts_with('.') && (1..=LENGTH_MAX).contains(&domain.chars().count())
}

fn is_domain(domain: &str) -> bool {
    const LABEL_MAX: usize = 63;
    domain.split('.').all(|label| {
        let known = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        known && (1..=LABEL_MAX).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// Calls for each container of a pod, of any kind, with its path.
pub(super) fn each_container(path: Path<'_>, spec: &Value, mut visit: impl FnMut(Path<'_>, &Value)) {
    for kind in CONTAINERS {
        let list_path = path.child(kind);
        for (index, container) in list(spec, kind).iter().enumerate() {
            visit(list_path.index(index), container);
        }
    }
}

/// All containers of a pod run as processes of the host, or none does.
pub(super) fn host_process(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let of_pod = spec["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
    let (mut containers, mut on_host) = (0, 0);
    each_container(path, spec, |path, container| {
        containers += 1;
        let own = container["securityContext"]["windowsOptions"]["hostProcess"].as_bool();
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let path = path.child("securityContext");
            let path = path.child("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            errors.invalid(path.child("hostProcess"), &Value::Bool(own), &detail);
        }
        on_host += i32::from(own.or(of_pod) == Some(true));
    });
    if on_host == 0 {
        return;
    }
    if on_host != containers {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if spec["hostNetwork"] != true {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(path.child("hostNetwork"), &Value::Bool(false), detail);
    }
    if errors.refuses_privileged() {
        errors.forbidden(path, "hostProcess containers are disallowed by cluster policy");
    }
}

/// What the operating system that a pod names lacks.
pub(super) fn operating_system(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    match text(&spec["os"], "name") {
        "" => {
            let path = path.child("os");
            errors.required(path.child("name"), "");
        }
        "linux" => for_linux(errors, path, spec),
        "windows" => for_windows(errors, path, spec),
        other => errors.not_supported(path.child("os"), other, &["linux", "windows"]),
    }
}

fn for_linux(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let mut refuse = |path: Path<'_>, context: &Value| {
        if given(context, "windowsOptions") {
            let path = path.child("securityContext");
            errors.forbidden(path.child("windowsOptions"), "windows options cannot be set for a linux pod");
        }
    };
    refuse(path, &spec["securityContext"]);
    each_container(path, spec, |path, container| refuse(path, &container["securityContext"]));
}

fn for_windows(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    const DETAIL: &str = "cannot be set for a windows pod";
    const OF_POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const OF_CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let context_path = path.child("securityContext");
    for field in OF_POD {
        let path = context_path.child(field);
        if given(&spec["securityContext"], field) || errors.was_given_empty(path) {
            errors.forbidden(path, DETAIL);
        }
    }
    for field in ["hostUsers", "shareProcessNamespace"] {
        if given(spec, field) {
            errors.forbidden(path.child(field), DETAIL);
        }
    }
    for field in ["hostPID", "hostIPC"] {
        if spec[field] == true {
            errors.forbidden(path.child(field), DETAIL);
        }
    }
    each_container(path, spec, |path, container| {
        let path = path.child("securityContext");
        for field in OF_CONTAINER.into_iter().filter(|field| given(&container["securityContext"], field)) {
            errors.forbidden(path.child(field), DETAIL);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_windows_may_have_a_domain() {
        for (name, problems) in
            [("Administrator", 0), ("CORP\\user", 0), ("a\\b\\c", 1), ("\\user", 1), ("a*b", 1), ("..", 1)]
        {
            assert_eq!(user_name(name).len(), problems, "{name}");
        }
    }
}
