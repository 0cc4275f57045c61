//! The rules of each kind.
//!
//! One file a family of kinds; rules report into [`errors::Errors`] under the [`path::Path`] of the field they are about.
//! Objects arrive in canonical form and defaulted (see [`crate::codec`], [`crate::defaults`]), after their strategy has
//! prepared them.

mod affinity;
mod container;
mod core;
mod errors;
mod events;
mod metadata;
mod names;
mod path;
mod pod;
mod pod_subresources;
mod service;
mod storage;
#[cfg(test)]
mod tests;
mod volumes;
mod workloads;

use serde_json::Value;

use crate::codec::Kind;
pub use crate::field_error::FieldError;
use crate::resources::Resource;
use errors::Errors;
use path::Path;

/// What is wrong with a new object.
pub fn create(resource: &'static Resource, object: &Value) -> Vec<FieldError> {
    create_kind(Kind::of(resource), resource.namespaced(), object)
}

/// What is wrong with a changed object; `subresource` is empty for the object itself.
pub fn update(resource: &'static Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    update_kind(Kind::of(resource), subresource, object, old)
}

/// What is wrong with a new object of a kind.
pub fn create_kind(kind: Kind<'_>, namespaced: bool, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if kind.kind == "Binding" {
        core::binding(&mut errors, object);
        return errors.0;
    }
    let own = own_name_rule(kind);
    let check = match (kind.group, kind.kind) {
        ("", "Event") | ("policy", "PodDisruptionBudget") => metadata::create_lenient,
        _ => metadata::create,
    };
    if let Some(rule) = own {
        check(&mut errors, &object["metadata"], namespaced, rule);
    }
    rules(&mut errors, kind, object, None);
    if kind.kind == "Pod" {
        pod::create(&mut errors, object);
    }
    // Kinds that do not look at their own metadata are looked at when all else is well.
    if own.is_none() && errors.0.is_empty() {
        check(&mut errors, &object["metadata"], namespaced, names::path_segment);
    }
    errors.0
}

/// What is wrong with the metadata of a changed object of any kind: upstream looks at it before the kind does, which looks
/// again.
pub fn update_metadata(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(&mut errors, &object["metadata"], &old["metadata"]);
    errors.0
}

/// What is wrong with a changed object of a kind.
pub fn update_kind(kind: Kind<'_>, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(&mut errors, &object["metadata"], &old["metadata"]);
    match (kind.kind, subresource) {
        ("Deployment", "status") => workloads::deployment_status(&mut errors, object, old),
        ("ReplicaSet", "status") => workloads::replica_set_status(&mut errors, &object["status"]),
        ("Pod", "status") => pod::status(&mut errors, object, old),
        ("Namespace", "status") => core::namespace_status(&mut errors, object),
        (_, "status") => {}
        ("Pod", "ephemeralcontainers") => {
            rules(&mut errors, kind, object, Some(old));
            pod_subresources::ephemeral_containers(&mut errors, object, old);
        }
        ("Pod", "resize") => {
            rules(&mut errors, kind, object, Some(old));
            pod_subresources::resize(&mut errors, object, old);
        }
        _ => {
            if let ("Pod" | "Service" | "Secret" | "ConfigMap" | "PriorityClass", Some(rule)) =
                (kind.kind, own_name_rule(kind))
            {
                // These kinds look at the whole of the new object again.
                metadata::create(&mut errors, &object["metadata"], kind.kind != "PriorityClass", rule);
                errors.drop_repeated();
            }
            rules(&mut errors, kind, object, Some(old));
            change_rules(&mut errors, kind, object, old);
        }
    }
    errors.0
}

/// The rule for names, of kinds whose validation includes their metadata.
fn own_name_rule(kind: Kind<'_>) -> Option<metadata::NameRule> {
    Some(match (kind.group, kind.kind) {
        ("", "Namespace") => names::dns_label,
        ("", "Service") => names::dns_1035_label,
        ("apps", "StatefulSet") => names::dns_label,
        ("policy", "PodDisruptionBudget") | ("rbac.authorization.k8s.io", _) => return None,
        _ => names::dns_subdomain,
    })
}

