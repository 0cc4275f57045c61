//! What a LimitRange does to a pod, and says of pods and claims.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::pod_resources::{Amounts, amounts, pod_totals};
use crate::defaulting::{child_or_new, children};
use crate::object::{Object, list, text};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Gives containers the requests and limits of the range that they do not state, and says so in an annotation.
pub fn set_defaults(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits): (BTreeMap<&str, &Value>, BTreeMap<&str, &Value>) = Default::default();
    for item in list(&range["spec"], "limits").iter().filter(|item| item["type"] == "Container") {
        requests.extend(item["defaultRequest"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v)));
        limits.extend(item["default"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v)));
    }
    let mut set = Vec::new();
    for (key, word) in [("containers", "container"), ("initContainers", "init container")] {
        let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
        for container in spec.into_iter().flat_map(|spec| children(spec, key)) {
            let name = text(container, "name").to_owned();
            for (part, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let filled = fill(container, part, defaults);
                if !filled.is_empty() {
                    set.push(format!("{} {what} for {word} {name}", filled.join(", ")));
                }
            }
        }
    }
    if !set.is_empty()
        && let Some(Value::Object(metadata)) = pod.get_mut("metadata")
        && let Some(annotations) = child_or_new(metadata, "annotations")
    {
        annotations.insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", set.join("; ")).into());
    }
}

/// Adds the amounts the container does not state; answers their names.
fn fill<'a>(container: &mut Object, part: &str, defaults: &BTreeMap<&'a str, &Value>) -> Vec<&'a str> {
    let stated = |name: &str| container.get("resources").is_some_and(|r| r[part].get(name).is_some());
    let missing: Vec<&str> = defaults.keys().copied().filter(|name| !stated(name)).collect();
    if missing.is_empty() {
        return missing;
    }
    let resources = child_or_new(container, "resources");
    let Some(amounts) = resources.and_then(|resources| child_or_new(resources, part)) else { return Vec::new() };
    for name in &missing {
        amounts.insert((*name).to_owned(), defaults[name].clone());
    }
    missing
}

/// The requests and limits a bound is held against.
struct Stated<'a> {
    requests: &'a Amounts,
    limits: &'a Amounts,
    /// `Container`, `Pod`: what the bound is per.
    per: &'a str,
}

/// Where a pod is out of the range's bounds.
pub fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut errors = Vec::new();
    for item in list(&range["spec"], "limits") {
        match text(item, "type") {
            "Container" => {
                for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
                    let requests = amounts(&container["resources"]["requests"]);
                    let limits = amounts(&container["resources"]["limits"]);
                    check(item, &Stated { requests: &requests, limits: &limits, per: "Container" }, &mut errors);
                }
            }
            "Pod" => {
                let (requests, limits) = (pod_totals(pod, "requests"), pod_totals(pod, "limits"));
                check(item, &Stated { requests: &requests, limits: &limits, per: "Pod" }, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn check(item: &Value, stated: &Stated<'_>, errors: &mut Vec<String>) {
    for (name, bound) in &amounts(&item["min"]) {
        errors.extend(minimum(name, bound, stated));
    }
    for (name, bound) in &amounts(&item["max"]) {
        errors.extend(maximum(name, bound, stated));
    }
    for (name, bound) in &amounts(&item["maxLimitRequestRatio"]) {
        errors.extend(ratio(name, bound, stated));
    }
}

fn minimum(name: &str, bound: &Quantity, stated: &Stated<'_>) -> Option<String> {
    let start = format!("minimum {name} usage per {} is {bound}", stated.per);
    let Some(request) = stated.requests.get(name) else { return Some(format!("{start}.  No request is specified")) };
    if request.cmp(bound) == Ordering::Less {
        return Some(format!("{start}, but request is {request}"));
    }
    let limit = stated.limits.get(name).filter(|limit| (*limit).cmp(bound) == Ordering::Less)?;
    Some(format!("{start}, but limit is {limit}"))
}

fn maximum(name: &str, bound: &Quantity, stated: &Stated<'_>) -> Option<String> {
    let start = format!("maximum {name} usage per {} is {bound}", stated.per);
    let Some(limit) = stated.limits.get(name) else { return Some(format!("{start}.  No limit is specified")) };
    if limit.cmp(bound) == Ordering::Greater {
        return Some(format!("{start}, but limit is {limit}"));
    }
    let request = stated.requests.get(name).filter(|request| (*request).cmp(bound) == Ordering::Greater)?;
    Some(format!("{start}, but request is {request}"))
}

fn ratio(name: &str, bound: &Quantity, stated: &Stated<'_>) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {} is {bound}, but", stated.per);
    let known = |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero()).map(Quantity::approximate_f64);
    let Some(request) = known(stated.requests) else {
        return Some(format!("{start} no request is specified or request is 0"));
    };
    let Some(limit) = known(stated.limits) else {
        return Some(format!("{start} no limit is specified or limit is 0"));
    };
    let provided = limit / request;
    (provided > bound.approximate_f64()).then(|| format!("{start} provided ratio is {provided:.6}"))
}

/// Where a claim is out of the range's bounds.
pub fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    let mut errors = Vec::new();
    for item in list(&range["spec"], "limits").iter().filter(|item| item["type"] == "PersistentVolumeClaim") {
        let bounds = [("minimum", "min", Ordering::Less), ("maximum", "max", Ordering::Greater)];
        for (word, key, wrong) in bounds {
            for (name, bound) in &amounts(&item[key]) {
                let start = format!("{word} {name} usage per PersistentVolumeClaim is {bound}");
                match requests.get(name) {
                    None => errors.push(format!("{start}.  No request is specified")),
                    Some(request) if request.cmp(bound) == wrong => {
                        errors.push(format!("{start}, but request is {request}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    errors
}
