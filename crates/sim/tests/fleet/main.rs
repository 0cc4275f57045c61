//! Simulated nodes under virtual time, against a small world that applies what they ask for.

#![allow(clippy::unwrap_used)] // A test's helpers are tests too.

mod resizes;
mod selected;
mod world;

use std::time::Duration;

use bayplan_model::api::Verb;
use bayplan_sim::{Effect, Fleet, FleetConfig, NodeTemplate};
use serde_json::{Value, json};

use world::{World, condition, seconds, states};

#[test]
fn a_node_registers_with_everything_a_scheduler_reads() {
    let world = World::small();
    let node = &world.objects["/nodes/node-0002"];
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-0002");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "zone-2");
    assert_eq!(node["spec"]["podCIDR"], "10.0.1.0/24");
    assert_eq!(
        node["status"]["allocatable"],
        json!({
            "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi",
        })
    );
    assert_eq!(condition(&node["status"], "Ready")["status"], "True");
    assert!(node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap().starts_with("v1.36.4-bayplan"));
    let lease = &world.objects["kube-node-lease/leases/node-0002"];
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

#[test]
fn leases_are_renewed_every_ten_seconds_and_status_every_five_minutes() {
    let mut world = World::small();
    world.run(seconds(3600));
    let renewals = world.count(|r| r.name == "node-0001" && r.resource.plural == "leases");
    assert!((359..=361).contains(&renewals), "{renewals}");
    let reports = world.count(|r| r.name == "node-0001" && r.subresource == Some("status"));
    assert!((12..=13).contains(&reports), "{reports}");
}

#[test]
fn a_node_that_is_there_already_is_taken_over_and_reports_ready() {
    let mut world = World::small();
    let objects = world.objects.clone();
    let mut again = World { objects, ..World::small() };
    again.change("/nodes/node-0001", json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }));
    assert_eq!(condition(&again.objects["/nodes/node-0001"]["status"], "Ready")["status"], "True");

    // The same when the node was there before the fleet.
    let fleet = Fleet::new(FleetConfig { nodes: 2, ..Default::default() }).unwrap();
    world.fleet = fleet;
    world.log.clear();
    let effects = world.fleet.start(world.now);
    world.serve(effects);
    assert_eq!(world.count(|r| r.name == "node-0001" && matches!(r.verb, Verb::Patch(..))), 3, "labels, status, lease");
}

#[test]
fn a_bound_pod_becomes_ready_and_is_removed_gracefully() {
    let mut world = World::small();
    world.bind("web", "node-0002", json!({}));
    assert_eq!(states(&world.pod("web")["containerStatuses"]), "[ContainerCreating]");
    assert_eq!(condition(world.pod("web"), "Ready")["reason"], "ContainersNotReady");
    assert_eq!(condition(world.pod("web"), "Ready")["message"], "containers with unready status: [main]");
    assert_eq!(condition(world.pod("web"), "PodReadyToStartContainers")["status"], "False");
    world.run(seconds(5));
    let status = world.pod("web");
    assert_eq!((&status["podIP"], &status["podIPs"][0]["ip"]), (&json!("10.0.1.2"), &json!("10.0.1.2")));
    assert_eq!((&status["hostIP"], &status["observedGeneration"]), (&json!("172.16.0.3"), &json!(1)));
    for kind in ["Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers", "PodScheduled"] {
        assert_eq!(condition(status, kind)["status"], "True", "{kind}");
    }
    assert_eq!(condition(status, "Ready")["reason"], Value::Null);
    assert_eq!(condition(status, "Ready")["lastTransitionTime"], "2026-01-01T00:00:01Z");
    assert_eq!(condition(status, "Initialized")["lastTransitionTime"], "2026-01-01T00:00:00Z");
    assert!(status["containerStatuses"][0]["containerID"].as_str().unwrap().starts_with("bayplan://"));

    world.delete("web", 30);
    assert!(world.has_pod("web"));
    world.run(seconds(5));
    assert!(!world.has_pod("web"));
    assert_eq!(
        world.trace("web"),
        [
            "0ms Pending [ContainerCreating]",
            "1000ms Running [running]",
            "6000ms Succeeded [Completed]",
            "6000ms DELETE"
        ]
    );
    assert_eq!(world.fleet.pods(), 0);
}

