//! Random histories of a cluster, and objects nobody sane would write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use bayplan_model::api::{Api, Event, Recorder, Request, Verb};
use bayplan_model::status::{Status as ApiStatus, reason};
use bytes::Bytes;
use futures::executor::block_on;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::cycle::select::Dice;
use crate::effect::Shell;
use crate::framework::Timer;

/// An API server that binds and deletes, or refuses.
#[derive(Default)]
struct Server {
    refuses: Mutex<bool>,
    bound: Mutex<BTreeMap<String, String>>,
    deleted: Mutex<BTreeSet<String>>,
}

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, ApiStatus>> {
        let key = format!("{}/{}", request.namespace, request.name);
        let answer = match (&request.verb, request.subresource) {
            _ if *self.refuses.lock().unwrap() => Err(ApiStatus::failure(409, reason::FORBIDDEN, "no")),
            (Verb::Create(body), Some("binding")) => {
                let body: Value = serde_json::from_slice(body).unwrap();
                let node = body["target"]["name"].as_str().unwrap().to_owned();
                let former = self.bound.lock().unwrap().insert(key.clone(), node);
                assert_eq!(former, None, "{key} is bound twice");
                Ok(Bytes::new())
            }
            (Verb::Delete(_), None) => {
                self.deleted.lock().unwrap().insert(key);
                Ok(Bytes::new())
            }
            _ => Ok(Bytes::new()),
        };
        Box::pin(async { answer })
    }
}

impl Recorder for Server {
    fn record(&self, event: Event) {
        assert!(event.note.len() <= 1024);
    }
}

impl Timer for Server {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
    fn sleep(&self, _duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

struct World {
    scheduler: Scheduler,
    server: Server,
    now: Timestamp,
    pods: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    dice: Dice,
    version: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let configuration = Configuration::default();
        let ties = TieBreak::Random(Dice::new(seed));
        World {
            scheduler: Scheduler::new(&configuration, &Registry::default(), ties).unwrap(),
            server: Server::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            pods: BTreeMap::new(),
            nodes: BTreeMap::new(),
            dice: Dice::new(seed ^ 0x5eed),
            version: 0,
        }
    }

    fn tell(&mut self, json: &Value) {
        let object = Object::decode(json).unwrap().unwrap();
        self.scheduler.handle(Input::Upsert(object), self.now);
    }

    fn remove(&mut self, json: &Value) {
        let object = Object::decode(json).unwrap().unwrap();
        self.scheduler.handle(Input::Delete(object), self.now);
    }

    fn set_node(&mut self, name: usize, cordoned: bool) {
        let name = format!("n{name}");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{}", name.len())}},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "5"}},
        });
        self.tell(&node);
        self.nodes.insert(name, node);
    }

    fn add_pod(&mut self) {
        self.version += 1;
        let name = format!("p{}", self.version);
        let app = format!("a{}", self.dice.below(3));
        let mut spec = json!({
            "schedulerName": "default-scheduler",
            "priority": self.dice.below(3),
            "containers": [{"resources": {"requests": {"cpu": format!("{}m", 100 + 700 * self.dice.below(4))}}}],
        });
        match self.dice.below(6) {
            0 => spec["containers"][0]["ports"] = json!([{"hostPort": 80}]),
            1 => {
                spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}},
                }]}});
            }
            2 => {
                spec["topologySpreadConstraints"] = json!([{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": app}},
                }]);
            }
            3 => spec["schedulingGates"] = json!([{"name": "wait"}]),
            _ => {}
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "d", "uid": name, "resourceVersion": self.version.to_string(),
                         "labels": {"app": app}},
            "spec": spec, "status": {"phase": "Pending"},
        });
        self.tell(&pod);
        self.pods.insert(name, pod);
    }

    fn delete_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.server.bound.lock().unwrap().remove(&format!("d/{name}"));
            self.remove(&pod);
        }
    }

    fn any_pod(&mut self) -> Option<String> {
        let at = self.dice.below(self.pods.len());
        self.pods.keys().nth(at).cloned()
    }

    /// Lets the scheduler work until it has nothing to do, and the API server's news arrive.
    fn settle(&mut self) {
        for _ in 0..500 {
            let busy = self.scheduler.schedule_one(self.now);
            let effects = self.scheduler.take_effects();
            if !busy && effects.is_empty() {
                return;
            }
            for effect in effects {
                let shell = Shell { api: &self.server, recorder: &self.server, timer: &self.server };
                if let Some(input) = block_on(effect.run(shell)) {
                    self.scheduler.handle(input, self.now);
                }
            }
            self.news();
            self.check();
        }
        panic!("the scheduler does not come to rest");
    }

    fn news(&mut self) {
        let deleted = std::mem::take(&mut *self.server.deleted.lock().unwrap());
        for key in deleted {
            self.delete_pod(key.trim_start_matches("d/"));
        }
        let bound = self.server.bound.lock().unwrap().clone();
        for (key, node) in bound {
            let name = key.trim_start_matches("d/").to_owned();
            let Some(pod) = self.pods.get_mut(&name).filter(|pod| pod["spec"]["nodeName"].is_null()) else { continue };
            self.version += 1;
            pod["spec"]["nodeName"] = node.into();
            pod["metadata"]["resourceVersion"] = self.version.to_string().into();
            let pod = pod.clone();
            self.tell(&pod);
        }
    }

    fn check(&self) {
        for node in self.scheduler.cluster().nodes() {
            assert!(node.requested.milli_cpu <= node.allocatable.milli_cpu, "{} is over-committed", node.name);
            assert!(node.pods().len() as i64 <= node.allocatable.pods, "{} has too many pods", node.name);
        }
        for (name, pod) in &self.pods {
            let place = self.scheduler.queue().place(name);
            let owned = self.scheduler.is_binding(name) || self.scheduler.is_waiting(name);
            let assigned = !pod["spec"]["nodeName"].is_null();
            let places = usize::from(place.is_some()) + usize::from(owned) + usize::from(assigned);
            assert_eq!(places, 1, "{name}: {place:?}, binding or waiting: {owned}, assigned: {assigned}");
        }
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0..=4 => self.add_pod(),
            5 => {
                let (name, cordoned) = (self.dice.below(5), self.dice.below(4) == 0);
                self.set_node(name, cordoned);
            }
            6 | 7 => {
                if let Some(name) = self.any_pod() {
                    self.delete_pod(&name);
                }
            }
            8 => {
                let at = self.dice.below(self.nodes.len());
                if let Some(name) = self.nodes.keys().nth(at).cloned() {
                    let node = self.nodes.remove(&name).unwrap();
                    self.remove(&node);
                }
            }
            9 => *self.server.refuses.lock().unwrap() = self.dice.below(3) == 0,
            _ => {
                self.now += SignedDuration::from_millis(700 + self.dice.below(20_000) as i64);
                self.scheduler.tick(self.now);
            }
        }
        self.settle();
        self.check();
    }

    /// Once nothing fails any more, every pod that fits somewhere gets there.
    fn finish(&mut self) {
        *self.server.refuses.lock().unwrap() = false;
        for _ in 0..8 {
            self.now += SignedDuration::from_secs(331);
            self.scheduler.tick(self.now);
            self.settle();
        }
        for (name, json) in &self.pods {
            if !json["spec"]["nodeName"].is_null() || json["spec"]["schedulingGates"].is_array() {
                continue;
            }
            let Some(Ok(Object::Pod(pod))) = Object::decode(json) else { panic!("{name} is a pod") };
            let info = PodInfo::new(pod);
            let profile = self.scheduler.profile("default-scheduler").unwrap();
            let (cluster, nominator) = (self.scheduler.cluster(), &self.scheduler.queue().nominator);
            let mut attempt = Attempt::new(profile, cluster, nominator, &info, self.now);
            let found = attempt.find(Search::ALL).unwrap();
            assert!(found.feasible.is_empty(), "{name} fits on {} and still waits", found.feasible[0].name);
        }
    }
}

