//! A plugin from outside this crate: registered by name, enabled by the configuration, called at its extension points.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;
use std::time::Duration;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{
    AnyPlugin, Code, Cycle, Effect, ExtensionPoints, Input, NodeInfo, Object, Permit, Plugin, PluginName, PreFilter,
    Registry, Scheduler, Status, TieBreak,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Places pods on nodes of their own colour, and holds them in Permit until they are allowed.
struct Colours;

impl Plugin for Colours {
    /// The colour of the pod.
    type State = Option<String>;

    fn name(&self) -> PluginName {
        "Colours"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER).union(ExtensionPoints::PERMIT)
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut Self::State) -> PreFilter {
        *state = cx.pod.metadata.labels.get("colour").cloned();
        if state.is_none() { Status::skip().into() } else { PreFilter::default() }
    }

    fn filter(&self, _cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Status {
        match node.label("colour") == state.as_deref() {
            true => Status::SUCCESS,
            false => Status::unschedulable("node(s) had another colour"),
        }
    }

    fn permit(&self, _cx: &Cycle<'_>, state: &mut Self::State, _node: &str) -> Permit {
        match state {
            None => Permit::default(),
            Some(_) => Permit { status: Status::new(Code::Wait, "asking"), timeout: Duration::from_secs(60) },
        }
    }
}

const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: colourful
  plugins:
    multiPoint:
      enabled:
      - name: Colours
";

fn scheduler() -> Scheduler {
    let mut registry = Registry::default();
    registry.register("Colours", |_| Ok(AnyPlugin::new(Colours)));
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let mut scheduler = Scheduler::new(&configuration, &registry, TieBreak::SmallestName).unwrap();
    for (name, colour) in [("a", "red"), ("b", "blue")] {
        let node = json!({
            "metadata": {"name": name, "labels": {"colour": colour}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        });
        let node = Object::Node(Arc::new(serde_json::from_value(node).unwrap()));
        scheduler.handle(Input::upsert(node), Timestamp::UNIX_EPOCH);
    }
    scheduler
}

fn add(scheduler: &mut Scheduler, name: &str, colour: &str) {
    let pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"colour": colour}},
        "spec": {"schedulerName": "colourful", "containers": [{"name": "c"}]},
    });
    let pod = Object::Pod(Arc::new(serde_json::from_value(pod).unwrap()));
    scheduler.handle(Input::upsert(pod), Timestamp::UNIX_EPOCH);
    assert!(scheduler.schedule_one(Timestamp::UNIX_EPOCH));
}

fn bindings(scheduler: &mut Scheduler) -> Vec<String> {
    let effects = scheduler.take_effects().into_iter();
    let text = |effect| match effect {
        Effect::Bind(binding) => Some(format!("{} -> {}", binding.pod_key(), binding.node())),
        _ => None,
    };
    effects.filter_map(text).collect()
}

#[test]
fn a_waiting_pod_is_bound_once_it_is_allowed() {
    let mut scheduler = scheduler();
    add(&mut scheduler, "p", "blue");
    assert!(scheduler.is_waiting("p"));
    assert_eq!(bindings(&mut scheduler), [""; 0]);
    scheduler.allow("p", "Colours");
    assert_eq!(bindings(&mut scheduler), ["d/p -> b"]);
    assert!(!scheduler.is_waiting("p") && scheduler.is_binding("p"));
}

#[test]
fn a_waiting_pod_that_times_out_leaves_its_node_and_returns_to_the_queue() {
    let mut scheduler = scheduler();
    add(&mut scheduler, "p", "red");
    let late = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(61);
    scheduler.take_effects();
    scheduler.tick(late);
    let note = scheduler.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Record { event, .. } => Some(event.note),
        _ => None,
    });
    let expected = "0/1 nodes are available: 1 rejected due to timeout after waiting 1m0s at plugin Colours.";
    assert_eq!(note.as_deref(), Some(expected));
    assert!(!scheduler.is_waiting("p"));
    assert_eq!(scheduler.cluster().placed_count(), 0);
    assert_eq!(scheduler.queue().stage("p"), Some(QueueStage::Unschedulable));
}

#[test]
fn the_event_of_an_unschedulable_pod_has_the_reason_of_the_plugin() {
    let mut scheduler = scheduler();
    add(&mut scheduler, "p", "green");
    let note = scheduler.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Record { event, .. } => Some(event.note),
        _ => None,
    });
    let note = note.unwrap();
    assert!(note.starts_with("0/2 nodes are available: 2 node(s) had another colour."), "{note}");
}
