//! PreBind against a small API server: what is written, what is waited for, and what ends the wait.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_testkit::merge;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::VolumeBinding;
use crate::cluster::{Cluster, Object, PodInfo};
use crate::framework::*;
use crate::plugins::testing::{ObjectApi, StoredObjects};

fn bind_claim(objects: &mut StoredObjects, claim: &str, volume: &str) {
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    });
    merge(objects.get_mut(claim).unwrap(), bound);
}

fn view<T: serde::de::DeserializeOwned>(object: &Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object.clone()).unwrap())
}

fn store(cluster: &mut Cluster, object: &Value) {
    let object = match object["kind"].as_str().unwrap() {
        "PersistentVolume" => Object::PersistentVolume(view(object)),
        "PersistentVolumeClaim" => Object::PersistentVolumeClaim(view(object)),
        "StorageClass" => Object::StorageClass(view(object)),
        _ => return drop(cluster.set_node(view(object))),
    };
    cluster.objects.store(&object);
}

/// Places a pod with two claims, one with a free volume and one to provision, and runs Reserve and PreBind.
fn run(script: fn(u32, &mut StoredObjects)) -> (Status, ObjectApi, Cluster) {
    let meta = |name: &str| json!({"name": name, "uid": name, "resourceVersion": "1"});
    let claim = |name: &str, class: &str| {
        let mut meta = meta(name);
        meta["namespace"] = "ns".into();
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta,
            "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let class = |name: &str, provisioner: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta(name),
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
    };
    let pod = json!({"metadata": {"name": "pod", "namespace": "ns", "uid": "pod"}, "spec": {"volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "free"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "made"}},
    ]}});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": meta("node")}),
        claim("free", "local"),
        claim("made", "cloud"),
        class("local", "kubernetes.io/no-provisioner"),
        class("cloud", "csi.example.com"),
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta("volume"),
            "spec": {"storageClassName": "local", "capacity": {"storage": "2Gi"}}, "status": {"phase": "Available"}}),
    ];
    let mut cluster = Cluster::new();
    for object in &objects {
        store(&mut cluster, object);
    }
    let plural = |kind: &Value| match kind.as_str().unwrap() {
        "StorageClass" => "storageclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let key = |object: &Value| format!("{}/{}", plural(&object["kind"]), object["metadata"]["name"].as_str().unwrap());
    let mut stored: StoredObjects = objects.iter().map(|o| (key(o), o.clone())).collect();
    stored.insert("pods/pod".into(), pod.clone());
    let api = ObjectApi::new(stored, script);

    let plugin = VolumeBinding::new(&json!({"bindTimeoutSeconds": 5})).unwrap();
    let pod = PodInfo::new(Arc::new(serde_json::from_value::<Pod>(pod).unwrap()));
    let mut state = Default::default();
    let cycle = Cycle { pod: &pod, cluster: &cluster, now: Timestamp::UNIX_EPOCH };
    assert_eq!(plugin.pre_filter(&cycle, &mut state).status, Status::SUCCESS);
    assert_eq!(plugin.filter(&cycle, &state, cluster.node("node").unwrap()), Status::SUCCESS);
    assert_eq!(plugin.reserve(&mut cluster, &mut state, &pod, "node"), Status::SUCCESS);
    assert!(cluster.persistent_volume("volume").unwrap().spec.claim_ref.is_some(), "Reserve assumes the volume");
    let cx = BindContext { pod: &pod, node: "node", api: &api, recorder: &api, timer: &api };
    let status = plugin.pre_bind(cx, &state).now_or_never().expect("nothing here really waits");
    plugin.unreserve(&mut cluster, &mut state, &pod, "node");
    (status, api, cluster)
}

#[test]
fn claims_are_written_and_waited_for() {
    let (status, api, cluster) = run(|tick, objects| {
        if tick == 2 {
            bind_claim(objects, "persistentvolumeclaims/free", "volume");
        }
        if tick == 3 {
            objects.insert("persistentvolumes/new".into(), json!({"metadata": {"name": "new"}}));
            bind_claim(objects, "persistentvolumeclaims/made", "new");
        }
    });
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(*api.ticks.lock().unwrap(), 3);
    let objects = api.objects.lock().unwrap();
    let volume = &objects["persistentvolumes/volume"];
    assert_eq!(volume["spec"]["claimRef"]["uid"], "free");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    let made = &objects["persistentvolumeclaims/made"]["metadata"]["annotations"];
    assert_eq!(made["volume.kubernetes.io/selected-node"], "node");
    assert!(
        cluster.persistent_volume("volume").unwrap().spec.claim_ref.is_none(),
        "Unreserve reverts what was assumed"
    );
}

#[test]
fn the_error_names_what_ended_the_wait() {
    type Script = fn(u32, &mut StoredObjects);
    let cases: [(Script, &str); 5] = [
        (|_, _| {}, "context deadline exceeded"),
        (|_, o| drop(o.remove("pods/pod")), "pod does not exist any more: not found"),
        (|_, o| drop(o.remove("nodes/node")), r#"failed to get node "node": not found"#),
        (
            |_, o| o.get_mut("persistentvolumes/volume").unwrap()["spec"]["claimRef"] = Value::Null,
            r#"ClaimRef got reset for pv "volume""#,
        ),
        (
            |_, o| {
                bind_claim(o, "persistentvolumeclaims/free", "volume");
                o.get_mut("persistentvolumeclaims/made").unwrap()["metadata"]["annotations"] = json!({"other": "x"});
            },
            r#"provisioning failed for PVC "made""#,
        ),
    ];
    for (script, expected) in cases {
        assert_eq!(run(script).0, Status::error(format!("binding volumes: {expected}")));
    }
}
