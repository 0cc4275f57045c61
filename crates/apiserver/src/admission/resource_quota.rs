//! ResourceQuota: what a write adds to the namespace's usage must fit into every quota that counts it.
//!
//! Quotas are enforced by their status: until a controller (or an administrator) has filled in `status.hard` and
//! `status.used`, a quota limits nothing.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::quantity::Quantity;
use bayplan_model::status::Status;
use serde_json::{Map, Value};

use super::pod_resources::{Amounts, amounts, pod_totals};
use super::{AdmissionContext, Operation, list, row, text};
use crate::registry::SystemWrite;
use crate::resources::Resource;

/// Resources of core that may be counted by their bare name.
const COUNTED: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];
/// What every container must state once it is limited.
const COMPULSORY: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let resize = context.resizes();
    if context.namespace.is_empty()
        || !(context.subresource.is_empty() || resize)
        || context.operation == Operation::Delete
    {
        return Ok(());
    }
    let delta = match (context.operation, old) {
        (Operation::Update, Some(old)) if resize || measured_on_update(context.resource) => {
            difference(usage(context.resource, object), &usage(context.resource, old))
        }
        (Operation::Update, _) => return Ok(()),
        _ => usage(context.resource, object),
    };
    if delta.values().all(Quantity::is_zero) {
        return Ok(());
    }
    let resource = row("", "resourcequotas")?;
    let quotas = context.objects.list(resource, context.namespace).await?;
    let mut charged = Vec::new();
    for quota in quotas.iter().filter(|quota| matches_scopes(quota, context.resource, object)) {
        let relevant = limited(quota, &delta);
        if relevant.is_empty() {
            continue;
        }
        check_stated(context, object, quota)?;
        charge(context, object, quota, &relevant)?;
        charged.push(text(quota, "/metadata/name"));
    }
    if context.dry_run {
        return Ok(());
    }
    for name in charged {
        context
            .objects
            .update_unchecked(SystemWrite::QuotaUsage, resource, context.namespace, name, &mut |quota| {
                // Others may have been charged in between: judge again by what is there now.
                let relevant = limited(quota, &delta);
                let used = charge(context, object, quota, &relevant)?;
                quota["status"]["used"] = used.into();
                Ok(())
            })
            .await?;
    }
    Ok(())
}

fn measured_on_update(resource: &Resource) -> bool {
    resource.group.is_empty() && matches!(resource.plural, "services" | "persistentvolumeclaims")
}

/// The part of a change that a quota limits.
fn limited(quota: &Value, delta: &Amounts) -> Amounts {
    let hard = quota.pointer("/status/hard");
    let counts = |name: &str| hard.is_some_and(|hard| hard.get(name).is_some());
    delta
        .iter()
        .filter(|(name, amount)| counts(name) && !amount.is_zero())
        .map(|(n, a)| (n.clone(), a.clone()))
        .collect()
}

/// The quota's usage after the change, or why it does not fit.
fn charge(
    context: &AdmissionContext<'_>,
    object: &Value,
    quota: &Value,
    delta: &Amounts,
) -> Result<Map<String, Value>, Status> {
    let name = text(quota, "/metadata/name");
    let part = |pointer: &str| quota.pointer(pointer).map(amounts).unwrap_or_default();
    let (hard, used) = (part("/status/hard"), part("/status/used"));
    let unknown: Vec<&str> = delta.keys().filter(|name| !used.contains_key(*name)).map(String::as_str).collect();
    if !unknown.is_empty() {
        let why = format!("status unknown for quota: {name}, resources: {}", unknown.join(","));
        return Err(context.refuse(object, why));
    }
    let mut after = used.clone();
    super::pod_resources::add(&mut after, delta);
    let over = |key: &String| after.get(key) > hard.get(key) && delta[key].sign() > 0;
    let exceeded: BTreeSet<&String> = delta.keys().filter(|key| over(key)).collect();
    if !exceeded.is_empty() {
        let show = |amounts: &Amounts| {
            let parts = exceeded.iter().filter_map(|key| Some(format!("{key}={}", amounts.get(*key)?)));
            parts.collect::<Vec<_>>().join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            show(delta),
            show(&used),
            show(&hard)
        );
        return Err(context.refuse(object, why));
    }
    Ok(after.into_iter().map(|(key, amount)| (key, amount.to_string().into())).collect())
}

