//! The APIServices of what this server answers itself.

use bayplan_model::status::Status;
use serde_json::json;

use super::{BootstrapObject, Reconcile, bootstrap_object};

/// The versions that upstream lists as its own, with the priorities of group and version. Those of
/// `admissionregistration.k8s.io` and `apiextensions.k8s.io` are listed, although discovery does not show the groups.
const LOCAL: [(&str, &str, u32, u32); 21] = [
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
];

/// One object for each version of a group.
pub(super) fn objects() -> Result<Vec<BootstrapObject>, Status> {
    let object = |(group, version, group_priority, version_priority): (&str, &str, u32, u32)| {
        let mut object = json!({
            "metadata": {
                "name": format!("{version}.{group}"),
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": {
                "version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
            },
        });
        if !group.is_empty() {
            object["spec"]["group"] = json!(group);
        }
        bootstrap_object("apiregistration.k8s.io", "apiservices", "", Reconcile::Never, object)
    };
    LOCAL.into_iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::LOCAL;

    #[test]
    fn every_version_that_is_served_has_one() {
        let listed: BTreeSet<(&str, &str)> = LOCAL.iter().map(|(group, version, ..)| (*group, *version)).collect();
        assert_eq!(listed.len(), LOCAL.len());
        for kind in bayplan_kinds::served().filter(|kind| kind.group != "apiregistration.k8s.io") {
            assert!(listed.contains(&(kind.group, kind.version)), "{}", kind.api_version());
        }
    }
}
