//! The smallest valid object of each kind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_kinds::Kind;
use serde_json::{Value, json};

fn template() -> Value {
    let containers = json!([{"name": "c", "image": "i"}]);
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}})
}

fn workload() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
}

fn job() -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"template": template})
}

/// The smallest valid object of a kind.
pub fn minimal(kind: &str, group: &str) -> Value {
    match (kind, group) {
        ("Event", "") => json!({"involvedObject": {"namespace": "default"}, "reason": "r"}),
        ("Event", _) => json!({
            "regarding": {"namespace": "default"}, "reason": "r", "action": "a", "type": "Normal",
            "eventTime": "2020-01-01T00:00:00.000000Z", "reportingController": "e.com/c", "reportingInstance": "i",
        }),
        ("LimitRange", _) => json!({"spec": {"limits": [{"type": "Pod"}]}}),
        ("PersistentVolumeClaim", _) => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        ("PersistentVolume", _) => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/p"},
        }}),
        ("Pod", _) => json!({"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}}),
        ("PodTemplate", _) => json!({"template": template()}),
        ("ReplicationController", _) => json!({"spec": {"selector": {"a": "b"}, "template": template()}}),
        ("ResourceQuota", _) => json!({"spec": {"hard": {"count/secrets": "99"}}}),
        ("Service", _) => json!({"spec": {"ports": [{"port": 80}]}}),
        ("ControllerRevision", _) => json!({"data": {"a": "b"}, "revision": 1}),
        ("DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet", _) => workload(),
        ("Job", _) => json!({"spec": job()}),
        ("CronJob", _) => json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job()}}}),
        ("HorizontalPodAutoscaler", _) => {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": target}})
        }
        ("CertificateSigningRequest", _) => {
            let request = STANDARD.encode(include_bytes!("../../testdata/node-request.pem"));
            json!({"spec": {"request": request, "signerName": "e.com/s", "usages": ["client auth"]}})
        }
        ("PodDisruptionBudget", _) => json!({"spec": {"minAvailable": 1}}),
        ("ClusterRoleBinding" | "RoleBinding", _) => {
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}})
        }
        ("CSIDriver", _) => json!({"spec": {}}),
        ("CSINode", _) => json!({"spec": {"drivers": []}}),
        ("CSIStorageCapacity", _) => json!({"storageClassName": "s"}),
        ("StorageClass", _) => json!({"provisioner": "e.com/p"}),
        ("VolumeAttachment", _) => {
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}}})
        }
        ("VolumeAttributesClass", _) => json!({"driverName": "d", "parameters": {"a": "b"}}),
        ("PriorityClass", _) => json!({"value": 1}),
        ("RuntimeClass", _) => json!({"handler": "h"}),
        ("EndpointSlice", _) => json!({"addressType": "IPv4", "endpoints": []}),
        ("IPAddress", _) => json!({"spec": {"parentRef": {"resource": "services", "name": "s"}}}),
        ("Ingress", _) => json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        ("IngressClass", _) => json!({"spec": {"controller": "e.com/c"}}),
        ("NetworkPolicy", _) => json!({"spec": {"podSelector": {}}}),
        ("FlowSchema", _) => json!({"spec": {"priorityLevelConfiguration": {"name": "catch-all"}}}),
        ("PriorityLevelConfiguration", _) => {
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}})
        }
        ("APIService", _) => json!({"spec": {"version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}),
        ("ServiceCIDR", _) => json!({"spec": {"cidrs": ["10.200.0.0/16"]}}),
        ("ResourceClaim", _) => json!({"spec": {}}),
        ("ResourceClaimTemplate", _) => json!({"spec": {"spec": {}}}),
        ("ResourceSlice", _) => json!({"spec": {
            "driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "d"}],
        }}),
        _ => json!({}),
    }
}

/// The name of an object that a test calls `called`: an IPAddress is named by its address, an APIService by what it
/// serves.
pub fn name(resource: &Kind, called: &str) -> String {
    match resource.kind {
        "IPAddress" => {}
        "APIService" => return format!("v1.{called}"),
        _ => return called.to_owned(),
    }
    let sum = called.bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let [high, low] = sum.to_be_bytes();
    format!("10.200.{high}.{low}")
}

pub fn object(resource: &Kind, called: &str) -> Value {
    let mut object = minimal(resource.kind, resource.group);
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.into();
    if resource.kind == "APIService" {
        object["spec"]["group"] = called.into();
    }
    object["metadata"] = json!({"name": name(resource, called), "labels": {"made": "here"}});
    object
}

pub fn collection(resource: &Kind) -> String {
    let root = if resource.group.is_empty() { "/api/v1".into() } else { format!("/apis/{}", resource.api_version()) };
    let namespace = if resource.namespaced() { "/namespaces/default" } else { "" };
    format!("{root}{namespace}/{}", resource.plural)
}
