//! Large Deployments and many of them: the work grows with the number of pods, not with its square.
//!
//! The default sizes are small; `BAYPLAN_SCALE=1` takes a Deployment of 10,000 and 1,000 Deployments of 10, and
//! prints what that takes.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may fail by panicking, and prints its figures")]
#![allow(clippy::disallowed_methods, reason = "the figures are for people; nothing is decided by them")]

mod world;

use std::time::Instant;

use serde_json::{Value, json};
use world::World;
use world::life::{deployment, rolling};

/// One size, or the full one when that is asked for.
fn size(small: usize, full: usize) -> usize {
    if std::env::var_os("BAYPLAN_SCALE").is_some() { full } else { small }
}

fn named(name: &str, replicas: usize) -> Value {
    let mut d = deployment(rolling());
    d["metadata"]["name"] = json!(name);
    d["spec"]["replicas"] = json!(replicas);
    let labels = json!({"app": name});
    d["spec"]["selector"]["matchLabels"] = labels.clone();
    d["spec"]["template"]["metadata"]["labels"] = labels;
    d
}

/// Creates the Deployments, rolls each to a new image, and answers the reconciles and writes of both.
fn create_and_roll(deployments: usize, replicas: usize) -> [usize; 2] {
    let mut world = World::new();
    // A worker that is busy for a while finds its cache up to date when it looks again.
    world.events_per_reconcile = 500;
    let names: Vec<String> = (0..deployments).map(|at| format!("web-{at}")).collect();
    let mut last = (0, 0);
    for act in ["created", "rolled"] {
        let began = Instant::now();
        for name in &names {
            match act {
                "created" => world.server.put("deployments", named(name, replicas)),
                _ => world.server.edit("deployments", name, |d| {
                    d["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
                }),
            }
        }
        world.settle();
        let took = began.elapsed();
        world.assert_desired(act);
        let (reconciles, writes) = (world.reconciles - last.0, world.server.writes() - last.1);
        last = (world.reconciles, world.server.writes());
        eprintln!("{deployments} × {replicas} {act}: {reconciles} reconciles, {writes} writes, {took:.1?}");
    }
    [world.reconciles, world.server.writes()]
}

#[test]
fn a_large_deployment_takes_work_in_proportion_to_its_pods() {
    let replicas = size(400, 10_000);
    let [reconciles, writes] = create_and_roll(1, replicas);
    // Each pod is created twice and deleted once; sizes and statuses are written now and then.
    assert!(writes < 4 * replicas, "{writes} writes for {replicas} replicas");
    assert!(reconciles < 2 * replicas, "{reconciles} reconciles for {replicas} replicas");
}

#[test]
fn many_deployments_take_work_in_proportion_to_their_number() {
    let (deployments, replicas) = (size(40, 1000), 10);
    let [reconciles, writes] = create_and_roll(deployments, replicas);
    assert!(writes < 120 * deployments, "{writes} writes for {deployments} Deployments");
    assert!(reconciles < 300 * deployments, "{reconciles} reconciles for {deployments} Deployments");
}
