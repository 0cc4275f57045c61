//! The engine alone: queue, decision and assume, with nothing of an API server between them.
//!
//! ```text
//!   objects ─handle▶ scheduler ─schedule_one▶ effects ─run▶ a few maps instead of an API server
//!                        ▲                                   │
//!                        └──── bound, assigned, evicted ◀────┘
//! ```
//!
//! The clock runs while pods enter the queue, are popped, decided and assumed, and while effects are handed out. It
//! stops while objects are made and effects are carried out. The answers of the cluster (the binding succeeded, the pod
//! is on its node, the victims are gone) are timed only with [`Options::confirmations`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_model::pod::Pod;
use bayplan_runner::decision_log::{DecisionLog, DecisionLogConfig};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Effect, Input, Object, Registry, Rng, Scheduler, Shell, TieBreak};
use futures::executor::block_on;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::fake_api_server::FakeApiServer;
use crate::measurement::{Latencies, Memory, thread_cpu_seconds};
use crate::objects::{self, PodObjects, Template, Templates};
use crate::report::{LOGGED, Run};
use crate::trace::Trace;
use crate::workload::{self, ChurnSpec, Nodes, Pods, Step, Workload};

/// Pods that enter the queue together, as a watch delivers them while the scheduler is busy.
const BATCH: usize = 1000;
/// Timers that may fire in a row without placing a pod before the rest counts as unschedulable.
const FRUITLESS_TICKS_MAX: usize = 20;
/// An arbitrary day: the scheduler only compares times.
const START_SECONDS: i64 = 1_700_000_000;

/// Why a run gives no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workload is wrong.
    #[error(transparent)]
    Workload(#[from] workload::Error),
    /// The scheduler cannot be built.
    #[error(transparent)]
    Scheduler(#[from] bayplan_scheduler::Error),
    /// The decision log cannot be written.
    #[error(transparent)]
    DecisionLog(#[from] bayplan_runner::decision_log::Error),
    /// There is no room for the decision log.
    #[error("cannot make a folder for the decision log: {0}")]
    Folder(std::io::Error),
    /// Pods found no node, so a figure would mean nothing.
    #[error("{workload}: only {placed} of {wanted} pods found a node on {nodes} nodes")]
    Unplaced {
        /// Name of the workload.
        workload: String,
        /// Pods that were placed.
        placed: usize,
        /// Pods that should have been placed.
        wanted: usize,
        /// Nodes in the cluster.
        nodes: usize,
    },
}

/// Size and seed of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Pods that are measured.
    pub pods: usize,
    /// Seed of the generator that breaks ties.
    pub seed: u64,
    /// Whether to time the answers as well: bindings that succeeded, pods seen on their nodes, victims that are gone.
    pub confirmations: bool,
    /// Whether decisions are logged, to a file that nobody keeps.
    pub decision_log: bool,
}

/// Reports progress: the current step, how much of it is done, and the total.
pub type Progress<'a> = dyn FnMut(&str, usize, usize) + 'a;

/// Runs a workload once.
pub fn run(workload: &Workload, options: &Options, progress: &mut Progress<'_>) -> Result<Run, Error> {
    let templates = Templates::of(workload)?;
    let mut world = World::new(options, progress)?;
    for step in &workload.setup {
        world.set_up(&workload.name, step, &templates, options)?;
    }
    let pods = world.make_pods(&workload.measure, &templates, options.pods);
    let churn = workload.churn.as_ref().map(|churn| Churn::new(churn, &templates, &world));
    let placed = world.measure(pods, churn);
    world.check(&workload.name, placed, options.pods)?;
    Ok(world.report(&workload.name, options.pods))
}

/// Replays a trace once, in its order. Pods that fit nowhere stay pending.
pub fn run_trace(trace: &Trace, options: &Options, progress: &mut Progress<'_>) -> Result<Run, Error> {
    let mut world = World::new(options, progress)?;
    for node in trace.nodes() {
        world.upsert(Object::Node(Arc::new(node)));
    }
    world.replay(trace);
    let mut run = world.report("Trace", trace.pods());
    run.nodes = trace.node_count();
    Ok(run)
}

/// Time, processor time and latencies of the measured part.
#[derive(Default)]
struct Timed {
    time: Duration,
    cpu_seconds: f64,
    latencies: Latencies,
}

/// A scheduler and a stand-in for the rest of the cluster.
struct World<'p> {
    scheduler: Scheduler,
    log: Option<TemporaryLog>,
    api_server: FakeApiServer,
    /// All pods, by `namespace/name`.
    pods: FxHashMap<String, Arc<Pod>>,
    started: Instant,
    /// Time that the clock was set forward to skip backoffs.
    skipped: SignedDuration,
    ticked: Timestamp,
    options: Options,
    timed: Timed,
    version: u64,
    numbers: (usize, usize),
    progress: &'p mut Progress<'p>,
}