#[test]
fn no_history_over_commits_a_node_binds_a_pod_twice_or_loses_one() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
        }
        world.finish();
    }
}

#[test]
fn objects_nobody_sane_would_write_do_not_stop_the_scheduler() {
    let poison = [
        json!({"containers": [{"resources": {"requests": {"cpu": "9e18", "memory": "1e300", "a/b": "-5"}}}]}),
        json!({"topologySpreadConstraints": [{"maxSkew": -2147483648, "topologyKey": "", "whenUnsatisfiable":
            "DoNotSchedule", "minDomains": -1, "labelSelector": {"matchExpressions": [{"operator": "?"}]}}]}),
        json!({"topologySpreadConstraints": [{"maxSkew": 2147483647, "topologyKey": "x",
            "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}]}),
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector":
            {"matchExpressions": [{"key": "a b", "operator": "In"}]}}]}}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": -1, "preference": {"matchExpressions":
            [{"key": "k", "operator": "Gt", "values": ["x"]}]}}]}}}),
        json!({"containers": [{"ports": [{"hostPort": -1}, {"hostPort": 2147483647, "hostIP": "::"}]}], "priority": -2147483648}),
        json!({"nodeSelector": {}, "tolerations": [{"operator": "Lt", "value": "1"}], "containers": null}),
        json!({"schedulingGates": [{}], "overhead": {"cpu": "-1"}, "volumes": [{"name": "v", "ephemeral": {}}]}),
    ];
    let mut world = World::new(7);
    for name in 0..3 {
        world.set_node(name, false);
    }
    world.tell(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "odd"},
        "spec": {"taints": [{"effect": "Nonsense"}]},
        "status": {"allocatable": {"cpu": "-1", "memory": "1e30", "pods": "5", "hugepages-2Mi": "0"},
                   "images": [{"names": ["a", "a"], "sizeBytes": i64::MAX}, {"names": null}]},
    }));
    for (i, mut spec) in poison.into_iter().enumerate() {
        spec["schedulerName"] = "default-scheduler".into();
        world.tell(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("q{i}"), "namespace": "d", "uid": format!("q{i}")},
            "spec": spec,
        }));
    }
    world.add_pod();
    for _ in 0..5 {
        while world.scheduler.schedule_one(world.now) {}
        for effect in world.scheduler.take_effects() {
            let shell = Shell { api: &world.server, recorder: &world.server, timer: &world.server };
            if let Some(input) = block_on(effect.run(shell)) {
                world.scheduler.handle(input, world.now);
            }
        }
        world.now += SignedDuration::from_secs(400);
        world.scheduler.tick(world.now);
    }
    assert!(world.server.bound.lock().unwrap().contains_key("d/p1"), "an ordinary pod is still placed");
}
