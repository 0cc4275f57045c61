//! What a LimitRange does to a pod, and says of pods and claims.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::pod_resources::{Amounts, amounts, pod_totals};
use crate::defaulting::{child_or_new, children};
use crate::object::{Object, list, text};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The most amounts that a range gives to the containers of a pod together. They are the product of both, which the
/// largest body does not bound.
const DEFAULTS_MAX: usize = 100_000;

/// Gives containers the requests and limits of the range that they do not state, and says so in an annotation.
pub fn set_defaults(range: &Value, pod: &mut Value) -> Result<(), String> {
    let (mut requests, mut limits): (BTreeMap<&str, &Value>, BTreeMap<&str, &Value>) = Default::default();
    for item in list(&range["spec"], "limits").iter().filter(|item| item["type"] == "Container") {
        requests.extend(item["defaultRequest"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v)));
        limits.extend(item["default"].as_object().into_iter().flatten().map(|(k, v)| (k.as_str(), v)));
    }
    let mut set = Vec::new();
    let mut left = DEFAULTS_MAX;
    for (key, word) in [("containers", "container"), ("initContainers", "init container")] {
        let spec = pod.get_mut("spec").and_then(Value::as_object_mut);
        for container in spec.into_iter().flat_map(|spec| children(spec, key)) {
            let name = text(container, "name").to_owned();
            for (part, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")] {
                let Some(still) = left.checked_sub(defaults.len()) else {
                    return Err(format!("limit ranges give a pod at most {DEFAULTS_MAX} requests and limits"));
                };
                left = still;
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
    Ok(())
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

/// The most bounds that a refusal names; a pod can break as many as its containers times those of the range.
const ERRORS_MAX: usize = 100;

/// The most bytes of those, before the next one is left out.
const ERROR_BYTES_MAX: usize = 256 * 1024;

/// The requests and limits a bound is held against.
struct Stated {
    requests: Amounts,
    limits: Amounts,
    /// `Container`, `Pod`: what the bound is per.
    per: &'static str,
}

/// The bounds of one entry of a range.
struct Bounds {
    least: Amounts,
    most: Amounts,
    ratio: Amounts,
}

impl Bounds {
    fn of(item: &Value) -> Bounds {
        Bounds {
            least: amounts(&item["min"]),
            most: amounts(&item["max"]),
            ratio: amounts(&item["maxLimitRequestRatio"]),
        }
    }
}

/// What several containers state of one resource, as far as it decides whether any of them is out of bounds.
#[derive(Default)]
struct Extremes {
    requests: Spread,
    limits: Spread,
    highest_ratio: f64,
    /// How many containers state a request, a limit, and both but zero.
    counts: [usize; 3],
}

/// The extremes of all containers: with them, an entry of the range that nobody breaks costs no look at the containers.
struct Summary<'a> {
    containers: usize,
    of: BTreeMap<&'a str, Extremes>,
}

impl<'a> Summary<'a> {
    fn of(all: &'a [Stated]) -> Summary<'a> {
        let mut summary = Summary { containers: all.len(), of: BTreeMap::new() };
        for stated in all {
            for (name, request) in &stated.requests {
                let extremes = summary.of.entry(name).or_default();
                extremes.counts[0] = extremes.counts[0].saturating_add(1);
                widen(&mut extremes.requests, request);
                if let Some(ratio) = ratio_of(name, stated) {
                    extremes.counts[2] = extremes.counts[2].saturating_add(1);
                    extremes.highest_ratio = extremes.highest_ratio.max(ratio);
                }
            }
            for (name, limit) in &stated.limits {
                let extremes = summary.of.entry(name).or_default();
                extremes.counts[1] = extremes.counts[1].saturating_add(1);
                widen(&mut extremes.limits, limit);
            }
        }
        summary
    }

    /// Whether any container breaks one of the bounds.
    fn breaks(&self, bounds: &Bounds) -> bool {
        let unstated = Extremes::default();
        let find = |name: &String| self.of.get(name.as_str()).unwrap_or(&unstated);
        let too_low = |(name, bound): (&String, &Quantity)| {
            let found = find(name);
            found.counts[0] < self.containers || below(&found.requests, bound) || below(&found.limits, bound)
        };
        let too_high = |(name, bound): (&String, &Quantity)| {
            let found = find(name);
            found.counts[1] < self.containers || above(&found.limits, bound) || above(&found.requests, bound)
        };
        let too_far = |(name, bound): (&String, &Quantity)| {
            let found = find(name);
            found.counts[2] < self.containers || found.highest_ratio > bound.approximate_f64()
        };
        bounds.least.iter().any(too_low) || bounds.most.iter().any(too_high) || bounds.ratio.iter().any(too_far)
    }
}

/// The lowest and the highest amount.
type Spread = Option<(Quantity, Quantity)>;

fn below(spread: &Spread, bound: &Quantity) -> bool {
    spread.as_ref().is_some_and(|(lowest, _)| lowest < bound)
}

fn above(spread: &Spread, bound: &Quantity) -> bool {
    spread.as_ref().is_some_and(|(_, highest)| highest > bound)
}

fn widen(spread: &mut Spread, amount: &Quantity) {
    match spread {
        None => *spread = Some((amount.clone(), amount.clone())),
        Some((low, _)) if amount < low => *low = amount.clone(),
        Some((_, high)) if amount > high => *high = amount.clone(),
        Some(_) => {}
    }
}

/// Where a pod is out of the range's bounds.
pub fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let stated = |container: &Value| Stated {
        requests: amounts(&container["resources"]["requests"]),
        limits: amounts(&container["resources"]["limits"]),
        per: "Container",
    };
    let containers: Vec<Stated> =
        list(spec, "containers").iter().chain(list(spec, "initContainers")).map(stated).collect();
    let of_containers = Summary::of(&containers);
    let total = [Stated { requests: pod_totals(pod, "requests"), limits: pod_totals(pod, "limits"), per: "Pod" }];
    let of_pod = Summary::of(&total);
    let mut errors = Vec::new();
    for item in list(&range["spec"], "limits") {
        let (all, summary) = match text(item, "type") {
            "Container" => (&containers[..], &of_containers),
            "Pod" => (&total[..], &of_pod),
            _ => continue,
        };
        let bounds = Bounds::of(item);
        if !summary.breaks(&bounds) {
            continue;
        }
        for stated in all {
            check(&bounds, stated, &mut errors);
            if errors.len() > ERRORS_MAX || errors.iter().map(String::len).sum::<usize>() > ERROR_BYTES_MAX {
                errors.truncate(ERRORS_MAX);
                errors.push("and more".to_owned());
                return errors;
            }
        }
    }
    errors
}

fn check(bounds: &Bounds, stated: &Stated, errors: &mut Vec<String>) {
    errors.extend(bounds.least.iter().filter_map(|(name, bound)| minimum(name, bound, stated)));
    errors.extend(bounds.most.iter().filter_map(|(name, bound)| maximum(name, bound, stated)));
    errors.extend(bounds.ratio.iter().filter_map(|(name, bound)| ratio(name, bound, stated)));
}

fn minimum(name: &str, bound: &Quantity, stated: &Stated) -> Option<String> {
    let start = format!("minimum {name} usage per {} is {bound}", stated.per);
    let Some(request) = stated.requests.get(name) else { return Some(format!("{start}.  No request is specified")) };
    if request.cmp(bound) == Ordering::Less {
        return Some(format!("{start}, but request is {request}"));
    }
    let limit = stated.limits.get(name).filter(|limit| (*limit).cmp(bound) == Ordering::Less)?;
    Some(format!("{start}, but limit is {limit}"))
}

fn maximum(name: &str, bound: &Quantity, stated: &Stated) -> Option<String> {
    let start = format!("maximum {name} usage per {} is {bound}", stated.per);
    let Some(limit) = stated.limits.get(name) else { return Some(format!("{start}.  No limit is specified")) };
    if limit.cmp(bound) == Ordering::Greater {
        return Some(format!("{start}, but limit is {limit}"));
    }
    let request = stated.requests.get(name).filter(|request| (*request).cmp(bound) == Ordering::Greater)?;
    Some(format!("{start}, but request is {request}"))
}

fn ratio(name: &str, bound: &Quantity, stated: &Stated) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {} is {bound}, but", stated.per);
    let known = |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero()).map(Quantity::approximate_f64);
    let Some(request) = known(&stated.requests) else {
        return Some(format!("{start} no request is specified or request is 0"));
    };
    let Some(limit) = known(&stated.limits) else {
        return Some(format!("{start} no limit is specified or limit is 0"));
    };
    let provided = limit / request;
    (provided > bound.approximate_f64()).then(|| format!("{start} provided ratio is {provided:.6}"))
}