impl<'p> World<'p> {
    fn new(options: &Options, progress: &'p mut Progress<'_>) -> Result<Self, Error> {
        let ties = TieBreak::Random(Rng::new(options.seed));
        let mut scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), ties)?;
        let log = options.decision_log.then(TemporaryLog::start).transpose()?;
        if log.is_some() {
            scheduler = scheduler.with_records();
        }
        let start = Timestamp::from_second(START_SECONDS).expect("a day of this century");
        Ok(World {
            scheduler,
            log,
            api_server: FakeApiServer::default(),
            pods: FxHashMap::default(),
            started: Instant::now(),
            skipped: SignedDuration::ZERO,
            ticked: start,
            options: options.clone(),
            timed: Timed { latencies: Latencies::with_capacity(2 * options.pods), ..Timed::default() },
            version: 0,
            numbers: (0, 0),
            progress,
        })
    }

    fn time_at(&self, instant: Instant) -> Timestamp {
        let start = Timestamp::from_second(START_SECONDS).expect("a day of this century");
        let elapsed = SignedDuration::try_from(instant.duration_since(self.started)).unwrap_or(SignedDuration::MAX);
        start.saturating_add(elapsed.saturating_add(self.skipped)).unwrap_or(start)
    }

    fn now(&self) -> Timestamp {
        self.time_at(Instant::now())
    }

    fn upsert(&mut self, object: Object) {
        let now = self.now();
        self.scheduler.handle(Input::upsert(object), now);
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn set_up(&mut self, name: &str, step: &Step, templates: &Templates, options: &Options) -> Result<(), Error> {
        match step {
            Step::CreateNodes(nodes) => self.make_nodes(nodes, templates, options.nodes),
            Step::CreateNamespaces(namespaces) => {
                for number in 0..namespaces.count {
                    let name = format!("{}-{number}", namespaces.prefix);
                    self.upsert(objects::namespace(&name, &namespaces.labels));
                }
            }
            Step::Create(one) => {
                let version = self.next_version();
                for template in templates.named(std::slice::from_ref(&one.template), "") {
                    if let Template::Other(value) = template {
                        self.upsert(objects::one(value, &one.namespace, version));
                    }
                }
            }
            Step::CreatePods(pods) => {
                let count = pods.count(options.nodes, options.pods);
                let made = self.make_pods(pods, templates, count);
                let placed = self.place(made, pods.fits);
                if pods.fits {
                    self.check(name, placed, count)?;
                }
            }
        }
        Ok(())
    }

    fn make_nodes(&mut self, nodes: &Nodes, templates: &Templates, asked: usize) {
        let templates = templates.named(&nodes.templates, "node-default");
        let count = nodes.count.unwrap_or(asked);
        let before = Memory::read().current_bytes;
        for i in 0..count {
            if i % BATCH == 0 {
                (self.progress)("nodes", i, count);
            }
            if let Template::Node(_, template) = templates[i % templates.len()] {
                let version = self.next_version();
                let number = self.numbers.0;
                self.numbers.0 += 1;
                for object in objects::node(nodes, template, number, version) {
                    self.upsert(object);
                }
            }
        }
        let each = Memory::read().current_bytes.saturating_sub(before) / count.max(1) as u64;
        (self.progress)(&format!("nodes made, {each} bytes of memory each"), count, count);
    }

    fn make_pods(&mut self, pods: &Pods, templates: &Templates, count: usize) -> Vec<PodObjects> {
        let templates = templates.named(&pods.templates, "pod-default");
        (0..count)
            .filter_map(|i| {
                let Template::Pod(_, template) = templates[i % templates.len()] else { return None };
                let version = self.next_version();
                self.numbers.1 += 1;
                Some(objects::pod(pods, template, self.numbers.1, version))
            })
            .collect()
    }

    /// Creates pods in the API server. The scheduler sees them later.
    fn create(&mut self, made: Vec<PodObjects>) -> Vec<Arc<Pod>> {
        let mut pods = Vec::with_capacity(made.len());
        for PodObjects { pod, before, claim } in made {
            for object in before {
                self.upsert(object);
            }
            if let Some(claim) = claim {
                let key = format!("{}/{}", pod.metadata.namespace, claim["metadata"]["name"].as_str().unwrap_or(""));
                self.api_server.add_claim(key, claim);
            }
            self.pods.insert(pod.metadata.key(), pod.clone());
            pods.push(pod);
        }
        pods
    }

    /// Schedules the pods of the setup, and returns how many were placed. Pods that fit nowhere are tried once.
    fn place(&mut self, made: Vec<PodObjects>, fits: bool) -> usize {
        let (time, cpu) = (self.timed.time, self.timed.cpu_seconds);
        let latencies = std::mem::take(&mut self.timed.latencies);
        let wanted = made.len();
        let mut placed = self.schedule("setup", made, None);
        if fits {
            placed += self.wait_for_stragglers(wanted - placed);
        }
        self.timed = Timed { time, cpu_seconds: cpu, latencies };
        placed
    }

    fn measure(&mut self, made: Vec<PodObjects>, churn: Option<Churn>) -> usize {
        let wanted = made.len();
        let placed = self.schedule("pods", made, churn);
        placed + self.wait_for_stragglers(wanted - placed)
    }

    fn schedule(&mut self, what: &str, made: Vec<PodObjects>, mut churn: Option<Churn>) -> usize {
        let total = made.len();
        let pods = self.create(made);
        let batch = churn.as_ref().map_or(BATCH, |churn| churn.every);
        let mut placed = 0;
        for (done, pods) in pods.chunks(batch).enumerate() {
            (self.progress)(what, done * batch, total);
            let cpu = thread_cpu_seconds();
            let begin = Instant::now();
            if let Some(churn) = &mut churn {
                churn.apply(self, pods.len());
            }
            for pod in pods {
                let now = self.time_at(begin);
                self.scheduler.handle(Input::upsert(Object::Pod(pod.clone())), now);
            }
            self.timed.time += begin.elapsed();
            self.timed.cpu_seconds += thread_cpu_seconds() - cpu;
            placed += self.decide();
        }
        placed
    }

    /// Decides until the queue is empty, lets the cluster answer, and returns how many pods were bound.
    fn decide(&mut self) -> usize {
        let cpu = thread_cpu_seconds();
        let begin = Instant::now();
        let now = self.time_at(begin);
        if now.duration_since(self.ticked) >= SignedDuration::from_secs(1) {
            self.ticked = now;
            self.scheduler.tick(now);
        }
        self.empty_queue(begin);
        let effects = self.scheduler.take_effects();
        if let Some(TemporaryLog { log, .. }) = &mut self.log {
            log.write(&mut self.scheduler);
        }
        self.timed.time += begin.elapsed();
        self.timed.cpu_seconds += thread_cpu_seconds() - cpu;
        self.answer(effects)
    }

    /// Never inlined: a guard counts the instructions between its entry and its return.
    #[inline(never)]
    fn empty_queue(&mut self, mut last: Instant) {
        while self.scheduler.schedule_one(self.time_at(last)) {
            let at = Instant::now();
            self.timed.latencies.add(at - last);
            last = at;
        }
    }

    /// Carries out effects and passes their results to the scheduler.
    fn answer(&mut self, effects: Vec<Effect>) -> usize {
        let (inputs, bound) = self.carry_out(effects);
        let cpu = thread_cpu_seconds();
        let begin = Instant::now();
        let now = self.time_at(begin);
        for input in inputs {
            self.scheduler.handle(input, now);
        }
        if self.options.confirmations {
            self.timed.time += begin.elapsed();
            self.timed.cpu_seconds += thread_cpu_seconds() - cpu;
        }
        bound
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> (Vec<Input>, usize) {
        let (mut inputs, mut bound) = (Vec::with_capacity(2 * effects.len()), 0);
        for effect in effects {
            let target = match &effect {
                Effect::Bind(binding) => Some((binding.pod_key(), binding.node().to_owned())),
                Effect::Preempt(_) => None,
                // Nobody reads status patches and events here.
                _ => continue,
            };
            let shell = Shell { api: &self.api_server, recorder: &self.api_server, timer: &self.api_server };
            inputs.extend(block_on(effect.run(shell)));
            let written = self.api_server.take_writes();
            let claims = written.claims.iter().filter_map(|claim| Object::decode(claim)?.ok());
            inputs.extend(claims.map(Input::upsert));
            for key in written.deleted {
                inputs.extend(self.pods.remove(&key).map(|pod| Input::delete(Object::Pod(pod))));
            }
            let Some((key, node)) = target else { continue };
            let version = self.next_version();
            if let Some(pod) = self.pods.get_mut(&key) {
                *pod = objects::assigned(pod, node, version);
                inputs.push(Input::upsert(Object::Pod(pod.clone())));
                bound += 1;
            }
        }
        (inputs, bound)
    }

    /// Advances the clock for pods that wait for victims to go or for a backoff to pass.
    fn wait_for_stragglers(&mut self, mut missing: usize) -> usize {
        let (mut placed, mut fruitless) = (0, 0);
        while missing > 0 && fruitless < FRUITLESS_TICKS_MAX {
            let now = self.now();
            if self.scheduler.queue().counts()[0] == 0 {
                let Some(due) = self.scheduler.next_tick() else { break };
                self.skipped = self.skipped.saturating_add(due.duration_since(now).max(SignedDuration::ZERO));
                self.ticked = self.now();
                let cpu = thread_cpu_seconds();
                let begin = Instant::now();
                self.scheduler.tick(self.ticked);
                self.timed.time += begin.elapsed();
                self.timed.cpu_seconds += thread_cpu_seconds() - cpu;
            }
            let more = self.decide();
            fruitless = if more == 0 { fruitless + 1 } else { 0 };
            placed += more;
            missing = missing.saturating_sub(more);
            (self.progress)("pods left", 0, missing);
        }
        placed
    }

    fn replay(&mut self, trace: &Trace) {
        let total = trace.pods();
        let mut gone: FxHashSet<usize> = FxHashSet::default();
        for (i, step) in trace.steps().iter().enumerate() {
            if i % BATCH == 0 {
                (self.progress)("events of the trace", i, trace.steps().len());
            }
            let key = format!("default/{}", trace.pod_name(step.pod));
            let cpu = thread_cpu_seconds();
            if step.is_creation {
                let version = self.next_version();
                let pod = Arc::new(trace.pod(step.pod, version));
                self.pods.insert(key, pod.clone());
                let begin = Instant::now();
                let now = self.time_at(begin);
                self.scheduler.handle(Input::upsert(Object::Pod(pod)), now);
                self.timed.time += begin.elapsed();
            } else if let Some(pod) = self.pods.remove(&key) {
                gone.insert(step.pod);
                let begin = Instant::now();
                let now = self.time_at(begin);
                self.scheduler.handle(Input::delete(Object::Pod(pod)), now);
                self.timed.time += begin.elapsed();
            }
            self.timed.cpu_seconds += thread_cpu_seconds() - cpu;
            self.decide();
        }
        (self.progress)("pods of the trace were there and went", gone.len(), total);
    }

    fn check(&self, workload: &str, placed: usize, wanted: usize) -> Result<(), Error> {
        let (workload, nodes) = (workload.to_owned(), self.options.nodes);
        if placed >= wanted { Ok(()) } else { Err(Error::Unplaced { workload, placed, wanted, nodes }) }
    }

    fn report(self, workload: &str, pods: usize) -> Run {
        Run {
            workload: workload.to_owned(),
            mode: if self.log.is_some() { LOGGED } else { "engine" }.into(),
            nodes: self.options.nodes,
            pods,
            pods_per_second: pods as f64 / self.timed.time.as_secs_f64(),
            latency_us: self.timed.latencies.summary(),
            cpu_seconds: self.timed.cpu_seconds,
            peak_rss_bytes: Memory::read().peak_bytes,
            others: Vec::new(),
            writes: None,
        }
    }
}

/// A decision log in a folder that goes with it.
struct TemporaryLog {
    log: DecisionLog,
    _folder: tempfile::TempDir,
}

impl TemporaryLog {
    fn start() -> Result<Self, Error> {
        let folder = tempfile::tempdir().map_err(Error::Folder)?;
        let config = DecisionLogConfig::new(folder.path().join("decisions.jsonl"), serde_json::Value::Null);
        Ok(TemporaryLog { log: DecisionLog::start(config)?, _folder: folder })
    }
}

/// Changes that are made between measured pods.
struct Churn {
    every: usize,
    /// Objects that are deleted and created again, with their last version.
    recreated: Vec<Object>,
    /// Pods to delete.
    doomed: Vec<String>,
}

impl Churn {
    fn new(churn: &ChurnSpec, templates: &Templates, world: &World<'_>) -> Self {
        let mut recreated = Vec::new();
        for name in &churn.recreate {
            for template in templates.named(std::slice::from_ref(name), "") {
                recreated.push(match template {
                    Template::Node(_, node) => {
                        let nodes = Nodes { name: Some("churned".into()), ..Nodes::default() };
                        objects::node(&nodes, node, usize::MAX >> 32, 1).swap_remove(0)
                    }
                    Template::Pod(_, pod) => {
                        let pods = Pods { namespace: "churn".into(), ..Pods::default() };
                        Object::Pod(objects::pod(&pods, pod, usize::MAX >> 32, 1).pod)
                    }
                    Template::Other(value) => objects::one(value, "churn", 1),
                });
            }
        }
        let of = churn.delete_pods_of.as_deref();
        let doomed = world.pods.values().filter(|pod| Some(pod.metadata.namespace.as_str()) == of);
        let doomed = doomed.map(|pod| pod.metadata.key()).collect();
        Churn { every: churn.every_pods, recreated, doomed }
    }

    fn apply(&mut self, world: &mut World<'_>, pods: usize) {
        let now = world.now();
        for object in &self.recreated {
            world.scheduler.handle(Input::delete(object.clone()), now);
            world.scheduler.handle(Input::upsert(object.clone()), now);
        }
        for key in self.doomed.split_off(self.doomed.len().saturating_sub(pods)) {
            if let Some(pod) = world.pods.remove(&key) {
                world.scheduler.handle(Input::delete(Object::Pod(pod)), now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_places_its_pods_on_a_small_cluster() {
        for workload in workload::all() {
            let nodes = workload.nodes.min(30);
            let pods = workload.pods_on(nodes).min(60);
            let mut small = workload.clone();
            for step in &mut small.setup {
                if let Step::CreatePods(Pods { count: Some(count), .. }) = step {
                    *count = (*count).min(40);
                }
            }
            let options = Options { nodes, pods, seed: 7, confirmations: true, decision_log: true };
            let run = run(&small, &options, &mut |_, _, _| {}).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((run.nodes, run.pods), (nodes, pods), "{}", workload.name);
            assert_eq!(run.mode, LOGGED);
            assert!(run.pods_per_second > 0.0 && run.latency_us.max >= run.latency_us.p50, "{run:?}");
        }
    }

    #[test]
    fn a_run_that_could_not_place_its_pods_gives_no_figure() {
        let workload = workload::find("PodAntiAffinity").unwrap();
        let options = Options { nodes: 10, pods: 50, seed: 7, confirmations: false, decision_log: false };
        let error = run(workload, &options, &mut |_, _, _| {}).unwrap_err().to_string();
        assert_eq!(error, "PodAntiAffinity: only 8 of 50 pods found a node on 10 nodes");
    }
}
