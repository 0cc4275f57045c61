//! Random histories of a cluster: pods and nodes come and go, calls are refused, the watch lags, pods wait on Permit
//! and preempt each other. At every step no node is over-committed, no pod is bound twice and every pod is in exactly
//! one stage; in the end every pod that fits is bound.
//!
//! `BAYPLAN_HISTORIES=10000 cargo test -p bayplan-scheduler --test histories` runs more of them.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

mod world;

use std::time::Duration;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{
    AnyPlugin, Code, Cycle, ExtensionPoints, Permit, Plugin, PluginName, Registry, Scheduler, Status, TieBreak,
};
use jiff::SignedDuration;
use serde_json::json;
use world::World;

/// The number of histories in an ordinary run, which takes a few seconds.
const HISTORIES: u64 = 200;
const STEPS: usize = 120;

/// Holds or rejects pods in Permit, as their label says.
struct Hold;

impl Plugin for Hold {
    type State = ();

    fn name(&self) -> PluginName {
        "Hold"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PERMIT
    }

    fn permit(&self, cx: &Cycle<'_>, (): &mut (), _node: &str) -> Permit {
        match cx.pod.metadata.labels.get("permit").map(String::as_str) {
            Some("wait") => Permit { status: Status::new(Code::Wait, "held"), timeout: Duration::from_secs(90) },
            Some("never") => Status::unschedulable("not this one").into(),
            _ => Permit::default(),
        }
    }
}

const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:
      - name: Hold
";

fn world(seed: u64) -> World {
    let mut registry = Registry::default();
    registry.register("Hold", |_| Ok(AnyPlugin::new(Hold)));
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let ties = TieBreak::Random(bayplan_scheduler::Rng::new(seed));
    World::new(seed, Scheduler::new(&configuration, &registry, ties).unwrap())
}

fn create_pod(world: &mut World) {
    let rng = &mut world.rng;
    let app = format!("a{}", rng.below(3));
    let mut labels = json!({"app": app});
    let mut spec = json!({
        "priority": rng.below(3),
        "containers": [{"resources": {"requests": {"cpu": format!("{}m", 100 + 700 * rng.below(4))}}}],
    });
    let same_app = json!({"matchLabels": {"app": app}});
    let host = "kubernetes.io/hostname";
    match rng.below(10) {
        0 => spec["containers"][0]["ports"] = json!([{"hostPort": 80}]),
        1 => {
            let term = json!({"topologyKey": host, "labelSelector": same_app});
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        2 => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": same_app,
            }]);
        }
        3 => spec["schedulingGates"] = json!([{"name": "wait"}]),
        4 => labels["permit"] = "wait".into(),
        5 if rng.one_in(3) => labels["permit"] = "never".into(),
        6 => spec["preemptionPolicy"] = "Never".into(),
        7 => {
            let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": same_app});
            spec["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        }
        _ => {}
    }
    world.create_pod(spec, labels);
}

fn step(world: &mut World) {
    match world.rng.below(20) {
        0..=3 => create_pod(world),
        4 => {
            let (name, cordoned) = (world.rng.below(5), world.rng.one_in(4));
            world.set_node(name, cordoned);
        }
        5 if world.rng.one_in(2) => world.remove_some_node(),
        6 => {
            if let Some(name) = world.server.any_pod(&mut world.rng) {
                world.server.delete(&name);
            }
        }
        7 => world.server.terminating().iter().for_each(|name| world.server.end(name)),
        8 => {
            let one_in = [0, 0, 2, 5][world.rng.below(4)];
            let seed = world.rng.below(usize::MAX) as u64;
            world.server.refuse_one_in(one_in, seed);
        }
        9 => {
            let seconds = 1 + world.rng.below(30) as i64;
            world.advance(SignedDuration::from_secs(seconds));
        }
        10 => {
            for uid in world.waiting() {
                match world.rng.below(4) {
                    0 => world.scheduler.allow(&uid, "Hold"),
                    1 => world.scheduler.reject(&uid, "Hold", "changed my mind".into(), world.now),
                    _ => {}
                }
            }
        }
        11..=13 => _ = world.schedule(3),
        14..=16 => (0..3).for_each(|_| _ = world.run_effect()),
        17 => _ = world.deliver_result(),
        _ => (0..4).for_each(|_| _ = world.deliver_watch_event()),
    }
    world.check();
}

/// Lets all calls succeed, and checks that every pod that fits is bound.
fn finish(world: &mut World) {
    world.server.refuse_one_in(0, 0);
    for _ in 0..10 {
        world.advance(SignedDuration::from_secs(331));
        loop {
            world.settle();
            let (waiting, ending) = (world.waiting(), world.server.terminating());
            if waiting.is_empty() && ending.is_empty() {
                break;
            }
            waiting.iter().for_each(|uid| world.scheduler.allow(uid, "Hold"));
            ending.iter().for_each(|name| world.server.end(name));
        }
    }
    let overlooked = world.overlooked();
    let never = |name: &String| world.pod(name)["metadata"]["labels"]["permit"] != "never";
    let overlooked: Vec<String> = overlooked.into_iter().filter(never).collect();
    assert!(overlooked.is_empty(), "seed {}: {overlooked:?} fit and still wait", world.seed);
}

#[test]
fn no_history_over_commits_a_node_binds_a_pod_twice_or_loses_one() {
    let asked = std::env::var("BAYPLAN_HISTORIES").ok().and_then(|count| count.parse().ok());
    for seed in 0..asked.unwrap_or(HISTORIES) {
        let mut world = world(seed);
        for _ in 0..STEPS {
            step(&mut world);
        }
        finish(&mut world);
    }
}
