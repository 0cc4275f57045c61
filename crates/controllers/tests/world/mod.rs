//! A small world under virtual time: an API server in memory, its watches, kubelets, and the controllers that may crash.
//!
//! Watch events reach the controllers one at a time, between any two reconciles, so their caches are as stale as a
//! real one's; a crash forgets everything but the server.

mod outcome;
pub(crate) mod server;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::cache::{Cache, Change, Kind};
use bayplan_controllers::deployment::DeploymentController;
use bayplan_controllers::replicaset::ReplicaSetController;
use bayplan_controllers::{Context, Controller, Next};
use bayplan_model::api::{Event, Recorder};
use bayplan_model::work_queue::WorkQueue;
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use server::{Server, Watch};

/// A pod is ready this long after its creation.
const POD_START: Duration = Duration::from_secs(2);

/// Nothing here may need longer; a world that is still busy then is livelocked.
const HORIZON: Duration = Duration::from_secs(24 * 3600);

struct Loop {
    controller: Box<dyn Controller>,
    queue: WorkQueue<String>,
}

/// One run of the controllers, from start to crash.
struct Process {
    cache: Arc<Cache>,
    loops: Vec<Loop>,
}

/// Nobody reads events here.
struct Silent;

impl Recorder for Silent {
    fn record(&self, _: Event) {}
}

/// The world.
pub(crate) struct World {
    pub(crate) server: Server,
    now: Duration,
    process: Process,
    pending: VecDeque<Watch>,
}

impl World {
    pub(crate) fn new() -> Self {
        World { server: Server::default(), now: Duration::ZERO, process: Process::start(), pending: VecDeque::new() }
    }

    /// The same objects at the same time, under controllers that have just started.
    pub(crate) fn restarted(&self) -> Self {
        let server = self.server.copy();
        let pending = server.list();
        let mut world = World { server, now: self.now, process: Process::start(), pending };
        world.read_lists();
        world
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp::from_second(1_780_000_000).unwrap() + self.now
    }

    /// Runs until nobody has anything left to do.
    pub(crate) fn settle(&mut self) {
        self.pass_to(self.now);
        loop {
            self.pending.extend(self.server.take_watch_events());
            // One event, then one reconcile: caches lag behind as they do in a real cluster.
            let told = self.deliver_one();
            let worked = self.reconcile_one();
            if told || worked {
                continue;
            }
            let Some(next) = self.next_time() else { return };
            assert!(next < HORIZON, "the world does not come to rest");
            self.pass_to(next);
        }
    }

    fn pass_to(&mut self, time: Duration) {
        self.now = time;
        self.server.set_now(self.timestamp());
        self.run_kubelets();
    }

    /// Time passes, and every object is told again, as a resync does.
    pub(crate) fn resync(&mut self, after: Duration) {
        self.now += after;
        self.pending = self.server.list();
        self.settle();
    }

    fn next_time(&mut self) -> Option<Duration> {
        let starts = self.server.pods().into_iter().filter(|pod| !is_ready(pod));
        let base = Timestamp::from_second(1_780_000_000).unwrap();
        let ready_at = |pod: Value| {
            let created: Timestamp = pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
            Duration::from_secs(created.duration_since(base).as_secs().unsigned_abs()) + POD_START
        };
        let queues = self.process.loops.iter_mut().filter_map(|each| each.queue.next_deadline());
        queues.chain(starts.map(ready_at)).min().map(|at| at.max(self.now + Duration::from_millis(1)))
    }

    fn run_kubelets(&mut self) {
        let now = self.timestamp();
        for mut pod in self.server.pods() {
            let created: Timestamp = pod["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
            if is_ready(&pod) || now.duration_since(created).unsigned_abs() < POD_START {
                continue;
            }
            let second = Timestamp::from_second(now.as_second()).unwrap();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": second});
            pod["status"] = json!({"phase": "Running", "conditions": [ready]});
            self.server.put("pods", pod);
        }
    }

    fn deliver_one(&mut self) -> bool {
        let Some(event) = self.pending.pop_front() else { return false };
        let kind = match event.plural.as_str() {
            "pods" => Kind::Pod,
            "replicasets" => Kind::ReplicaSet,
            _ => Kind::Deployment,
        };
        let Process { cache, loops } = &mut self.process;
        let change: Option<Change> = match &event.object {
            Some(object) => Some(cache.set(kind, object).unwrap()),
            None => cache.remove(kind, "ns", &event.name, &event.version),
        };
        for each in loops {
            for wakeup in change.iter().flat_map(|change| each.controller.observe(change)) {
                each.queue.add_after(wakeup.key, wakeup.after, self.now);
            }
        }
        true
    }

    fn reconcile_one(&mut self) -> bool {
        let now = self.timestamp();
        for each in &mut self.process.loops {
            let Some(key) = each.queue.get(self.now) else { continue };
            let context = Context { now, api: &self.server, recorder: &Silent };
            // The server answers at once; a call without an answer is the crash, and drops the reconcile where it was.
            let Some(outcome) = each.controller.sync(&key, context).now_or_never() else {
                self.crash();
                return true;
            };
            match outcome {
                Ok(next) => {
                    each.queue.forget(&key);
                    match next {
                        Next::After(delay) => each.queue.add_after(key.clone(), delay, self.now),
                        Next::RateLimited => drop(each.queue.add_rate_limited(key.clone(), self.now)),
                        Next::Wait | Next::Wake { .. } => {}
                    }
                }
                Err(_) => drop(each.queue.add_rate_limited(key.clone(), self.now)),
            }
            each.queue.done(&key);
            return true;
        }
        false
    }

    /// Everything but the server is forgotten; the next process begins with a list.
    fn crash(&mut self) {
        self.server.restart();
        self.process = Process::start();
        self.pending = self.server.list();
        self.read_lists();
    }

    /// No worker starts before the caches are complete.
    fn read_lists(&mut self) {
        while self.deliver_one() {}
    }
}

impl Process {
    fn start() -> Self {
        let cache = Arc::new(Cache::default());
        let controllers: [Box<dyn Controller>; 2] =
            [Box::new(DeploymentController::new(cache.clone())), Box::new(ReplicaSetController::new(cache.clone()))];
        let loops = controllers.into_iter().map(|controller| Loop { controller, queue: WorkQueue::default() });
        Process { cache, loops: loops.collect() }
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}
