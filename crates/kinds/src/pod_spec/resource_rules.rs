//! The rules of requests, limits and claims, of containers and of whole pods.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::admission::pod_resources::container_totals;
use crate::field::{ErrorList, Path};
use crate::names;
use crate::object::{given, list, text};

/// What requests and limits are checked against.
#[derive(Clone, Copy)]
pub(super) enum Holder {
    Container,
    Pod,
}

pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_page(name)
}

/// Resources of Kubernetes itself, those that quotas count among them.
fn is_standard(name: &str) -> bool {
    const COUNTED: [&str; 14] = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
        "storage",
        "requests.storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
    ];
    is_container_resource(name)
        || COUNTED.contains(&name)
        || matches!(name, "limits.cpu" | "limits.memory" | "limits.ephemeral-storage")
        || name.starts_with("requests.hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Resources that come in whole pieces.
fn is_counted(name: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name) || is_extended(name)
}

/// Whether a request may be smaller than its limit.
fn can_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

/// Checks the name of any resource; returns whether it is one.
fn any_name(errors: &mut ErrorList, path: Path<'_>, name: &str) -> bool {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        errors.all_invalid(path, name, problems);
        return false;
    }
    if !name.contains('/') && !is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// The name of a resource that containers ask for.
pub(crate) fn resource_name(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    any_name(errors, path, name);
    if !name.contains('/') {
        if !is_container_resource(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn name_rules(errors: &mut ErrorList, path: Path<'_>, name: &str, holder: Holder) {
    match holder {
        Holder::Container => resource_name(errors, path, name),
        Holder::Pod => {
            if any_name(errors, path, name) && !matches!(name, "cpu" | "memory") && !is_huge_page(name) {
                errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
}

/// An amount is not negative, and whole where its resource is counted.
fn amount_rules(errors: &mut ErrorList, path: Path<'_>, name: &str, amount: &Quantity, shown: &str) {
    if amount.sign() < 0 {
        errors.invalid(path, shown, "must be greater than or equal to 0");
    }
    if is_counted(name) && amount.milli_value() % 1000 != 0 {
        errors.invalid(path, shown, "must be an integer");
    }
}

fn entry(errors: &mut ErrorList, path: Path<'_>, name: &str, value: &Value, holder: Holder) {
    name_rules(errors, path, name, holder);
    let (Some(amount), shown) = (quantity(value), value.as_str().unwrap_or("")) else { return };
    amount_rules(errors, path, name, &amount, shown);
    if let Some(size) = name.strip_prefix("hugepages-") {
        let divides = size.parse::<Quantity>().is_ok_and(|size| {
            size.sign() > 0 && size.milli_value() % 1000 == 0 && amount.value() % size.value().max(1) == 0
        });
        if !divides {
            errors.invalid(path, shown, &format!("{shown} is not positive integer multiple of {name}"));
        }
    }
}

/// Checks requests and limits, and the claims of a container or pod with these claims.
pub(super) fn requirements(
    errors: &mut ErrorList,
    path: Path<'_>,
    resources: &Value,
    holder: Holder,
    claims: &BTreeSet<&str>,
) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    for (name, value) in limits.as_object().into_iter().flatten() {
        entry(errors, limits_path.key(name), name, value, holder);
    }
    for (name, value) in requests.as_object().into_iter().flatten() {
        entry(errors, requests_path.key(name), name, value, holder);
        let (asked, limit) = (quantity(value), quantity(&limits[name]));
        match (asked, limit) {
            (Some(asked), Some(most)) if asked != most && !can_overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {most}");
                errors.invalid(requests_path, value, &detail);
            }
            (Some(asked), Some(most)) if asked > most => {
                let detail = format!("must be less than or equal to {name} limit of {most}");
                errors.invalid(requests_path, value, &detail);
            }
            (Some(_), None) if !can_overcommit(name) => {
                errors.required(limits_path, "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    let has = |wanted: fn(&str) -> bool| {
        [limits, requests].iter().any(|list| list.as_object().is_some_and(|list| list.keys().any(|name| wanted(name))))
    };
    if has(is_huge_page) && !has(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    claim_names(errors, path.child("claims"), list(resources, "claims"), claims);
}

/// Each claim, or request of a claim, is named once, and belongs to the pod.
fn claim_names<'v>(errors: &mut ErrorList, path: Path<'_>, entries: &'v [Value], claims: &BTreeSet<&str>) {
    // By claim: the requests of it that are named, the empty one for all of them.
    let mut named: BTreeMap<&'v str, BTreeSet<&'v str>> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (text(entry, "name"), text(entry, "request"));
        if name.is_empty() {
            errors.required(path, "");
            continue;
        }
        let requests = named.entry(name).or_default();
        if requests.contains("") {
            errors.duplicate(path, name);
        } else {
            if !request.is_empty() {
                errors.all_invalid(path.child("request"), request, names::dns_label(request));
            }
            if requests.contains(request) {
                errors.duplicate(path, format!("{name}/{request}").as_str());
            } else if request.is_empty() {
                // All requests of the claim: each that was named before is named twice now.
                requests.iter().for_each(|_| errors.duplicate(path, name));
            }
            requests.insert(request);
        }
        if !claims.contains(name) {
            errors.not_found_because(path, name, || {
                let known: Vec<&str> = claims.iter().copied().collect();
                let known =
                    if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
                format!("must be one of the names in pod.spec.resourceClaims{known}")
            });
        }
    }
}

/// The overhead of a pod is checked like limits.
pub(crate) fn overhead(errors: &mut ErrorList, path: Path<'_>, overhead: &Value) {
    if overhead.is_object() {
        let wrapped = serde_json::json!({ "limits": overhead });
        requirements(errors, path, &wrapped, Holder::Container, &BTreeSet::new());
    }
}

/// Requests and limits of the pod as a whole (KEP-2837), which those of its containers must fit into.
pub(super) fn of_pod(errors: &mut ErrorList, path: Path<'_>, spec: &Value, claims: &BTreeSet<&str>) {
    let resources = &spec["resources"];
    if resources.is_null() {
        return;
    }
    if given(resources, "claims") || errors.was_given_empty(path.child("claims")) {
        errors.forbidden(path.child("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(errors, path, resources, Holder::Pod, claims);
    let requests_path = path.child("requests");
    let totals = spec.as_object().map(|spec| container_totals(spec, "requests")).unwrap_or_default();
    for (name, total) in totals {
        if let Some(asked) = quantity(&resources["requests"][&name])
            && total > asked
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.invalid(requests_path.key(&name), asked.to_string().as_str(), &detail);
        }
    }
    let containers = path.child("containers");
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (name, value) in container["resources"]["limits"].as_object().into_iter().flatten() {
            let (limit, most) = (quantity(value), quantity(&resources["limits"][name]));
            if let (Some(limit), Some(most)) = (limit, most)
                && limit > most
            {
                let (container, detail) =
                    (containers.index(index), format!("must be less than or equal to pod limits of {most}"));
                errors.invalid(container.key(name).child("limits"), value, &detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_named_once_and_belongs_to_the_pod() {
        let found = |claims: Value| {
            let mut errors = ErrorList::default();
            let entries = claims.as_array().unwrap();
            claim_names(&mut errors, Path::root("claims"), entries, &BTreeSet::from(["a", "b"]));
            errors.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(json!([{ "name": "a", "request": "x" }, { "name": "a", "request": "y" }])), [""; 0]);
        assert_eq!(found(json!([{ "name": "a" }, { "name": "a" }])), ["claims[1]: Duplicate value: \"a\""]);
        let both = json!([{ "name": "a", "request": "x" }, { "name": "a" }]);
        assert_eq!(found(both), ["claims[1]: Duplicate value: \"a\""]);
        let known = "must be one of the names in pod.spec.resourceClaims: a, b";
        assert_eq!(found(json!([{ "name": "c" }])), [format!("claims[0]: Not found: \"c\": {known}")]);
    }
}
