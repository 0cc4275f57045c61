//! Reserve, PreBind and Unreserve: what is assumed, written and waited for, and what ends the wait.

use bayplan_testkit::merge;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::framework::*;
use crate::plugins::testing::{ObjectApi, StoredObjects, plugin};

/// A claim with a free volume, and one whose volume has to be provisioned.
const OBJECTS: &str = "
    Node node
    StorageClass local {provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}
    StorageClass cloud {provisioner: csi.example.com, volumeBindingMode: WaitForFirstConsumer}
    PersistentVolumeClaim free {storageClassName: local, requests: {storage: 1Gi}}
    PersistentVolumeClaim new {storageClassName: cloud, requests: {storage: 1Gi}}
    PersistentVolume volume {storageClassName: local, capacity: {storage: 2Gi}, phase: Available}
";
const POD: &str = "{volumes: [{name: a, persistentVolumeClaim: {claimName: free}}, \
                   {name: b, persistentVolumeClaim: {claimName: new}}]}";

/// Binds a claim at the API server, as the volume controller does.
fn bind_claim(objects: &mut StoredObjects, claim: &str, volume: &str) {
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    });
    merge(objects.get_mut(claim).unwrap(), bound);
}

fn is_assumed(cluster: &Cluster) -> bool {
    cluster.persistent_volume("volume").unwrap().spec.claim_ref.is_some()
}

/// Runs Reserve, PreBind and Unreserve.
fn run(script: fn(u32, &mut StoredObjects)) -> (Status, ObjectApi) {
    let test = plugin("VolumeBinding").args("{bindTimeoutSeconds: 5}").given(OBJECTS);
    let (mut placed, api) = (test.place(POD, "node"), test.api(POD, script));
    assert!(placed.reserve().is_success());
    assert!(is_assumed(&placed.cluster), "Reserve assumes the volume");
    let status = placed.pre_bind(&api);
    assert!(placed.unreserve().is_empty(), "Unreserve needs no call");
    (status, api)
}

#[test]
fn unreserve_reverts_what_reserve_assumed() {
    let mut placed = plugin("VolumeBinding").given(OBJECTS).place(POD, "node");
    assert!(placed.reserve().is_success());
    assert!(is_assumed(&placed.cluster));
    assert!(placed.unreserve().is_empty());
    assert!(!is_assumed(&placed.cluster));
}

#[test]
fn claims_are_written_and_waited_for() {
    let (status, api) = run(|tick, objects| {
        if tick == 2 {
            bind_claim(objects, "persistentvolumeclaims/free", "volume");
        }
        if tick == 3 {
            let made = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "made"}});
            objects.insert("persistentvolumes/made".into(), made);
            bind_claim(objects, "persistentvolumeclaims/new", "made");
        }
    });
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(*api.ticks.lock().unwrap(), 3);
    assert_eq!(*api.reads.lock().unwrap(), 0, "the informers show the claims");
    let objects = api.objects.lock().unwrap();
    let volume = &objects["persistentvolumes/volume"];
    assert_eq!(volume["spec"]["claimRef"]["uid"], "free");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"], "yes");
    let annotations = &objects["persistentvolumeclaims/new"]["metadata"]["annotations"];
    assert_eq!(annotations["volume.kubernetes.io/selected-node"], "node");
}

#[test]
fn a_pod_whose_claims_are_bound_skips_pre_bind() {
    let objects = "
        Node node
        PersistentVolumeClaim data {volumeName: pv, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}
        PersistentVolume pv
    ";
    let pod = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}";
    let test = plugin("VolumeBinding").given(objects);
    let (mut placed, api) = (test.place(pod, "node"), test.api(pod, |_, _| {}));
    assert!(placed.reserve().is_success());
    assert_eq!(placed.pre_bind(&api).code, Code::Skip);
}

#[test]
fn the_error_names_what_ended_the_wait() {
    type Script = fn(u32, &mut StoredObjects);
    let cases: [(Script, &str); 5] = [
        (|_, _| {}, "context deadline exceeded"),
        (|_, o| drop(o.remove("pods/pod")), r#"pod does not exist any more: pod "pod" not found"#),
        (|_, o| drop(o.remove("nodes/node")), r#"failed to get node "node": node "node" not found"#),
        (
            |_, o| o.get_mut("persistentvolumes/volume").unwrap()["spec"]["claimRef"] = Value::Null,
            r#"ClaimRef got reset for pv "volume""#,
        ),
        (
            |_, o| {
                bind_claim(o, "persistentvolumeclaims/free", "volume");
                o.get_mut("persistentvolumeclaims/new").unwrap()["metadata"]["annotations"] = json!({"other": "x"});
            },
            r#"provisioning failed for PVC "new""#,
        ),
    ];
    for (script, expected) in cases {
        assert_eq!(run(script).0, Status::error(format!("binding volumes: {expected}")));
    }
}
