//! Volumes and their claims.

use std::sync::Arc;

use bayplan_controllers::{
    AttachDetachController, Cache, ClaimProtectionController, EphemeralVolumeController, Kind,
    PersistentVolumeController, VolumeProtectionController,
};
use serde_json::{Value, json};

use super::{Case, NamedCase, cache, meta, observed};

pub(super) fn cases() -> Vec<NamedCase> {
    vec![
        ("volumes that a claim may choose from", Box::new(|n| searching(n, 1))),
        ("access modes of a claim", Box::new(|n| searching(1, n))),
        ("claims beside a volume's", Box::new(released)),
        ("volumes of a pod that are made for it", Box::new(made_for_a_pod)),
        ("pods beside a claim that is deleted", Box::new(|n| claim_deleted(n, 1))),
        ("volumes of a pod beside a claim that is deleted", Box::new(|n| claim_deleted(1, n))),
        ("finalizers of a volume", Box::new(volume_deleted)),
        ("volumes of the pods of a node", Box::new(|n| attached(n, n, 1))),
        ("pods of a node with one volume", Box::new(|n| attached(1, n, 1))),
        ("pods of other nodes with a volume", Box::new(|n| attached(1, 1, n))),
    ]
}

fn claim(name: &str, modes: usize, finalizers: &[String]) -> (Kind, Value) {
    let claim = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "finalizers": finalizers,
        },
        "spec": {
            "accessModes": vec!["ReadWriteOnce"; modes], "resources": {"requests": {"storage": "5Gi"}},
            "storageClassName": "",
        },
        "status": {"phase": "Pending"},
    });
    (Kind::VolumeClaim, claim)
}

fn volume(name: &str, size: usize, bound_to: Value, finalizers: &[String]) -> (Kind, Value) {
    let volume = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "finalizers": finalizers},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": format!("{size}Gi")}, "storageClassName": "",
            "claimRef": bound_to, "persistentVolumeReclaimPolicy": "Retain",
        },
        "status": {"phase": if bound_to.is_null() { "Available" } else { "Bound" }},
    });
    (Kind::Volume, volume)
}

/// The smallest that is large enough is the last one.
fn searching(volume_count: usize, modes: usize) -> Case {
    let volumes = (0..volume_count).map(|n| volume(&format!("v{n}"), 10 + volume_count - n, Value::Null, &[]));
    Case::of(PersistentVolumeController::new(cache(volumes.chain([claim("c", modes, &[])]))), "claim/ns/c")
}

fn released(claim_count: usize) -> Case {
    let claims = (0..claim_count).map(|n| claim(&format!("c{n}"), 1, &[]));
    let gone = json!({"namespace": "ns", "name": "gone", "uid": "gone"});
    Case::of(PersistentVolumeController::new(cache(claims.chain([volume("v", 5, gone, &[])]))), "volume/v")
}

fn pod(n: usize, volumes: Vec<Value>) -> (Kind, Value) {
    let meta = meta("ns", &format!("p{n}"), json!([]));
    (Kind::Pod, json!({"metadata": meta, "spec": {"nodeName": "n", "volumes": volumes}}))
}

fn made_for_a_pod(count: usize) -> Case {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let volume = |n| json!({"name": format!("v{n}"), "ephemeral": {"volumeClaimTemplate": {"spec": spec}}});
    Case::of(EphemeralVolumeController::new(cache([pod(0, (0..count).map(volume).collect())])), "ns/p0")
}

fn claim_deleted(pod_count: usize, volume_count: usize) -> Case {
    let finalizers: Vec<String> = vec!["kubernetes.io/pvc-protection".into()];
    let (kind, mut claim) = claim("c", 1, &finalizers);
    claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let volume = |n| json!({"name": format!("v{n}"), "persistentVolumeClaim": {"claimName": format!("other{n}")}});
    let pods = (0..pod_count).map(|n| pod(n, (0..volume_count).map(volume).collect()));
    Case::of(ClaimProtectionController::new(cache(pods.chain([(kind, claim)]))), "ns/c")
}

fn volume_deleted(finalizer_count: usize) -> Case {
    let others = (0..finalizer_count).map(|n| format!("f.example/{n}"));
    let finalizers: Vec<String> = others.chain(["kubernetes.io/pv-protection".into()]).collect();
    let (kind, mut volume) = volume("v", 5, Value::Null, &finalizers);
    volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    Case::of(VolumeProtectionController::new(cache([(kind, volume)])), "v")
}

/// So many volumes, all attached, for so many pods on a node and on each of so many others.
fn attached(volume_count: usize, pod_count: usize, node_count: usize) -> Case {
    let cache = Arc::new(Cache::default());
    let controller = AttachDetachController::new(Arc::clone(&cache), true);
    let volumes = (0..volume_count).flat_map(|n| {
        let bound_to = json!({"namespace": "ns", "name": format!("c{n}"), "uid": format!("c{n}")});
        let (_, mut made) = volume(&format!("v{n}"), 10, bound_to, &[]);
        made["spec"]["csi"] = json!({"driver": "d", "volumeHandle": format!("h{n}")});
        let (_, mut asking) = claim(&format!("c{n}"), 1, &[]);
        asking["spec"]["volumeName"] = json!(format!("v{n}"));
        asking["status"] = json!({"phase": "Bound"});
        [(Kind::Volume, made), (Kind::VolumeClaim, asking)]
    });
    let nodes = (0..node_count).map(|n| {
        let annotations = json!({"volumes.kubernetes.io/controller-managed-attach-detach": "true"});
        (Kind::Node, json!({"metadata": {"name": format!("n{n}"), "annotations": annotations}}))
    });
    let pods = (0..node_count).flat_map(|on| {
        (0..pod_count).map(move |n| {
            let meta = meta("ns", &format!("p{on}-{n}"), json!([]));
            let claim = format!("c{}", n % volume_count);
            let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
            (Kind::Pod, json!({"metadata": meta, "spec": {"nodeName": format!("n{on}"), "volumes": volumes}}))
        })
    });
    observed(&controller, &cache, volumes.chain(nodes).chain(pods));
    Case::of(controller, "n0")
}
