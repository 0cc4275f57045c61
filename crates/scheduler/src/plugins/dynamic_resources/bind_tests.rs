//! Reserve, PreBind and Unreserve: what is written into claims, what is waited for, and what ends the wait.

use serde_json::json;

use crate::cluster::{Cluster, Object};
use crate::framework::*;
use crate::plugins::testing::{ObjectApi, PlacedPod, StoredObjects, plugin};

/// A claim for a device that its driver has to prepare first.
const OBJECTS: &str = "
    Node node
    DeviceClass c
    ResourceSlice s {driver: d, nodeName: node, pool: {name: p, generation: 1, resourceSliceCount: 1}, \
        devices: [{name: a, bindingConditions: [Ready], bindingFailureConditions: [Broken]}]}
    ResourceClaim one {devices: {requests: [{name: r, exactly: {deviceClassName: c, allocationMode: ExactCount, \
        count: 1}}]}}
";
const POD: &str = "{resourceClaims: [{name: one, resourceClaimName: one}]}";

fn devices_in_use(cluster: &Cluster) -> usize {
    cluster.taken_devices().count()
}

/// Runs Reserve and PreBind. `before` changes what the API server has before PreBind, `on_tick` after each sleep.
fn run(before: fn(&mut StoredObjects), on_tick: fn(u32, &mut StoredObjects)) -> (Status, ObjectApi, PlacedPod) {
    let test = plugin("DynamicResources").args("{bindingTimeout: 10s}").given(OBJECTS);
    let (mut placed, api) = (test.place(POD, "node"), test.api(POD, on_tick));
    assert!(placed.reserve().is_success());
    assert_eq!(devices_in_use(&placed.cluster), 1, "the device is in use while the claim is written");
    before(&mut api.objects.lock().unwrap());
    let status = placed.pre_bind(&api);
    (status, api, placed)
}

/// Reports a condition of the device, as its driver does.
fn report(objects: &mut StoredObjects, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": "Because", "message": "of this"});
    let device = json!({"driver": "d", "pool": "p", "device": "a", "conditions": [condition]});
    objects.get_mut("resourceclaims/one").unwrap()["status"]["devices"] = json!([device]);
}

#[test]
fn allocations_are_written_and_devices_waited_for() {
    let (status, api, mut placed) = run(|_| {}, |_, objects| report(objects, "Ready"));
    assert_eq!(status, Status::SUCCESS);
    let objects = api.objects.lock().unwrap();
    let claim = &objects["resourceclaims/one"];
    assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    assert_eq!(claim["status"]["reservedFor"], json!([{"resource": "pods", "name": "pod", "uid": "pod"}]));
    assert_eq!(
        claim["status"]["allocation"],
        json!({
            "allocationTimestamp": "1970-01-01T00:00:00Z",
            "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "a",
                "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}]},
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]},
            ]},
        })
    );
    assert_eq!(api.events.lock().unwrap()[0].reason, "BindingConditionsPending");
    assert_eq!(*api.reads.lock().unwrap(), 0, "the informer shows the claim");
    placed.cluster.store(Object::decode(claim).unwrap().unwrap());
    assert_eq!(devices_in_use(&placed.cluster), 1, "the device does not count twice once the claim shows it");
    assert_eq!(placed.unreserve().len(), 1, "Unreserve gives the reservation back");
}

#[test]
fn the_error_names_what_keeps_a_claim_from_being_used() {
    type Before = fn(&mut StoredObjects);
    type OnTick = fn(u32, &mut StoredObjects);
    let (unchanged, nothing): (Before, OnTick) = (|_| {}, |_, _| {});
    let cases: [(Before, OnTick, &str); 4] = [
        (
            |o| drop(o.remove("resourceclaims/one")),
            nothing,
            "add finalizer to claim default/one: resourceclaims/one not found",
        ),
        (
            |o| {
                let claim = o.get_mut("resourceclaims/one").unwrap();
                claim["metadata"]["resourceVersion"] = "2".into();
                claim["status"]["allocation"] = json!({});
            },
            nothing,
            "claim default/one got allocated elsewhere in the meantime",
        ),
        (
            unchanged,
            |_, o| report(o, "Broken"),
            r#"device binding failed: claim=one, reason=Because, message="of this""#,
        ),
        (unchanged, nothing, "device binding timeout: context deadline exceeded"),
    ];
    for (before, on_tick, expected) in cases {
        let (status, _, mut placed) = run(before, on_tick);
        assert_eq!(status, Status::error(expected));
        placed.unreserve();
        // A written allocation keeps its device in use until the claim shows it, even though the pod was not bound.
        let written = expected.starts_with("device binding");
        assert_eq!(devices_in_use(&placed.cluster), usize::from(written), "{expected}");
    }
}
