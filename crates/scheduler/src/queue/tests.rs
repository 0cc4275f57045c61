//! Traces of the queue: commands in, the stage of every pod out.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::framework::{EventResource, PluginName, Status, action};

/// Pods labelled `gated` are gated; a NodeAdd event wakes pods rejected by `Fit`, a NodeDelete wakes nobody.
struct TestPlugins;

impl QueuePlugins for TestPlugins {
    fn pre_enqueue(&self, pod: &PodInfo, _first: Option<PluginName>) -> Status {
        match pod.spec.scheduling_gates.is_empty() {
            true => Status::SUCCESS,
            false => Status::unresolvable("gated").by("SchedulingGates"),
        }
    }
    fn queueing_strategy(&self, pod: &QueuedPod, change: &ClusterChange) -> QueueingStrategy {
        let wakes = change.event.action == action::ADD && pod.unschedulable_plugins.contains("Fit");
        let gates_gone = change.event.action == action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED;
        if wakes || gates_gone { QueueingStrategy::AfterBackoff } else { QueueingStrategy::Skip }
    }
    fn any_registered(&self, _event: &ClusterEvent) -> bool {
        true
    }
    fn is_registered(&self, _pod: &PodInfo, _plugin: PluginName, event: &ClusterEvent) -> bool {
        event.action == action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    }
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        let key = |pod: &QueuedPod| (-i64::from(pod.info.priority()), pod.timestamp, pod.sequence());
        key(a) < key(b)
    }
}

fn pod(name: &str, priority: i32, gated: bool) -> Arc<PodInfo> {
    let gates = if gated { json!([{"name": "g"}]) } else { json!([]) };
    let json = json!({
        "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {"priority": priority, "schedulingGates": gates},
    });
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(json).unwrap())))
}

/// Runs commands, one per line; after each the stages of all pods are appended to the trace.
fn trace(commands: &str) -> String {
    let mut queue = Queue::new(Backoff { initial: SignedDuration::from_secs(1), max: SignedDuration::from_secs(10) });
    let mut now = Timestamp::from_second(1_000).unwrap();
    let mut flying: BTreeMap<String, QueuedPod> = BTreeMap::new();
    let mut known: BTreeMap<String, Arc<PodInfo>> = BTreeMap::new();
    let mut out = String::new();
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut said = String::new();
        match words.as_slice() {
            ["add", name, priority] => {
                let pod = pod(name, priority.parse().unwrap(), false);
                known.insert(name.to_string(), pod.clone());
                queue.add(pod, now, &TestPlugins);
            }
            ["gated", name] => {
                let pod = pod(name, 0, true);
                known.insert(name.to_string(), pod.clone());
                queue.add(pod, now, &TestPlugins);
            }
            ["ungate", name] => {
                let new = pod(name, 0, false);
                queue.update(&known[*name].pod, &new, now, &TestPlugins);
            }
            [pop @ ("pop" | "pop-new")] => {
                let popped = if *pop == "pop" { queue.pop(&TestPlugins) } else { queue.pop_new(&TestPlugins) };
                said = format!(" -> {}", popped.as_ref().map_or("nothing", |pod| &pod.info.metadata.name));
                flying.extend(popped.map(|pod| (pod.info.uid().to_owned(), pod)));
            }
            ["reject", name, plugin] => {
                let mut pod = flying.remove(*name).unwrap();
                pod.unschedulable_plugins = [if *plugin == "Fit" { "Fit" } else { "Other" }].into();
                queue.add_unschedulable(pod, now, &TestPlugins);
            }
            ["error", name] => {
                let mut pod = flying.remove(*name).unwrap();
                pod.unschedulable_plugins.clear();
                queue.add_unschedulable(pod, now, &TestPlugins);
            }
            ["done", name] => queue.done(name),
            ["node-add"] => {
                let event = ClusterEvent::new(EventResource::Node, action::ADD);
                queue.move_all(&ClusterChange::of(event), &|_| true, now, &TestPlugins);
            }
            ["activate", name] => queue.activate(&[name.to_string()], now, &TestPlugins),
            ["delete", name] => queue.delete(name, &TestPlugins),
            ["wait", millis] => {
                now += SignedDuration::from_millis(millis.parse().unwrap());
                queue.tick(now, &TestPlugins);
            }
            other => panic!("unknown command {other:?}"),
        }
        let stages: Vec<String> = known
            .keys()
            .map(|name| format!("{name}={}", queue.stage(name).map_or("gone".into(), |stage| format!("{stage:?}"))))
            .collect();
        out.push_str(&format!("{line}{said}: {}\n", stages.join(" ")));
    }
    out
}

