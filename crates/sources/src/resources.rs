//! The resources that decisions depend on.

/// A resource that a decision may read.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The plural with its group, as `kubectl get` takes it: `poddisruptionbudgets.policy`.
    pub name: &'static str,
    /// The `apiVersion` in which Bayplan reads it.
    pub api_version: &'static str,
    /// The `kind` of its objects.
    pub kind: &'static str,
    /// True when its objects live in namespaces.
    pub namespaced: bool,
    /// True when a decision about any pod may depend on it; false for what only completes new pods.
    pub decides: bool,
}

const fn resource(
    name: &'static str,
    api_version: &'static str,
    kind: &'static str,
    namespaced: bool,
    decides: bool,
) -> Resource {
    Resource { name, api_version, kind, namespaced, decides }
}

/// What a snapshot holds and a live cluster is asked for: all that the scheduler's plugins look up, and what completes
/// a pod that does not exist yet.
pub const RESOURCES: &[Resource] = &[
    resource("nodes", "v1", "Node", false, true),
    resource("pods", "v1", "Pod", true, true),
    resource("namespaces", "v1", "Namespace", false, true),
    resource("priorityclasses.scheduling.k8s.io", "scheduling.k8s.io/v1", "PriorityClass", false, false),
    resource("services", "v1", "Service", true, true),
    resource("replicationcontrollers", "v1", "ReplicationController", true, true),
    resource("replicasets.apps", "apps/v1", "ReplicaSet", true, true),
    resource("statefulsets.apps", "apps/v1", "StatefulSet", true, true),
    resource("deployments.apps", "apps/v1", "Deployment", true, false),
    resource("daemonsets.apps", "apps/v1", "DaemonSet", true, false),
    resource("jobs.batch", "batch/v1", "Job", true, false),
    resource("poddisruptionbudgets.policy", "policy/v1", "PodDisruptionBudget", true, true),
    resource("persistentvolumes", "v1", "PersistentVolume", false, true),
    resource("persistentvolumeclaims", "v1", "PersistentVolumeClaim", true, true),
    resource("storageclasses.storage.k8s.io", "storage.k8s.io/v1", "StorageClass", false, true),
    resource("csinodes.storage.k8s.io", "storage.k8s.io/v1", "CSINode", false, true),
    resource("csidrivers.storage.k8s.io", "storage.k8s.io/v1", "CSIDriver", false, true),
    resource("csistoragecapacities.storage.k8s.io", "storage.k8s.io/v1", "CSIStorageCapacity", true, true),
    resource("volumeattachments.storage.k8s.io", "storage.k8s.io/v1", "VolumeAttachment", false, true),
    resource("resourceclaims.resource.k8s.io", "resource.k8s.io/v1", "ResourceClaim", true, true),
    resource("resourceclaimtemplates.resource.k8s.io", "resource.k8s.io/v1", "ResourceClaimTemplate", true, false),
    resource("resourceslices.resource.k8s.io", "resource.k8s.io/v1", "ResourceSlice", false, true),
    resource("deviceclasses.resource.k8s.io", "resource.k8s.io/v1", "DeviceClass", false, true),
    resource("limitranges", "v1", "LimitRange", true, false),
    resource("runtimeclasses.node.k8s.io", "node.k8s.io/v1", "RuntimeClass", false, false),
];

/// The resource of an object's `apiVersion` and `kind`; none for what no decision reads.
pub fn resource_of(api_version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.api_version == api_version && resource.kind == kind)
}

/// What an `apiVersion` and `kind` are to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The version that is read.
    Read(&'static Resource),
    /// Another version with the same fields, which v1.36 converts without a change.
    Twin(&'static Resource),
    /// Another version of a kind that is read.
    Other(&'static Resource),
}

/// Older versions whose fields are those of the version that is read.
const TWINS: &[(&str, &[&str])] = &[
    ("resource.k8s.io/v1beta2", &["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"]),
    ("storage.k8s.io/v1beta1", &["StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment"]),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    ("node.k8s.io/v1beta1", &["RuntimeClass"]),
];

/// The resource of an object's `apiVersion` and `kind`, in whatever version; none for what no decision reads.
pub(crate) fn version_of(api_version: &str, kind: &str) -> Option<Version> {
    if let Some(resource) = resource_of(api_version, kind) {
        return Some(Version::Read(resource));
    }
    let group = |api_version: &str| api_version.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    let same = |resource: &&Resource| resource.kind == kind && group(resource.api_version) == group(api_version);
    let resource = RESOURCES.iter().find(same)?;
    let is_twin = TWINS.iter().any(|(version, kinds)| *version == api_version && kinds.contains(&kind));
    Some(if is_twin { Version::Twin(resource) } else { Version::Other(resource) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_a_kind_the_api_server_knows_under_the_same_names() {
        for resource in RESOURCES {
            let (group, version) = resource.api_version.rsplit_once('/').unwrap_or(("", resource.api_version));
            let plural = resource.name.split('.').next().unwrap();
            let kind = bayplan_kinds::find(group, version, plural).unwrap_or_else(|| panic!("{}", resource.name));
            assert_eq!(kind.kind, resource.kind);
            assert_eq!(kind.scope == bayplan_kinds::Scope::Namespaced, resource.namespaced, "{}", resource.name);
        }
    }
}
