//! A small world around the scheduler: an API server that may refuse calls, and a watch that may lag.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Helpers of tests, each used by some of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use bayplan_model::api::{Api, Event, Recorder, Request, Verb};
use bayplan_model::status::{Status as ApiStatus, reason};
use bayplan_scheduler::inspect::{Attempt, QueueStage, Search};
use bayplan_scheduler::{Effect, Input, Object, PodInfo, Scheduler, Shell, Timer};
use bayplan_testkit::Rng;
use bytes::Bytes;
use futures::executor::block_on;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// An API server for pods: it binds and deletes them, or refuses a call without doing anything.
#[derive(Default)]
pub struct Server {
    pods: Mutex<BTreeMap<String, Value>>,
    /// Watch events that are not delivered yet: the object, and whether it was deleted.
    watch_events: Mutex<VecDeque<(Value, bool)>>,
    /// One call in so many is refused; 0 for none.
    refuses_one_in: Mutex<usize>,
    rng: Mutex<Option<Rng>>,
    version: Mutex<u64>,
    /// The names of all pods ever bound.
    bindings: Mutex<BTreeSet<String>>,
}

impl Server {
    fn next_version(&self) -> Value {
        let mut version = self.version.lock().unwrap();
        *version += 1;
        version.to_string().into()
    }

    pub fn store(&self, mut pod: Value) {
        pod["metadata"]["resourceVersion"] = self.next_version();
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        self.watch_events.lock().unwrap().push_back((pod.clone(), false));
        self.pods.lock().unwrap().insert(name, pod);
    }