/// What holds for every version of an object.
fn rules(errors: &mut Errors, kind: Kind<'_>, object: &Value, old: Option<&Value>) {
    let spec = &object["spec"];
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::spec(errors, Path::root("spec"), spec, pod::Owner::Pod),
        ("", "ConfigMap") => core::config_map(errors, object),
        ("", "Secret") => core::secret(errors, object),
        ("", "Namespace") => core::namespace(errors, object),
        ("", "Node") => core::node(errors, object),
        ("", "Service") => service::service(errors, object),
        ("", "ReplicationController") => workloads::replication_controller_spec(errors, spec),
        ("", "PersistentVolumeClaim") => storage::claim_spec(errors, Path::root("spec"), spec),
        ("", "PersistentVolume") => storage::volume(errors, object),
        ("", "Event") if old.is_none() => events::namespace(errors, object, "involvedObject"),
        ("events.k8s.io", "Event") if old.is_none() => events::create(errors, object),
        ("storage.k8s.io", "CSINode") => storage::node_drivers(errors, object),
        ("apps", "Deployment") => workloads::deployment_spec(errors, spec),
        ("apps", "ReplicaSet") => workloads::replica_set_spec(errors, spec),
        ("apps", "StatefulSet") => workloads::stateful_set_spec(errors, spec, old.is_some()),
        ("apps", "DaemonSet") => workloads::daemon_set_spec(errors, spec),
        ("batch", "Job") => workloads::job_spec(errors, object),
        ("policy", "PodDisruptionBudget") => core::disruption_budget(errors, spec),
        ("scheduling.k8s.io", "PriorityClass") => core::priority_class(errors, object),
        ("coordination.k8s.io", "Lease") => core::lease(errors, spec),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(errors, object),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => core::role(errors, kind.kind, object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            core::role_binding(errors, kind.kind, object)
        }
        _ => {}
    }
}

/// What may not change.
fn change_rules(errors: &mut Errors, kind: Kind<'_>, new: &Value, old: &Value) {
    let spec = Path::root("spec");
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::change(errors, new, old),
        ("", "ConfigMap") => core::config_map_change(errors, new, old),
        ("", "Secret") => core::secret_change(errors, new, old),
        ("", "Node") => core::node_change(errors, new, old),
        ("", "PersistentVolumeClaim") => storage::claim_change(errors, new, old),
        ("", "Service") => service::change(errors, new, old),
        ("", "PersistentVolume") => storage::volume_change(errors, new, old),
        ("events.k8s.io", "Event") => events::change(errors, new, old),
        ("batch", "Job") => workloads::job_change(errors, new, old),
        ("storage.k8s.io", "CSIDriver") => storage::driver_change(errors, new, old),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => {
            errors.immutable(spec.child("selector"), &new["spec"]["selector"], &old["spec"]["selector"]);
        }
        ("apps", "StatefulSet") => workloads::stateful_set_change(errors, new, old),
        ("scheduling.k8s.io", "PriorityClass") => core::priority_class_change(errors, new, old),
        ("storage.k8s.io", "StorageClass") => storage::storage_class_change(errors, new, old),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") if new["roleRef"] != old["roleRef"] => {
            let shown =
                metadata::in_order(&new["roleRef"], &["apiGroup", "kind", "name"], &["APIGroup", "Kind", "Name"]);
            errors.invalid(Path::root("roleRef"), errors::Json(shown), "cannot change roleRef");
        }
        _ => {}
    }
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or("")
}

fn number(value: &Value, name: &str) -> i64 {
    value[name].as_i64().unwrap_or(0)
}

fn given(value: &Value, name: &str) -> bool {
    value.get(name).is_some_and(|value| !value.is_null())
}
