//! The roles and bindings that every cluster starts with.
//!
//! Each system component has a role; `admin`, `edit` and `view` are for people. All controllers of
//! `bayplan controller-manager` act as `system:kube-controller-manager`, so their roles are bound to that user, and
//! also to the service accounts that upstream's controllers use.

use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::user_roles::{ADMIN, EDIT, VIEW};
use super::{
    AUTOUPDATE, BootstrapObject, Reconcile, bootstrap_object, certificate_roles, controller_roles, guest_roles,
    namespace_roles,
};
use crate::authz::policy::{GROUP, Rule};

pub(super) const READ: &str = "get,list,watch";
pub(super) const WRITE: &str = "create,delete,deletecollection,patch,update";
pub(super) const ALL: &str = "create,delete,deletecollection,get,list,patch,update,watch";
pub(super) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(super) const SCHEDULER: &str = "system:kube-scheduler";

/// Verbs, API groups and resources, each separated by commas.
pub(super) type Row = (&'static str, &'static str, &'static str);

/// A cluster role with rules for resources.
pub(super) struct ClusterRole {
    pub(super) name: &'static str,
    pub(super) rows: &'static [Row],
}

/// The rule for leader election with one lease: verbs and name.
const fn lease_of(name: &'static str) -> (&'static str, &'static str) {
    ("get,list,update,watch", name)
}

pub(super) const EVENTS: Row = ("create,patch,update", ",events.k8s.io", "events");
pub(super) const REVIEWS: [Row; 2] =
    [("create", "authentication.k8s.io", "tokenreviews"), ("create", "authorization.k8s.io", "subjectaccessreviews")];

const ROLES: &[ClusterRole] = &[
    ClusterRole { name: "system:aggregate-to-admin", rows: ADMIN },
    ClusterRole { name: "system:aggregate-to-edit", rows: EDIT },
    ClusterRole { name: "system:aggregate-to-view", rows: VIEW },
    ClusterRole {
        name: "system:basic-user",
        rows: &[
            ("create", "authorization.k8s.io", "selfsubjectaccessreviews,selfsubjectrulesreviews"),
            ("create", "authentication.k8s.io", "selfsubjectreviews"),
        ],
    },
    ClusterRole { name: "system:auth-delegator", rows: &REVIEWS },
    ClusterRole {
        name: SCHEDULER,
        rows: &[
            EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            (ALL, "coordination.k8s.io", "leasecandidates"),
            (READ, "", "nodes"),
            ("delete,get,list,watch", "", "pods"),
            ("create", "", "bindings,pods/binding"),
            ("patch,update", "", "pods/status"),
            (READ, "", "replicationcontrollers,services"),
            (READ, "apps,extensions", "replicasets"),
            (READ, "apps", "statefulsets"),
            (READ, "policy", "poddisruptionbudgets"),
            (READ, "", "persistentvolumeclaims,persistentvolumes"),
            REVIEWS[0],
            REVIEWS[1],
            (READ, "storage.k8s.io", "csinodes"),
            (READ, "", "namespaces"),
            (READ, "storage.k8s.io", "csidrivers,csistoragecapacities,volumeattachments"),
            (READ, "resource.k8s.io", "deviceclasses,resourceslices"),
            ("create,delete,get,list,patch,update,watch", "resource.k8s.io", "resourceclaims"),
            ("get,list,patch,update,watch", "resource.k8s.io", "resourceclaims/status"),
            ("patch,update", "resource.k8s.io", "resourceclaims/binding"),
            ("update", "", "pods/finalizers"),
        ],
    },
    ClusterRole {
        name: "system:volume-scheduler",
        rows: &[
            ("get,list,patch,update,watch", "", "persistentvolumes"),
            (READ, "storage.k8s.io", "storageclasses"),
            ("get,list,patch,update,watch", "", "persistentvolumeclaims"),
        ],
    },
    ClusterRole {
        name: CONTROLLER_MANAGER,
        rows: &[
            EVENTS,
            ("create", "coordination.k8s.io", "leases"),
            ("create,delete,get,update", "", "secrets"),
            ("create,get,update", "", "serviceaccounts"),
            ("get", "", "configmaps,namespaces"),
            REVIEWS[0],
            REVIEWS[1],
            ("list,watch", "*", "*"),
            ("create", "", "serviceaccounts/token"),
        ],
    },
    ClusterRole {
        name: "system:node",
        rows: &[
            REVIEWS[0],
            ("create", "authorization.k8s.io", "localsubjectaccessreviews,subjectaccessreviews"),
            (READ, "", "services"),
            ("create,get,list,watch", "", "nodes"),
            ("patch,update", "", "nodes/status"),
            ("patch,update", "", "nodes"),
            ("create,patch,update", "", "events"),
            (READ, "", "pods"),
            ("create,delete", "", "pods"),
            ("patch,update", "", "pods/status"),
            ("create", "", "pods/eviction"),
            (READ, "", "configmaps,secrets"),
            ("get", "", "persistentvolumeclaims,persistentvolumes"),
            ("create", "", "serviceaccounts/token"),
            ("get", "storage.k8s.io", "volumeattachments"),
            ("create,get,list,watch", "certificates.k8s.io", "certificatesigningrequests"),
            ("create,delete,get,patch,update", "coordination.k8s.io", "leases"),
            ("create,delete,get,list,patch,update,watch", "storage.k8s.io", "csinodes"),
            (READ, "storage.k8s.io", "csidrivers"),
            (READ, "node.k8s.io", "runtimeclasses"),
            ("get", "resource.k8s.io", "resourceclaims"),
            ("deletecollection,list,watch", "resource.k8s.io", "resourceslices"),
            ("create,get,patch,update,delete", "resource.k8s.io", "resourceslices"),
        ],
    },
    ClusterRole {
        name: "system:node-proxier",
        rows: &[
            ("list,watch", "", "endpoints,services"),
            (READ, "", "nodes"),
            EVENTS,
            ("list,watch", "networking.k8s.io", "servicecidrs"),
            ("list,watch", "discovery.k8s.io", "endpointslices"),
        ],
    },
];

/// The roles of controllers, named `system:controller:<controller>`.
const CONTROLLERS: &[ClusterRole] = &[
    ClusterRole {
        name: "deployment-controller",
        rows: &[
            ("get,list,update,watch", "apps,extensions", "deployments"),
            ("update", "apps,extensions", "deployments/status"),
            ("update", "apps,extensions", "deployments/finalizers"),
            ("create,delete,get,list,patch,update,watch", "apps,extensions", "replicasets"),
            ("get,list,update,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "replicaset-controller",
        rows: &[
            ("get,list,update,watch", "apps,extensions", "replicasets"),
            ("update", "apps,extensions", "replicasets/status"),
            ("update", "apps,extensions", "replicasets/finalizers"),
            ("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "daemon-set-controller",
        rows: &[
            (READ, "apps,extensions", "daemonsets"),
            ("update", "apps,extensions", "daemonsets/status"),
            ("update", "apps,extensions", "daemonsets/finalizers"),
            ("list,watch", "", "nodes"),
            ("create,delete,list,patch,watch", "", "pods"),
            ("create", "", "pods/binding"),
            ("create,delete,get,list,patch,update,watch", "apps", "controllerrevisions"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "statefulset-controller",
        rows: &[
            ("list,watch", "", "pods"),
            (READ, "apps", "statefulsets"),
            ("update", "apps", "statefulsets/status"),
            ("update", "apps", "statefulsets/finalizers"),
            ("create,delete,get,patch,update", "", "pods"),
            ("create,delete,get,list,patch,update,watch", "apps", "controllerrevisions"),
            ("create,get,list,watch", "", "persistentvolumeclaims"),
            ("delete,update", "", "persistentvolumeclaims"),
            ("update", "", "pods/finalizers"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "replication-controller",
        rows: &[
            ("get,list,update,watch", "", "replicationcontrollers"),
            ("update", "", "replicationcontrollers/status"),
            ("update", "", "replicationcontrollers/finalizers"),
            ("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "job-controller",
        rows: &[
            ("get,list,patch,update,watch", "batch", "jobs"),
            ("update", "batch", "jobs/status"),
            ("update", "batch", "jobs/finalizers"),
            ("create,delete,list,patch,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "cronjob-controller",
        rows: &[
            ("get,list,update,watch", "batch", "cronjobs"),
            ("create,delete,get,list,patch,update,watch", "batch", "jobs"),
            ("update", "batch", "cronjobs/status"),
            ("update", "batch", "cronjobs/finalizers"),
            ("delete,list,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "resourcequota-controller",
        rows: &[("list,watch", "*", "*"), ("update", "", "resourcequotas/status"), EVENTS],
    },
    ClusterRole { name: "ttl-after-finished-controller", rows: &[("delete,get,list,watch", "batch", "jobs"), EVENTS] },
    certificate_roles::HORIZONTAL_POD_AUTOSCALER,
    certificate_roles::CERTIFICATE_CONTROLLER,
    ClusterRole {
        name: "endpoint-controller",
        rows: &[
            (READ, "", "pods,services"),
            ("create,delete,get,list,update,watch", "", "endpoints"),
            ("create", "", "endpoints/restricted"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "endpointslice-controller",
        rows: &[
            (READ, "", "nodes,pods,services"),
            ("update", "", "services/finalizers"),
            ("create,delete,get,list,update,watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "endpointslicemirroring-controller",
        rows: &[
            (READ, "", "endpoints,services"),
            ("update", "", "services/finalizers"),
            ("update", "", "endpoints/finalizers"),
            ("create,delete,get,list,update,watch", "discovery.k8s.io", "endpointslices"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "node-controller",
        rows: &[
            ("delete,get,list,patch,update,watch", "", "nodes"),
            ("patch,update", "", "nodes/status"),
            ("patch,update", "", "pods/status"),
            ("delete,get,list,watch", "", "pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "pod-garbage-collector",
        rows: &[("delete,list,watch", "", "pods"), ("get,list,watch", "", "nodes"), ("patch", "", "pods/status")],
    },
    ClusterRole {
        name: "persistent-volume-binder",
        rows: &[
            ("create,delete,get,list,patch,update,watch", "", "persistentvolumes"),
            ("patch,update", "", "persistentvolumes/status"),
            ("get,list,patch,update,watch", "", "persistentvolumeclaims"),
            ("patch,update", "", "persistentvolumeclaims/status"),
            (READ, "storage.k8s.io", "storageclasses"),
            (READ, "", "nodes,pods"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "expand-controller",
        rows: &[
            ("get,list,patch,update,watch", "", "persistentvolumes"),
            ("patch,update", "", "persistentvolumeclaims/status"),
            (READ, "", "persistentvolumeclaims"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "ephemeral-volume-controller",
        rows: &[
            (READ, "", "pods"),
            ("update", "", "pods/finalizers"),
            ("create,get,list,watch", "", "persistentvolumeclaims"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "pvc-protection-controller",
        rows: &[("get,list,patch,update,watch", "", "persistentvolumeclaims"), (READ, "", "pods"), EVENTS],
    },
    ClusterRole {
        name: "pv-protection-controller",
        rows: &[("get,list,patch,update,watch", "", "persistentvolumes"), EVENTS],
    },
    ClusterRole {
        name: "resource-claim-controller",
        rows: &[
            (READ, "", "pods"),
            ("update", "", "pods/finalizers"),
            ("create,delete,get,list,watch", "resource.k8s.io", "resourceclaims"),
            (READ, "resource.k8s.io", "resourceclaimtemplates"),
            ("patch,update", "resource.k8s.io", "resourceclaims,resourceclaims/binding,resourceclaims/status"),
            ("patch,update", "", "pods/status"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "disruption-controller",
        rows: &[
            (READ, "apps,extensions", "deployments"),
            (READ, "apps,extensions", "replicasets"),
            (READ, "", "replicationcontrollers"),
            (READ, "policy", "poddisruptionbudgets"),
            (READ, "apps", "statefulsets"),
            ("update", "policy", "poddisruptionbudgets/status"),
            ("patch,update", "", "pods/status"),
            ("get", "*", "*/scale"),
            EVENTS,
        ],
    },
    ClusterRole {
        name: "generic-garbage-collector",
        rows: &[("delete,get,list,patch,update,watch", "*", "*"), EVENTS],
    },
    ClusterRole {
        name: "namespace-controller",
        rows: &[
            ("delete,get,list,watch", "", "namespaces"),
            ("update", "", "namespaces/finalize,namespaces/status"),
            ("delete,deletecollection,get,list,watch", "*", "*"),
        ],
    },
    ClusterRole { name: "root-ca-cert-publisher", rows: &[("create,update", "", "configmaps"), EVENTS] },
    ClusterRole { name: "service-account-controller", rows: &[("create", "", "serviceaccounts"), EVENTS] },
    controller_roles::CLUSTER_ROLE_AGGREGATION,
    controller_roles::TTL,
    controller_roles::SERVICE_CIDRS,
    controller_roles::ATTRIBUTES_CLASS_PROTECTION,
    controller_roles::ATTACH_DETACH,
];

const DISCOVERY_PATHS: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];
const MONITORING_PATHS: &[&str] = &[
    "/flagz",
    "/healthz",
    "/healthz/*",
    "/livez",
    "/livez/*",
    "/metrics",
    "/metrics/slis",
    "/readyz",
    "/readyz/*",
    "/statusz",
];
const ISSUER_PATHS: &[&str] =
    &["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"];

/// Every role and binding.
///
/// In a store that other servers share, roles and bindings that exist stay as they are, and what our controller manager
/// needs beyond upstream's is in roles of our own.
pub(super) fn objects(aggregate: bool, shared_store: bool) -> Result<Vec<BootstrapObject>, Status> {
    let mut objects = Vec::new();
    for role in cluster_roles() {
        objects.push(cluster_role(&role.0, role.1, json!({}))?);
    }
    for (name, label, rows) in [
        ("admin", "admin", [ADMIN, EDIT, VIEW].concat()),
        ("edit", "edit", [EDIT, VIEW].concat()),
        ("view", "view", VIEW.to_vec()),
    ] {
        let rules = if aggregate { rules(&rows) } else { Vec::new() };
        let mut role = cluster_role(name, rules, labels_of(name))?;
        let selector = json!({"matchLabels": {format!("rbac.authorization.k8s.io/aggregate-to-{label}"): "true"}});
        role.object["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        objects.push(role);
    }
    objects.extend(cluster_role_bindings(!shared_store)?);
    objects.extend(namespace_roles::objects()?);
    objects.extend(guest_roles::objects()?);
    let attacher = &controller_roles::SIMULATED_ATTACHER;
    objects.push(cluster_role(attacher.name, all_rules(attacher), json!({}))?);
    objects.push(cluster_role_binding(attacher.name, vec![user(CONTROLLER_MANAGER)])?);
    if shared_store {
        objects.iter_mut().for_each(|object| object.reconcile = Reconcile::Never);
        objects.extend(own_roles()?);
    }
    Ok(objects)
}

/// The labels that aggregate `view` into `edit` and `edit` into `admin`.
fn labels_of(name: &str) -> Value {
    match name {
        "edit" => json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"}),
        "view" => json!({"rbac.authorization.k8s.io/aggregate-to-edit": "true"}),
        _ => json!({}),
    }
}

/// What a kubelet may do with resources that are not divided by node, and at most with the others.
pub(crate) fn node_rules() -> Vec<Rule> {
    ROLES.iter().find(|role| role.name == "system:node").map(|role| rules(role.rows)).unwrap_or_default()
}

fn cluster_roles() -> Vec<(String, Vec<Rule>)> {
    let everything = Rule { api_groups: words("*"), resources: words("*"), verbs: words("*"), ..Rule::default() };
    let mut all = vec![
        ("cluster-admin".to_owned(), vec![everything, paths("*", &["*"])]),
        ("system:discovery".to_owned(), vec![paths("get", DISCOVERY_PATHS)]),
        ("system:public-info-viewer".to_owned(), vec![paths("get", PUBLIC_PATHS)]),
        (
            "system:monitoring".to_owned(),
            [vec![paths("get", MONITORING_PATHS)], rules(&[("get", "", "nodes/metrics")])].concat(),
        ),
        ("system:service-account-issuer-discovery".to_owned(), vec![paths("get", ISSUER_PATHS)]),
    ];
    for role in ROLES.iter().chain(certificate_roles::ROLES) {
        let mut rules = all_rules(role);
        if let Some((verbs, lease)) = match role.name {
            SCHEDULER => Some(lease_of("kube-scheduler")),
            CONTROLLER_MANAGER => Some(lease_of("kube-controller-manager")),
            _ => None,
        } {
            rules.push(Rule {
                verbs: words(verbs),
                api_groups: words("coordination.k8s.io"),
                resources: words("leases"),
                resource_names: words(lease),
                ..Rule::default()
            });
        }
        all.push((role.name.to_owned(), rules));
    }
    all.extend(CONTROLLERS.iter().map(|role| (format!("system:controller:{}", role.name), all_rules(role))));
    all
}

pub(super) fn words(list: &str) -> Vec<String> {
    list.split(',').map(|word| word.trim().to_owned()).collect()
}

pub(super) fn rules(rows: &[Row]) -> Vec<Rule> {
    let rule = |(verbs, groups, resources): &Row| Rule {
        verbs: words(verbs),
        api_groups: words(groups),
        resources: words(resources),
        ..Rule::default()
    };
    rows.iter().map(rule).collect()
}

fn all_rules(role: &ClusterRole) -> Vec<Rule> {
    [rules(role.rows), certificate_roles::signer_rules(role.name)].concat()
}

fn paths(verbs: &str, paths: &[&str]) -> Rule {
    Rule {
        verbs: words(verbs),
        non_resource_urls: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..Rule::default()
    }
}

pub(super) fn metadata(name: &str, mut labels: Value) -> Value {
    labels["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
    if let Some(to) = name.strip_prefix("system:aggregate-to-") {
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{to}")] = "true".into();
    }
    json!({"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}})
}

pub(super) fn cluster_role(name: &str, rules: Vec<Rule>, labels: Value) -> Result<BootstrapObject, Status> {
    // Upstream stores an empty list of rules as null.
    let rules = if rules.is_empty() { Value::Null } else { json!(rules) };
    let object = json!({"metadata": metadata(name, labels), "rules": rules});
    bootstrap_object(GROUP, "clusterroles", "", Reconcile::Rules, object)
}

pub(super) fn user(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": GROUP, "name": name})
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "apiGroup": GROUP, "name": name})
}

pub(super) fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"})
}

/// The roles of our controllers for the user that they act as, each with its binding: `bayplan:controller:<name>`.
fn own_roles() -> Result<Vec<BootstrapObject>, Status> {
    let mut objects = Vec::new();
    for role in CONTROLLERS {
        let name = format!("bayplan:controller:{}", role.name);
        objects.push(cluster_role(&name, all_rules(role), json!({}))?);
        objects.push(cluster_role_binding(&name, vec![user(CONTROLLER_MANAGER), account(role.name)])?);
    }
    Ok(objects)
}

pub(super) fn cluster_role_binding(name: &str, subjects: Vec<Value>) -> Result<BootstrapObject, Status> {
    let mut object = json!({
        "metadata": metadata(name, json!({})),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
    });
    if !subjects.is_empty() {
        object["subjects"] = subjects.into();
    }
    bootstrap_object(GROUP, "clusterrolebindings", "", Reconcile::Subjects, object)
}

/// The bindings of the roles; `to_user` binds those of controllers to the user of the controller manager too.
fn cluster_role_bindings(to_user: bool) -> Result<Vec<BootstrapObject>, Status> {
    let authenticated = || group("system:authenticated");
    let mut bindings: Vec<(String, Vec<Value>)> = [
        ("cluster-admin", vec![group("system:masters")]),
        ("system:basic-user", vec![authenticated()]),
        ("system:discovery", vec![authenticated()]),
        ("system:public-info-viewer", vec![authenticated(), group("system:unauthenticated")]),
        ("system:monitoring", vec![group("system:monitoring")]),
        ("system:service-account-issuer-discovery", vec![group("system:serviceaccounts")]),
        (SCHEDULER, vec![user(SCHEDULER)]),
        ("system:volume-scheduler", vec![user(SCHEDULER)]),
        (CONTROLLER_MANAGER, vec![user(CONTROLLER_MANAGER)]),
        ("system:node-proxier", vec![user("system:kube-proxy")]),
    ]
    .map(|(name, subjects)| (name.to_owned(), subjects))
    .into();
    bindings.extend(CONTROLLERS.iter().map(|role| {
        let user = to_user.then(|| user(CONTROLLER_MANAGER));
        (format!("system:controller:{}", role.name), [account(role.name)].into_iter().chain(user).collect())
    }));
    bindings.into_iter().map(|(name, subjects)| cluster_role_binding(&name, subjects)).collect()
}
