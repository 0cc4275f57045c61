//! Pods whose resources are changed while they run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{World, condition, seconds};

fn asking(cpu: &str, generation: i64) -> Value {
    let container = json!({ "name": "main", "image": "nginx", "resources": { "requests": { "cpu": cpu } } });
    json!({ "metadata": { "generation": generation }, "spec": { "containers": [container] } })
}

fn summary(cpu: &str, generation: i64, error: &str) -> String {
    let container = format!("[{{\"name\":\"main\",\"resources\":{{\"requests\":{{\"cpu\":\"{cpu}\"}}}}}}]");
    format!("{{\"containers\":{container},\"generation\":{generation}{error}}}")
}

/// What is allocated to the container and what it has.
fn cpu(world: &World, name: &str) -> (Value, Value) {
    let status = &world.pod(name)["containerStatuses"][0];
    (status["allocatedResources"]["cpu"].clone(), status["resources"]["requests"]["cpu"].clone())
}

fn has_condition(world: &World, name: &str, kind: &str) -> bool {
    world.pod(name)["conditions"].as_array().unwrap().iter().any(|condition| condition["type"] == kind)
}

#[test]
fn a_change_that_fits_is_allocated_and_carried_out() {
    let mut world = World::small();
    world.bind("db", "node-0001", asking("2", 1));
    world.run(seconds(5));
    assert_eq!(cpu(&world, "db"), (json!("2"), json!("2")));
    world.told();
    world.change("shop/pods/db", asking("6", 2));
    assert_eq!(cpu(&world, "db"), (json!("6"), json!("2")));
    let progress = condition(world.pod("db"), "PodResizeInProgress");
    assert_eq!((&progress["status"], &progress["observedGeneration"]), (&json!("True"), &json!(2)));
    world.run(seconds(2));
    assert_eq!(cpu(&world, "db"), (json!("6"), json!("6")));
    assert!(!has_condition(&world, "db", "PodResizeInProgress"));
    assert_eq!(world.pod("db")["containerStatuses"][0]["restartCount"], 0);
    let told = ["started", "completed"].map(|what| format!("Pod resize {what}: {}", summary("6", 2, "")));
    assert_eq!(world.told(), [format!("ResizeStarted {}", told[0]), format!("ResizeCompleted {}", told[1])]);
}

#[test]
fn a_change_that_does_not_fit_waits_until_something_is_set_free() {
    let mut world = World::small();
    world.bind("db", "node-0001", asking("2", 1));
    world.bind("web", "node-0001", asking("5", 1));
    world.run(seconds(5));
    world.told();
    world.change("shop/pods/db", asking("4", 2));
    let why = "Node didn't have enough resource: cpu, requested: 4000, used: 5000, capacity: 8000";
    let pending = condition(world.pod("db"), "PodResizePending").clone();
    assert_eq!((&pending["reason"], &pending["message"]), (&json!("Deferred"), &json!(why)));
    assert_eq!(cpu(&world, "db"), (json!("2"), json!("2")));
    let note = summary("4", 2, &format!(",\"error\":\"{why}\""));
    assert_eq!(world.told(), [format!("ResizeDeferred Pod resize OutOfcpu: {note}")]);

    // What was not allocated is free for others.
    world.bind("small", "node-0001", asking("1", 1));
    world.run(seconds(5));
    assert_eq!(world.pod("small")["phase"], "Running");
    world.told();
    world.delete("web", 30);
    world.run(seconds(5));
    assert_eq!(cpu(&world, "db"), (json!("4"), json!("4")));
    for kind in ["PodResizePending", "PodResizeInProgress"] {
        assert!(!has_condition(&world, "db", kind), "{kind}");
    }
}

#[test]
fn a_change_that_is_taken_back_is_as_if_there_had_been_none() {
    let mut world = World::small();
    world.bind("db", "node-0001", asking("2", 1));
    world.run(seconds(5));
    world.change("shop/pods/db", asking("9", 2));
    assert!(has_condition(&world, "db", "PodResizePending"));
    world.change("shop/pods/db", asking("2", 3));
    assert!(!has_condition(&world, "db", "PodResizePending"));
    let writes = world.log.len();
    world.change("shop/pods/db", json!({ "metadata": { "labels": { "a": "b" } } }));
    world.run(Duration::from_millis(10));
    assert_eq!(world.log.len(), writes, "nothing more is written");
}

#[test]
fn a_smaller_pod_makes_room_for_one_that_waits() {
    let mut world = World::small();
    world.bind("db", "node-0001", asking("4", 1));
    world.bind("web", "node-0001", asking("4", 1));
    world.run(seconds(5));
    world.change("shop/pods/db", asking("6", 2));
    assert!(has_condition(&world, "db", "PodResizePending"));
    world.change("shop/pods/web", asking("1", 2));
    world.run(seconds(3));
    assert_eq!([cpu(&world, "db").1, cpu(&world, "web").1], [json!("6"), json!("1")]);
}
