//! How victims are evicted: in which order, what a refusal changes, and when the preemptor is tried again.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::time::Duration;

use bayplan_model::api::Request;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{
    AnyPlugin, Code, Cycle, Effect, ExtensionPoints, Input, Object, Permit, Plugin, PluginName, Registry, Scheduler,
    Shell, Status, TieBreak,
};
use bayplan_testkit::{FakeApi, VirtualClock, refused, request_line};
use futures::executor::block_on;
use jiff::Timestamp;
use serde_json::json;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Holds pods in Permit whose name begins with `held`.
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
        match cx.pod.metadata.name.starts_with("held") {
            true => Permit { status: Status::new(Code::Wait, "held"), timeout: Duration::from_secs(900) },
            false => Permit::default(),
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

/// A node of four cpus.
fn scheduler() -> Scheduler {
    let mut registry = Registry::default();
    registry.register("Hold", |_| Ok(AnyPlugin::new(Hold)));
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let mut scheduler = Scheduler::new(&configuration, &registry, TieBreak::SmallestName).unwrap();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
    });
    scheduler.handle(Input::upsert(Object::decode(&node).unwrap().unwrap()), NOW);
    scheduler
}

fn add(scheduler: &mut Scheduler, name: &str, priority: i32, cpu: &str, node: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {
            "schedulerName": "default-scheduler", "priority": priority, "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    scheduler.handle(Input::upsert(Object::decode(&pod).unwrap().unwrap()), NOW);
}

/// Runs the evictions that the scheduler asks for, and gives it their result; what reached the API server is returned.
fn evict(scheduler: &mut Scheduler, refuses: fn(&str) -> bool) -> Vec<String> {
    let evictions = |effects: Vec<Effect>| effects.into_iter().find(|effect| matches!(effect, Effect::Preempt(_)));
    let api = FakeApi::new(
        move |request: &Request| {
            if refuses(&request_line(request).0) { refused(500) } else { Ok(json!({})) }
        },
    );
    let clock = VirtualClock::default();
    while let Some(effect) = evictions(scheduler.take_effects()) {
        let result = block_on(effect.run(Shell { api: &api, recorder: &api, timer: &clock })).unwrap();
        scheduler.handle(result, NOW);
    }
    api.lines().into_iter().filter(|line| line.starts_with("DELETE")).collect()
}

#[test]
fn the_last_victim_goes_only_when_the_others_went() {
    for (refuses, deleted, stage) in [
        ((|_| false) as fn(&str) -> bool, vec!["d/pods/c", "d/pods/b", "d/pods/a"], QueueStage::Unschedulable),
        // A refused eviction spares the last victim, and the preemptor looks again at once.
        (|line| line == "DELETE d/pods/b", vec!["d/pods/c", "d/pods/b"], QueueStage::Active),
        (|line| line == "DELETE d/pods/a", vec!["d/pods/c", "d/pods/b", "d/pods/a"], QueueStage::Active),
        (|line| line == "STRATEGIC-PATCH d/pods/c/status", vec![], QueueStage::Active),
    ] {
        let mut scheduler = scheduler();
        for (name, priority) in [("a", 1), ("b", 2), ("c", 3)] {
            add(&mut scheduler, name, priority, "1", "n");
        }
        add(&mut scheduler, "preemptor", 100, "4", "");
        assert!(scheduler.schedule_one(NOW));
        let lines = evict(&mut scheduler, refuses);
        assert_eq!(lines, deleted.iter().map(|pod| format!("DELETE {pod}")).collect::<Vec<_>>());
        assert_eq!(scheduler.queue().stage("preemptor"), Some(stage), "{deleted:?}");
    }
}

#[test]
fn a_last_victim_that_is_not_bound_yet_stays_when_another_cannot_be_evicted() {
    for (refuses, stays) in [((|_| true) as fn(&str) -> bool, true), (|_| false, false)] {
        let mut scheduler = scheduler();
        add(&mut scheduler, "bound", 2, "2", "n");
        add(&mut scheduler, "held", 1, "2", "");
        assert!(scheduler.schedule_one(NOW));
        assert!(scheduler.is_waiting("held"));
        add(&mut scheduler, "preemptor", 100, "4", "");
        assert!(scheduler.schedule_one(NOW));
        assert!(scheduler.is_waiting("held"), "it goes after the others");
        evict(&mut scheduler, refuses);
        assert_eq!(scheduler.is_waiting("held"), stays);
    }
}

#[test]
fn nominations_of_less_important_pods_are_cleared_through_the_line_of_their_pods() {
    let mut scheduler = scheduler();
    add(&mut scheduler, "bound", 1, "4", "n");
    let nominated = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nominated", "namespace": "d", "uid": "nominated"},
        "spec": {
            "schedulerName": "default-scheduler", "priority": 10, "schedulingGates": [{"name": "wait"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"nominatedNodeName": "n"},
    });
    scheduler.handle(Input::upsert(Object::decode(&nominated).unwrap().unwrap()), NOW);
    add(&mut scheduler, "preemptor", 100, "4", "");
    assert!(scheduler.schedule_one(NOW));
    let cleared = scheduler.take_effects().into_iter().find_map(|effect| match effect {
        Effect::UpdateStatus(update) if update.uid == "nominated" => Some(update.patch),
        _ => None,
    });
    assert_eq!(cleared.unwrap(), json!({"status": {"nominatedNodeName": null}}));
}
