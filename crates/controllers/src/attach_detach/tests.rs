//! What is asked for, in which order, and what pods are told.

use serde_json::{Value, json};

use super::*;
use crate::script::{Script, Step, refused};

const UNIQUE: &str = "kubernetes.io/csi/d^h";
/// The name of the attachment to node n: SHA-256 of `hdn`.
const ON_N: &str = "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d";

fn node(name: &str, ready: &str, attached: &[&str], in_use: &[&str]) -> (Kind, Value) {
    let attached: Vec<Value> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let node = json!({
        "metadata": {
            "name": name, "resourceVersion": "7",
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "volumesAttached": attached, "volumesInUse": in_use,
        },
    });
    (Kind::Node, node)
}

fn volume(mode: &str) -> [(Kind, Value); 2] {
    let claim = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "cu"}, "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    });
    let volume = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "accessModes": [mode], "csi": {"driver": "d", "volumeHandle": "h"},
            "claimRef": {"namespace": "ns", "name": "c", "uid": "cu"},
        },
    });
    [(Kind::VolumeClaim, claim), (Kind::Volume, volume)]
}

fn pod(name: &str, node: &str) -> (Kind, Value) {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let meta = json!({"name": name, "namespace": "ns", "uid": name});
    (Kind::Pod, json!({"metadata": meta, "spec": {"nodeName": node, "volumes": volumes}}))
}

fn attachment(node: &str, status: Value) -> (Kind, Value) {
    let name = AttachableVolume::named(UNIQUE).unwrap().attachment_name(node);
    let attachment = json!({
        "metadata": {"name": name, "uid": format!("uid-{node}")},
        "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": "pv"}},
        "status": status,
    });
    (Kind::VolumeAttachment, attachment)
}

fn controller(objects: impl IntoIterator<Item = (Kind, Value)>) -> AttachDetachController {
    let controller = AttachDetachController::new(Arc::default(), true);
    for (kind, object) in objects {
        see(&controller, kind, &object);
    }
    controller
}

fn see(controller: &AttachDetachController, kind: Kind, object: &Value) -> Vec<Wakeup> {
    controller.observe(&controller.cache.set(kind, object.to_string().as_bytes()).unwrap())
}

fn created() -> Step {
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": ON_N},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
    });
    ("POST volumeattachments", body, Ok(json!({})))
}

fn status(list: Value) -> Step {
    ("STRATEGIC-PATCH nodes/n/status", json!({"status": {"volumesAttached": list}}), Ok(json!({})))
}

fn live(in_use: &[&str]) -> Step {
    ("GET nodes/n", Value::Null, Ok(node("n", "True", &[], in_use).1))
}

fn deleted() -> Step {
    let last = json!({"metadata": {"name": ON_N, "uid": "uid-n"}});
    (
        "DELETE volumeattachments/csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d",
        json!({}),
        Ok(last),
    )
}

#[test]
fn a_volume_is_attached_for_a_pod_and_reported_when_it_is() {
    let controller =
        controller([node("n", "True", &[], &[]), pod("p", "n")].into_iter().chain(volume("ReadWriteOnce")));
    Script::new("asked for", [created()]).play(&controller, "n").unwrap();
    Script::new("not twice", []).play(&controller, "n").unwrap();
    let (kind, attached) = attachment("n", json!({"attached": true}));
    assert_eq!(see(&controller, kind, &attached), [Wakeup::now("n")]);
    let script = Script::new("reported", [status(json!([{"name": UNIQUE, "devicePath": ""}]))]);
    assert_eq!(script.play(&controller, "n").unwrap(), Requeue::OnChange);
    assert_eq!(script.events(), ["SuccessfulAttachVolume"]);
    Script::new("not reported twice", []).play(&controller, "n").unwrap();
}

