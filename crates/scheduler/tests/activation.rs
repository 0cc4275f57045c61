//! Pods that a plugin collects in the cycle of another pod are tried again at once; upstream's `PodsToActivate`.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::{Arc, Mutex};

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{
    AnyPlugin, BindContext, Cycle, ExtensionPoints, Input, Object, Permit, Plugin, PluginName, Registry, Scheduler,
    Shell, Status, TieBreak,
};
use bayplan_testkit::{FakeApi, VirtualClock};
use futures::executor::block_on;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Brings the pod in the label `brings` along, from the extension point in the label `at`.
struct Group;

impl Group {
    fn collect(labels: &bayplan_model::meta::Map, at: &str, into: &Mutex<Vec<String>>) {
        if labels.get("at").map(String::as_str) == Some(at) {
            into.lock().unwrap().extend(labels.get("brings").cloned());
        }
    }
}

impl Plugin for Group {
    type State = Arc<Mutex<Vec<String>>>;

    fn name(&self) -> PluginName {
        "Group"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PERMIT.union(ExtensionPoints::POST_BIND)
    }

    fn permit(&self, cx: &Cycle<'_>, state: &mut Self::State, _node: &str) -> Permit {
        Self::collect(&cx.pod.metadata.labels, "permit", state);
        match cx.pod.metadata.labels.contains_key("never") {
            true => Status::unschedulable("not this one").into(),
            false => Permit::default(),
        }
    }

    fn post_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, ()> {
        Box::pin(async move { Self::collect(&cx.pod.metadata.labels, "post-bind", state) })
    }

    fn activates_pods(&self) -> bool {
        true
    }

    fn take_pods_to_activate(&self, state: &mut Self::State) -> Vec<String> {
        std::mem::take(&mut *state.lock().unwrap())
    }
}

const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:
      - name: Group
";

fn add(scheduler: &mut Scheduler, name: &str, cpu: &str, labels: Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": labels},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    scheduler.handle(Input::upsert(Object::decode(&pod).unwrap().unwrap()), NOW);
    assert!(scheduler.schedule_one(NOW));
}

#[test]
fn collected_pods_are_activated_when_the_cycle_that_collected_them_succeeds() {
    let mut registry = Registry::default();
    registry.register("Group", |_| Ok(AnyPlugin::new(Group)));
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let (waits, active) = (Some(QueueStage::Unschedulable), Some(QueueStage::Active));
    for (labels, after_permit, after_binding) in [
        (json!({"brings": "other", "at": "permit"}), active, active),
        (json!({"brings": "other", "at": "post-bind"}), waits, active),
        (json!({"brings": "other", "at": "permit", "never": ""}), waits, waits),
        (json!({"brings": "nobody", "at": "permit"}), waits, waits),
    ] {
        let mut scheduler = Scheduler::new(&configuration, &registry, TieBreak::SmallestName).unwrap();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
        });
        scheduler.handle(Input::upsert(Object::decode(&node).unwrap().unwrap()), NOW);
        add(&mut scheduler, "other", "5", json!({}));
        scheduler.take_effects();
        assert_eq!(scheduler.queue().stage("other"), waits);
        add(&mut scheduler, "first", "1", labels.clone());
        assert_eq!(scheduler.queue().stage("other"), after_permit, "{labels}");
        let (api, clock) = (FakeApi::default(), VirtualClock::default());
        for effect in scheduler.take_effects() {
            if let Some(result) = block_on(effect.run(Shell { api: &api, recorder: &api, timer: &clock })) {
                scheduler.handle(result, NOW);
            }
        }
        assert_eq!(scheduler.queue().stage("other"), after_binding, "{labels}");
    }
}
