//! The rules of the spec and of the status.

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, number, text};
use crate::pod_spec::container_resource_name;

/// The longest period of a scaling policy, in seconds.
const PERIOD_SECONDS_MAX: i64 = 1800;

/// The longest stabilization window, in seconds.
const WINDOW_SECONDS_MAX: i64 = 3600;

/// The fields of a metric in the order in which they are looked at, each with its type.
const SOURCES: [(&str, &str); 5] = [
    ("object", "Object"),
    ("external", "External"),
    ("pods", "Pods"),
    ("resource", "Resource"),
    ("containerResource", "ContainerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];
const POPULATE: &str = "must populate information for the given metric source";

/// Which API versions a reference may name.
#[derive(Clone, Copy, Default)]
struct ApiVersions {
    allow_core: bool,
    allow_any: bool,
}

/// What held for the object before, and is no reason to refuse it now.
struct Tolerated {
    min_replicas: i64,
    target: ApiVersions,
    described: ApiVersions,
}

impl Tolerated {
    fn of(new: &Value, old: Option<&Value>) -> Tolerated {
        let was_zero = old.is_some_and(|old| old["minReplicas"].as_i64() == Some(0));
        let (target, was) = (&new["scaleTargetRef"], old.map(|old| &old["scaleTargetRef"]));
        let same = |field: &str| was.is_some_and(|was| text(was, field) == text(target, field));
        let target = ApiVersions {
            allow_any: same("apiVersion") && same("kind"),
            allow_core: text(target, "kind") == "ReplicationController",
        };
        let core = ApiVersions { allow_core: true, allow_any: false };
        let is_broken = |metric: &Value| {
            text(metric, "type") == "Object"
                && api_version(text(&metric["object"]["describedObject"], "apiVersion"), core).is_some()
        };
        let was_broken = old.is_some_and(|old| list(old, "metrics").iter().any(is_broken));
        Tolerated {
            min_replicas: i64::from(!was_zero),
            target,
            described: ApiVersions { allow_any: was_broken, ..core },
        }
    }
}

pub(super) fn spec(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let (spec, path) = (&object["spec"], Path::root("spec"));
    let tolerated = Tolerated::of(spec, old.map(|old| &old["spec"]));
    let min = spec["minReplicas"].as_i64();
    let max = number(spec, "maxReplicas");
    if let Some(min) = min.filter(|min| *min < tolerated.min_replicas) {
        let least = format!("must be greater than or equal to {}", tolerated.min_replicas);
        errors.invalid(path.child("minReplicas"), min, &least);
    }
    match max {
        0 => errors.required(path.child("maxReplicas"), "must be set and greater than 0"),
        ..0 => errors.invalid(path.child("maxReplicas"), max, "must be greater than or equal to 1"),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(path.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    reference(errors, path.child("scaleTargetRef"), &spec["scaleTargetRef"], tolerated.target);
    let metrics_path = path.child("metrics");
    for (index, metric) in list(spec, "metrics").iter().enumerate() {
        self::metric(errors, metrics_path.index(index), metric, tolerated.described);
    }
    let of_cluster = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if min == Some(0) && !list(spec, "metrics").iter().any(of_cluster) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(metrics_path, detail);
    }
    let behavior = path.child("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        if given(&spec["behavior"], direction) {
            scaling(errors, behavior.child(direction), &spec["behavior"][direction]);
        }
    }
}

pub(super) fn status(errors: &mut ErrorList, object: &Value, _old: &Value) {
    let path = Path::root("status");
    for field in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(path.child(field), number(&object["status"], field));
    }
}

fn reference(errors: &mut ErrorList, path: Path<'_>, reference: &Value, allowed: ApiVersions) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(path.child(field), "");
        } else {
            errors.all_invalid(path.child(field), value, names::path_segment(value));
        }
    }
    let version = text(reference, "apiVersion");
    if let Some(why) = api_version(version, allowed) {
        errors.invalid(path.child("apiVersion"), version, &why);
    }
}

/// What is wrong with the API version of a reference.
fn api_version(version: &str, allowed: ApiVersions) -> Option<String> {
    if allowed.allow_any {
        return None;
    }
    // A lone slash is the core group to upstream, too.
    let group = match version.split('/').collect::<Vec<_>>()[..] {
        [_] => "",
        [group, _] => group,
        _ => return Some(format!("unexpected GroupVersion string: {version}")),
    };
    (group.is_empty() && !allowed.allow_core).then(|| "apiVersion must specify API group".to_owned())
}

