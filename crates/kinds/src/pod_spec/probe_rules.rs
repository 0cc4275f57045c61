//! The rules of probes and lifecycle hooks, and of the actions they take.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

/// Checks the probes and hooks of a container in a pod with this grace period.
pub(super) fn probes(errors: &mut ErrorList, path: Path<'_>, container: &Value, grace: Option<i64>) {
    const TIMES: [&str; 5] =
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = &container[kind];
        if probe.is_null() {
            continue;
        }
        let path = path.child(kind);
        handler(errors, path, probe, &["exec", "httpGet", "tcpSocket", "grpc"], grace);
        for field in TIMES {
            errors.non_negative(path.child(field), number(probe, field));
        }
        let grace_path = path.child("terminationGracePeriodSeconds");
        if let Some(grace) = probe["terminationGracePeriodSeconds"].as_i64() {
            if grace <= 0 {
                errors.invalid(grace_path, grace, "must be greater than 0");
            }
            if kind == "readinessProbe" {
                errors.invalid(grace_path, grace, "must not be set for readinessProbes");
            }
        }
        if kind != "readinessProbe" && number(probe, "successThreshold") != 1 {
            errors.invalid(path.child("successThreshold"), number(probe, "successThreshold"), "must be 1");
        }
    }
    lifecycle(errors, path.child("lifecycle"), &container["lifecycle"], grace);
}

fn lifecycle(errors: &mut ErrorList, path: Path<'_>, lifecycle: &Value, grace: Option<i64>) {
    for hook in ["postStart", "preStop"] {
        if given(lifecycle, hook) {
            handler(errors, path.child(hook), &lifecycle[hook], &["exec", "httpGet", "tcpSocket", "sleep"], grace);
        }
    }
}

fn handler(errors: &mut ErrorList, path: Path<'_>, of: &Value, kinds: &[&str], grace: Option<i64>) {
    let mut found = false;
    for kind in kinds.iter().filter(|kind| given(of, kind)) {
        let (action, action_path) = (&of[kind], path.child(kind));
        if found {
            errors.forbidden(action_path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if list(action, "command").is_empty() => errors.required(action_path.child("command"), ""),
            "httpGet" => http_get(errors, action_path, action),
            "tcpSocket" => port(errors, action_path.child("port"), &action["port"]),
            "grpc" => port(errors, action_path.child("port"), &Value::from(number(action, "port"))),
            "sleep" => {
                let seconds = number(action, "seconds");
                if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                    let limit = format!("terminationGracePeriodSeconds ({grace})");
                    errors.invalid(action_path, seconds, &format!("must be non-negative and less than {limit}"));
                }
            }
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(errors: &mut ErrorList, path: Path<'_>, action: &Value) {
    if text(action, "path").is_empty() {
        errors.required(path.child("path"), "");
    }
    port(errors, path.child("port"), &action["port"]);
    let scheme = text(action, "scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        if let Some(problem) = names::http_header(name) {
            errors.invalid(path.child("httpHeaders"), name, &problem);
        }
    }
}

/// A port by number or by name.
fn port(errors: &mut ErrorList, path: Path<'_>, value: &Value) {
    match value {
        Value::String(name) => errors.all_invalid(path, name, names::port_name(name)),
        value => {
            let number = value.as_i64().unwrap_or(0);
            if let Some(problem) = names::port_number(number) {
                errors.invalid(path, number, problem);
            }
        }
    }
}
