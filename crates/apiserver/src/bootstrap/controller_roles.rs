//! The roles of the control loops over what belongs to the cluster as a whole, and over attached volumes.

use super::roles::{ClusterRole, EVENTS, READ, Row};

pub(super) const CLUSTER_ROLE_AGGREGATION: ClusterRole = ClusterRole {
    name: "clusterrole-aggregation-controller",
    // It gives roles rules that it does not have itself.
    rows: &[("escalate,get,list,patch,update,watch", "rbac.authorization.k8s.io", "clusterroles")],
};

pub(super) const TTL: ClusterRole =
    ClusterRole { name: "ttl-controller", rows: &[("list,patch,update,watch", "", "nodes"), EVENTS] };

pub(super) const SERVICE_CIDRS: ClusterRole = ClusterRole {
    name: "service-cidrs-controller",
    rows: &[
        ("get,list,patch,update,watch", "networking.k8s.io", "servicecidrs"),
        ("patch,update", "networking.k8s.io", "servicecidrs/finalizers,servicecidrs/status"),
        (READ, "networking.k8s.io", "ipaddresses"),
        EVENTS,
    ],
};

pub(super) const ATTRIBUTES_CLASS_PROTECTION: ClusterRole = ClusterRole {
    name: "volumeattributesclass-protection-controller",
    rows: &[
        ("get,list,patch,update,watch", "storage.k8s.io", "volumeattributesclasses"),
        (READ, "", "persistentvolumeclaims,persistentvolumes"),
        EVENTS,
    ],
};

pub(super) const ATTACH_DETACH: ClusterRole = ClusterRole {
    name: "attachdetach-controller",
    rows: &[
        ("list,watch", "", "persistentvolumeclaims,persistentvolumes"),
        (READ, "", "nodes"),
        ("patch,update", "", "nodes/status"),
        ("list,watch", "", "pods"),
        EVENTS,
        ("create,delete,get,list,watch", "storage.k8s.io", "volumeattachments"),
        (READ, "storage.k8s.io", "csidrivers"),
        (READ, "storage.k8s.io", "csinodes"),
    ],
};

/// Only where bootstrap tokens are.
pub(super) const TOKEN_CLEANER: &[Row] = &[("get,watch,list,delete", "", "secrets"), EVENTS];

/// What stands in for external attachers, and for kubelets that say which volumes they use. It is no controller of
/// upstream's, and has no service account.
pub(super) const SIMULATED_ATTACHER: ClusterRole = ClusterRole {
    name: "bayplan:simulated-attacher",
    rows: &[("patch", "storage.k8s.io", "volumeattachments/status"), ("patch", "", "nodes/status")],
};
