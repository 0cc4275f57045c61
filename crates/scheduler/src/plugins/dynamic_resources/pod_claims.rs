//! The ResourceClaims of a pod, and what is wrong with them.

use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;
use bayplan_model::pod::{Pod, PodResourceClaim};
use bayplan_model::resource_claim::{DeviceSubRequest, ResourceClaim};

use crate::cluster::Cluster;
use crate::framework::Status;

/// The claims in the order of `spec.resourceClaims`, or upstream's message about the first that cannot be used.
pub(super) fn of(cluster: &Cluster, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let claims = pod.spec.resource_claims.iter().map(|entry| one(cluster, pod, entry));
    claims.filter_map(Result::transpose).collect()
}

fn one(cluster: &Cluster, pod: &Pod, entry: &PodResourceClaim) -> Result<Option<Arc<ResourceClaim>>, String> {
    let (name, is_made) = match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
        (Some(name), _) => (name, false),
        (None, Some(_)) => {
            let statuses = &pod.status.resource_claim_statuses;
            let status = statuses.iter().find(|status| status.name == entry.name);
            let status =
                status.ok_or_else(|| format!("pod {:?}: ResourceClaim not created yet", pod.metadata.key()))?;
            match &status.resource_claim_name {
                Some(name) => (name, true),
                None => return Ok(None),
            }
        }
        (None, None) => {
            let (pod, entry) = (pod.metadata.key(), &entry.name);
            return Err(format!("pod {pod:?}, spec.resourceClaim {entry:?}: none of the supported fields are set"));
        }
    };
    let namespace = &pod.metadata.namespace;
    let claim = cluster.objects.resource_claims.get(namespace, name);
    let claim = claim.ok_or_else(|| format!("could not find ResourceClaim \"{namespace}/{name}\""))?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("resourceclaim {name:?} is being deleted"));
    }
    if is_made && !claim.is_for(pod) {
        let pod = pod.metadata.key();
        return Err(format!("ResourceClaim {namespace}/{name} was not created for Pod {pod} (Pod is not owner)"));
    }
    Ok(Some(claim.clone()))
}

/// Whether a pod names a claim of this namespace and name.
pub(super) fn names(pod: &Pod, claim: &ObjectMeta) -> bool {
    let mut entries = pod.spec.resource_claims.iter();
    claim.namespace == pod.metadata.namespace
        && entries.any(|entry| match (&entry.resource_claim_name, &entry.resource_claim_template_name) {
            (Some(name), _) => *name == claim.name,
            (None, _) => {
                let mut made = pod.status.resource_claim_statuses.iter().filter(|status| status.name == entry.name);
                made.any(|status| status.resource_claim_name.as_ref() == Some(&claim.name))
            }
        })
}

/// Whether every request of a claim is of a known type and names a class that exists.
pub(super) fn check_requests(cluster: &Cluster, claim: &ResourceClaim) -> Result<(), Status> {
    for request in &claim.spec.devices.requests {
        let name = &request.name;
        match (&request.exactly, request.first_available.as_slice()) {
            (Some(exactly), _) => check_class(cluster, exactly, name)?,
            (None, []) => {
                let claim = claim.metadata.key();
                return Err(Status::unresolvable(format!(
                    "resource claim {claim}, request {name}: unknown request type"
                )));
            }
            (None, alternatives) => {
                for alternative in alternatives {
                    check_class(cluster, alternative, &format!("{name}/{}", alternative.name))?;
                }
            }
        }
    }
    Ok(())
}

fn check_class(cluster: &Cluster, request: &DeviceSubRequest, name: &str) -> Result<(), Status> {
    let class = &request.device_class_name;
    if class.is_empty() {
        return Err(Status::error(format!("request {name}: unsupported request type")));
    }
    if cluster.objects.device_classes.get("", class).is_none() {
        return Err(Status::unresolvable(format!("request {name}: device class {class} does not exist")));
    }
    Ok(())
}