#[test]
fn pods_with_extreme_numbers_run_and_stop() {
    for number in [i64::MIN, -1, 0, i64::MAX] {
        let mut world = World::small();
        let small = number.clamp(i32::MIN.into(), i32::MAX.into());
        let status = json!({ "name": "main", "restartCount": small, "ready": true });
        let more = json!({
            "metadata": { "generation": number },
            "spec": {
                "terminationGracePeriodSeconds": number, "activeDeadlineSeconds": number, "priority": small,
                "tolerations": [{ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": number }],
            },
            "status": { "containerStatuses": [status], "startTime": "0001-01-01T00:00:01Z" },
        });
        world.bind("web", "node-0002", more);
        world.run(seconds(5));
        world.delete("web", number);
        world.run(seconds(5));
        assert!(!world.has_pod("web"), "{number}");
    }
}

#[test]
fn pods_live_as_their_specs_and_annotations_say() {
    let annotated = |run_for: &str, code: &str| {
        let annotations = json!({ "bayplan.dev/run-for": run_for, "bayplan.dev/exit-code": code });
        json!({ "metadata": { "annotations": annotations } })
    };
    let with_policy = |policy: &str, mut pod: Value| {
        pod["spec"]["restartPolicy"] = policy.into();
        pod
    };
    let init = json!({ "spec": { "initContainers": [
        { "name": "a", "image": "i" },
        { "name": "proxy", "image": "i", "restartPolicy": "Always" },
        { "name": "b", "image": "i" },
    ]}});
    for (what, pod, expected) in [
        (
            "a job's pod succeeds",
            with_policy("Never", annotated("5s", "0")),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]", "6000ms Succeeded [Completed]"],
        ),
        (
            "or fails",
            with_policy("Never", annotated("500ms", "3")),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]", "1500ms Failed [Error]"],
        ),
        (
            "success is final on failure only",
            with_policy("OnFailure", annotated("1s", "0")),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]", "2000ms Succeeded [Completed]"],
        ),
        (
            "a crashing container is restarted at once, then later and later",
            annotated("5s", "1"),
            vec![
                "0ms Pending [ContainerCreating]",
                "1000ms Running [running]",
                "6000ms Running [running x1]",
                "11000ms Running [CrashLoopBackOff x2]",
                "21000ms Running [running x2]",
                "26000ms Running [CrashLoopBackOff x3]",
                "46000ms Running [running x3]",
                "51000ms Running [CrashLoopBackOff x4]",
            ],
        ),
        (
            "init containers run one after the other, sidecars beside them",
            init,
            vec![
                "0ms Pending [PodInitializing][PodInitializing][PodInitializing][PodInitializing]",
                "1000ms Pending [running][PodInitializing][PodInitializing][PodInitializing]",
                "2000ms Pending [Completed][running][running][PodInitializing]",
                "3000ms Running [Completed][running][Completed][running]",
            ],
        ),
        (
            "nonsense in annotations is ignored",
            annotated("a while", "zero"),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]"],
        ),
    ] {
        let mut world = World::small();
        world.bind("web", "node-0001", pod);
        world.run(seconds(60));
        assert_eq!(world.trace("web"), expected, "{what}");
    }
}

#[test]
fn the_pods_of_a_job_end_by_themselves_unless_they_say_otherwise() {
    let of_a_job = |policy: &str, annotations: Value| {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "j", "controller": true });
        let metadata = json!({ "annotations": annotations, "ownerReferences": [owner] });
        json!({ "metadata": metadata, "spec": { "restartPolicy": policy } })
    };
    for (what, pod, expected) in [
        (
            "it succeeds",
            of_a_job("Never", json!({})),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]", "4000ms Succeeded [Completed]"],
        ),
        (
            "or fails with an exit code",
            of_a_job("Never", json!({ "bayplan.dev/exit-code": "3" })),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]", "4000ms Failed [Error]"],
        ),
        (
            "or never ends",
            of_a_job("OnFailure", json!({ "bayplan.dev/run-for": "forever" })),
            vec!["0ms Pending [ContainerCreating]", "1000ms Running [running]"],
        ),
    ] {
        let mut world = World::small();
        world.bind("web", "node-0001", pod);
        world.run(seconds(60));
        assert_eq!(world.trace("web"), expected, "{what}");
    }
}

