//! Simulated nodes under virtual time, against a small world that applies what they ask for.

#![allow(clippy::unwrap_used)] // A test's helpers are tests too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Request, Verb};
use bayplan_model::delta::Delta;
use bayplan_model::status::{Status, reason};
use bayplan_sim::{Effect, Event, Fleet, FleetConfig, NodeTemplate, NodeView, PodView};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const START: i64 = 1_767_225_600;

/// Objects by path, a clock, and a log of every request.
struct World {
    fleet: Fleet,
    now: Timestamp,
    objects: BTreeMap<String, Value>,
    log: Vec<(Duration, Request)>,
    /// Requests are answered at once unless this holds them back.
    held: Option<Vec<Effect>>,
}

impl World {
    fn new(config: FleetConfig) -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let mut world =
            World { fleet: Fleet::new(config).unwrap(), now, objects: BTreeMap::new(), log: Vec::new(), held: None };
        let effects = world.fleet.start(now);
        world.serve(effects);
        world
    }

    fn small() -> Self {
        Self::new(FleetConfig { nodes: 2, ..Default::default() })
    }

    fn elapsed(&self) -> Duration {
        self.now.duration_since(Timestamp::from_second(START).unwrap()).try_into().unwrap()
    }

    fn serve(&mut self, effects: Vec<Effect>) {
        let mut queue = std::collections::VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            if let Some(held) = &mut self.held {
                held.push(effect);
                continue;
            }
            self.log.push((self.elapsed(), effect.request.clone()));
            let (answer, event) = self.apply(&effect.request);
            queue.extend(self.fleet.answered(&effect.ticket, answer.as_ref().map(|_| ()), self.now));
            if let Some(event) = event {
                queue.extend(self.fleet.handle(event, self.now));
            }
        }
    }

    /// Does what an API server would, as far as these tests look.
    fn apply(&mut self, request: &Request) -> (Result<(), Status>, Option<Event>) {
        let not_found = || (Err(Status::failure(404, reason::NOT_FOUND, "not found")), None);
        let mut path = path(request);
        match &request.verb {
            Verb::Create(body) => {
                let mut object: Value = serde_json::from_slice(body).unwrap();
                path.push_str(object["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return (Err(Status::failure(409, reason::ALREADY_EXISTS, "there")), None);
                }
                object["metadata"]["uid"] = format!("uid-{path}").into();
                self.objects.insert(path.clone(), object.clone());
                (Ok(()), event(&path, object))
            }
            Verb::Patch(_, patch) => {
                let patch: Value = serde_json::from_slice(patch).unwrap();
                let Some(object) = self.objects.get_mut(&path) else { return not_found() };
                merge(object, &patch);
                let object = object.clone();
                (Ok(()), event(&path, object))
            }
            Verb::Delete(options) => {
                assert_eq!(options.grace_period_seconds, Some(0));
                let wanted = options.preconditions.clone().unwrap().uid.unwrap();
                let Some(object) = self.objects.remove(&path) else { return not_found() };
                assert_eq!(object["metadata"]["uid"], wanted);
                (Ok(()), Some(Event::Pod(Delta::Deleted(Arc::new(serde_json::from_value(object).unwrap())))))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Lets time pass until every deadline before the end has been served.
    fn run(&mut self, time: Duration) {
        let end = self.now + SignedDuration::try_from(time).unwrap();
        loop {
            let (effects, next) = self.fleet.tick(self.now);
            self.serve(effects);
            match next.into_iter().chain(self.fleet.next_deadline()).min().filter(|next| *next <= end) {
                Some(next) => self.now = next.max(self.now),
                None => break,
            }
        }
        self.now = end;
    }

    /// A user or another component changes an object (or makes it).
    fn put(&mut self, path: &str, object: Value) {
        self.objects.insert(path.into(), object.clone());
        let effects = self.fleet.handle(event(path, object).unwrap(), self.now);
        self.serve(effects);
    }

    fn change(&mut self, path: &str, patch: Value) {
        let mut object = self.objects[path].clone();
        merge(&mut object, &patch);
        self.put(path, object);
    }

    fn bind(&mut self, name: &str, node: &str, more: Value) {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1 },
            "spec": { "nodeName": node, "restartPolicy": "Always", "containers": [{ "name": "main", "image": "nginx" }] },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "True" }] },
        });
        merge(&mut pod, &more);
        self.put(&format!("shop/pods/{name}"), pod);
    }

    fn delete(&mut self, name: &str, grace: i64) {
        let deletion = json!({ "deletionTimestamp": self.now.to_string(), "deletionGracePeriodSeconds": grace });
        self.change(&format!("shop/pods/{name}"), json!({ "metadata": deletion }));
    }

    fn delete_node(&mut self, name: &str) {
        let node = self.objects.remove(&format!("/nodes/{name}")).unwrap();
        let effects =
            self.fleet.handle(Event::Node(Delta::Deleted(Arc::new(serde_json::from_value(node).unwrap()))), self.now);
        self.serve(effects);
    }

    fn pod(&self, name: &str) -> &Value {
        &self.objects[&format!("shop/pods/{name}")]["status"]
    }

    fn has_pod(&self, name: &str) -> bool {
        self.objects.contains_key(&format!("shop/pods/{name}"))
    }

    /// What was asked about one object, with the time and the gist of it.
    fn trace(&self, name: &str) -> Vec<String> {
        let gist = |(at, request): &(Duration, Request)| {
            let what = match &request.verb {
                Verb::Patch(_, patch) => {
                    let status = serde_json::from_slice::<Value>(patch).unwrap()["status"].clone();
                    let init = states(&status["initContainerStatuses"]);
                    let main = states(&status["containerStatuses"]);
                    format!("{} {init}{main}", status["phase"].as_str().unwrap_or("?"))
                }
                Verb::Delete(_) => "DELETE".into(),
                other => panic!("{other:?}"),
            };
            format!("{}ms {what}", at.as_millis())
        };
        self.log.iter().filter(|(_, request)| request.name == name).map(gist).collect()
    }

    fn count(&self, of: impl Fn(&Request) -> bool) -> usize {
        self.log.iter().filter(|(_, request)| of(request)).count()
    }
}

