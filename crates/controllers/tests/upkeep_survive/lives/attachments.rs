//! Volumes of a CSI driver: each is attached where pods need it and nowhere else, the Node's status says so, and none
//! that is mounted is detached unless its node will not come back.
//!
//! Around the controller are a kubelet on each node, which says what it uses before it looks and mounts what it may,
//! and the driver's external attacher.

use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::{AttachDetachController, Kind};
use bayplan_testkit::Rng;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Edit, Life, is_deleted, name, silent, text};
use crate::server::Server;

const NODES: &str = "nodes";
const PODS: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const ATTACHMENTS: &str = "volumeattachments";
const DRIVERS: &str = "csidrivers";
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const FINALIZER: &str = "external-attacher/csi-example-com";

/// An external attacher needs so long.
const ATTACHER: Duration = Duration::from_secs(1);

pub(super) const LIFE: Life = Life {
    name: "attach-detach",
    kinds: &[Kind::Pod, Kind::Node, Kind::VolumeClaim, Kind::Volume, Kind::CsiDriver, Kind::VolumeAttachment],
    controller: |cache| Arc::new(AttachDetachController::new(cache, true)),
    stages: &[
        objects_are_made,
        pods_start,
        pods_end,
        a_pod_moves,
        a_node_falls_silent,
        it_is_given_up,
        a_node_is_given_up_at_once,
        a_driver_changes,
    ],
    report: silent,
    others,
    edit,
    assert_always,
    assert_kept,
};

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {MANAGED: "true"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn volume_of(claim: &str) -> String {
    format!("pv-{claim}")
}

/// The name of a volume in the status of nodes.
fn unique(claim: &str) -> String {
    let driver = if claim.starts_with("easy") { "easy.example.com" } else { "csi.example.com" };
    format!("kubernetes.io/csi/{driver}^h-{claim}")
}

/// A claim that is bound to its volume.
fn bound(server: &Server, claim: &str, mode: &str) {
    let driver = if claim.starts_with("easy") { "easy.example.com" } else { "csi.example.com" };
    server.put(
        CLAIMS,
        json!({
            "metadata": {"name": claim, "namespace": "ns", "uid": format!("uid-of-{claim}")},
            "spec": {"volumeName": volume_of(claim)}, "status": {"phase": "Bound"},
        }),
    );
    server.put(
        VOLUMES,
        json!({
            "metadata": {"name": volume_of(claim)},
            "spec": {
                "accessModes": [mode], "csi": {"driver": driver, "volumeHandle": format!("h-{claim}")},
                "claimRef": {"namespace": "ns", "name": claim, "uid": format!("uid-of-{claim}")},
            },
        }),
    );
}

fn pod(name: &str, node: &str, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"nodeName": node, "volumes": volumes}})
}

fn objects_are_made(server: &Server) {
    ["a", "b", "c"].into_iter().for_each(|name| server.put(NODES, node(name)));
    server.put(DRIVERS, json!({"metadata": {"name": "easy.example.com"}, "spec": {"attachRequired": false}}));
    for claim in ["one", "two", "three"] {
        bound(server, claim, "ReadWriteOnce");
    }
    bound(server, "many", "ReadWriteMany");
    bound(server, "easy", "ReadWriteOnce");
    // No pod needs this one.
    server.put(PODS, pod("first", "a", &["three", "easy"]));
}

fn pods_start(server: &Server) {
    server.put(PODS, pod("p", "a", &["one", "many"]));
    server.put(PODS, pod("q", "b", &["two", "many"]));
    server.put(PODS, pod("waits", "", &["one"]));
}

fn pods_end(server: &Server) {
    server.edit(PODS, "first", |pod| pod["status"]["phase"] = json!("Succeeded"));
    server.remove(PODS, "q");
}

/// Its volume follows it once the other node let it go.
fn a_pod_moves(server: &Server) {
    server.remove(PODS, "p");
    server.put(PODS, pod("p2", "b", &["one", "many"]));
    server.put(PODS, pod("r", "a", &["two"]));
}

/// The pod is gone, but its kubelet does not unmount the volume.
fn a_node_falls_silent(server: &Server) {
    server.edit(NODES, "a", |node| node["status"]["conditions"][0]["status"] = json!("Unknown"));
    server.remove(PODS, "r");
    server.put(PODS, pod("r2", "c", &["two"]));
}

/// One that comes back unmounts what it has.
fn it_is_given_up(server: &Server) {
    server.edit(NODES, "a", |node| node["status"]["conditions"][0]["status"] = json!("True"));
}

fn a_node_is_given_up_at_once(server: &Server) {
    server.edit(NODES, "b", |node| {
        node["status"]["conditions"][0]["status"] = json!("Unknown");
        node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    });
    server.remove(PODS, "p2");
    server.put(PODS, pod("p3", "c", &["one"]));
}

fn a_driver_changes(server: &Server) {
    server.put(PODS, pod("s", "a", &["easy"]));
    server.edit(DRIVERS, "easy.example.com", |driver| driver["spec"]["attachRequired"] = json!(true));
}