#[test]
fn drivers_and_nodes_that_attach_nothing_are_left_alone() {
    let driver = json!({"metadata": {"name": "d"}, "spec": {"attachRequired": false}});
    let mut unmanaged = node("n", "True", &[], &[]);
    unmanaged.1["metadata"]["annotations"] = json!({});
    let mut ended = pod("p", "n");
    ended.1["status"]["phase"] = json!("Failed");
    let managed = || node("n", "True", &[], &[]);
    for (case, more) in [
        ("no need to attach", vec![managed(), pod("p", "n"), (Kind::CsiDriver, driver)]),
        ("a node that does it itself", vec![unmanaged, pod("p", "n")]),
        ("a pod that has ended", vec![managed(), ended]),
        ("no node", vec![pod("p", "n")]),
    ] {
        let controller = controller(more.into_iter().chain(volume("ReadWriteOnce")));
        assert_eq!(Script::new(case, []).play(&controller, "n").unwrap(), Requeue::OnChange, "{case}");
    }
}

#[test]
fn a_volume_that_one_node_has_is_refused_to_another_until_it_is_let_go() {
    let waiting = |mode: &str, holder: Value, more: Vec<(Kind, Value)>| {
        let objects = [node("n", "True", &[], &[]), node("m", "True", &[UNIQUE], &[UNIQUE]), pod("p", "n")];
        controller(objects.into_iter().chain(volume(mode)).chain([attachment("m", holder)]).chain(more))
    };
    let held = || json!({"attached": true});
    for (more, note) in [
        (vec![pod("q", "m")], "Volume is already used by pod(s) q"),
        (
            vec![],
            "Volume is already exclusively attached to one node, \
             waiting on detach before it can be attached to another node",
        ),
    ] {
        let controller = waiting("ReadWriteOnce", held(), more);
        let script = Script::new("refused", []);
        script.play(&controller, "n").unwrap();
        assert_eq!(script.events(), ["FailedAttachVolume"], "{note}");
        assert_eq!(script.notes(), [format!("Waiting for detach for volume \"pv\" {note}")]);
        let again = Script::new("said once", []);
        again.play(&controller, "n").unwrap();
        assert_eq!(again.events(), [""; 0]);
    }
    let shared = waiting("ReadWriteMany", held(), vec![pod("q", "m")]);
    Script::new("shared", [created()]).play(&shared, "n").unwrap();
    let asked = waiting("ReadWriteOnce", json!({}), vec![pod("q", "m")]);
    let script = Script::new("being attached elsewhere", []);
    script.play(&asked, "n").unwrap();
    assert_eq!(script.events(), [""; 0]);
}

#[test]
fn a_volume_that_nobody_needs_is_withdrawn_and_detached_once_it_is_not_in_use() {
    let present = |ready: &str, in_use: &[&str]| {
        let objects = [node("n", ready, &[UNIQUE], in_use), attachment("n", json!({"attached": true}))];
        controller(objects.into_iter().chain(volume("ReadWriteOnce")))
    };
    let unmounted = present("True", &[]);
    let steps = [status(json!(null)), live(&[]), deleted()];
    Script::new("unmounted", steps).play(&unmounted, "n").unwrap();
    Script::new("on its way out", []).play(&unmounted, "n").unwrap();
    let late = present("True", &[]);
    let outcome = Script::new("used again", [status(json!(null)), live(&[UNIQUE])]).play(&late, "n").unwrap();
    assert!(matches!(outcome, Requeue::Failed { .. }), "{outcome:?}");
    let mounted = present("True", &[UNIQUE]);
    assert_eq!(Script::new("mounted", []).play(&mounted, "n").unwrap(), Requeue::OnChange);
    let refusing = present("True", &[]);
    let path = "STRATEGIC-PATCH nodes/n/status";
    let step = (path, json!({"status": {"volumesAttached": null}}), refused(500));
    assert!(Script::new("not withdrawn", [step]).play(&refusing, "n").is_err(), "it is not detached then");
}