fn path(request: &Request) -> String {
    format!("{}/{}/{}", request.namespace, request.resource.plural, request.name)
}

fn event(path: &str, object: Value) -> Option<Event> {
    if path.contains("/pods/") {
        return Some(Event::Pod(Delta::Added(Arc::new(serde_json::from_value::<PodView>(object).unwrap()))));
    }
    let node = || Arc::new(serde_json::from_value::<NodeView>(object).unwrap());
    path.contains("/nodes/").then(|| Event::Node(Delta::Added(node())))
}

/// Merges a patch as the API server does, lists of conditions by their type.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    for (field, value) in patch {
        if let (Value::Null, Value::Object(fields)) = (value, &mut *into) {
            fields.remove(field);
            continue;
        }
        match (&mut into[field], value) {
            (Value::Array(old), Value::Array(new)) if field == "conditions" => {
                for condition in new {
                    if condition["$patch"] == "delete" {
                        old.retain(|known| known["type"] != condition["type"]);
                        continue;
                    }
                    match old.iter_mut().find(|c| c["type"] == condition["type"]) {
                        Some(known) => merge(known, condition),
                        None => old.push(condition.clone()),
                    }
                }
            }
            (slot @ Value::Object(_), value) => merge(slot, value),
            (slot, value) => *slot = value.clone(),
        }
    }
}

fn states(statuses: &Value) -> String {
    let one = |status: &Value| {
        let (kind, state) = status["state"].as_object().unwrap().iter().next().unwrap();
        let detail = state["reason"].as_str().unwrap_or(kind);
        let restarts = status["restartCount"].as_u64().unwrap();
        format!("[{detail}{}]", if restarts > 0 { format!(" x{restarts}") } else { String::new() })
    };
    statuses.as_array().into_iter().flatten().map(one).collect()
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

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
fn pods_live_as_their_specs_and_annotations_say() {
    let annotated = |run_for: &str, code: &str| json!({ "metadata": { "annotations": { "bayplan.dev/run-for": run_for, "bayplan.dev/exit-code": code } } });
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
    assert!(world.log[writes..].iter().all(|(_, request)| request.name != "web"), "told once");
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
        "message": "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 5000, capacity: 8000",
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
