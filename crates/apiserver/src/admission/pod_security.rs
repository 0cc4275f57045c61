//! PodSecurity: pods that break the level their namespace enforces are refused; what breaks the level to warn of is
//! warned of, in pods and in what makes pods. The labels of namespaces are checked, and a stricter level warns of the
//! pods that break it already.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_kinds::Kind;
use bayplan_kinds::admission::pod_security::{Level, LevelVersion, Policy, in_full, in_short, violations};
use bayplan_model::status::Status;
use serde_json::Value;

use super::{AdmissionContext, Operation, list, row, text};
use crate::status_errors;

/// The most pods that a new level is compared with, as upstream.
const PODS_MAX: usize = 3000;

/// The length of the suffix of a generated name.
const SUFFIX: usize = 5;

pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if context.operation == Operation::Delete {
        return Ok(());
    }
    if context.is("", "namespaces") {
        return validate_namespace(context, object, old).await;
    }
    if context.resource.group.is_empty() && context.resource.plural == "pods" {
        let is_ignored = matches!(context.subresource, "binding" | "eviction" | "status");
        let is_unchanged = old.is_some_and(|old| !runs_other_images(object, old));
        return if is_ignored || is_unchanged { Ok(()) } else { validate_pod(context, object).await };
    }
    match template(context.resource, object) {
        Some(template) if context.subresource.is_empty() && !template.is_null() => {
            let (policy, _) = policy_of(context).await?;
            warn(context, policy.warn, &template["metadata"], &template["spec"]);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The template of the pods that an object makes.
fn template<'a>(resource: &Kind, object: &'a Value) -> Option<&'a Value> {
    match (resource.group, resource.plural) {
        ("", "podtemplates") => Some(&object["template"]),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some(&object["spec"]["template"]),
        ("batch", "cronjobs") => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
        _ => None,
    }
}

async fn policy_of(context: &AdmissionContext<'_>) -> Result<(Policy, bool), Status> {
    let namespace = context.objects.get(row("", "namespaces")?, "", context.namespace).await?;
    let namespace = namespace
        .ok_or_else(|| status_errors::internal(format!("failed to lookup namespace {:?}", context.namespace)))?;
    let (policy, errors) = Policy::of(&namespace);
    Ok((policy, errors.is_empty()))
}

async fn validate_pod(context: &AdmissionContext<'_>, pod: &Value) -> Result<(), Status> {
    let (policy, is_valid) = policy_of(context).await?;
    if is_valid && policy.is_privileged() {
        return Ok(());
    }
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let broken = violations(policy.enforce, metadata, spec);
    if !broken.is_empty() {
        let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, in_full(&broken));
        return Err(status_errors::forbidden(context.resource, requested_name(context, pod), why));
    }
    warn(context, policy.warn, metadata, spec);
    Ok(())
}

/// The name that the client asked for: none if it was generated.
fn requested_name<'a>(context: &AdmissionContext<'a>, pod: &Value) -> &'a str {
    let prefix = text(pod, "/metadata/generateName");
    let suffix = context.name.strip_prefix(prefix).filter(|_| !prefix.is_empty());
    let is_generated = context.requested_name.is_empty() && suffix.is_some_and(|suffix| suffix.len() == SUFFIX);
    if is_generated { "" } else { context.name }
}

fn warn(context: &AdmissionContext<'_>, level: LevelVersion, metadata: &Value, spec: &Value) {
    let broken = violations(level, metadata, spec);
    if !broken.is_empty() {
        context.warnings.extend([format!("would violate PodSecurity \"{level}\": {}", in_full(&broken))]);
    }
}

/// Whether a pod has other containers or images than before; upstream looks at nothing else.
fn runs_other_images(pod: &Value, old: &Value) -> bool {
    let images = |pod: &Value, field: &str| -> Vec<String> {
        list(pod, field).map(|container| text(container, "/image").to_owned()).collect()
    };
    let differ =
        ["/spec/containers", "/spec/initContainers"].into_iter().any(|field| images(pod, field) != images(old, field));
    let known: BTreeMap<&str, &str> =
        list(old, "/spec/ephemeralContainers").map(|c| (text(c, "/name"), text(c, "/image"))).collect();
    let mut ephemeral = list(pod, "/spec/ephemeralContainers");
    differ || ephemeral.any(|container| known.get(text(container, "/name")) != Some(&text(container, "/image")))
}

async fn validate_namespace(
    context: &AdmissionContext<'_>,
    namespace: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let (policy, errors) = Policy::of(namespace);
    let invalid = || status_errors::invalid_object(context.resource, context.name, &errors);
    let Some(old) = old else { return if errors.is_empty() { Ok(()) } else { Err(invalid()) } };
    let (old_policy, old_errors) = Policy::of(old);
    if !errors.is_empty() && errors != old_errors {
        return Err(invalid());
    }
    let (new, old) = (policy.enforce, old_policy.enforce);
    let is_relaxed = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || is_relaxed {
        return Ok(());
    }
    let pods = context.objects.list(row("", "pods")?, context.name).await?;
    context.warnings.extend(warnings_of(&pods, context.name, new));
    Ok(())
}

/// What a new level finds in the pods of a namespace: equal findings once, with the first pod and how many more.
fn warnings_of<P: AsRef<Value>>(pods: &[P], namespace: &str, level: LevelVersion) -> Vec<String> {
    let mut first_of_controller = BTreeSet::new();
    let (first, repeated): (Vec<&Value>, Vec<&Value>) = pods.iter().map(AsRef::as_ref).partition(|pod| {
        let controller = list(pod, "/metadata/ownerReferences").find(|owner| owner["controller"] == true);
        controller.is_none_or(|owner| first_of_controller.insert(text(owner, "/uid").to_owned()))
    });
    let mut found: BTreeMap<String, (&str, usize)> = BTreeMap::new();
    for pod in first.into_iter().chain(repeated).take(PODS_MAX) {
        let broken = violations(level, &pod["metadata"], &pod["spec"]);
        if broken.is_empty() {
            continue;
        }
        let name = text(pod, "/metadata/name");
        let (least, count) = found.entry(in_short(&broken)).or_insert((name, 0));
        *least = name.min(least);
        *count += 1;
    }
    let mut warnings = Vec::new();
    if pods.len() > PODS_MAX {
        let total = pods.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {PODS_MAX} of {total} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(broken, (pod, count))| match count {
            1 => format!("{pod}: {broken}"),
            2 => format!("{pod} (and 1 other pod): {broken}"),
            _ => format!("{pod} (and {} other pods): {broken}", count - 1),
        })
        .collect();
    lines.sort();
    warnings.append(&mut lines);
    warnings
}