#[test]
fn probes_that_wait_delay_the_readiness_of_their_pod() {
    let mut world = World::small();
    let probe = |seconds: u64| json!({ "initialDelaySeconds": seconds });
    let containers = json!([
        { "name": "main", "image": "nginx", "startupProbe": probe(2), "readinessProbe": probe(3) },
        { "name": "quick", "image": "nginx" },
    ]);
    world.bind("web", "node-0001", json!({ "spec": { "containers": containers } }));
    world.run(seconds(2));
    let status = world.pod("web");
    assert_eq!((&status["phase"], &condition(status, "Ready")["status"]), (&json!("Running"), &json!("False")));
    assert_eq!(condition(status, "Ready")["message"], "containers with unready status: [main]");
    let ready = |status: &Value| [0, 1].map(|at| status["containerStatuses"][at]["ready"].clone());
    assert_eq!(ready(status), [false, true]);
    world.run(seconds(5));
    let status = world.pod("web");
    assert_eq!(condition(status, "Ready")["lastTransitionTime"], "2026-01-01T00:00:06Z");
    assert_eq!(ready(status), [true, true]);
}

#[test]
fn a_pods_life_is_told_as_a_kubelet_tells_it() {
    let mut world = World::small();
    let annotations = json!({ "bayplan.dev/run-for": "5s", "bayplan.dev/exit-code": "1" });
    let init = json!([{ "name": "setup", "image": "busybox" }]);
    let more = json!({ "metadata": { "annotations": annotations }, "spec": { "initContainers": init } });
    world.bind("web", "node-0001", more);
    world.run(seconds(14));
    world.delete("web", 30);
    let start = |image: &str| {
        let pulled = format!("Container image {image:?} already present on machine and can be accessed by the pod");
        [format!("Pulled {pulled}"), "Created Container created".into(), "Started Container started".into()]
    };
    let mut expected: Vec<String> = [start("busybox"), start("nginx"), start("nginx")].concat();
    expected.push("BackOff Back-off restarting failed container main in pod web_shop(uid-web)".into());
    assert_eq!(world.told(), expected);

    world.bind("other", "node-0001", json!({}));
    world.run(seconds(2));
    world.told();
    world.delete("other", 30);
    assert_eq!(world.told(), ["Killing Stopping container main"]);
}

#[test]
fn deletions_take_as_long_as_they_must() {
    for (what, before, grace, stop_delay, expected) in [
        ("nothing runs yet: at once", 500, 30, 1, vec!["0ms Pending [ContainerCreating]", "500ms DELETE"]),
        (
            "the grace period is the limit",
            2000,
            3,
            10,
            vec![
                "0ms Pending [ContainerCreating]",
                "1000ms Running [running]",
                "5000ms Succeeded [Completed]",
                "5000ms DELETE",
            ],
        ),
        (
            "no grace at all",
            2000,
            0,
            10,
            vec![
                "0ms Pending [ContainerCreating]",
                "1000ms Running [running]",
                "2000ms Succeeded [Completed]",
                "2000ms DELETE",
            ],
        ),
    ] {
        let mut world = World::new(FleetConfig { nodes: 1, pod_stop_delay: seconds(stop_delay), ..Default::default() });
        world.bind("web", "node-0001", json!({}));
        world.run(Duration::from_millis(before));
        world.delete("web", grace);
        world.run(seconds(60));
        assert_eq!(world.trace("web"), expected, "{what}");
    }
}

#[test]
fn a_second_deletion_shortens_the_first() {
    let mut world = World::new(FleetConfig { nodes: 1, pod_stop_delay: seconds(60), ..Default::default() });
    world.bind("web", "node-0001", json!({}));
    world.run(seconds(2));
    world.delete("web", 30);
    world.run(seconds(3));
    world.delete("web", 1);
    world.delete("web", 20);
    world.run(seconds(60));
    assert_eq!(world.trace("web").last().unwrap(), "6000ms DELETE");
}

#[test]
fn a_fleet_that_is_restarted_goes_on_with_what_ran() {
    let mut world = World::small();
    world.bind("web", "node-0001", json!({}));
    world.run(seconds(5));
    let address = world.pod("web")["podIP"].clone();
    let pod = world.objects["shop/pods/web"].clone();

    let mut again = World::small();
    again.put("shop/pods/web", pod);
    again.bind("other", "node-0001", json!({}));
    again.run(seconds(5));
    assert_eq!(again.trace("web"), Vec::<String>::new(), "nothing has changed, so nothing is written");
    assert_ne!(again.pod("other")["podIP"], address);
    again.delete("web", 30);
    again.run(seconds(5));
    assert!(!again.has_pod("web"));
}

