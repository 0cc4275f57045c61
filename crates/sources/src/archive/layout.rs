//! What the path of a file in a bundle says of the objects in it.
//!
//! troubleshoot's support bundles hold `cluster-resources/nodes.json` and `cluster-resources/pods/NAMESPACE.json`. Its
//! earlier versions write arrays of objects there that do not say their kind; later ones write lists that do.

/// The folder of a support bundle that holds objects.
const FOLDER: &str = "cluster-resources/";

/// Names below [`FOLDER`], with the kinds of the objects there.
const KINDS: &[(&str, &str, &str)] = &[
    ("pods", "v1", "Pod"),
    ("nodes", "v1", "Node"),
    ("namespaces", "v1", "Namespace"),
    ("services", "v1", "Service"),
    ("events", "v1", "Event"),
    ("limitranges", "v1", "LimitRange"),
    ("pvs", "v1", "PersistentVolume"),
    ("pvcs", "v1", "PersistentVolumeClaim"),
    ("deployments", "apps/v1", "Deployment"),
    ("replicasets", "apps/v1", "ReplicaSet"),
    ("statefulsets", "apps/v1", "StatefulSet"),
    ("daemonsets", "apps/v1", "DaemonSet"),
    ("jobs", "batch/v1", "Job"),
    ("pod-disruption-budgets", "policy/v1", "PodDisruptionBudget"),
    ("priorityclasses", "scheduling.k8s.io/v1", "PriorityClass"),
    ("storage-classes", "storage.k8s.io/v1", "StorageClass"),
    ("volumeattachments", "storage.k8s.io/v1", "VolumeAttachment"),
];

/// The `apiVersion` and kind of objects that do not say them themselves.
pub(crate) fn kind_by_path(path: &str) -> Option<(&'static str, &'static str)> {
    let (_, below) = path.rsplit_once(FOLDER)?;
    let name = match below.split('/').collect::<Vec<_>>()[..] {
        [file] => file.strip_suffix(".json").unwrap_or(file),
        [folder, file] if file.ends_with(".json") => folder,
        // Logs of pods lie deeper.
        _ => return None,
    };
    KINDS.iter().find(|(known, ..)| *known == name).map(|(_, api_version, kind)| (*api_version, *kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_the_kind_only_where_troubleshoot_writes_objects() {
        for (path, expected) in [
            ("x.tar.gz:support-bundle-1/cluster-resources/pods/default.json", Some(("v1", "Pod"))),
            ("cluster-resources/nodes.json", Some(("v1", "Node"))),
            ("bundle/cluster-resources/pvs", Some(("v1", "PersistentVolume"))),
            ("bundle/cluster-resources/pod-disruption-budgets/a.json", Some(("policy/v1", "PodDisruptionBudget"))),
            ("bundle/cluster-resources/pods-errors.json", None),
            ("bundle/cluster-resources/pods/logs/default/web/main.log", None),
            ("bundle/cluster-resources/custom-resources/a.json", None),
            ("bundle/pods/default.json", None),
        ] {
            assert_eq!(kind_by_path(path), expected, "{path}");
        }
    }
}