    fn bind(&self, name: &str, body: &[u8]) -> Result<(), ApiStatus> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let not_found = || ApiStatus::failure(404, reason::NOT_FOUND, "no such pod");
        let mut pod = self.pods.lock().unwrap().get(name).cloned().ok_or_else(not_found)?;
        assert_eq!(pod["metadata"]["uid"], body["metadata"]["uid"]);
        assert!(self.bindings.lock().unwrap().insert(name.to_owned()), "{name} is bound twice");
        pod["spec"]["nodeName"] = body["target"]["name"].clone();
        self.store(pod);
        Ok(())
    }

    /// Begins the deletion of a pod on a node; removes a pod without a node at once.
    pub fn delete(&self, name: &str) {
        let Some(mut pod) = self.pods.lock().unwrap().get(name).cloned() else { return };
        if pod["spec"]["nodeName"].is_null() {
            return self.end(name);
        }
        pod["metadata"]["deletionTimestamp"] = "2026-11-16T00:00:00Z".into();
        self.store(pod);
    }

    /// Removes a pod.
    pub fn end(&self, name: &str) {
        if let Some(pod) = self.pods.lock().unwrap().remove(name) {
            self.watch_events.lock().unwrap().push_back((pod, true));
        }
    }

    pub fn any_pod(&self, rng: &mut Rng) -> Option<String> {
        let pods = self.pods.lock().unwrap();
        pods.keys().nth(rng.below(pods.len())).cloned()
    }

    pub fn terminating(&self) -> Vec<String> {
        let pods = self.pods.lock().unwrap();
        let ending = pods.iter().filter(|(_, pod)| !pod["metadata"]["deletionTimestamp"].is_null());
        ending.map(|(name, _)| name.clone()).collect()
    }

    pub fn refuse_one_in(&self, calls: usize, seed: u64) {
        *self.refuses_one_in.lock().unwrap() = calls;
        *self.rng.lock().unwrap() = Some(Rng::new(seed));
    }

    fn refuses(&self) -> bool {
        let one_in = *self.refuses_one_in.lock().unwrap();
        let mut rng = self.rng.lock().unwrap();
        one_in > 0 && rng.as_mut().is_some_and(|rng| rng.one_in(one_in))
    }

    /// By node: the milli-cpu and the number of the pods bound to it, according to the API server.
    pub fn usage(&self) -> BTreeMap<String, (u64, usize)> {
        let mut usage: BTreeMap<String, (u64, usize)> = BTreeMap::new();
        for pod in self.pods.lock().unwrap().values() {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap_or("0m");
                let used = usage.entry(node.to_owned()).or_default();
                used.0 += text.trim_end_matches('m').parse::<u64>().unwrap();
                used.1 += 1;
            }
        }
        usage
    }

    pub fn is_bound(&self, name: &str) -> bool {
        self.bindings.lock().unwrap().contains(name)
    }
}

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, ApiStatus>> {
        let name = &request.name;
        let answer = match (&request.verb, request.subresource) {
            _ if self.refuses() => Err(ApiStatus::failure(403, reason::FORBIDDEN, "no")),
            (Verb::Create(body), Some("binding")) => self.bind(name, body).map(|()| Bytes::new()),
            (Verb::Delete(_), None) => {
                self.delete(name);
                Ok(Bytes::new())
            }
            (Verb::Get, _) => Err(ApiStatus::failure(404, reason::NOT_FOUND, "no such object")),
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

/// The scheduler with its environment.
pub struct World {
    pub seed: u64,
    pub scheduler: Scheduler,
    pub server: Server,
    pub now: Timestamp,
    pub rng: Rng,
    /// Effects that have not run yet.
    running: Vec<Effect>,
    /// Results of effects that are not delivered yet.
    results: VecDeque<Input>,
    /// The pods as they were delivered to the scheduler.
    known: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
    made: usize,
}

/// What each node has.
pub const NODE_MILLI_CPU: u64 = 4000;
pub const NODE_PODS: usize = 5;

impl World {
    pub fn new(seed: u64, scheduler: Scheduler) -> Self {
        World {
            seed,
            scheduler,
            server: Server::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
            rng: Rng::new(seed),
            running: Vec::new(),
            results: VecDeque::new(),
            known: BTreeMap::new(),
            nodes: BTreeMap::new(),
            made: 0,
        }
    }

    /// Delivers an object to the scheduler; false when it does not decode.
    pub fn upsert_object(&mut self, json: &Value) -> bool {
        let Some(Ok(object)) = Object::decode(json) else { return false };
        if let Object::Pod(pod) = &object {
            self.known.insert(pod.metadata.name.clone(), json.clone());
        }
        self.scheduler.handle(Input::upsert(object), self.now);
        true
    }

    pub fn delete_object(&mut self, json: &Value) {
        let Some(Ok(object)) = Object::decode(json) else { return };
        if let Object::Pod(pod) = &object {
            self.known.remove(&pod.metadata.name);
        }
        self.scheduler.handle(Input::delete(object), self.now);
    }

    pub fn set_node(&mut self, name: usize, cordoned: bool) {
        let name = format!("n{name}");
        let zone = format!("z{}", name.len() % 2);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": {
                "cpu": format!("{NODE_MILLI_CPU}m"), "memory": "8Gi", "pods": NODE_PODS.to_string(),
            }},
        });
        self.upsert_object(&node);
        self.nodes.insert(name, node);
    }

    pub fn remove_some_node(&mut self) {
        let at = self.rng.below(self.nodes.len());
        let Some(name) = self.nodes.keys().nth(at).cloned() else { return };
        let node = self.nodes.remove(&name).unwrap();
        self.delete_object(&node);
    }

    /// Creates a pod at the API server.
    pub fn create_pod(&mut self, mut spec: Value, labels: Value) -> String {
        self.made += 1;
        let name = format!("p{}", self.made);
        spec["schedulerName"] = "default-scheduler".into();
        self.server.store(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}"), "labels": labels},
            "spec": spec, "status": {"phase": "Pending"},
        }));
        name
    }

    /// Lets the scheduler try up to `most` pods; true when it tried any.
    pub fn schedule(&mut self, most: usize) -> bool {
        let mut tried = false;
        for _ in 0..most {
            tried |= self.scheduler.schedule_one(self.now);
        }
        self.running.extend(self.scheduler.take_effects());
        tried
    }

    /// Runs one effect, not necessarily the oldest; false when there is none.
    pub fn run_effect(&mut self) -> bool {
        self.running.extend(self.scheduler.take_effects());
        if self.running.is_empty() {
            return false;
        }
        let effect = self.running.swap_remove(self.rng.below(self.running.len()));
        let shell = Shell { api: &self.server, recorder: &self.server, timer: &self.server };
        self.results.extend(block_on(effect.run(shell)));
        true
    }

    /// Delivers the next result of an effect; false when there is none.
    pub fn deliver_result(&mut self) -> bool {
        let Some(answer) = self.results.pop_front() else { return false };
        self.scheduler.handle(answer, self.now);
        true
    }

    /// Delivers the next watch event; false when there is none.
    pub fn deliver_watch_event(&mut self) -> bool {
        let next = self.server.watch_events.lock().unwrap().pop_front();
        match next {
            None => return false,
            Some((object, true)) => self.delete_object(&object),
            Some((object, false)) => _ = self.upsert_object(&object),
        }
        true
    }

    pub fn advance(&mut self, time: SignedDuration) {
        self.now += time;
        self.scheduler.tick(self.now);
    }

    /// The pods that wait on Permit.
    pub fn waiting(&self) -> Vec<String> {
        let uids = self.known.keys().map(|name| format!("uid-{name}"));
        uids.filter(|uid| self.scheduler.is_waiting(uid)).collect()
    }

    /// Schedules, runs and delivers everything until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..5_000 {
            let mut busy = self.schedule(1);
            while self.run_effect() | self.deliver_result() | self.deliver_watch_event() {
                busy = true;
            }
            self.check();
            if !busy {
                return;
            }
        }
        panic!("seed {}: the scheduler does not settle", self.seed);
    }

    /// Checks what always holds: no node is over-committed, and every pod is in one stage.
    pub fn check(&self) {
        let seed = self.seed;
        for node in self.scheduler.cluster().nodes() {
            let name = &node.name;
            assert!(node.requested.milli_cpu <= node.allocatable.milli_cpu, "seed {seed}: {name} is over-committed");
            assert!(node.pods().len() as i64 <= node.allocatable.pods, "seed {seed}: {name} has too many pods");
        }
        for (name, (milli_cpu, pods)) in self.server.usage() {
            assert!(
                milli_cpu <= NODE_MILLI_CPU && pods <= NODE_PODS,
                "seed {seed}: {name} is over-committed at the API server"
            );
        }
        self.check_stages();
    }

    /// Checks that every pod is in exactly one stage.
    pub fn check_stages(&self) {
        self.known.iter().for_each(|(name, pod)| self.check_stage(name, pod));
    }

    fn check_stage(&self, name: &str, pod: &Value) {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let place = self.scheduler.queue().stage(uid);
        let (waiting, binding) = (self.scheduler.is_waiting(uid), self.scheduler.is_binding(uid));
        let placed = self.scheduler.cluster().placed(uid).is_some();
        let right = match (place, waiting, binding) {
            // Bound, whether or not the result of the binding was delivered.
            _ if !pod["spec"]["nodeName"].is_null() => place.is_none() && !waiting && placed,
            (Some(QueueStage::InFlight), true, false) | (None, false, true) => placed,
            // Bound, and the watch event is on its way.
            (None, false, false) => placed,
            (Some(QueueStage::InFlight), ..) => false,
            (Some(_), waiting, binding) => !waiting && !binding && !placed,
            _ => false,
        };
        let seed = self.seed;
        assert!(right, "seed {seed}: {name}: {place:?}, waiting: {waiting}, binding: {binding}, placed: {placed}");
    }

    /// A pod as it was delivered to the scheduler.
    pub fn pod(&self, name: &str) -> &Value {
        &self.known[name]
    }

    /// The pods that wait although they fit a node.
    pub fn overlooked(&self) -> Vec<String> {
        let mut overlooked = Vec::new();
        for (name, json) in &self.known {
            if !json["spec"]["nodeName"].is_null() || json["spec"]["schedulingGates"].is_array() {
                continue;
            }
            let Some(Ok(Object::Pod(pod))) = Object::decode(json) else { continue };
            let info = PodInfo::new(pod);
            let Some(profile) = self.scheduler.profile("default-scheduler") else { continue };
            let (cluster, nominator) = (self.scheduler.cluster(), &self.scheduler.queue().nominator);
            let mut attempt = Attempt::new(profile, cluster, nominator, &info, self.now);
            if attempt.find(Search::ALL).is_ok_and(|found| !found.feasible.is_empty()) {
                overlooked.push(name.clone());
            }
        }
        overlooked
    }
}