/// Under a quota of compute resources, every container must say what it asks for.
fn check_stated(context: &AdmissionContext<'_>, object: &Value, quota: &Value) -> Result<(), Status> {
    if !(context.resource.group.is_empty() && context.resource.plural == "pods") {
        return Ok(());
    }
    let Some(hard) = quota.pointer("/status/hard") else { return Ok(()) };
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in list(object, "/spec/containers").chain(list(object, "/spec/initContainers")) {
        for name in COMPULSORY.into_iter().filter(|name| hard.get(name).is_some()) {
            let (part, resource) = match name.split_once('.') {
                Some((part, resource)) => (part, resource),
                None => ("requests", name),
            };
            if container["resources"][part].get(resource).is_none() {
                missing.entry(name).or_default().insert(text(container, "/name"));
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
    let why = format!("failed quota: {}: must specify {}", text(quota, "/metadata/name"), parts.join("; "));
    Err(context.refuse(object, why))
}

/// What an object counts for.
fn usage(resource: &Resource, object: &Value) -> Amounts {
    let mut used = Amounts::new();
    let count = |used: &mut Amounts, name: String, number: usize| {
        if let Ok(amount) = Quantity::parse(&number.to_string()) {
            used.insert(name, amount);
        }
    };
    count(&mut used, format!("count/{}", resource.qualified()), 1);
    if !resource.group.is_empty() {
        return used;
    }
    if COUNTED.contains(&resource.plural) {
        count(&mut used, resource.plural.to_owned(), 1);
    }
    match resource.plural {
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
            let ports = list(object, "/spec/ports").count();
            match text(object, "/spec/type") {
                "NodePort" => count(&mut used, "services.nodeports".into(), ports),
                "LoadBalancer" => {
                    count(&mut used, "services.loadbalancers".into(), 1);
                    if object.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)) {
                        count(&mut used, "services.nodeports".into(), ports);
                    }
                }
                _ => {}
            }
        }
        "persistentvolumeclaims" => {
            let size = Quantity::parse(text(object, "/spec/resources/requests/storage")).ok();
            let class = text(object, "/spec/storageClassName");
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

fn difference(mut new: Amounts, old: &Amounts) -> Amounts {
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
fn matches_scopes(quota: &Value, resource: &Resource, object: &Value) -> bool {
    let pod = resource.group.is_empty() && resource.plural == "pods";
    let plain = list(quota, "/spec/scopes").all(|scope| pod && in_scope(scope.as_str().unwrap_or_default(), object));
    let selected = list(quota, "/spec/scopeSelector/matchExpressions").all(|term| pod && matches_term(term, object));
    plain && selected
}

fn in_scope(scope: &str, pod: &Value) -> bool {
    let terminating = || pod.pointer("/spec/activeDeadlineSeconds").is_some_and(|seconds| !seconds.is_null());
    match scope {
        "Terminating" => terminating(),
        "NotTerminating" => !terminating(),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => !text(pod, "/spec/priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn matches_term(term: &Value, pod: &Value) -> bool {
    let scope = text(term, "/scopeName");
    if scope != "PriorityClass" {
        return in_scope(scope, pod);
    }
    let class = text(pod, "/spec/priorityClassName");
    let named = list(term, "/values").any(|value| value == class);
    match text(term, "/operator") {
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
    let elsewhere = |term: &Value| list(term, "/namespaces").next().is_some() || !term["namespaceSelector"].is_null();
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let rules = |name: &str| format!("/spec/affinity/{kind}/{name}DuringSchedulingIgnoredDuringExecution");
        list(pod, &rules("required")).any(elsewhere)
            || list(pod, &rules("preferred")).any(|weighted| elsewhere(&weighted["podAffinityTerm"]))
    })
}
