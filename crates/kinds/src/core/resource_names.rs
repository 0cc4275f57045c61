//! The names of resources in quotas and limits. Upstream: package `core/helper`.

use crate::field::{ErrorList, Path};
use crate::names;

const COMPUTE: &[&str] = &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const OTHER_QUOTAS: &[&str] = &[
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "requests.storage",
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

/// Whether quotas count the resource without a domain in its name.
pub(super) fn is_standard_quota(name: &str) -> bool {
    let huge = ["hugepages-", "requests.hugepages-"].into_iter().any(|prefix| name.starts_with(prefix));
    huge || COMPUTE.contains(&name) || OTHER_QUOTAS.contains(&name)
}

/// Whether the resource is something that containers use of their node.
pub(super) fn is_compute_quota(name: &str) -> bool {
    COMPUTE.contains(&name)
}

/// Checks the name of any resource.
pub(super) fn resource_name(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    let problems = names::qualified_name(name);
    if problems.is_empty() && !name.contains('/') && !is_standard_quota(name) && name != "storage" {
        return errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    errors.all_invalid(path, name, problems);
}

/// Whether amounts of the resource are whole.
pub(super) fn is_integer(name: &str) -> bool {
    const COUNTS: &[&str] = &[
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
    COUNTS.contains(&name) || is_extended(name)
}

/// Whether the resource is one of Kubernetes itself.
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    let requested = || names::qualified_name(&format!("requests.{name}"));
    !is_native(name) && !name.starts_with("requests.") && requested().is_empty()
}