#[track_caller]
fn check(commands: &str, expected: &str) {
    let expected: String = expected.lines().map(|line| format!("{}\n", line.trim())).skip(1).collect();
    let expected = expected.trim_end();
    let actual = trace(commands);
    assert_eq!(actual.trim_end(), expected, "\n{actual}");
}

#[test]
fn pods_are_popped_by_priority_then_by_age() {
    check(
        "add a 0
         add b 5
         add c 5
         pop
         pop
         pop
         pop",
        "
        add a 0: a=Active
        add b 5: a=Active b=Active
        add c 5: a=Active b=Active c=Active
        pop -> b: a=Active b=InFlight c=Active
        pop -> c: a=Active b=InFlight c=InFlight
        pop -> a: a=InFlight b=InFlight c=InFlight
        pop -> nothing: a=InFlight b=InFlight c=InFlight",
    );
}

#[test]
fn an_event_wakes_a_rejected_pod_after_its_backoff_and_an_idle_queue_does_not_wait_for_it() {
    check(
        "add a 0
         pop
         reject a Fit
         node-add
         pop
         reject a Fit
         node-add
         wait 2000
         wait 1000",
        "
        add a 0: a=Active
        pop -> a: a=InFlight
        reject a Fit: a=Unschedulable
        node-add: a=Backoff
        pop -> a: a=InFlight
        reject a Fit: a=Unschedulable
        node-add: a=Backoff
        wait 2000: a=Backoff
        wait 1000: a=Active",
    );
}

#[test]
fn an_event_that_happened_while_the_pod_was_in_flight_is_not_lost() {
    check(
        "add a 0
         pop
         node-add
         reject a Fit
         add b 0
         pop
         node-add
         reject b Other",
        "
        add a 0: a=Active
        pop -> a: a=InFlight
        node-add: a=InFlight
        reject a Fit: a=Backoff
        add b 0: a=Backoff b=Active
        pop -> b: a=Backoff b=InFlight
        node-add: a=Backoff b=InFlight
        reject b Other: a=Backoff b=Unschedulable",
    );
}

#[test]
fn a_pod_that_failed_with_an_error_backs_off_and_is_not_popped_early() {
    check(
        "add a 0
         pop
         error a
         pop
         wait 2000
         pop",
        "
        add a 0: a=Active
        pop -> a: a=InFlight
        error a: a=Backoff
        pop -> nothing: a=Backoff
        wait 2000: a=Active
        pop -> a: a=InFlight",
    );
}

#[test]
fn a_gated_pod_waits_for_its_gates_and_for_nothing_else() {
    check(
        "gated g
         node-add
         wait 400000
         ungate g
         delete g",
        "
        gated g: g=Gated
        node-add: g=Gated
        wait 400000: g=Gated
        ungate g: g=Active
        delete g: g=gone",
    );
}

#[test]
fn five_minutes_without_an_event_or_an_activation_bring_a_pod_back() {
    check(
        "add a 0
         add b 0
         pop
         pop
         reject a Other
         reject b Other
         activate b
         wait 29000
         wait 301000
         wait 31000",
        "
        add a 0: a=Active
        add b 0: a=Active b=Active
        pop -> a: a=InFlight b=Active
        pop -> b: a=InFlight b=InFlight
        reject a Other: a=Unschedulable b=InFlight
        reject b Other: a=Unschedulable b=Unschedulable
        activate b: a=Unschedulable b=Active
        wait 29000: a=Unschedulable b=Active
        wait 301000: a=Active b=Active
        wait 31000: a=Active b=Active",
    );
}

#[test]
fn pods_that_were_never_tried_can_be_tried_alone_unless_a_more_important_one_waits() {
    check(
        "add again 1
         pop
         reject again Fit
         wait 9000
         node-add
         add lower 0
         pop-new
         add same 1
         pop-new
         pop
         pop
         node-add
         pop-new",
        "
         add again 1: again=Active
         pop -> again: again=InFlight
         reject again Fit: again=Unschedulable
         wait 9000: again=Unschedulable
         node-add: again=Active
         add lower 0: again=Active lower=Active
         pop-new -> nothing: again=Active lower=Active
         add same 1: again=Active lower=Active same=Active
         pop-new -> same: again=Active lower=Active same=InFlight
         pop -> again: again=InFlight lower=Active same=InFlight
         pop -> lower: again=InFlight lower=InFlight same=InFlight
         node-add: again=InFlight lower=InFlight same=InFlight
         pop-new -> nothing: again=InFlight lower=InFlight same=InFlight",
    );
}