#[test]
fn a_failed_node_is_silent_until_it_recovers() {
    let mut world = World::small();
    world.bind("web", "node-0001", json!({}));
    world.change("/nodes/node-0001", json!({ "metadata": { "annotations": { "bayplan.dev/fail": "true" } } }));
    world.log.clear();
    world.run(seconds(100));
    world.delete("web", 1);
    world.run(seconds(100));
    assert_eq!(world.count(|r| r.name == "node-0001" || r.name == "web"), 0);
    assert!(world.count(|r| r.name == "node-0002") > 0);

    world.change("/nodes/node-0001", json!({ "metadata": { "annotations": { "bayplan.dev/fail": null } } }));
    world.run(seconds(1));
    assert!(!world.has_pod("web"));
    assert!(world.count(|r| r.resource.plural == "leases" && r.name == "node-0001") > 0);
}

#[test]
fn a_pod_that_was_doubted_while_its_node_was_silent_is_ready_again_when_it_is_back() {
    let mut world = World::small();
    world.bind("web", "node-0001", json!({}));
    world.run(seconds(5));
    let fail = |value: Value| json!({ "metadata": { "annotations": { "bayplan.dev/fail": value } } });
    world.change("/nodes/node-0001", fail("true".into()));
    let doubt = json!({ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z" });
    world.change("shop/pods/web", json!({ "status": { "conditions": [doubt] } }));
    world.run(seconds(100));
    assert_eq!(condition(world.pod("web"), "Ready")["status"], "False");
    world.change("/nodes/node-0001", fail(Value::Null));
    world.run(seconds(1));
    assert_eq!(condition(world.pod("web"), "Ready")["status"], "True");
    let writes = world.log.len();
    world.run(seconds(5));
    assert!(world.log[writes..].iter().all(|(_, request)| request.name != "web"), "reported once");
}

#[test]
fn a_deleted_node_stays_gone_and_takes_its_pods_along() {
    let mut world = World::small();
    world.bind("web", "node-0001", json!({}));
    world.bind("kept", "node-0002", json!({}));
    world.run(seconds(5));
    world.delete_node("node-0001");
    assert!(!world.has_pod("web") && world.has_pod("kept"));
    world.log.clear();
    world.run(seconds(600));
    assert_eq!(world.count(|r| r.name == "node-0001"), 0);
    assert!(!world.objects.contains_key("/nodes/node-0001"));

    world.put("/nodes/node-0001", json!({ "metadata": { "name": "node-0001", "uid": "new" } }));
    assert_eq!(condition(&world.objects["/nodes/node-0001"]["status"], "Ready")["status"], "True");
}

#[test]
fn a_status_never_overtakes_another() {
    let mut world = World::small();
    world.held = Some(Vec::new());
    world.bind("web", "node-0001", json!({}));
    world.run(seconds(5));
    let held = world.held.take().unwrap();
    let statuses: Vec<Effect> = held.into_iter().filter(|e| e.request.name == "web").collect();
    assert_eq!(statuses.len(), 1, "the second waits for the answer to the first");
    world.serve(statuses);
    assert_eq!(world.trace("web"), ["5000ms Pending [ContainerCreating]", "5000ms Running [running]"]);
}

#[test]
fn a_node_without_addresses_makes_pods_wait_for_one() {
    let template = NodeTemplate { pods: 300, ..NodeTemplate::default() };
    let mut world = World::new(FleetConfig { nodes: 1, template, ..Default::default() });
    for number in 0..254 {
        world.bind(&format!("pod-{number}"), "node-0001", json!({}));
    }
    world.bind("host", "node-0001", json!({ "spec": { "hostNetwork": true } }));
    world.run(seconds(10));
    assert_eq!(world.pod("host")["podIP"], world.pod("host")["hostIP"]);
    let waiting: Vec<String> =
        (0..254).map(|n| format!("pod-{n}")).filter(|n| world.pod(n)["phase"] == "Pending").collect();
    assert_eq!(waiting.len(), 1);
    let other = if waiting[0] == "pod-0" { "pod-1" } else { "pod-0" };
    world.delete(other, 0);
    world.run(seconds(5));
    assert_eq!(world.pod(&waiting[0])["phase"], "Running");
}

#[test]
fn pods_and_nodes_of_others_are_none_of_its_business() {
    let mut world = World::small();
    world.log.clear();
    world.bind("web", "somebody-elses", json!({}));
    world.put("/nodes/somebody-elses", json!({ "metadata": { "name": "somebody-elses", "uid": "u" } }));
    world.run(seconds(5));
    assert_eq!(world.count(|r| r.name == "web" || r.name == "somebody-elses"), 0);
}

#[test]
fn five_thousand_nodes_start_ten_thousand_pods_with_two_writes_each() {
    let template = NodeTemplate::default();
    let mut world = World::new(FleetConfig { nodes: 5_000, template, ..Default::default() });
    assert_eq!(world.log.len(), 10_000, "a registration and a lease each");
    world.log.clear();
    for number in 0..10_000 {
        world.bind(&format!("pod-{number:05}"), &format!("node-{:04}", number % 5_000 + 1), json!({}));
    }
    world.run(Duration::from_millis(9_999));
    assert_eq!(world.count(|r| r.resource.plural == "pods"), 20_000);
    let leases = world.count(|r| r.resource.plural == "leases");
    assert_eq!(leases, 5_000, "spread over the period");
    let in_first_second = world.log.iter().filter(|(at, r)| r.resource.plural == "leases" && *at < seconds(1)).count();
    assert_eq!(in_first_second, 500);
    assert!(world.objects.values().filter(|o| o["status"]["phase"] == "Running").count() == 10_000);
    assert_eq!(world.fleet.pods(), 10_000);
}

#[test]
fn a_fleet_without_end_is_refused() {
    assert!(Fleet::new(FleetConfig { nodes: 100_000, ..Default::default() }).is_err());
}

fn asking(cpu: &str) -> Value {
    let container = json!({ "name": "main", "image": "nginx", "resources": { "requests": { "cpu": cpu } } });
    json!({ "spec": { "containers": [container] } })
}

#[test]
fn a_pod_that_does_not_fit_any_more_is_rejected_and_the_next_one_that_does_is_taken() {
    let mut world = World::small();
    world.bind("first", "node-0001", asking("5"));
    world.bind("second", "node-0001", asking("4"));
    world.bind("third", "node-0001", asking("3"));
    world.bind("elsewhere", "node-0002", asking("4"));
    world.run(seconds(5));
    let rejected = json!({
        "phase": "Failed", "reason": "OutOfcpu", "startTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        "message": "Pod was rejected: Node didn't have enough resource: cpu, \
                requested: 4000, used: 5000, capacity: 8000",
        "conditions": [],
    });
    assert_eq!(*world.pod("second"), rejected);
    for running in ["first", "third", "elsewhere"] {
        assert_eq!(world.pod(running)["phase"], "Running", "{running}");
    }
    assert_eq!(world.log.iter().filter(|(_, request)| request.name == "second").count(), 1);

    // It stays as it is when there is room again, and goes when it is deleted.
    world.delete("first", 30);
    world.run(seconds(5));
    assert_eq!(*world.pod("second"), rejected);
    world.delete("second", 30);
    assert!(!world.has_pod("second"));
    world.bind("fourth", "node-0001", asking("5"));
    world.run(seconds(5));
    assert_eq!(world.pod("fourth")["phase"], "Running");
}

#[test]
fn a_pod_holds_its_place_until_it_has_stopped() {
    let mut world = World::small();
    world.bind("old", "node-0001", asking("8"));
    world.run(seconds(5));
    world.delete("old", 30);
    world.bind("early", "node-0001", asking("8"));
    assert_eq!(world.pod("early")["reason"], "OutOfcpu");
    world.run(seconds(1));
    assert!(!world.has_pod("old"));
    world.bind("late", "node-0001", asking("8"));
    world.run(seconds(5));
    assert_eq!(world.pod("late")["phase"], "Running");
}

#[test]
fn restarted_nodes_keep_what_runs_and_judge_the_rest_then() {
    let mut world = World::small();
    world.bind("running", "node-0001", asking("8"));
    world.run(seconds(5));
    world.fleet = Fleet::new(FleetConfig { nodes: 2, ..Default::default() }).unwrap();
    world.bind("a-new-one", "node-0001", asking("1"));
    world.change("shop/pods/running", json!({}));
    assert_eq!(world.pod("a-new-one")["phase"], "Pending");
    let effects = world.fleet.start(world.now);
    world.serve(effects);
    assert_eq!(world.pod("a-new-one")["reason"], "OutOfcpu");
    assert_eq!(world.pod("running")["phase"], "Running");
}
