//! The rules of what a claim asks for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::lists::{each, itself, name, set};
use super::{device_names, selectors};
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};

/// The most requests of a claim, and of a constraint or a configuration.
pub(super) const REQUESTS_MAX: usize = 32;
/// The most alternatives of a request.
const ALTERNATIVES_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
/// The most configurations of a claim or a class.
pub(super) const CONFIGURATIONS_MAX: usize = 32;
const TOLERATIONS_MAX: usize = 16;
/// The longest parameters, 10 KiB.
const PARAMETERS_MAX: usize = 10 * 1024;
const UNKNOWN_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
pub(super) const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// The requests of a claim, each with the names of its alternatives.
pub(super) struct Requests<'v>(BTreeMap<&'v str, BTreeSet<&'v str>>);

impl<'v> Requests<'v> {
    pub(super) fn of(spec: &'v Value) -> Requests<'v> {
        let requests = list(&spec["devices"], "requests").iter();
        let alternatives =
            |request: &'v Value| list(request, "firstAvailable").iter().map(|part| text(part, "name")).collect();
        Requests(requests.map(|request| (text(request, "name"), alternatives(request))).collect())
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            Some((request, part)) => self.0.get(request).is_some_and(|parts| parts.contains(part)),
            None => self.0.contains_key(name),
        }
    }

    /// Checks a name that must be one of them.
    pub(super) fn reference(&self, errors: &mut ErrorList, path: Path<'_>, name: &str) {
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() <= 2 {
            parts.iter().for_each(|part| device_names::label(errors, path, part));
        }
        if parts.len() > 2 || !self.has(name) {
            errors.invalid(path, name, UNKNOWN_REQUEST);
        }
    }

    /// Checks the names of the requests that something is about.
    pub(super) fn references(&self, errors: &mut ErrorList, path: Path<'_>, about: &Value) {
        let check = |errors: &mut ErrorList, path: Path<'_>, value: &Value| {
            self.reference(errors, path, itself(value));
        };
        set(errors, path.child("requests"), list(about, "requests"), REQUESTS_MAX, itself, check);
    }
}

/// Checks the spec of a claim, which may be that of a template.
pub(super) fn spec(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let (path, devices) = (path.child("devices"), &spec["devices"]);
    let requests = Requests::of(spec);
    set(errors, path.child("requests"), list(devices, "requests"), REQUESTS_MAX, name, request);
    each(
        errors,
        path.child("constraints"),
        list(devices, "constraints"),
        CONSTRAINTS_MAX,
        |errors, path, constraint| {
            requests.references(errors, path, constraint);
            self::constraint(errors, path, constraint);
        },
    );
    each(errors, path.child("config"), list(devices, "config"), CONFIGURATIONS_MAX, |errors, path, config| {
        requests.references(errors, path, config);
        configuration(errors, path, config);
    });
}

fn request(errors: &mut ErrorList, path: Path<'_>, request: &Value) {
    device_names::label(errors, path.child("name"), text(request, "name"));
    let alternatives = list(request, "firstAvailable");
    match (given(request, "exactly"), !alternatives.is_empty()) {
        (false, false) => errors.required(path, "exactly one of `exactly` or `firstAvailable` is required"),
        (true, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.invalid(path, &Value::Null, detail);
        }
        (true, false) => exact(errors, path.child("exactly"), &request["exactly"]),
        (false, true) => {
            let check = |errors: &mut ErrorList, path: Path<'_>, part: &Value| {
                device_names::label(errors, path.child("name"), text(part, "name"));
                exact(errors, path, part);
            };
            set(errors, path.child("firstAvailable"), alternatives, ALTERNATIVES_MAX, name, check);
        }
    }
}

/// What a request and each of its alternatives have.
fn exact(errors: &mut ErrorList, path: Path<'_>, request: &Value) {
    match text(request, "deviceClassName") {
        "" => errors.required(path.child("deviceClassName"), ""),
        class => errors.all_invalid(path.child("deviceClassName"), class, names::dns_subdomain(class)),
    }
    selectors::of_list(errors, path.child("selectors"), request, false);
    let (mode, count) = (text(request, "allocationMode"), number(request, "count"));
    match mode {
        "All" if count != 0 => {
            errors.invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => errors.invalid(path.child("count"), count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => errors.not_supported(path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    each(errors, path.child("tolerations"), list(request, "tolerations"), TOLERATIONS_MAX, toleration);
}

pub(super) fn toleration(errors: &mut ErrorList, path: Path<'_>, toleration: &Value) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
    }
    match text(toleration, "operator") {
        "Exists" => {
            if !value.is_empty() {
                errors.invalid(path.child("value"), value, "must be empty for operator `Exists`");
            }
        }
        "Equal" => errors.all_invalid(path.child("value"), value, names::label_value(value)),
        "" => errors.required(path.child("operator"), ""),
        other => errors.not_supported(path.child("operator"), other, &["Equal", "Exists"]),
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.not_supported(path.child("effect"), effect, EFFECTS);
    }
}

fn constraint(errors: &mut ErrorList, path: Path<'_>, constraint: &Value) {
    let named = ["matchAttribute", "distinctAttribute"].into_iter().find(|field| given(constraint, field));
    match named {
        Some(field) => device_names::fully_qualified(errors, path.child(field), text(constraint, field)),
        None => errors.required(
            path,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        ),
    }
}

/// Checks what is handed to a driver.
pub(super) fn configuration(errors: &mut ErrorList, path: Path<'_>, config: &Value) {
    let path = path.child("opaque");
    if !given(config, "opaque") {
        return errors.required(path, "");
    }
    let opaque = &config["opaque"];
    device_names::driver(errors, path.child("driver"), text(opaque, "driver"));
    json_object(errors, path.child("parameters"), &opaque["parameters"]);
}

/// Checks a field that holds any JSON object.
pub(super) fn json_object(errors: &mut ErrorList, path: Path<'_>, value: &Value) {
    if value.is_null() {
        errors.required(path, "");
    } else if value.to_string().len() > PARAMETERS_MAX {
        errors.too_long(path, PARAMETERS_MAX);
    } else if !value.is_object() {
        errors.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}
