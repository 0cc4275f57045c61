//! What people may do: the rules of `view`, `edit` and `admin`, each beyond the one before.

use super::roles::{ALL, READ, Row, WRITE};

pub(super) const VIEW: &[Row] = &[
    (
        READ,
        "",
        "configmaps,endpoints,persistentvolumeclaims,persistentvolumeclaims/status,pods,replicationcontrollers,\
         replicationcontrollers/scale,serviceaccounts,services,services/status",
    ),
    (
        READ,
        "",
        "bindings,limitranges,namespaces/status,pods/log,pods/status,replicationcontrollers/status,\
         resourcequotas,resourcequotas/status",
    ),
    (READ, "", "namespaces"),
    (READ, ",events.k8s.io", "events"),
    (READ, "discovery.k8s.io", "endpointslices"),
    (
        READ,
        "apps",
        "controllerrevisions,daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,replicasets,\
         replicasets/scale,replicasets/status,statefulsets,statefulsets/scale,statefulsets/status",
    ),
    (
        READ,
        "extensions",
        "daemonsets,daemonsets/status,deployments,deployments/scale,deployments/status,ingresses,ingresses/status,\
         networkpolicies,replicasets,replicasets/scale,replicasets/status,replicationcontrollers/scale",
    ),
    (READ, "autoscaling", "horizontalpodautoscalers,horizontalpodautoscalers/status"),
    (READ, "batch", "cronjobs,cronjobs/status,jobs,jobs/status"),
    (READ, "policy", "poddisruptionbudgets,poddisruptionbudgets/status"),
    (READ, "networking.k8s.io", "ingresses,ingresses/status,networkpolicies"),
    (READ, "resource.k8s.io", "resourceclaims,resourceclaims/status,resourceclaimtemplates"),
];
pub(super) const EDIT: &[Row] = &[
    (READ, "", "pods/attach,pods/exec,pods/portforward,pods/proxy,secrets,services/proxy"),
    ("impersonate", "", "serviceaccounts"),
    (WRITE, "", "pods,pods/attach,pods/exec,pods/portforward,pods/proxy"),
    ("create", "", "pods/eviction"),
    (
        WRITE,
        "",
        "configmaps,persistentvolumeclaims,replicationcontrollers,replicationcontrollers/scale,secrets,\
         serviceaccounts,services,services/proxy",
    ),
    (WRITE, ",events.k8s.io", "events"),
    ("create", "", "serviceaccounts/token"),
    (
        WRITE,
        "apps",
        "daemonsets,deployments,deployments/rollback,deployments/scale,replicasets,replicasets/scale,statefulsets,\
         statefulsets/scale",
    ),
    (
        WRITE,
        "extensions",
        "daemonsets,deployments,deployments/rollback,deployments/scale,ingresses,networkpolicies,replicasets,\
         replicasets/scale,replicationcontrollers/scale",
    ),
    (WRITE, "autoscaling", "horizontalpodautoscalers"),
    (WRITE, "batch", "cronjobs,jobs"),
    (WRITE, "policy", "poddisruptionbudgets"),
    (WRITE, "networking.k8s.io", "ingresses,networkpolicies"),
    (ALL, "coordination.k8s.io", "leases"),
    (WRITE, "resource.k8s.io", "resourceclaims,resourceclaimtemplates"),
];
pub(super) const ADMIN: &[Row] = &[
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (ALL, "rbac.authorization.k8s.io", "rolebindings,roles"),
];
