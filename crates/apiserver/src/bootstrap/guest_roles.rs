//! The roles of upstream's controllers and add-ons that Bayplan has no part for: on this API server, too, they find the
//! rights that they count on.

use bayplan_model::status::Status;
use serde_json::json;

use super::roles::{
    ClusterRole, EVENTS, READ, Row, account, cluster_role, cluster_role_binding, metadata, rules, words,
};
use super::{BootstrapObject, Reconcile, bootstrap_object, controller_roles};
use crate::authz::policy::{GROUP, Rule};

const ADD_ONS: &[ClusterRole] = &[
    ClusterRole {
        name: "system:heapster",
        rows: &[(READ, "", "events,namespaces,nodes,pods"), (READ, "extensions", "deployments")],
    },
    ClusterRole { name: "system:kube-aggregator", rows: &[(READ, "", "endpoints,services")] },
    ClusterRole { name: "system:kube-dns", rows: &[("list,watch", "", "endpoints,services")] },
    ClusterRole {
        name: "system:kubelet-api-admin",
        rows: &[
            (READ, "", "nodes"),
            ("proxy", "", "nodes"),
            ("*", "", "nodes/log,nodes/metrics,nodes/proxy,nodes/stats"),
            ("*", "", "nodes/configz,nodes/healthz,nodes/pods"),
        ],
    },
    ClusterRole {
        name: "system:node-problem-detector",
        rows: &[("get", "", "nodes"), ("patch", "", "nodes/status"), EVENTS],
    },
    ClusterRole {
        name: "system:persistent-volume-provisioner",
        rows: &[
            ("create,delete,get,list,watch", "", "persistentvolumes"),
            ("get,list,update,watch", "", "persistentvolumeclaims"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("watch", "", "events"),
            EVENTS,
        ],
    },
];

const LEGACY_TOKENS: &str = "legacy-service-account-token-cleaner";

/// Of controllers of kube-controller-manager, named `system:controller:<controller>`.
const CONTROLLERS: &[ClusterRole] = &[
    ClusterRole {
        name: "device-taint-eviction-controller",
        rows: &[
            ("delete,get,list,watch", "", "pods"),
            ("patch,update", "", "pods/status"),
            (READ, "resource.k8s.io", "deviceclasses,resourceclaims,resourceslices"),
            EVENTS,
        ],
    },
    ClusterRole { name: LEGACY_TOKENS, rows: &[("delete,patch", "", "secrets")] },
    ClusterRole {
        name: "route-controller",
        rows: &[("list,watch", "", "nodes"), ("patch", "", "nodes/status"), EVENTS],
    },
    ClusterRole {
        name: "selinux-warning-controller",
        rows: &[
            (READ, "", "persistentvolumeclaims,persistentvolumes,pods"),
            (READ, "storage.k8s.io", "csidrivers"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "service-controller",
        rows: &[(READ, "", "services"), ("patch,update", "", "services/status"), ("list,watch", "", "nodes"), EVENTS],
    },
    ClusterRole {
        name: "validatingadmissionpolicy-status-controller",
        rows: &[
            (READ, "admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("get,patch,update", "admissionregistration.k8s.io", "validatingadmissionpolicies/status"),
            EVENTS,
        ],
    },
];

/// What a controller may do in one namespace: the namespace, its name, and the rows.
const IN_NAMESPACES: [(&str, &str, &[Row]); 4] = [
    ("kube-public", "bootstrap-signer", &[(READ, "", "configmaps"), EVENTS]),
    ("kube-system", "bootstrap-signer", &[(READ, "", "secrets")]),
    ("kube-system", "cloud-provider", &[("create,get,list,watch", "", "configmaps")]),
    ("kube-system", "token-cleaner", controller_roles::TOKEN_CLEANER),
];

/// The roles, each with its binding to the service account that upstream's part has.
pub(super) fn objects() -> Result<Vec<BootstrapObject>, Status> {
    let mut objects = Vec::new();
    for role in ADD_ONS {
        objects.push(cluster_role(role.name, rules(role.rows), json!({}))?);
    }
    objects.push(cluster_role_binding("system:kube-dns", vec![account("kube-dns")])?);
    // Kubelets have their rights by the Node authorizer; whoever adds a subject gives them more.
    objects.push(cluster_role_binding("system:node", Vec::new())?);
    for role in CONTROLLERS {
        let name = format!("system:controller:{}", role.name);
        let mut rules = rules(role.rows);
        if role.name == LEGACY_TOKENS {
            rules.push(one("get", "kube-apiserver-legacy-service-account-token-tracking"));
        }
        objects.push(cluster_role(&name, rules, json!({}))?);
        objects.push(cluster_role_binding(&name, vec![account(role.name)])?);
    }
    for (namespace, controller, rows) in IN_NAMESPACES {
        let name = format!("system:controller:{controller}");
        let mut rules = rules(rows);
        if namespace == "kube-public" {
            rules.push(one("update", "cluster-info"));
        }
        let role = json!({"metadata": metadata(&name, json!({})), "rules": rules});
        objects.push(bootstrap_object(GROUP, "roles", namespace, Reconcile::Rules, role)?);
        let binding = json!({
            "metadata": metadata(&name, json!({})),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
            "subjects": [account(controller)],
        });
        objects.push(bootstrap_object(GROUP, "rolebindings", namespace, Reconcile::Subjects, binding)?);
    }
    Ok(objects)
}

/// The right to one ConfigMap.
fn one(verb: &str, name: &str) -> Rule {
    Rule {
        verbs: words(verb),
        api_groups: words(""),
        resources: words("configmaps"),
        resource_names: words(name),
        ..Rule::default()
    }
}
