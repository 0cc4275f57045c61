//! The rules of the devices that a driver publishes.

use serde_json::Value;

use super::claim_rules::EFFECTS;
use super::claim_status::conditions;
use super::device_names;
use super::lists::{at_most, each, name, set};
use crate::field::{ErrorList, GoValue, Path};
use crate::names;
use crate::object::{given, list, number, text};
use crate::pod_spec;

const DEVICES_MAX: usize = 128;
/// The most devices when one of them has taints, consumes counters or has lists of values.
const DEVICES_WITH_MORE_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
/// The most sets of counters that one device consumes of.
const CONSUMED_SETS_MAX: usize = 2;
const ATTRIBUTES_AND_CAPACITIES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const VALUE_MAX: usize = 64;
const ONE_PLACE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

pub(super) fn spec(errors: &mut ErrorList, slice: &Value, old: Option<&Value>) {
    let (path, spec) = (Path::root("spec"), &slice["spec"]);
    device_names::driver(errors, path.child("driver"), text(spec, "driver"));
    pool(errors, path.child("pool"), &spec["pool"]);
    if let Some(old) = old.map(|old| &old["spec"]) {
        errors.immutable(path.child("pool").child("name"), &spec["pool"]["name"], &old["pool"]["name"]);
        for field in ["driver", "nodeName"] {
            errors.immutable(path.child(field), &spec[field], &old[field]);
        }
    }
    places(errors, path, spec);
    if given(spec, "sharedCounters") && given(spec, "devices") {
        errors.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = list(spec, "devices");
    let has_more = |device: &Value| {
        let listed = |attribute: &Value| LISTS.iter().any(|field| given(attribute, field));
        let attributes = device["attributes"].as_object().into_iter().flatten();
        let filled = |field: &str| !list(device, field).is_empty();
        filled("taints") || filled("consumesCounters") || attributes.map(|(_, attribute)| attribute).any(listed)
    };
    let max = if devices.iter().any(has_more) { DEVICES_WITH_MORE_MAX } else { DEVICES_MAX };
    let by_device = spec["perDeviceNodeSelection"] == true;
    set(errors, path.child("devices"), devices, max, name, |errors, path, device| {
        self::device(errors, path, device, by_device);
    });
    let sets = list(spec, "sharedCounters");
    set(errors, path.child("sharedCounters"), sets, COUNTER_SETS_MAX, name, |errors, path, counters| {
        self::counters(errors, path, counters, "name");
    });
}

fn pool(errors: &mut ErrorList, path: Path<'_>, pool: &Value) {
    device_names::pool(errors, path.child("name"), text(pool, "name"));
    let (count, generation) = (number(pool, "resourceSliceCount"), number(pool, "generation"));
    if count <= 0 {
        errors.invalid(path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if generation < 0 {
        errors.invalid(path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// A slice says once from where its devices can be reached.
fn places(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let mut named = Vec::new();
    match &spec["nodeName"] {
        Value::Null => {}
        Value::String(name) if !name.is_empty() => {
            named.push("`nodeName`");
            errors.all_invalid(path.child("nodeName"), name, names::dns_subdomain(name));
        }
        _ => errors.invalid(path.child("nodeName"), "", "must be either unset or set to a non-empty string"),
    }
    if given(spec, "nodeSelector") {
        named.push("`nodeSelector`");
        let path = path.child("nodeSelector");
        pod_spec::node_selector(errors, path, &spec["nodeSelector"]);
        let terms = list(&spec["nodeSelector"], "nodeSelectorTerms");
        if terms.len() != 1 {
            let shown = GoValue("io.k8s.api.core.v1.NodeSelectorTerm", &spec["nodeSelector"]["nodeSelectorTerms"]);
            errors.invalid(path.child("nodeSelectorTerms"), shown, "must have exactly one node selector term");
        }
    }
    for (field, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        match &spec[field] {
            Value::Null => {}
            Value::Bool(true) => named.push(shown),
            other => errors.invalid(path.child(field), other, "must be either unset or set to true"),
        }
    }
    match named.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", named.join(", "));
            errors.invalid(path, shown.as_str(), &format!("{ONE_PLACE}, but multiple fields are set"));
        }
    }
}

fn device(errors: &mut ErrorList, path: Path<'_>, device: &Value, by_device: bool) {
    device_names::label(errors, path.child("name"), text(device, "name"));
    let entries = |field: &str| device[field].as_object().into_iter().flatten();
    let count = entries("attributes").count() + entries("capacity").count();
    if count > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail =
            format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}");
        errors.invalid(path, i64::try_from(count).unwrap_or(i64::MAX), &detail);
    }
    for (name, value) in entries("attributes") {
        let path = path.child("attributes");
        device_names::qualified(errors, path, name);
        attribute(errors, path.key(name), value);
    }
    for (name, value) in entries("capacity") {
        let path = path.child("capacity");
        device_names::qualified(errors, path, name);
        if given(value, "requestPolicy") && device["allowMultipleAllocations"] != true {
            let path = path.key(name);
            errors.forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true");
        }
    }
    each(errors, path.child("taints"), list(device, "taints"), TAINTS_MAX, taint);
    let consumed = list(device, "consumesCounters");
    set(
        errors,
        path.child("consumesCounters"),
        consumed,
        CONSUMED_SETS_MAX,
        |set| text(set, "counterSet"),
        |errors, path, counters| {
            self::counters(errors, path, counters, "counterSet");
        },
    );
    if by_device {
        place_of_device(errors, path, device);
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|field| given(device, field)) {
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                      true in the ResourceSlice spec";
        errors.invalid(path, &Value::Null, detail);
    }
    conditions(errors, path, device);
}

fn place_of_device(errors: &mut ErrorList, path: Path<'_>, device: &Value) {
    const ONE_PLACE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
        `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let mut named = Vec::new();
    match &device["nodeName"] {
        Value::Null => {}
        Value::String(name) if !name.is_empty() => {
            named.push("`nodeName`");
            errors.all_invalid(path.child("nodeName"), name, names::dns_subdomain(name));
        }
        _ => errors.invalid(path.child("nodeName"), "", "must not be empty"),
    }
    if given(device, "nodeSelector") {
        named.push("`nodeSelector`");
        pod_spec::node_selector(errors, path.child("nodeSelector"), &device["nodeSelector"]);
    }
    match &device["allNodes"] {
        Value::Null => {}
        Value::Bool(true) => named.push("`allNodes`"),
        other => errors.invalid(path.child("allNodes"), other, "must be either unset or set to true"),
    }
    match named.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", named.join(", ")).as_str(), ONE_PLACE),
    }
}

fn attribute(errors: &mut ErrorList, path: Path<'_>, attribute: &Value) {
    let fields = ["bool", "int", "string", "version"].into_iter().chain(LISTS);
    let given_fields: Vec<&str> = fields.filter(|field| given(attribute, field)).collect();
    for field in &given_fields {
        let (path, value) = (path.child(field), &attribute[*field]);
        match (*field, value) {
            ("string" | "version", Value::String(value)) => text_value(errors, path, value, *field == "version"),
            (_, Value::Array(values)) if values.is_empty() => {
                errors.invalid(path, value, "must not be empty if specified");
            }
            ("strings" | "versions", Value::Array(values)) => {
                for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
                    text_value(errors, path.index(index), value, *field == "versions");
                }
            }
            _ => {}
        }
    }
    match given_fields.len() {
        0 => errors.invalid(path, "", "exactly one value must be specified"),
        1 => {}
        _ => errors.invalid(
            path,
            GoValue("io.k8s.api.resource.v1.DeviceAttribute", attribute),
            "exactly one value must be specified",
        ),
    }
}

fn text_value(errors: &mut ErrorList, path: Path<'_>, value: &str, is_version: bool) {
    if is_version && !is_semantic_version(value) {
        errors.invalid(path, value, "must be a string compatible with semver.org spec 2.0.0");
    }
    if value.len() > VALUE_MAX {
        errors.too_long(path, VALUE_MAX);
    }
}

/// `1.2.3-pre.1+build.2`, without leading zeros in numbers.
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

fn taint(errors: &mut ErrorList, path: Path<'_>, taint: &Value) {
    let (key, value) = (text(taint, "key"), text(taint, "value"));
    errors.all_invalid(path.child("key"), key, names::qualified_name(key));
    if !value.is_empty() {
        errors.all_invalid(path.child("value"), value, names::label_value(value));
    }
    errors.one_of(path.child("effect"), text(taint, "effect"), EFFECTS);
}

/// A set of counters, or what a device consumes of one.
fn counters(errors: &mut ErrorList, path: Path<'_>, counters: &Value, name: &str) {
    match text(counters, name) {
        "" => errors.required(path.child(name), ""),
        value => device_names::label(errors, path.child(name), value),
    }
    let path = path.child("counters");
    let entries = counters["counters"].as_object();
    let count = entries.map_or(0, serde_json::Map::len);
    if count == 0 {
        errors.required(path, "");
    } else if at_most(errors, path, count, COUNTERS_MAX) {
        entries.into_iter().flatten().for_each(|(name, _)| device_names::label(errors, path, name));
    }
}

#[cfg(test)]
mod tests {
    use super::is_semantic_version;

    #[test]
    fn versions_have_three_numbers() {
        for good in ["0.0.0", "1.2.3", "1.2.3-alpha.1", "1.2.3-0a", "1.2.3+001", "10.20.30-x-y+b.1"] {
            assert!(is_semantic_version(good), "{good}");
        }
        for bad in ["", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.x", "v1.2.3"] {
            assert!(!is_semantic_version(bad), "{bad}");
        }
    }
}
