//! The metrics of the scheduler, as a scrape shows them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::sync::atomic::{AtomicU64, Ordering};

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Input, Object, Registry, Scheduler, Shell, TieBreak};
use bayplan_testkit::{FakeApi, VirtualClock};
use futures::executor::block_on;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// A clock that advances by a millisecond each time it is read.
fn ticking() -> u64 {
    static NANOS: AtomicU64 = AtomicU64::new(0);
    NANOS.fetch_add(1_000_000, Ordering::Relaxed)
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "d", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"resources": {"requests": {"cpu": cpu}}}],
        },
    })
}

#[test]
fn attempts_queues_and_plugins_are_counted_in_upstreams_metrics() {
    let registry = bayplan_metrics::Registry::default();
    let scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
    let mut scheduler = scheduler.with_metrics(&registry, ticking);
    let start = Timestamp::from_second(1_000_000).unwrap();
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "5"}},
    });
    let mut gated = pod("gated", "1");
    gated["spec"]["schedulingGates"] = json!([{"name": "later"}]);
    for object in [&node, &pod("fits", "1"), &pod("too-big", "64"), &gated] {
        scheduler.handle(Input::upsert(Object::decode(object).unwrap().unwrap()), start);
    }
    while scheduler.schedule_one(start) {}
    let later = start + SignedDuration::from_secs(3);
    let (api, clock) = (FakeApi::default(), VirtualClock::default());
    for effect in scheduler.take_effects() {
        let shell = Shell { api: &api, recorder: &api, timer: &clock };
        if let Some(input) = block_on(effect.run(shell)) {
            scheduler.handle(input, later);
        }
    }
    scheduler.publish();
    let text = registry.render();
    for line in [
        r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1"#,
        r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 1"#,
        r#"scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="scheduled"} 1"#,
        r#"scheduler_scheduling_algorithm_duration_seconds_count 2"#,
        r#"scheduler_pod_scheduling_attempts_bucket{le="1"} 1"#,
        r#"scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="2.56"} 0"#,
        r#"scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="5.12"} 1"#,
        r#"scheduler_pod_scheduling_sli_duration_seconds_sum{attempts="1"} 3"#,
        r#"scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"} 2"#,
        r#"scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="unschedulable"} 1"#,
        r#"scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1"#,
        r#"scheduler_pending_pods{queue="active"} 0"#,
        r#"scheduler_pending_pods{queue="unschedulable"} 1"#,
        r#"scheduler_pending_pods{queue="gated"} 1"#,
        r#"scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 1"#,
        r#"scheduler_unschedulable_pods{plugin="SchedulingGates",profile="default-scheduler"} 1"#,
        r#"scheduler_cache_size{type="nodes"} 1"#,
        r#"scheduler_cache_size{type="assumed_pods"} 1"#,
        r#"scheduler_preemption_attempts_total 1"#,
        "scheduler_framework_extension_point_duration_seconds_count\
         {extension_point=\"Filter\",profile=\"default-scheduler\",status=\"Success\"} 2",
        "scheduler_framework_extension_point_duration_seconds_count\
         {extension_point=\"Bind\",profile=\"default-scheduler\",status=\"Success\"} 1",
        r#"scheduler_event_handling_duration_seconds_count{event="NodeAdd"} 1"#,
        r#"scheduler_event_handling_duration_seconds_count{event="UnschedulablePodAdd"} 3"#,
        "scheduler_plugin_execution_duration_seconds_bucket\
         {extension_point=\"Bind\",plugin=\"DefaultBinder\",status=\"Success\",le=\"1e-05\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("permit_wait"), "no pod waited on Permit");
}

/// The number at the end of a line that begins so.
fn figure(text: &str, beginning: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning));
    line.unwrap_or_else(|| panic!("{beginning} is missing in\n{text}")).trim().parse().unwrap()
}

#[test]
fn decisions_of_the_engine_are_told_by_extension_point_and_plugin() {
    let registry = bayplan_metrics::Registry::default();
    let scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), TieBreak::SmallestName).unwrap();
    let mut scheduler = scheduler.with_metrics(&registry, ticking);
    let now = Timestamp::from_second(1_000_000).unwrap();
    let show = |scheduler: &mut Scheduler, object: &Value| {
        scheduler.handle(Input::upsert(Object::decode(object).unwrap().unwrap()), now);
    };
    for name in ["n0", "n1"] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "500"}},
        });
        show(&mut scheduler, &node);
    }
    let point = |text: &str, point: &str, what: &str| {
        let labels = format!("{{extension_point=\"{point}\",profile=\"default-scheduler\",status=\"Success\"}}");
        figure(text, &format!("scheduler_framework_extension_point_duration_seconds_{what}{labels}"))
    };
    // Only some are timed, but a scrape shows all of them, at any moment.
    for pods in [1, 117, 300] {
        let tried = if pods == 1 {
            0
        } else {
            figure(&registry.render(), "scheduler_scheduling_algorithm_duration_seconds_count") as usize
        };
        for at in tried..pods {
            show(&mut scheduler, &pod(&format!("p{at}"), "10m"));
        }
        while scheduler.schedule_one(now) {}
        scheduler.publish();
        let text = registry.render();
        for name in ["PreFilter", "Filter", "PreScore", "Score"] {
            assert_eq!(point(&text, name, "count") as usize, pods, "{name}\n{text}");
        }
        assert!(point(&text, "Score", "sum") > 0.0 && point(&text, "Filter", "sum") > 0.0);
    }
    let text = registry.render();
    for (point, plugin) in
        [("Filter", "NodeResourcesFit"), ("Score", "NodeResourcesFit"), ("Filter", "TaintToleration")]
    {
        let labels = format!("{{extension_point=\"{point}\",plugin=\"{plugin}\",status=\"Success\"}}");
        let count = figure(&text, &format!("scheduler_plugin_execution_duration_seconds_count{labels}"));
        assert!(count > 0.0, "{plugin} at {point}");
    }
}
