//! PreBind: what is written into claims, what is waited for, and what ends the wait.

use bayplan_model::api::Request;
use futures::FutureExt;
use serde_json::json;

use super::State;
use super::allocator_tests::{claim, cluster, exactly, filter, plugin, pod, slice, store};
use crate::cluster::Cluster;
use crate::framework::*;
use crate::plugins::testing::{ObjectApi, StoredObjects};

/// Places a pod whose device must be prepared first, and runs PreBind.
///
/// `before` changes what the API server has before PreBind, `on_tick` what it has after each sleep.
fn bind(
    before: fn(&mut StoredObjects),
    on_tick: fn(u32, &mut StoredObjects),
) -> (Status, ObjectApi, Cluster, Vec<Request>) {
    let device = json!({"name": "a", "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]});
    let one = claim("one", json!({"requests": [exactly("r", json!({}))]}));
    let mut cluster = cluster(&[slice("s", json!({"devices": [device]})), one.clone()]);
    let (pod, mut state) = (pod(&["one"]), State::default());
    assert_eq!(filter(&cluster, &pod, &mut state), Status::SUCCESS);
    assert_eq!(plugin().reserve(&mut cluster, &mut state, &pod, "n"), Status::SUCCESS);
    assert_eq!(cluster.taken_devices().count(), 1, "the device is taken while the claim is written");
    let mut objects = StoredObjects::from([("resourceclaims/one".to_owned(), one)]);
    before(&mut objects);
    let api = ObjectApi::new(objects, on_tick);
    let cx = BindContext { pod: &pod, node: "n", api: &api, recorder: &api, timer: &api };
    let plugin = plugin();
    let status = plugin.pre_bind(cx, &state).now_or_never().expect("nothing here really waits");
    if status.is_success() {
        store(&mut cluster, &api.objects.lock().unwrap()["resourceclaims/one"]);
        assert_eq!(cluster.taken_devices().count(), 1, "it does not count twice once the claim shows it");
    }
    let calls = plugin.unreserve(&mut cluster, &mut state, &pod, "n");
    (status, api, cluster, calls)
}

fn report(objects: &mut StoredObjects, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": "Because", "message": "of this"});
    let device = json!({"driver": "d", "pool": "p", "device": "a", "conditions": [condition]});
    objects.get_mut("resourceclaims/one").unwrap()["status"]["devices"] = json!([device]);
}

#[test]
fn allocations_are_written_and_devices_waited_for() {
    let (status, api, _, calls) = bind(|_| {}, |_, objects| report(objects, "Ready"));
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
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            ]},
        })
    );
    assert_eq!(api.events.lock().unwrap()[0].reason, "BindingConditionsPending");
    assert_eq!(calls.len(), 1, "Unreserve gives the reservation back");
}

#[test]
fn the_error_names_what_keeps_a_claim_from_being_used() {
    type Before = fn(&mut StoredObjects);
    type OnTick = fn(u32, &mut StoredObjects);
    let (unchanged, nothing): (Before, OnTick) = (|_| {}, |_, _| {});
    let cases: [(Before, OnTick, &str); 4] = [
        (|o| drop(o.remove("resourceclaims/one")), nothing, "get claim ns/one: resourceclaims/one not found"),
        (
            |o| o.get_mut("resourceclaims/one").unwrap()["status"]["allocation"] = json!({}),
            nothing,
            "claim ns/one got allocated elsewhere in the meantime",
        ),
        (
            unchanged,
            |_, o| report(o, "Broken"),
            r#"device binding failed: claim=one, reason=Because, message="of this""#,
        ),
        (unchanged, nothing, "device binding timeout: context deadline exceeded"),
    ];
    for (before, on_tick, expected) in cases {
        let (status, _, cluster, _) = bind(before, on_tick);
        assert_eq!(status, Status::error(expected));
        // A written allocation keeps its device in use until the claim shows it, even though the pod was not bound.
        let written = expected.starts_with("device binding");
        assert_eq!(cluster.taken_devices().count(), usize::from(written), "{expected}");
    }
}