fn edit(rng: &mut Rng) -> Edit {
    let node = *rng.pick(&["a", "b", "c"]);
    let claim = *rng.pick(&["one", "two", "many", "easy"]);
    let named = *rng.pick(&["x", "y", "z"]);
    match rng.below(6) {
        0 | 1 => Box::new(move |server| server.remove(PODS, named)),
        2 => Box::new(move |server| server.edit(PODS, named, |pod| pod["status"]["phase"] = json!("Failed"))),
        3 => Box::new(move |server| {
            let ready = *["True", "Unknown"].get(claim.len() % 2).unwrap();
            server.edit(NODES, node, |node| node["status"]["conditions"][0]["status"] = json!(ready));
        }),
        _ => Box::new(move |server| {
            if server.find(PODS, named).is_none() {
                server.put(PODS, pod(named, node, &[claim]));
            }
        }),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is_ready(node: &Value) -> bool {
    node["status"]["conditions"][0]["status"] == "True"
}

/// The claims of the pods on a node that have not ended.
fn claims_on(server: &Server, node: &str) -> Vec<String> {
    let pods = server.objects(PODS);
    let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node && pod["status"]["phase"].is_null());
    let mut claims: Vec<String> = here
        .flat_map(|pod| list(&pod["spec"]["volumes"]))
        .map(|volume| text(&volume["persistentVolumeClaim"]["claimName"]).to_owned())
        .collect();
    claims.sort();
    claims.dedup();
    claims
}

fn needs_attaching(server: &Server, claim: &str) -> bool {
    let driver = server.find(DRIVERS, "easy.example.com");
    !claim.starts_with("easy") || driver.is_some_and(|driver| driver["spec"]["attachRequired"] == true)
}

/// The kubelets say what they use, and the external attacher does what it is asked for, each after a while.
fn others(server: &Server) -> Option<Timestamp> {
    for node in server.objects(NODES).iter().filter(|node| is_ready(node)) {
        let needed = claims_on(server, name(node)).into_iter().filter(|claim| needs_attaching(server, claim));
        let names: Vec<String> = needed.map(|claim| unique(&claim)).collect();
        server.edit(NODES, name(node), |node| match names.is_empty() {
            true => drop(node["status"].as_object_mut().unwrap().remove("volumesInUse")),
            false => node["status"]["volumesInUse"] = json!(names),
        });
    }
    attach_and_detach(server)
}

fn attach_and_detach(server: &Server) -> Option<Timestamp> {
    let now = server.now();
    let mut next: Option<Timestamp> = None;
    for attachment in server.objects(ATTACHMENTS) {
        let since = match is_deleted(&attachment) {
            true => &attachment["metadata"]["deletionTimestamp"],
            false if attachment["status"]["attached"] == true => continue,
            false => &attachment["metadata"]["creationTimestamp"],
        };
        let due = text(since).parse::<Timestamp>().unwrap() + ATTACHER;
        if due > now {
            next = Some(next.map_or(due, |next| next.min(due)));
            continue;
        }
        server.edit(ATTACHMENTS, name(&attachment), |attachment| match is_deleted(attachment) {
            true => attachment["metadata"]["finalizers"] = json!([]),
            false => {
                attachment["metadata"]["finalizers"] = json!([FINALIZER]);
                attachment["status"] = json!({"attached": true});
            }
        });
    }
    next
}

/// What a node is told that it may use is attached, and nothing takes it away. Two managers may contradict each other
/// until both know it all.
fn assert_always(server: &Server, managers: usize) {
    if managers > 1 {
        return;
    }
    let attachments = server.objects(ATTACHMENTS);
    for node in server.objects(NODES) {
        for reported in list(&node["status"]["volumesAttached"]) {
            let claim = text(&reported["name"]).rsplit("^h-").next().unwrap();
            let its = attachments.iter().find(|one| {
                one["spec"]["nodeName"] == name(&node)
                    && one["spec"]["source"]["persistentVolumeName"] == *volume_of(claim)
            });
            let stays = its.is_some_and(|one| !is_deleted(one) && one["status"]["attached"] == true);
            assert!(stays, "{} may use {claim}, which is {its:?}", name(&node));
        }
    }
}

fn assert_kept(server: &Server, when: &str) {
    let attachments = server.objects(ATTACHMENTS);
    for node in server.objects(NODES) {
        let name = name(&node);
        let needed: Vec<String> =
            claims_on(server, name).into_iter().filter(|claim| needs_attaching(server, claim)).collect();
        let mut found: Vec<String> = Vec::new();
        for attachment in attachments.iter().filter(|one| one["spec"]["nodeName"] == name) {
            assert!(!is_deleted(attachment) && attachment["status"]["attached"] == true, "{when}: on {name}");
            found.push(text(&attachment["spec"]["source"]["persistentVolumeName"]).replacen("pv-", "", 1));
        }
        found.sort();
        for claim in &found {
            assert!(needed.contains(claim), "{when}: {claim} is attached to {name} for nobody");
        }
        for claim in needed.iter().filter(|claim| !found.contains(claim)) {
            let source = volume_of(claim);
            let elsewhere = |one: &&Value| one["spec"]["source"]["persistentVolumeName"] == *source;
            let taken = *claim != "many" && attachments.iter().any(|one| elsewhere(&one));
            assert!(taken, "{when}: {claim} is not attached to {name}, and nowhere else");
        }
        let reported: Vec<&str> = list(&node["status"]["volumesAttached"]).map(|one| text(&one["name"])).collect();
        let mut expected: Vec<String> = found.iter().map(|claim| unique(claim)).collect();
        expected.sort();
        assert_eq!(reported, expected, "{when}: status of {name}");
    }
}
