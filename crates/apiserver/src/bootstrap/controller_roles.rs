//! The roles of the control loops over what belongs to the cluster as a whole.

use super::roles::{ClusterRole, EVENTS, READ};

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