fn metric(errors: &mut ErrorList, path: Path<'_>, metric: &Value, described: ApiVersions) {
    let kind = text(metric, "type");
    if kind.is_empty() {
        errors.required(path.child("type"), "must specify a metric source type");
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(path.child("type"), kind, TYPES);
    }
    let present: Vec<&str> = SOURCES.into_iter().map(|(field, _)| field).filter(|field| given(metric, field)).collect();
    if let Some(first) = present.first() {
        source(errors, path.child(first), first, &metric[*first], described);
    }
    let expected = SOURCES.iter().find(|(_, of_type)| *of_type == kind).map(|(field, _)| *field);
    match expected {
        Some(field) if !given(metric, field) => errors.required(path.child(field), POPULATE),
        Some(_) => {}
        // Upstream says it twice.
        None => errors.not_supported(path.child("type"), kind, TYPES),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(path.child(field), "must populate the given metric source only");
        }
    }
}

fn source(errors: &mut ErrorList, path: Path<'_>, field: &str, source: &Value, described: ApiVersions) {
    match field {
        "object" => {
            reference(errors, path.child("describedObject"), &source["describedObject"], described);
            identifier(errors, path.child("metric"), &source["metric"]);
        }
        "external" | "pods" => identifier(errors, path.child("metric"), &source["metric"]),
        _ => resource(errors, path, field, source),
    }
    let (target, target_path) = (&source["target"], path.child("target"));
    self::target(errors, target_path, target);
    let (value, average) = (given(target, "value"), given(target, "averageValue"));
    let utilization = given(target, "averageUtilization");
    match field {
        "object" if !value && !average => {
            errors.required(target_path.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !value && !average => errors.required(
            target_path.child("averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(target_path.child("value"), detail);
        }
        "pods" if !average => {
            errors.required(target_path.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !utilization && !average => errors.required(
            target_path.child("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        "resource" | "containerResource" if utilization && average => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(target_path.child("averageValue"), detail);
        }
        _ => {}
    }
}

/// The name of a resource, and of the container.
fn resource(errors: &mut ErrorList, path: Path<'_>, field: &str, source: &Value) {
    let (name, container) = (text(source, "name"), text(source, "container"));
    if name.is_empty() {
        errors.required(path.child("name"), "must specify a resource name");
    } else if field == "containerResource" {
        container_resource_name(errors, path.child("name"), name);
    }
    if field != "containerResource" {
        return;
    }
    if container.is_empty() {
        errors.required(path.child("container"), "must specify a container");
    } else {
        errors.all_invalid(path.child("container"), container, names::dns_label(container));
    }
}

fn identifier(errors: &mut ErrorList, path: Path<'_>, metric: &Value) {
    let name = text(metric, "name");
    if name.is_empty() {
        errors.required(path.child("name"), "must specify a metric name");
    } else {
        errors.all_invalid(path.child("name"), name, names::path_segment(name));
    }
}

fn target(errors: &mut ErrorList, path: Path<'_>, target: &Value) {
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.required(path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(path.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        if given(target, field) && sign(&target[field]) != 1 {
            errors.invalid(path.child(field), &target[field], "must be positive");
        }
    }
    if let Some(percent) = target["averageUtilization"].as_i64().filter(|percent| *percent < 1) {
        errors.invalid(path.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn sign(quantity: &Value) -> i32 {
    quantity.as_str().and_then(|text| text.parse::<Quantity>().ok()).map_or(0, |quantity| quantity.sign())
}

fn scaling(errors: &mut ErrorList, path: Path<'_>, rules: &Value) {
    if let Some(window) = rules["stabilizationWindowSeconds"].as_i64() {
        let path = path.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(path, window, "must be greater than or equal to zero");
        }
        if window > WINDOW_SECONDS_MAX {
            errors.invalid(path, window, &format!("must be less than or equal to {WINDOW_SECONDS_MAX}"));
        }
    }
    let select = text(rules, "selectPolicy");
    if given(rules, "selectPolicy") && !matches!(select, "Max" | "Min" | "Disabled") {
        errors.not_supported(path.child("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let policies = path.child("policies");
    if list(rules, "policies").is_empty() {
        errors.required(policies, "must specify at least one Policy");
    }
    for (index, policy) in list(rules, "policies").iter().enumerate() {
        self::policy(errors, policies.index(index), policy);
    }
    if given(rules, "tolerance") && sign(&rules["tolerance"]) < 0 {
        errors.invalid(path.child("tolerance"), &rules["tolerance"], "must be greater than or equal to 0");
    }
}

fn policy(errors: &mut ErrorList, path: Path<'_>, policy: &Value) {
    let kind = text(policy, "type");
    if !matches!(kind, "Pods" | "Percent") {
        errors.not_supported(path.child("type"), kind, &["Percent", "Pods"]);
    }
    let (value, period) = (number(policy, "value"), number(policy, "periodSeconds"));
    if value <= 0 {
        errors.invalid(path.child("value"), value, "must be greater than zero");
    }
    if period <= 0 {
        errors.invalid(path.child("periodSeconds"), period, "must be greater than zero");
    }
    if period > PERIOD_SECONDS_MAX {
        let most = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
        errors.invalid(path.child("periodSeconds"), period, &most);
    }
}
