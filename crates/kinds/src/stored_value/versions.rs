//! Versions that stored objects may have besides the storage version.

use crate::kind::Kind;
use crate::scheme::Scheme;

/// Versions whose messages and JSON have the same fields as the storage version, by group, version and kind; an empty
/// kind stands for all of the group. Compared field by field in upstream's published messages. Clusters that were
/// upgraded have objects that nobody wrote since.
///
/// `policy/v1beta1` is missing although its fields are the same: an empty selector means nothing there, and everything
/// in `v1`.
const TWINS: &[(&str, &str, &str)] = &[
    ("apps", "v1beta2", ""),
    ("batch", "v1beta1", "CronJob"),
    ("coordination.k8s.io", "v1beta1", "Lease"),
    ("networking.k8s.io", "v1beta1", "IPAddress"),
    ("networking.k8s.io", "v1beta1", "ServiceCIDR"),
    ("node.k8s.io", "v1beta1", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "v1beta1", ""),
    ("resource.k8s.io", "v1beta1", "DeviceClass"),
    ("resource.k8s.io", "v1beta2", ""),
    ("scheduling.k8s.io", "v1beta1", "PriorityClass"),
    ("storage.k8s.io", "v1beta1", ""),
];

/// The kind by which a stored object is read: the storage version itself, or another that is converted to it.
pub(super) fn source(storage: &'static Kind, api_version: &str, kind: &str) -> Result<&'static Kind, String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if kind == storage.kind {
        if group == storage.group && version == storage.version {
            return Ok(storage);
        }
        let twin = |(g, v, k): &&(&str, &str, &str)| *g == group && *v == version && (k.is_empty() || *k == kind);
        if group == storage.group && TWINS.iter().any(|known| twin(&known)) {
            return Ok(storage);
        }
        let other = Scheme::built_in().by_kind(group, version, kind);
        if let Some(other) = other.filter(|other| other.storage_prefix == storage.storage_prefix) {
            return Ok(other);
        }
    }
    Err(format!(
        "it is stored as {kind} of {api_version}, which is not read here; {} of {} is expected",
        storage.kind,
        storage.api_version()
    ))
}
