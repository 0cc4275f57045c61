//! The values upstream fills in on decoding, one file a family of kinds.
//!
//! Defaulting also carries what upstream's conversions do on the way (mirrored and merged fields), because clients cannot
//! tell the two apart. It is applied to request bodies and patch results in canonical form (see [`crate::codec`]), and
//! applying it twice changes nothing.

mod autoscaling;
mod core;
mod networking;
mod pod;
mod resource;
mod service;
mod storage;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

use bayplan_model::quantity::Quantity;
use serde_json::{Map, Value};

use crate::codec::Kind;
use crate::resources::Resource;

type Object = Map<String, Value>;

/// Fills in the defaults of a resource's kind.
pub fn apply(resource: &'static Resource, object: &mut Value) {
    apply_kind(Kind::of(resource), object);
}

/// Fills in the defaults of a kind.
pub fn apply_kind(kind: Kind<'_>, object: &mut Value) {
    let Value::Object(object) = object else { return };
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object.get_mut("template")),
        ("", "Service") => service::service(object),
        ("", "Endpoints") => service::endpoints(object),
        ("", "Node") => core::node(object),
        ("", "Namespace") => core::namespace(object),
        ("", "Secret") => core::secret(object),
        ("", "LimitRange") => core::limit_range(object),
        ("", "ResourceQuota") => core::resource_quota(object),
        ("", "PersistentVolume") => storage::persistent_volume(object),
        ("", "PersistentVolumeClaim") => storage::persistent_volume_claim(object),
        ("", "ReplicationController") => workloads::replication_controller(object),
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "ReplicaSet") => workloads::replica_set(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("batch", "Job") => workloads::job(object),
        ("batch", "CronJob") => workloads::cron_job(object),
        ("scheduling.k8s.io", "PriorityClass") => default(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(object),
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver(object),
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment(object),
        ("resource.k8s.io", "ResourceClaim") => resource::claim_spec(object.get_mut("spec")),
        ("resource.k8s.io", "ResourceClaimTemplate") => {
            resource::claim_spec(child(object, "spec").and_then(|spec| spec.get_mut("spec")));
        }
        ("resource.k8s.io", "ResourceSlice") => resource::slice(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => core::binding_of_role(object),
        ("authentication.k8s.io", "TokenRequest") => {
            if let Some(spec) = child(object, "spec") {
                default(spec, "expirationSeconds", 3600);
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(object),
        ("networking.k8s.io", "NetworkPolicy") => networking::network_policy(object),
        ("networking.k8s.io", "IngressClass") => networking::ingress_class(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler(object, kind.version),
        _ => {}
    }
}

/// Sets a field that is absent, null, or empty text.
fn default(object: &mut Object, name: &str, value: impl Into<Value>) {
    let missing = match object.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if missing {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
fn default_nonzero(object: &mut Object, name: &str, value: i64) {
    if object.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
        object.insert(name.to_owned(), value.into());
    }
}

/// The object in a field, if there is one.
fn child<'o>(object: &'o mut Object, name: &str) -> Option<&'o mut Object> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

/// The object in a field, created when missing.
fn child_or_new<'o>(object: &'o mut Object, name: &str) -> Option<&'o mut Object> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// The objects of a list field.
fn children<'o>(object: &'o mut Object, name: &str) -> impl Iterator<Item = &'o mut Object> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn text<'o>(object: &'o Object, name: &str) -> &'o str {
    object.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Rounds every quantity of a resource list up to thousandths, the API's finest grain.
fn round_resource_list(object: &mut Object, name: &str) {
    const MILLI: i32 = -3;
    let Some(list) = child(object, name) else { return };
    for quantity in list.values_mut() {
        // Only canonical text with one of these suffixes (or an exponent) can be finer than thousandths.
        let Value::String(text) = quantity else { continue };
        if !text.ends_with(['u', 'n']) && !text.contains('e') {
            continue;
        }
        if let Ok(mut exact) = text.parse::<Quantity>() {
            exact.round_up(MILLI);
            *text = exact.to_string();
        }
    }
}

/// Rounds the lists of a `ResourceRequirements`.
fn round_requirements(resources: Option<&mut Object>) {
    if let Some(resources) = resources {
        round_resource_list(resources, "limits");
        round_resource_list(resources, "requests");
    }
}
