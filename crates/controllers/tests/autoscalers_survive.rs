//! Autoscalers in every weather: a fault at any single write, crashes at random and two managers at a time end with the
//! replicas that the load asks for, never out of bounds on the way, and at rest.
//!
//! `BAYPLAN_RUNS` says how many storms there are; a failure names its seed, and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_controllers::discovery::{ApiResource, Resources};
use bayplan_controllers::requests::DEPLOYMENTS;
use bayplan_controllers::{AutoscalerConfig, Cache, Context, Controller, HorizontalPodAutoscalerController, Kind};
use bayplan_model::api::{Api, Request, Verb};
use bayplan_model::status::{Status, reason};
use bayplan_testkit::{NoEvents, Rng};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, pending, ready};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Storms in the default tests.
const RUNS: u64 = 40;
/// The bounds of the autoscaler.
const BOUNDS: std::ops::RangeInclusive<i64> = 1..=12;
/// What a pod requests, and half of which it should use, in thousandths of a processor.
const REQUEST: i64 = 100;
/// A look at the autoscaler every fifteen seconds, for a quarter of an hour: a crash forgets the recommendations, and
/// the five minutes for which they count begin again.
const ROUNDS: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It takes effect, and the caller crashes before it has the answer.
    CrashAfter,
    /// The caller dies before it takes effect.
    CrashBefore,
    /// It takes effect, and the answer is lost.
    LostAnswer,
    /// It is refused because the object changed meanwhile.
    Conflict,
}

const FAULTS: [Fault; 4] = [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict];

struct State {
    replicas: i64,
    autoscaler: Value,
    version: u64,
    writes: usize,
    /// A fault at the write of this number.
    fault: Option<(usize, Fault)>,
    load: i64,
    now: Timestamp,
}

/// A server with one Deployment, one autoscaler and a load that the pods share.
struct Server(Mutex<State>);

impl Server {
    fn new(behavior: &Value) -> Server {
        let target = json!({"type": "Utilization", "averageUtilization": 50});
        let mut autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "ns", "resourceVersion": "1"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": BOUNDS.start(), "maxReplicas": BOUNDS.end(),
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            },
        });
        if !behavior.is_null() {
            autoscaler["spec"]["behavior"] = behavior.clone();
        }
        let now = Timestamp::from_second(1_780_000_000).unwrap();
        let (replicas, version, writes) = (2, 1, 0);
        Server(Mutex::new(State { replicas, autoscaler, version, writes, fault: None, load: 100, now }))
    }

    fn answer(&self, request: &Request) -> Result<Value, Status> {
        let state = &mut *self.0.lock().unwrap();
        let scale = |state: &State| {
            let metadata = json!({"name": "web", "resourceVersion": state.version.to_string()});
            let status = json!({"replicas": state.replicas, "selector": "app=web"});
            json!({"metadata": metadata, "spec": {"replicas": state.replicas}, "status": status})
        };
        let body = match &request.verb {
            Verb::Get => return Ok(scale(state)),
            Verb::List(_) => {
                let usage = json!({"cpu": format!("{}m", state.load / state.replicas)});
                let pod = |index| {
                    let containers = json!([{"name": "c", "usage": usage}]);
                    json!({"metadata": {"name": name(index)}, "timestamp": state.now, "containers": containers})
                };
                return Ok(json!({"items": (0..state.replicas).map(pod).collect::<Vec<_>>()}));
            }
            Verb::Update(body) => serde_json::from_slice::<Value>(body).unwrap(),
            other => panic!("{other:?}"),
        };
        let known = if request.subresource == Some("scale") { scale(state) } else { state.autoscaler.clone() };
        if body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"] {
            return Err(Status::failure(409, reason::CONFLICT, "the object has been modified"));
        }
        state.version += 1;
        if request.subresource == Some("scale") {
            state.replicas = body["spec"]["replicas"].as_i64().unwrap();
            assert!(BOUNDS.contains(&state.replicas), "{} replicas", state.replicas);
        } else {
            state.autoscaler["status"] = body["status"].clone();
            state.autoscaler["metadata"]["resourceVersion"] = json!(state.version.to_string());
        }
        Ok(json!({}))
    }

    fn replicas(&self) -> i64 {
        self.0.lock().unwrap().replicas
    }

    fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }
}

impl Api for Server {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        let fault = {
            let state = &mut *self.0.lock().unwrap();
            if matches!(request.verb, Verb::Update(_)) {
                state.writes += 1;
                state.fault.filter(|(at, _)| *at == state.writes).map(|(_, fault)| fault)
            } else {
                None
            }
        };
        match fault {
            Some(Fault::CrashBefore) => return pending().boxed(),
            Some(Fault::Conflict) => {
                return ready(Err(Status::failure(409, reason::CONFLICT, "somebody was faster"))).boxed();
            }
            _ => {}
        }
        let answer = self.answer(&request).map(|object| Bytes::from(object.to_string()));
        match fault {
            Some(Fault::CrashAfter) => pending().boxed(),
            Some(Fault::LostAnswer) => {
                ready(Err(Status::failure(0, reason::SERVICE_UNAVAILABLE, "the connection broke"))).boxed()
            }
            _ => ready(answer).boxed(),
        }
    }
}

fn name(index: i64) -> String {
    format!("p{index}")
}

