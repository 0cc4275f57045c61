//! Nodes that others made and that a fleet takes over, and nodes made from a manifest.

use bayplan_model::api::Verb;
use bayplan_model::label_selector::Selector;
use bayplan_sim::{FleetConfig, NodeManifest, NodeTemplate};
use serde_json::{Value, json};

use crate::world::{World, condition, seconds};

const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// A fleet without nodes of its own that takes over nodes with `type=fake`.
fn managing() -> World {
    let manage = Some(Selector::parse("type=fake").unwrap());
    World::new(FleetConfig { nodes: 0, manage, ..Default::default() })
}

fn fake(name: &str, more: Value) -> Value {
    let mut node = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "labels": { "type": "fake" } } });
    crate::world::merge(&mut node, &more);
    node
}

fn lease(name: &str, renewed: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "renewTime": renewed, "leaseDurationSeconds": 40 } })
}

#[test]
fn a_selected_node_is_completed_kept_ready_and_runs_pods() {
    let mut world = managing();
    // The pod is there before anybody has said what the node has.
    world.held = Some(Vec::new());
    world.put("/nodes/a", fake("a", json!({})));
    world.put("/nodes/b", json!({ "metadata": { "name": "b", "uid": "uid-b" } }));
    world.bind("web", "a", json!({}));
    world.run(seconds(3));
    let held = world.held.take().unwrap();
    world.serve(held);
    world.run(seconds(30));
    let status = &world.objects["/nodes/a"]["status"];
    assert_eq!(condition(status, "Ready")["status"], "True");
    assert_eq!(status["allocatable"]["cpu"], "8");
    assert!(status["nodeInfo"]["kubeletVersion"].is_string() && status["addresses"].is_array());
    assert_eq!(world.objects["kube-node-lease/leases/a"]["spec"]["holderIdentity"], "a");
    assert_eq!(world.pod("web")["phase"], "Running");
    assert_eq!(world.fleet.managed(), 1);
    assert_eq!(world.fleet.created(), [], "nothing of it is the fleet's to remove");
    assert_eq!(world.count(|r| r.name == "b"), 0, "not selected");
}

#[test]
fn what_a_selected_node_says_of_itself_stays() {
    let mut world = managing();
    let status = json!({
        "allocatable": { "cpu": "64", "pods": "10" },
        "addresses": [{ "type": "InternalIP", "address": "10.1.1.1" }],
        "nodeInfo": { "kubeletVersion": "fake" },
    });
    world.put("/nodes/a", fake("a", json!({ "spec": { "podCIDR": "10.244.7.0/24" }, "status": status })));
    world.bind("web", "a", json!({}));
    world.run(seconds(400));
    for field in ["allocatable", "addresses", "nodeInfo"] {
        assert_eq!(world.objects["/nodes/a"]["status"][field], status[field], "{field}");
    }
    assert_eq!(world.pod("web")["podIP"], "10.244.7.2", "of the network that the node was given");
}

#[test]
fn a_node_that_a_kubelet_runs_is_left_alone_until_its_lease_is_over() {
    let mut world = managing();
    world.objects.insert("kube-node-lease/leases/a".into(), lease("a", "2025-12-31T23:59:50.000000Z"));
    world.put("/nodes/a", fake("a", json!({})));
    world.run(seconds(20));
    assert_eq!(world.count(|r| !matches!(r.verb, Verb::Get)), 0, "it only looked");
    assert_eq!(world.fleet.managed(), 0);
    let events = world.fleet.take_events();
    let note = "somebody else renewed its Lease 10 s ago: the node is left to its kubelet";
    assert_eq!(events.iter().map(|event| &*event.note).collect::<Vec<_>>(), [note]);

    world.run(seconds(60));
    assert_eq!(world.fleet.managed(), 1, "nobody has renewed it since");
    assert_eq!(world.objects["kube-node-lease/leases/a"]["metadata"]["labels"]["bayplan.dev/simulated"], "true");
    assert!(world.fleet.take_events().is_empty());
}

#[test]
fn a_fleet_takes_over_its_own_lease_at_once_when_it_is_started_again() {
    let mut world = managing();
    world.put("/nodes/a", fake("a", json!({})));
    world.run(seconds(15));
    let mut again = World { objects: world.objects.clone(), now: world.now, ..managing() };
    again.put("/nodes/a", world.objects["/nodes/a"].clone());
    assert_eq!(again.fleet.managed(), 1);
}

