//! ResourceClaims and DeviceClasses that are missing.

use bayplan_model::pod::PodResourceClaim;
use bayplan_model::resource_claim::ResourceClaim;
use serde_json::{Value, json};

use super::{Supply, WAYS_MAX, owner};
use crate::changes::json_ops;
use crate::changes::trial::{Trial, resource_of_kind};

/// What the pod's device claims lack, each with the ways to supply it.
pub(super) fn needs(trial: &Trial<'_>) -> Vec<Vec<Supply>> {
    let pod = &trial.pod;
    let mut needs = Vec::new();
    for entry in &pod.spec.resource_claims {
        let made = pod.status.resource_claim_statuses.iter().find(|status| status.name == entry.name);
        let name = match (&entry.resource_claim_name, made) {
            (Some(name), _) => Some(name),
            (None, Some(made)) => match &made.resource_claim_name {
                Some(name) => Some(name),
                // The pod does not need a claim for this entry.
                None => continue,
            },
            (None, None) => None,
        };
        let stored =
            name.and_then(|name| trial.state.cluster().objects.resource_claims.get(&pod.metadata.namespace, name));
        match stored {
            Some(claim) if claim.status.allocation.is_some() => {}
            Some(claim) => needs.extend(missing_classes(trial, claim).map(|class| vec![class_supply(class)])),
            None if entry.resource_claim_name.is_some() => needs.push(named_claims(trial, entry)),
            None => needs.push(claim_from_template(trial, entry, name.cloned()).into_iter().collect()),
        }
    }
    needs
}

/// Classes that a claim names and that are not there.
fn missing_classes<'t>(trial: &'t Trial<'_>, claim: &'t ResourceClaim) -> impl Iterator<Item = &'t str> {
    let requests = claim.spec.devices.requests.iter();
    let wanted = requests.flat_map(|request| request.exactly.iter().chain(&request.first_available));
    let mut names: Vec<&str> = wanted.map(|wanted| wanted.device_class_name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let classes = &trial.state.cluster().objects.device_classes;
    names.into_iter().filter(move |name| !name.is_empty() && classes.get("", name).is_none())
}

fn class_supply(name: &str) -> Supply {
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
        "spec": {}});
    let words = format!("the DeviceClass {name} (here for any device)");
    Supply { words, adds: vec![class], ..Supply::default() }
}

/// A claim that the pod names, for one device of each class that is there.
fn named_claims(trial: &Trial<'_>, entry: &PodResourceClaim) -> Vec<Supply> {
    let Some(name) = &entry.resource_claim_name else { return Vec::new() };
    let namespace = &trial.pod.metadata.namespace;
    let one = |class: &str| {
        let exactly = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": 1});
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
        });
        let words = format!("the ResourceClaim {namespace}/{name} (here for one device of class {class})");
        Supply { words, adds: vec![claim], ..Supply::default() }
    };
    let classes = trial.state.cluster().objects.device_classes.iter();
    classes.take(WAYS_MAX).map(|class| one(&class.metadata.name)).collect()
}

/// The claim that the controller would make from the template, and its name in the pod's status.
fn claim_from_template(trial: &Trial<'_>, entry: &PodResourceClaim, name: Option<String>) -> Option<Supply> {
    let metadata = &trial.pod.metadata;
    let template = entry.resource_claim_template_name.as_ref()?;
    let written = trial.state.written(resource_of_kind("ResourceClaimTemplate")?, &metadata.namespace, template)?;
    let json: Value = serde_json::from_str(written.get()).ok()?;
    let is_known = name.is_some();
    let name = name.unwrap_or_else(|| format!("{}-{}", metadata.name, entry.name));
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "namespace": metadata.namespace, "name": name, "ownerReferences": owner(trial),
            "annotations": {"resource.kubernetes.io/pod-claim-name": entry.name},
        },
        "spec": json.pointer("/spec/spec").cloned().unwrap_or_else(|| json!({})),
    });
    let status = json!({"name": entry.name, "resourceClaimName": name});
    let pod = match is_known {
        true => Vec::new(),
        false => vec![json_ops::append(trial.json(), &["status", "resourceClaimStatuses"], status)],
    };
    let words = format!("the ResourceClaim {}/{name} from its template {template}", metadata.namespace);
    Some(Supply { words, adds: vec![claim], pod, ..Supply::default() })
}
