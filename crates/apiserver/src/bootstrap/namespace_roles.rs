//! The roles and bindings in `kube-system`: leader election and the published authority.

use bayplan_model::status::Status;
use serde_json::json;

use super::roles::{CONTROLLER_MANAGER, READ, SCHEDULER, account, metadata, rules, user, words};
use super::{BootstrapObject, Reconcile, bootstrap_object};
use crate::authz::policy::{GROUP, Rule};

pub(super) fn objects() -> Result<Vec<BootstrapObject>, Status> {
    let one = |verbs: &str, name: &str| Rule {
        verbs: words(verbs),
        api_groups: words(""),
        resources: words("configmaps"),
        resource_names: words(name),
        ..Rule::default()
    };
    let verbs = "create,get,list,update,watch";
    let locking =
        || rules(&[(verbs, "coordination.k8s.io", "leases"), (verbs, "coordination.k8s.io", "leasecandidates")]);
    let both = || vec![user(CONTROLLER_MANAGER), user(SCHEDULER)];
    let roles = [
        ("extension-apiserver-authentication-reader", vec![one(READ, "extension-apiserver-authentication")], both()),
        (
            "system::leader-locking-kube-controller-manager",
            locking(),
            vec![user(CONTROLLER_MANAGER), account("kube-controller-manager"), account("leader-election-controller")],
        ),
        ("system::leader-locking-kube-scheduler", locking(), vec![user(SCHEDULER), account("kube-scheduler")]),
    ];
    let mut objects = Vec::new();
    for (name, rules, subjects) in roles {
        let role = json!({"metadata": metadata(name, json!({})), "rules": rules});
        objects.push(bootstrap_object(GROUP, "roles", "kube-system", Reconcile::Rules, role)?);
        let binding = json!({
            "metadata": metadata(binding_name(name), json!({})),
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name},
            "subjects": subjects,
        });
        objects.push(bootstrap_object(GROUP, "rolebindings", "kube-system", Reconcile::Subjects, binding)?);
    }
    Ok(objects)
}

/// Bindings have the name of their role, except one.
fn binding_name(role: &str) -> &str {
    match role {
        "extension-apiserver-authentication-reader" => "system::extension-apiserver-authentication-reader",
        _ => role,
    }
}
