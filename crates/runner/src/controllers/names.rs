//! The names that `--controllers` accepts: upstream's, their aliases, and which of them run here.

/// Upstream's controllers of v1.36, each with its alias, if it has one.
const UPSTREAM: [(&str, &str); 49] = [
    ("bootstrap-signer-controller", "bootstrapsigner"),
    ("certificatesigningrequest-approving-controller", "csrapproving"),
    ("certificatesigningrequest-cleaner-controller", "csrcleaner"),
    ("certificatesigningrequest-signing-controller", "csrsigning"),
    ("cloud-node-lifecycle-controller", "cloud-node-lifecycle"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation"),
    ("cronjob-controller", "cronjob"),
    ("daemonset-controller", "daemonset"),
    ("deployment-controller", "deployment"),
    ("device-taint-eviction-controller", ""),
    ("disruption-controller", "disruption"),
    ("endpoints-controller", "endpoint"),
    ("endpointslice-controller", "endpointslice"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring"),
    ("ephemeral-volume-controller", "ephemeral-volume"),
    ("garbage-collector-controller", "garbagecollector"),
    ("horizontal-pod-autoscaler-controller", "horizontalpodautoscaling"),
    ("job-controller", "job"),
    ("kube-apiserver-serving-clustertrustbundle-publisher-controller", ""),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    ("namespace-controller", "namespace"),
    ("node-ipam-controller", "nodeipam"),
    ("node-lifecycle-controller", "nodelifecycle"),
    ("node-route-controller", "route"),
    ("persistentvolume-attach-detach-controller", "attachdetach"),
    ("persistentvolume-binder-controller", "persistentvolume-binder"),
    ("persistentvolume-expander-controller", "persistentvolume-expander"),
    ("persistentvolume-protection-controller", "pv-protection"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection"),
    ("pod-garbage-collector-controller", "podgc"),
    ("podcertificaterequest-cleaner-controller", ""),
    ("replicaset-controller", "replicaset"),
    ("replicationcontroller-controller", "replicationcontroller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("resourcequota-controller", "resourcequota"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("selinux-warning-controller", ""),
    ("service-cidr-controller", ""),
    ("service-lb-controller", "service"),
    ("serviceaccount-controller", "serviceaccount"),
    ("serviceaccount-token-controller", "serviceaccount-token"),
    ("statefulset-controller", "statefulset"),
    ("storageversion-garbage-collector-controller", "storage-version-gc"),
    ("taint-eviction-controller", ""),
    ("token-cleaner-controller", "tokencleaner"),
    ("ttl-after-finished-controller", "ttl-after-finished"),
    ("ttl-controller", "ttl"),
    ("validatingadmissionpolicy-status-controller", ""),
    ("volumeattributesclass-protection-controller", ""),
];

/// Those that `*` does not mean: each runs when it is named.
pub const OFF_BY_DEFAULT: [&str; 1] = ["token-cleaner-controller"];

/// The controllers that `--controllers` selects, and those it names that Bayplan does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// For [`ControllersConfig::controllers`](super::ControllersConfig::controllers).
    pub controllers: Vec<String>,
    /// Upstream's controllers that are named and that Bayplan does not have.
    pub absent: Vec<String>,
}

/// Reads the values of `--controllers`; the error is an unknown name. `here` are the controllers that can run.
pub fn select(asked: &[String], here: &[&str]) -> Result<Selection, String> {
    let mut choice = Selection::default();
    for text in asked {
        let (sign, name) = text.strip_prefix('-').map_or(("", text.as_str()), |name| ("-", name));
        if text == "*" {
            choice.controllers.push("*".into());
            continue;
        }
        let upstream =
            UPSTREAM.iter().find(|(today, before)| *today == name || (!before.is_empty() && *before == name));
        let today = upstream.map(|(today, _)| *today).or_else(|| here.iter().copied().find(|known| *known == name));
        let today = today.ok_or_else(|| format!("{name:?} is not in the list of known controllers"))?;
        if here.contains(&today) {
            choice.controllers.push(format!("{sign}{today}"));
        } else if sign.is_empty() {
            choice.absent.push(today.to_owned());
        }
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_known_by_todays_and_former_names() {
        let here = ["deployment-controller", "namespace-controller", "our-own"];
        let select = |asked: &[&str]| super::select(&asked.iter().map(ToString::to_string).collect::<Vec<_>>(), &here);
        let selection = |controllers: &[&str], absent: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(ToString::to_string).collect();
            Ok(Selection { controllers: texts(controllers), absent: texts(absent) })
        };
        assert_eq!(select(&["*", "-deployment"]), selection(&["*", "-deployment-controller"], &[]));
        assert_eq!(select(&["namespace-controller", "our-own"]), selection(&["namespace-controller", "our-own"], &[]));
        assert_eq!(select(&["*", "bootstrapsigner", "-job"]), selection(&["*"], &["bootstrap-signer-controller"]));
        let unknown = Err("\"deploymnt\" is not in the list of known controllers".to_owned());
        assert_eq!(select(&["*", "-deploymnt"]), unknown);
    }
}
