//! The roles about certificates and autoscaling: who may ask for certificates, approve and sign them, and follow
//! metrics.

use super::roles::{ClusterRole, EVENTS, READ, REVIEWS, words};
use crate::authz::policy::Rule;

const GROUP: &str = "certificates.k8s.io";
const ASK: &str = "create,get,list,watch";

/// The roles that no controller has.
pub(super) const ROLES: &[ClusterRole] = &[
    ClusterRole { name: "system:node-bootstrapper", rows: &[(ASK, GROUP, "certificatesigningrequests")] },
    ClusterRole {
        name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        rows: &[("create", GROUP, "certificatesigningrequests/nodeclient")],
    },
    ClusterRole {
        name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        rows: &[("create", GROUP, "certificatesigningrequests/selfnodeclient")],
    },
    ClusterRole { name: "system:certificates.k8s.io:legacy-unknown-approver", rows: &[] },
    ClusterRole { name: "system:certificates.k8s.io:kubelet-serving-approver", rows: &[] },
    ClusterRole { name: "system:certificates.k8s.io:kube-apiserver-client-approver", rows: &[] },
    ClusterRole { name: "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", rows: &[] },
];

pub(super) const HORIZONTAL_POD_AUTOSCALER: ClusterRole = ClusterRole {
    name: "horizontal-pod-autoscaler",
    rows: &[
        (READ, "autoscaling", "horizontalpodautoscalers"),
        ("update", "autoscaling", "horizontalpodautoscalers/status"),
        ("get,update", "*", "*/scale"),
        ("list,watch", "", "pods"),
        ("list,watch", "metrics.k8s.io", "pods"),
        (READ, "custom.metrics.k8s.io", "*"),
        (READ, "external.metrics.k8s.io", "*"),
        EVENTS,
    ],
};

pub(super) const CERTIFICATE_CONTROLLER: ClusterRole = ClusterRole {
    name: "certificate-controller",
    rows: &[
        ("delete,get,list,watch", GROUP, "certificatesigningrequests"),
        ("update", GROUP, "certificatesigningrequests/approval,certificatesigningrequests/status"),
        REVIEWS[1],
        EVENTS,
    ],
};

/// The rules of a role about signers, each by its name.
pub(super) fn signer_rules(role: &str) -> Vec<Rule> {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    const LEGACY: &str = "kubernetes.io/legacy-unknown";
    const SERVING: &str = "kubernetes.io/kubelet-serving";
    let rule = |verb: &str, signers: &[&str]| Rule {
        verbs: words(verb),
        api_groups: words(GROUP),
        resources: words("signers"),
        resource_names: signers.iter().map(|signer| (*signer).to_owned()).collect(),
        ..Rule::default()
    };
    match role.strip_prefix("system:certificates.k8s.io:").unwrap_or(role) {
        "certificate-controller" => {
            vec![rule("approve", &[KUBELET]), rule("sign", &[LEGACY, CLIENT, KUBELET, SERVING])]
        }
        "legacy-unknown-approver" => vec![rule("approve", &[LEGACY])],
        "kubelet-serving-approver" => vec![rule("approve", &[SERVING])],
        "kube-apiserver-client-approver" => vec![rule("approve", &[CLIENT])],
        "kube-apiserver-client-kubelet-approver" => vec![rule("approve", &[KUBELET])],
        _ => Vec::new(),
    }
}