/// How many times its request the limit is, where both are stated and not zero.
fn ratio_of(name: &str, stated: &Stated) -> Option<f64> {
    let known = |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero()).map(Quantity::approximate_f64);
    Some(known(&stated.limits)? / known(&stated.requests)?)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two containers, each of which states one of these requests and limits or none.
    fn pods() -> impl Iterator<Item = Value> {
        const STATED: [Option<&str>; 5] = [None, Some("0"), Some("1"), Some("2"), Some("4")];
        let stated = |number: usize| STATED[number % 5].map_or(json!({}), |amount| json!({ "cpu": amount }));
        (0..625_usize).map(move |number| {
            let container =
                |number: usize| json!({"resources": {"requests": stated(number), "limits": stated(number / 5)}});
            json!({"spec": {"containers": [container(number)], "initContainers": [container(number / 25)]}})
        })
    }

    #[test]
    fn the_extremes_of_all_containers_tell_whether_one_of_them_breaks_a_bound() {
        let mut broken = 0;
        for pod in pods() {
            for bound in ["min", "max", "maxLimitRequestRatio"] {
                let item = json!({"type": "Container", bound: {"cpu": "2"}});
                let range = json!({"spec": {"limits": [item]}});
                let bounds = Bounds::of(&item);
                let mut one_by_one = Vec::new();
                let spec = &pod["spec"];
                for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
                    let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
                    let stated = Stated { requests: amounts(requests), limits: amounts(limits), per: "Container" };
                    check(&bounds, &stated, &mut one_by_one);
                }
                broken += usize::from(!one_by_one.is_empty());
                assert_eq!(check_pod(&range, &pod), one_by_one, "{bound} {pod}");
            }
        }
        assert!((500..1800).contains(&broken), "{broken}");
    }

    #[test]
    fn what_a_range_gives_to_a_pod_and_says_of_it_is_bounded() {
        let defaults: serde_json::Map<String, Value> =
            (0..1_000).map(|number| (format!("example.com/r{number}"), json!("1"))).collect();
        let range = json!({"spec": {"limits": [{"type": "Container", "default": defaults, "max": defaults}]}});
        let pod = |count: usize| json!({"metadata": {}, "spec": {"containers": vec![json!({"name": "c"}); count]}});
        assert_eq!(set_defaults(&range, &mut pod(50)), Ok(()));
        let refused = set_defaults(&range, &mut pod(101)).unwrap_err();
        assert_eq!(refused, "limit ranges give a pod at most 100000 requests and limits");
        let errors = check_pod(&range, &pod(50));
        assert_eq!((errors.len(), errors[100].as_str()), (101, "and more"));
    }
}
