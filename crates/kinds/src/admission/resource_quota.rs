//! What objects count for in a ResourceQuota, and whether it fits.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quantity::Quantity;
use serde_json::{Map, Value};

use super::pod_resources::{Amounts, add, amounts, pod_totals};
use crate::kind::Kind;
use crate::object::{given, list, text};
use crate::pod_spec::{PREFERRED, REQUIRED};

/// Resources of core that may be counted by their bare name.
const COUNTED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// What every container must state once it is limited.
const COMPULSORY: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

fn is_pod(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "pods"
}

/// Whether updates of the kind can change what an object counts for.
pub fn measured_on_update(kind: &Kind) -> bool {
    kind.group.is_empty() && matches!(kind.plural, "services" | "persistentvolumeclaims")
}

/// The part of a change that a quota limits.
pub fn limited(quota: &Value, delta: &Amounts) -> Amounts {
    let counts = |name: &str| quota["status"]["hard"].get(name).is_some();
    delta
        .iter()
        .filter(|(name, amount)| counts(name) && !amount.is_zero())
        .map(|(n, a)| (n.clone(), a.clone()))
        .collect()
}

/// The quota's usage after the change, or why it does not fit.
pub fn charge(quota: &Value, delta: &Amounts) -> Result<Map<String, Value>, String> {
    let name = text(&quota["metadata"], "name");
    let (hard, used) = (amounts(&quota["status"]["hard"]), amounts(&quota["status"]["used"]));
    let unknown: Vec<&str> = delta.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        return Err(format!("status unknown for quota: {name}, resources: {}", unknown.join(",")));
    }
    let mut after = used.clone();
    add(&mut after, delta);
    let over = |key: &String| after.get(key) > hard.get(key) && delta[key].sign() > 0;
    let exceeded: BTreeSet<&String> = delta.keys().filter(|key| over(key)).collect();
    if !exceeded.is_empty() {
        let show = |amounts: &Amounts| {
            let parts = exceeded.iter().filter_map(|key| Some(format!("{key}={}", amounts.get(*key)?)));
            parts.collect::<Vec<_>>().join(",")
        };
        return Err(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            show(delta),
            show(&used),
            show(&hard)
        ));
    }
    Ok(after.into_iter().map(|(key, amount)| (key, amount.to_string().into())).collect())
}

/// Under a quota of compute resources, every container of a pod must say what it asks for.
pub fn check_stated(kind: &Kind, object: &Value, quota: &Value) -> Result<(), String> {
    if !is_pod(kind) {
        return Ok(());
    }
    let (spec, hard) = (&object["spec"], &quota["status"]["hard"]);
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        for name in COMPULSORY.into_iter().filter(|name| hard.get(name).is_some()) {
            let (part, resource) = match name.split_once('.') {
                Some((part, resource)) => (part, resource),
                None => ("requests", name),
            };
            if container["resources"][part].get(resource).is_none() {
                missing.entry(name).or_default().insert(text(container, "name"));
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let parts: Vec<String> = missing
        .iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(",")))
        .collect();
    Err(format!("failed quota: {}: must specify {}", text(&quota["metadata"], "name"), parts.join("; ")))
}

/// What an object counts for.
pub fn usage(kind: &Kind, object: &Value) -> Amounts {
    let mut used = Amounts::new();
    let count = |used: &mut Amounts, name: String, number: usize| {
        if let Ok(amount) = Quantity::parse(&number.to_string()) {
            used.insert(name, amount);
        }
    };
    count(&mut used, format!("count/{}", kind.qualified()), 1);
    if !kind.group.is_empty() {
        return used;
    }
    if COUNTED.contains(&kind.plural) {
        count(&mut used, kind.plural.to_owned(), 1);
    }
    match kind.plural {
        "pods" => {
            for (name, amount) in pod_totals(object, "requests") {
                if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
                    used.insert(name.clone(), amount.clone());
                }
                used.insert(format!("requests.{name}"), amount);
            }
            for (name, amount) in pod_totals(object, "limits") {
                used.insert(format!("limits.{name}"), amount);
            }
        }
        "services" => {
            let ports = list(&object["spec"], "ports").len();
            match text(&object["spec"], "type") {
                "NodePort" => count(&mut used, "services.nodeports".into(), ports),
                "LoadBalancer" => {
                    count(&mut used, "services.loadbalancers".into(), 1);
                    if object["spec"]["allocateLoadBalancerNodePorts"] != false {
                        count(&mut used, "services.nodeports".into(), ports);
                    }
                }
                _ => {}
            }
        }
        "persistentvolumeclaims" => {
            let size = Quantity::parse(text(&object["spec"]["resources"]["requests"], "storage")).ok();
            let class = text(&object["spec"], "storageClassName");
            if let Some(size) = &size {
                used.insert("requests.storage".into(), size.clone());
            }
            if !class.is_empty() {
                let prefix = format!("{class}.storageclass.storage.k8s.io");
                count(&mut used, format!("{prefix}/persistentvolumeclaims"), 1);
                used.extend(size.map(|size| (format!("{prefix}/requests.storage"), size)));
            }
        }
        _ => {}
    }
    used
}

/// What `new` counts for beyond `old`.
pub fn difference(mut new: Amounts, old: &Amounts) -> Amounts {
    for (name, amount) in old {
        match new.get_mut(name) {
            Some(new) => new.sub(amount),
            None => {
                let mut less = amount.clone();
                less.neg();
                new.insert(name.clone(), less);
            }
        }
    }
    new
}

/// Whether a quota's scopes take the object in; scopes speak of pods only.
pub fn matches_scopes(quota: &Value, kind: &Kind, object: &Value) -> bool {
    let (pod, spec) = (is_pod(kind), &quota["spec"]);
    let plain = list(spec, "scopes").iter().all(|scope| pod && in_scope(scope.as_str().unwrap_or_default(), object));
    let selected =
        list(&spec["scopeSelector"], "matchExpressions").iter().all(|term| pod && matches_term(term, object));
    plain && selected
}

fn in_scope(scope: &str, pod: &Value) -> bool {
    let terminating = || given(&pod["spec"], "activeDeadlineSeconds");
    match scope {
        "Terminating" => terminating(),
        "NotTerminating" => !terminating(),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => !text(&pod["spec"], "priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn matches_term(term: &Value, pod: &Value) -> bool {
    let scope = text(term, "scopeName");
    if scope != "PriorityClass" {
        return in_scope(scope, pod);
    }
    let class = text(&pod["spec"], "priorityClassName");
    let named = list(term, "values").iter().any(|value| value == class);
    match text(term, "operator") {
        "In" => named,
        "NotIn" => !named,
        "Exists" => !class.is_empty(),
        "DoesNotExist" => class.is_empty(),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    let compute = |part| {
        let totals = pod_totals(pod, part);
        ["cpu", "memory"].into_iter().any(|name| totals.get(name).is_some_and(|amount| !amount.is_zero()))
    };
    !compute("requests") && !compute("limits")
}

fn crosses_namespaces(pod: &Value) -> bool {
    let elsewhere = |term: &Value| !list(term, "namespaces").is_empty() || given(term, "namespaceSelector");
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let affinity = &pod["spec"]["affinity"][kind];
        list(affinity, REQUIRED).iter().any(elsewhere)
            || list(affinity, PREFERRED).iter().any(|weighted| elsewhere(&weighted["podAffinityTerm"]))
    })
}
