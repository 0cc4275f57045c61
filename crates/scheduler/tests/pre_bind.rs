//! Binding cycles that do not come to their end: a pod in PreBind is preempted in memory, without a call to the API
//! server, and a plugin that panics fails its own pod only.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{
    AnyPlugin, BindContext, Effect, ExtensionPoints, Input, Object, Plugin, PluginName, Registry, Scheduler, Shell,
    Status, TieBreak,
};
use bayplan_testkit::{FakeApi, VirtualClock};
use futures::executor::block_on;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Never finishes PreBind.
struct Endless;

impl Plugin for Endless {
    type State = ();

    fn name(&self) -> PluginName {
        "Endless"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_BIND
    }

    fn pre_bind<'a>(&'a self, _cx: BindContext<'a>, (): &'a ()) -> BoxFuture<'a, Status> {
        Box::pin(futures::future::pending())
    }
}

const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled:
      - name: Endless
";

const WITHOUT_BINDER: &str = "
    bind:
      disabled:
      - name: DefaultBinder
";

fn add(scheduler: &mut Scheduler, name: &str, priority: i32) -> Vec<Effect> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
        },
    });
    let pod = Object::Pod(Arc::new(serde_json::from_value(pod).unwrap()));
    scheduler.handle(Input::upsert(pod), Timestamp::UNIX_EPOCH);
    assert!(scheduler.schedule_one(Timestamp::UNIX_EPOCH));
    scheduler.take_effects()
}

#[test]
fn a_victim_in_pre_bind_is_turned_away_in_memory() {
    let mut registry = Registry::default();
    registry.register("Endless", |_| Ok(AnyPlugin::new(Endless)));
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let mut scheduler = Scheduler::new(&configuration, &registry, TieBreak::SmallestName).unwrap();
    let node =
        json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}});
    let node = Object::Node(Arc::new(serde_json::from_value(node).unwrap()));
    scheduler.handle(Input::upsert(node), Timestamp::UNIX_EPOCH);

    let (api, clock) = (FakeApi::default(), VirtualClock::default());
    let shell = Shell { api: &api, recorder: &api, timer: &clock };
    let mut effects = add(&mut scheduler, "low", 1);
    let mut binding = Box::pin(effects.pop().unwrap().run(shell));
    assert!(block_on(async { futures::poll!(&mut binding) }).is_pending());

    let effects = add(&mut scheduler, "high", 1000);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Preempt(_))));
    let note = effects.into_iter().find_map(|effect| match effect {
        Effect::Record { event, .. } if event.reason == "Preempted" => Some(event.note),
        _ => None,
    });
    assert_eq!(note.unwrap(), "Preempted by pod high on node n (in kube-scheduler memory).");

    let outcome = block_on(binding).unwrap();
    scheduler.handle(outcome, Timestamp::UNIX_EPOCH);
    assert_eq!(scheduler.cluster().placed_count(), 0);
    assert_eq!(scheduler.queue().stage("low"), Some(QueueStage::Backoff));
    assert!(!api.lines().iter().any(|line| line.contains("binding")));

    // The deletion of its victim wakes the preemptor.
    let later = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(2);
    scheduler.tick(later);
    assert!(scheduler.schedule_one(later));
    assert!(scheduler.is_binding("high"));
}

/// Panics at the extension point that the pod's name says.
struct Clumsy;

impl Plugin for Clumsy {
    type State = ();

    fn name(&self) -> PluginName {
        "Endless"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_BIND.union(ExtensionPoints::BIND).union(ExtensionPoints::POST_BIND)
    }

    fn pre_bind<'a>(&'a self, cx: BindContext<'a>, (): &'a ()) -> BoxFuture<'a, Status> {
        Box::pin(async move {
            assert_ne!(cx.pod.metadata.name, "pre-bind", "clumsy");
            Status::SUCCESS
        })
    }

    fn bind<'a>(&'a self, cx: BindContext<'a>, (): &'a ()) -> BoxFuture<'a, Status> {
        // Outside the future, too.
        assert_ne!(cx.pod.metadata.name, "bind", "clumsy");
        Box::pin(async { Status::SUCCESS })
    }

    fn post_bind<'a>(&'a self, cx: BindContext<'a>, (): &'a ()) -> BoxFuture<'a, ()> {
        Box::pin(async move { assert_ne!(cx.pod.metadata.name, "post-bind", "clumsy") })
    }
}

#[test]
fn a_plugin_that_panics_in_the_binding_cycle_leaves_no_pod_assumed() {
    let mut registry = Registry::default();
    registry.register("Endless", |_| Ok(AnyPlugin::new(Clumsy)));
    let configuration = Configuration::from_yaml(&format!("{}{}", CONFIG.trim_end(), WITHOUT_BINDER)).unwrap();
    for (pod, stage, placed) in
        [("pre-bind", Some(QueueStage::Backoff), 0), ("bind", Some(QueueStage::Backoff), 0), ("post-bind", None, 1)]
    {
        let mut scheduler = Scheduler::new(&configuration, &registry, TieBreak::SmallestName).unwrap();
        let node =
            json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}});
        let node = Object::Node(Arc::new(serde_json::from_value(node).unwrap()));
        scheduler.handle(Input::upsert(node), Timestamp::UNIX_EPOCH);
        let mut effects = add(&mut scheduler, pod, 1);
        let (api, clock) = (FakeApi::default(), VirtualClock::default());
        let shell = Shell { api: &api, recorder: &api, timer: &clock };
        let outcome = block_on(effects.pop().unwrap().run(shell)).unwrap();
        if let Input::Bound(outcome) = &outcome {
            let message = outcome.status.message();
            assert_eq!(message.starts_with("binding panicked: "), stage.is_some(), "{message}");
        }
        scheduler.handle(outcome, Timestamp::UNIX_EPOCH);
        assert_eq!((scheduler.queue().stage(pod), scheduler.cluster().placed_count()), (stage, placed), "{pod}");
    }
}