#[test]
fn a_node_that_does_not_come_back_loses_its_volumes() {
    let objects = |taints: Value| {
        let mut node = node("n", "Unknown", &[UNIQUE], &[UNIQUE]);
        node.1["spec"]["taints"] = taints;
        [node, attachment("n", json!({"attached": true}))].into_iter().chain(volume("ReadWriteOnce"))
    };
    let silent = controller(objects(json!([])));
    let wait = UNMOUNT_MAX + Duration::from_millis(1);
    assert_eq!(Script::new("at first", []).play(&silent, "n").unwrap(), Requeue::After(wait));
    assert!(matches!(Script::new("later", []).play_at(359, &silent, "n").unwrap(), Requeue::After(_)));
    Script::new("after six minutes", [status(json!(null)), deleted()]).play_at(361, &silent, "n").unwrap();
    let given_up = controller(objects(json!([{"key": OUT_OF_SERVICE, "effect": "NoExecute"}])));
    Script::new("at once", [status(json!(null)), deleted()]).play(&given_up, "n").unwrap();
    let careful = AttachDetachController { forces_detach: false, ..controller(objects(json!([]))) };
    for second in [0, 1000] {
        assert_eq!(Script::new("never", []).play_at(second, &careful, "n").unwrap(), Requeue::OnChange);
    }
}

#[test]
fn what_an_external_attacher_says_is_told_with_longer_and_longer_pauses() {
    let error = json!({"attachError": {"message": "no such disk"}});
    let objects = [node("n", "True", &[], &[]), pod("p", "n"), attachment("n", error)];
    let failing = controller(objects.into_iter().chain(volume("ReadWriteOnce")));
    for (second, told) in [(0, true), (0, false), (1, true), (2, true), (3, false), (4, true)] {
        let script = Script::new("fails", []);
        let outcome = script.play_at(second, &failing, "n").unwrap();
        assert!(matches!(outcome, Requeue::After(_)), "{outcome:?}");
        let expected = "AttachVolume.Attach failed for volume \"pv\" : no such disk".to_owned();
        assert_eq!(script.notes(), told.then_some(expected).into_iter().collect::<Vec<_>>(), "at {second}");
    }
    let objects = [node("n", "True", &[], &[]), pod("p", "n"), attachment("n", json!({}))];
    let silent = controller(objects.into_iter().chain(volume("ReadWriteOnce")));
    assert_eq!(Script::new("waits", []).play(&silent, "n").unwrap(), Requeue::After(ATTACH_MAX));
    let script = Script::new("nobody comes", []);
    script.play_at(120, &silent, "n").unwrap();
    let why = "timed out waiting for external-attacher of d CSI driver to attach volume h";
    assert_eq!(script.notes(), [format!("AttachVolume.Attach failed for volume \"pv\" : {why}")]);
}

#[test]
fn a_refused_attachment_is_told_and_tried_again() {
    let objects = [node("n", "True", &[], &[]), pod("p", "n")].into_iter().chain(volume("ReadWriteOnce"));
    let controller = controller(objects);
    let (path, body, _) = created();
    let script = Script::new("refused", [(path, body, refused(403))]);
    assert!(matches!(script.play(&controller, "n").unwrap(), Requeue::Failed { .. }));
    assert_eq!(script.events(), ["FailedAttachVolume"]);
    Script::new("rests", []).play(&controller, "n").unwrap();
    Script::new("again", [created()]).play_at(1, &controller, "n").unwrap();
}

#[test]
fn a_volume_that_is_gone_is_detached_all_the_same() {
    let objects = [node("n", "True", &[], &[]), pod("p", "n")].into_iter().chain(volume("ReadWriteOnce"));
    let controller = controller(objects);
    Script::new("asked for", [created()]).play(&controller, "n").unwrap();
    let (kind, asked) = attachment("n", json!({}));
    see(&controller, kind, &asked);
    for (kind, namespace, name) in [(Kind::Pod, "ns", "p"), (Kind::VolumeClaim, "ns", "c"), (Kind::Volume, "", "pv")] {
        controller.observe(&controller.cache.remove(kind, namespace, name, "").unwrap());
    }
    Script::new("let go", [live(&[]), deleted()]).play(&controller, "n").unwrap();
}

#[test]
fn volumes_of_other_plugins_stay_in_the_status() {
    let other = "kubernetes.io/iscsi/portal:iqn:0";
    let objects = [node("n", "True", &[other], &[]), pod("p", "n"), attachment("n", json!({"attached": true}))];
    let controller = controller(objects.into_iter().chain(volume("ReadWriteOnce")));
    let list = json!([{"name": other, "devicePath": ""}, {"name": UNIQUE, "devicePath": ""}]);
    Script::new("kept", [status(list)]).play(&controller, "n").unwrap();
}