/// A controller manager with what it has seen.
struct Manager {
    cache: Arc<Cache>,
    controller: HorizontalPodAutoscalerController,
}

impl Manager {
    fn start() -> Manager {
        let cache = Arc::new(Cache::default());
        let resources = Resources::default();
        let deployments =
            ApiResource { resource: DEPLOYMENTS, kind: "Deployment".into(), namespaced: true, verbs: Vec::new() };
        resources.replace(vec![deployments]);
        let config = AutoscalerConfig::default();
        let controller = HorizontalPodAutoscalerController::new(cache.clone(), resources, config);
        Manager { cache, controller }
    }

    /// Sees all that the server has now.
    fn see(&self, server: &Server) {
        let (replicas, autoscaler) = {
            let state = server.0.lock().unwrap();
            (state.replicas, state.autoscaler.clone())
        };
        let delta = self.cache.set(Kind::Autoscaler, autoscaler.to_string().as_bytes()).unwrap();
        self.controller.observe(&delta);
        for index in 0..=*BOUNDS.end() {
            self.cache.remove(Kind::Pod, "ns", &name(index), "");
        }
        for index in 0..replicas {
            let requests = json!({"requests": {"cpu": format!("{REQUEST}m")}});
            let long_ago = "2020-01-01T00:00:00Z";
            let pod = json!({
                "metadata": {"name": name(index), "namespace": "ns", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "resources": requests}]},
                "status": {
                    "phase": "Running", "startTime": long_ago,
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": long_ago}],
                },
            });
            self.cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
        }
    }

    /// One round; false if it crashed in it.
    fn round(&self, server: &Server) -> bool {
        let now = server.0.lock().unwrap().now;
        let context = Context { now, api: server, recorder: &NoEvents };
        // That a round fails is what its retry is for.
        self.controller.sync("ns/h", context).now_or_never().map(drop).is_some()
    }
}

/// The loads, one after the other, and the replicas that each asks for in the end.
const LOADS: [(i64, i64); 4] = [(400, 8), (2000, 12), (120, 3), (10, 1)];

fn behaviors() -> [Value; 2] {
    let policies = |value: i64| json!([{"type": "Pods", "value": value, "periodSeconds": 30}]);
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies(3)});
    let down = json!({"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": policies(2)});
    [Value::Null, json!({"scaleUp": up, "scaleDown": down})]
}

/// Lives through one load; `before` each manager's round decides whether it sees the newest state.
fn live(server: &Server, managers: &mut [Manager], load: i64, mut sees: impl FnMut() -> bool) {
    server.0.lock().unwrap().load = load;
    for _ in 0..ROUNDS {
        for manager in &mut *managers {
            if sees() {
                manager.see(server);
            }
            if !manager.round(server) {
                *manager = Manager::start();
                manager.see(server);
            }
        }
        server.0.lock().unwrap().now += SignedDuration::try_from(Duration::from_secs(15)).unwrap();
    }
}

fn at_rest(server: &Server, managers: &mut [Manager], load: i64, replicas: i64, run: &str) {
    assert_eq!(server.replicas(), replicas, "{run}, load {load}");
    let writes = server.writes();
    live(server, managers, load, || true);
    assert_eq!(server.writes(), writes, "{run}: what is as it should be is left alone");
}

#[test]
fn a_fault_at_any_write_changes_nothing_in_the_end() {
    let mut points = 0;
    for behavior in behaviors() {
        for fault in FAULTS {
            let undisturbed = Server::new(&behavior);
            let mut managers = [Manager::start()];
            for (load, _) in LOADS {
                live(&undisturbed, &mut managers, load, || true);
            }
            for write in 1..=undisturbed.writes() {
                let run = format!("{fault:?} at write {write}");
                let server = Server::new(&behavior);
                server.0.lock().unwrap().fault = Some((write, fault));
                let mut managers = [Manager::start()];
                for (load, replicas) in LOADS {
                    live(&server, &mut managers, load, || true);
                    assert_eq!(server.replicas(), replicas, "{run}, load {load}");
                }
                let (load, replicas) = LOADS[LOADS.len() - 1];
                at_rest(&server, &mut managers, load, replicas, &run);
                assert!(server.writes() < 2 * undisturbed.writes() + 5, "{run} made a storm of writes");
                points += 1;
            }
        }
    }
    println!("{points} pairs");
    assert!(points > 80, "only {points} writes");
}

#[test]
fn storms_with_one_and_two_managers_end_as_if_there_had_been_none() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    };
    for seed in seeds {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let server = Server::new(&behaviors()[(seed % 2) as usize]);
        let mut managers: Vec<Manager> = (0..1 + seed / 2 % 2).map(|_| Manager::start()).collect();
        managers.iter().for_each(|manager| manager.see(&server));
        for (load, _) in LOADS {
            let fault = FAULTS[rng.below(FAULTS.len())];
            let at = server.writes() + 1 + rng.below(6);
            server.0.lock().unwrap().fault = Some((at, fault));
            // A watch is late in two rounds of three.
            live(&server, &mut managers, load, || rng.below(3) == 0);
        }
        for (load, replicas) in LOADS {
            live(&server, &mut managers, load, || true);
            at_rest(&server, &mut managers, load, replicas, &run);
        }
    }
}