#[test]
fn a_node_that_is_no_longer_selected_is_let_go_and_one_that_is_deleted_is_forgotten() {
    let mut world = managing();
    for name in ["a", "b"] {
        world.put(&format!("/nodes/{name}"), fake(name, json!({})));
        world.bind(&format!("on-{name}"), name, json!({}));
    }
    world.run(seconds(5));
    world.change("/nodes/a", json!({ "metadata": { "labels": { "type": "real" } } }));
    world.delete_node("b");
    assert!(world.has_pod("on-a") && !world.has_pod("on-b"));
    assert_eq!(world.fleet.managed(), 0);
    world.log.clear();
    world.run(seconds(600));
    assert_eq!(world.log.len(), 0);

    // Nodes that come and go for ever use up nothing: the next has the addresses of one that went.
    let address = |world: &World, name: &str| {
        world.objects[&format!("/nodes/{name}")]["status"]["addresses"][0]["address"].as_str().unwrap().to_owned()
    };
    let mut seen = Vec::new();
    for round in 0..20 {
        let name = format!("n-{round}");
        world.put(&format!("/nodes/{name}"), fake(&name, json!({})));
        seen.push(address(&world, &name));
        world.delete_node(&name);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn nodes_are_made_as_a_manifest_says_and_stay_so() {
    let manifest = NodeManifest::new(json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "gpu-{index}", "labels": { "pool": "gpu" }, "annotations": { "rack": "r-{index}" } },
        "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] },
        "status": { "capacity": { "cpu": "64", "nvidia.com/gpu": "8" } },
    }));
    let manifest = manifest.unwrap();
    let names = manifest.names.clone().unwrap();
    let template = NodeTemplate { names, manifest: Some(manifest), pod_networks: false, ..NodeTemplate::default() };
    let mut world = World::new(FleetConfig { nodes: 2, template, ..Default::default() });
    world.run(seconds(400));
    let node = &world.objects["/nodes/gpu-0002"];
    assert_eq!(node["metadata"]["labels"]["pool"], "gpu");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "gpu-0002");
    assert_eq!(node["metadata"]["annotations"], json!({ "rack": "r-0002", ATTACHED_BY_CONTROLLER: "true" }));
    assert_eq!(node["spec"]["taints"][0]["key"], "gpu");
    assert_eq!(node["spec"]["podCIDR"], Value::Null, "controllers give it out");
    let resources = json!({
        "cpu": "64", "nvidia.com/gpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi",
    });
    assert_eq!(node["status"]["capacity"], resources);
    assert_eq!(node["status"]["allocatable"], resources);
}

#[test]
fn a_pod_may_say_how_long_it_takes_to_start() {
    let mut world = World::small();
    world.bind("slow", "node-0001", json!({ "metadata": { "annotations": { "bayplan.dev/start-delay": "7s" } } }));
    world.run(seconds(20));
    assert_eq!(world.trace("slow"), ["0ms Pending [ContainerCreating]", "7000ms Running [running]"]);
}

#[test]
fn what_a_fleet_made_is_known_with_its_pods_until_somebody_deletes_it() {
    let mut world = World::small();
    world.bind("web", "node-0002", json!({}));
    world.run(seconds(5));
    let created = world.fleet.created();
    let names: Vec<&str> = created.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["node-0001", "node-0002"]);
    assert_eq!(created[1].pods, [("shop".to_owned(), "web".to_owned(), "uid-web".to_owned())]);
    assert_eq!(created[1].uid, "uid-/nodes/node-0002");
    world.delete_node("node-0001");
    assert_eq!(world.fleet.created().len(), 1);
}

#[test]
fn a_run_that_goes_on_with_nodes_of_an_earlier_one_asks_for_one_renewal_each() {
    let mut world = World::small();
    world.bind("web", "node-0002", json!({}));
    world.run(seconds(5));
    let mut again = World { objects: world.objects.clone(), now: world.now, ..World::small() };
    again.fleet = bayplan_sim::Fleet::new(FleetConfig { nodes: 2, ..Default::default() }).unwrap();
    again.log.clear();
    for path in ["/nodes/node-0001", "/nodes/node-0002"] {
        again.put(path, world.objects[path].clone());
    }
    assert_eq!(again.log.len(), 0, "nothing before the start");
    assert_eq!(again.fleet.created().len(), 2, "they are its own to remove even then");
    let effects = again.fleet.start(again.now);
    assert_eq!(again.fleet.registered(), 2);
    again.serve(effects);
    assert_eq!(again.count(|r| r.resource.plural == "leases"), 2);
    assert_eq!(again.log.len(), 2, "labels and status are as they should be");
    again.bind("more", "node-0001", json!({}));
    again.run(seconds(5));
    assert_eq!(again.pod("more")["phase"], "Running");
}
