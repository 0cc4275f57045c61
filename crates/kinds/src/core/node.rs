//! Nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, round_resource_list};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, PROXY_VERBS, STANDARD_VERBS, Subresource};
use crate::names;
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, or, string, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::passed_on("proxy", "NodeProxyOptions", PROXY_VERBS), Subresource::status("Node")],
    storage_prefix: "minions",
    defaults,
    strategy: Strategy {
        status: StatusRule::KeptOnCreate,
        selectable: SelectableFields { names: &["spec.unschedulable"], value, ..SelectableFields::NONE },
        on_create,
        on_update,
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        status_rules: change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            string("Status"),
            string("Roles"),
            AGE,
            string("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn value(node: &Value, field: &str) -> String {
    match field {
        "spec.unschedulable" => node["spec"]["unschedulable"].as_bool().unwrap_or(false).to_string(),
        _ => text_at(node, field),
    }
}

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        let cidr = text(spec, "podCIDR").to_owned();
        let first =
            spec.get("podCIDRs").and_then(|cidrs| cidrs.get(0)).and_then(Value::as_str).unwrap_or("").to_owned();
        // Older clients only set the single range, so it wins.
        if !cidr.is_empty() && cidr != first {
            spec.insert("podCIDRs".into(), Value::Array(vec![cidr.into()]));
        } else if cidr.is_empty() && !first.is_empty() {
            spec.insert("podCIDR".into(), first.into());
        }
    }
    if let Some(status) = child(object, "status") {
        if status.get("allocatable").is_none()
            && let Some(capacity) = status.get("capacity").cloned()
        {
            status.insert("allocatable".into(), capacity);
        }
        round_resource_list(status, "capacity");
        round_resource_list(status, "allocatable");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let metadata = Path::root("metadata");
    taints(errors, metadata.child("taints"), list(&object["spec"], "taints"));
    let spec = Path::root("spec");
    let path = spec.child("podCIDRs");
    let cidrs = list(&object["spec"], "podCIDRs");
    let mut families = [0, 0];
    for (index, cidr) in cidrs.iter().filter_map(Value::as_str).enumerate() {
        match parse_cidr(cidr) {
            Some(address) => families[usize::from(address.is_ipv6())] += 1,
            None => errors.invalid(
                path.index(index),
                cidr,
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
        }
    }
    if families[0] > 1 || families[1] > 1 || cidrs.len() > 2 {
        errors.invalid(path, &object["spec"]["podCIDRs"], "may specify no more than one CIDR for each IP family");
    }
    resources(errors, object);
}

fn resources(errors: &mut ErrorList, object: &Value) {
    let status = Path::root("status");
    for list_name in ["capacity", "allocatable"] {
        let path = status.child(list_name);
        for (name, quantity) in object["status"][list_name].as_object().into_iter().flatten() {
            quantity_of(errors, path.child(name), name, quantity.as_str().unwrap_or(""));
        }
    }
    feature_rules(errors, list(&object["status"], "declaredFeatures"));
}

/// The source of a kubelet's configuration is no longer kept, unless it is there already.
fn on_create(object: &mut Object, _now: Timestamp) {
    for (part, field) in [("spec", "configSource"), ("status", "config")] {
        if let Some(part) = child(object, part) {
            part.remove(field);
        }
    }
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    let (part, field) = if subresource == "status" { ("status", "config") } else { ("spec", "configSource") };
    if !given(&old[part], field)
        && let Some(part) = child(object, part)
    {
        part.remove(field);
    }
}

fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if given(&object["spec"], "configSource") {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(&object["spec"], "externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    warnings
}

/// The address of a network prefix, if it is one.
fn parse_cidr(text: &str) -> Option<IpAddr> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(address)
}

/// Amounts are not negative, and whole for resources that are counted.
fn quantity_of(errors: &mut ErrorList, path: Path<'_>, name: &str, text: &str) {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    if quantity.sign() < 0 {
        errors.invalid(path, text, "must be greater than or equal to 0");
    }
    let counted = matches!(name, "pods" | "services" | "resourcequotas") || name.contains('/');
    if counted && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, text, "must be an integer");
    }
}

fn taints(errors: &mut ErrorList, path: Path<'_>, taints: &[Value]) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(path.child("value"), value, &problems.join(";"));
        }
        errors.one_of(path.child("effect"), effect, &EFFECTS);
        if !seen.insert((key, effect)) {
            let shown = GoValue("io.k8s.api.core.v1.Taint", taint);
            errors.duplicate_with(path, shown, "taints must be unique by key and effect pair");
        }
    }
}

/// Features are named `Feature` or `Feature/part`, sorted (KEP-5328).
fn feature_rules(errors: &mut ErrorList, features: &[Value]) {
    let status = Path::root("status");
    let path = status.child("declaredFeatures");
    for (index, feature) in features.iter().filter_map(Value::as_str).enumerate() {
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric());
        let upper = feature.starts_with(|first: char| first.is_ascii_uppercase());
        if !upper || !feature.split('/').all(plain) {
            let detail = format!(
                "invalid feature name {feature:?}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                 characters and slashes"
            );
            errors.invalid(path.index(index), feature, &detail);
        }
    }
}

/// What upstream checks of every update, also of the status, and once more what it checks of every node.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    resources(errors, new);
    let metadata = Path::root("metadata");
    taints(errors, metadata.child("taints"), list(&new["spec"], "taints"));
    let status = Path::root("status");
    let path = status.child("addresses");
    let mut seen = BTreeSet::new();
    for (index, address) in list(&new["status"], "addresses").iter().enumerate() {
        if !seen.insert((text(address, "type"), text(address, "address"))) {
            errors.duplicate(path.index(index), GoValue("io.k8s.api.core.v1.NodeAddress", address));
        }
    }
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    if !list(old, "podCIDRs").is_empty() && new["podCIDRs"] != old["podCIDRs"] {
        errors.forbidden(path.child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
    }
    if !text(old, "providerID").is_empty() && new["providerID"] != old["providerID"] {
        errors.forbidden(path.child("providerID"), "node updates may not change providerID except from \"\" to valid");
    }
    if text(new, "externalID") != text(old, "externalID") {
        errors.forbidden(path.child("externalID"), "may not be updated");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
    let (status, info) = (&object["status"], &object["status"]["nodeInfo"]);
    let ready = list(status, "conditions").iter().rev().find(|condition| text(condition, "type") == "Ready");
    let mut state = match ready {
        Some(condition) if text(condition, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == true {
        state.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => roles.insert(role),
            None if key == "kubernetes.io/role" => roles.insert(value.as_str().unwrap_or("")),
            None => false,
        };
    }
    roles.remove("");
    let roles: Vec<&str> = roles.into_iter().collect();
    let address = |kind: &str| {
        let found = list(status, "addresses").iter().find(|address| text(address, "type") == kind);
        Value::from(found.map_or("<none>", |address| text(address, "address")))
    };
    let mut kernel = or(text(info, "kernelVersion"), "<unknown>").to_owned();
    if !text(info, "architecture").is_empty() {
        kernel = format!("{kernel} ({})", text(info, "architecture"));
    }
    vec![
        name_of(object),
        state.into(),
        or(&roles.join(","), "<none>").into(),
        age_of(object, now),
        text(info, "kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        or(text(info, "osImage"), "<unknown>").into(),
        kernel.into(),
        or(text(info, "containerRuntimeVersion"), "<unknown>").into(),
    ]
}
