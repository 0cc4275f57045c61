//! What it costs to ask: a large cluster is written as a snapshot, loaded again, and asked about its pending pods; and
//! a day of a cluster is simulated.
//!
//! ```text
//!   nodes, running and pending pods as JSON ─▶ snapshot ─▶ State ─▶ why, proven changes, why -A
//!   pods that come and go, as lines of JSON ─▶ History ─▶ Simulation
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bayplan_explain::simulate::{Options as SimulateOptions, simulate};
use bayplan_explain::why::{Options as WhyOptions, WrittenPods, explain, explain_all, find_changes_of_all};
use bayplan_explain::{ChangeOptions, Subject, changes};
use bayplan_explain::{Profiles, State};
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{PodInfo, Registry, TieBreak};
use bayplan_sources::{ClusterObjects, Given, Redaction, SourceObject, SourceReader, resource_of, write_snapshot};
use jiff::Timestamp;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::day;
use crate::measurement::{Latencies, Memory, thread_cpu_seconds};
use crate::report::Run;

/// A time after everything in the cluster.
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// How many templates the pending pods have.
const TEMPLATES: usize = 50;

/// How many pending pods there are for each running one: 10,000 for 150,000.
const PENDING_SHARE: usize = 15;

/// What pods of a day ask for, as a share of what the nodes have: room for all of them,
const DAY_LOAD: f64 = 0.7;
/// or more than there is, so that thousands wait.
const OVERLOAD: f64 = 1.25;

/// How many changes are looked for.
const CHANGES: usize = 20;

/// Why a question could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The objects could not be written.
    #[error("cannot write the objects of the cluster: {0}")]
    Write(#[from] serde_json::Error),
    /// The snapshot could not be written.
    #[error("cannot write the snapshot: {0}")]
    Snapshot(#[from] std::io::Error),
    /// The default profile could not be built.
    #[error(transparent)]
    Profiles(#[from] bayplan_explain::ProfilesError),
    /// The day could not be read.
    #[error(transparent)]
    Arrivals(#[from] bayplan_explain::simulate::ArrivalsError),
    /// The scheduler of a simulation could not be built.
    #[error(transparent)]
    Scheduler(#[from] bayplan_scheduler::Error),
    /// What was loaded is not what was written.
    #[error("{found} of {expected} objects were loaded")]
    Lost {
        /// How many were loaded.
        found: usize,
        /// How many were written.
        expected: usize,
    },
}

/// A question that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// From the bytes of a snapshot to a state that can be asked.
    LoadSnapshot,
    /// Why one pod is pending, for each template.
    Why,
    /// What would let one pod in, for each template.
    ProvenChanges,
    /// Why all pods are pending.
    WhyAll,
    /// A day on a cluster that has room for it.
    SimulateDay,
    /// A day on a cluster that has not.
    SimulateOverload,
}

impl Question {
    /// All questions.
    pub const ALL: [Question; 6] = [
        Question::LoadSnapshot,
        Question::Why,
        Question::ProvenChanges,
        Question::WhyAll,
        Question::SimulateDay,
        Question::SimulateOverload,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Question::LoadSnapshot => "LoadSnapshot",
            Question::Why => "Why",
            Question::ProvenChanges => "ProvenChanges",
            Question::WhyAll => "WhyAll",
            Question::SimulateDay => "SimulateDay",
            Question::SimulateOverload => "SimulateOverload",
        }
    }

    /// What is measured, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Question::LoadSnapshot => "a snapshot, from its bytes to a state that can be asked",
            Question::Why => "why a pod is pending, once for each of 50 templates",
            Question::ProvenChanges => "up to 20 proven changes that let a pod in, once for each of 50 templates",
            Question::WhyAll => "why -A: all pending pods, of 50 templates",
            Question::SimulateDay => "simulate: pods come and go for a day, two events each, and ask for 70 %",
            Question::SimulateOverload => "simulate: pods come and go for a day, two events each, and ask for 125 %",
        }
    }

    /// The number of running pods, or of pods that come and go, by default.
    pub fn pods(self) -> usize {
        match self {
            Question::SimulateDay | Question::SimulateOverload => 500_000,
            _ => 150_000,
        }
    }

    /// The question of that name.
    pub fn named(name: &str) -> Option<Self> {
        Question::ALL.into_iter().find(|question| question.name() == name)
    }
}

/// Measures a question on a cluster of so many nodes and running pods.
pub fn run(question: Question, nodes: usize, pods: usize) -> Result<Run, Error> {
    match question {
        Question::SimulateDay => simulated(question, nodes, pods, DAY_LOAD),
        Question::SimulateOverload => simulated(question, nodes, pods, OVERLOAD),
        _ => asked(question, nodes, pods),
    }
}

/// Reads a day and simulates it.
fn simulated(question: Question, nodes: usize, pods: usize, load: f64) -> Result<Run, Error> {
    let arrivals = day::arrivals(nodes, pods, load);
    let cpu = thread_cpu_seconds();
    let started = Instant::now();
    let history = day::history(nodes, &arrivals)?;
    let configurations = [("default".to_owned(), Configuration::default())];
    let options = SimulateOptions { ties: TieBreak::SmallestName, preempt: true };
    let simulation = simulate(&history, &configurations, &options, &mut |_, _| {})?;
    let mut latencies = Latencies::with_capacity(1);
    latencies.add(started.elapsed());
    let cpu_seconds = thread_cpu_seconds() - cpu;
    Ok(measured(question, nodes, simulation.events, latencies, cpu_seconds))
}

fn asked(question: Question, nodes: usize, pods: usize) -> Result<Run, Error> {
    let pending = (pods / PENDING_SHARE).max(TEMPLATES);
    let snapshot = snapshot(nodes, pods, pending)?;
    let cpu = thread_cpu_seconds();
    let started = Instant::now();
    let mut state = load(&snapshot);
    let loading = (started.elapsed(), thread_cpu_seconds() - cpu);
    let found = state.cluster().node_count() + state.cluster().placed_count() + state.pending().count();
    if found != nodes + pods + pending {
        return Err(Error::Lost { found, expected: nodes + pods + pending });
    }
    let profiles = Profiles::build(&Configuration::default(), &Registry::default())?;
    let cpu = thread_cpu_seconds();
    let mut latencies = Latencies::with_capacity(TEMPLATES);
    let asked = match question {
        Question::LoadSnapshot => {
            latencies.add(loading.0);
            nodes + pods + pending
        }
        Question::Why => each_template(&mut state, &mut latencies, |state, pod| {
            black_box(explain(state, &profiles, pod, &WhyOptions::at(NOW)));
        }),
        Question::ProvenChanges => each_template(&mut state, &mut latencies, |state, pod| {
            black_box(changes_of(state, &profiles, pod));
        }),
        Question::WhyAll => {
            let all: Vec<Arc<PodInfo>> = state.pending().cloned().collect();
            let count = all.len();
            let started = Instant::now();
            let options = WhyOptions::at(NOW);
            let mut list = explain_all(&mut state, &profiles, all, &options);
            let pods = WrittenPods { json: &|state, pod| written(state, &pod.namespace, &pod.name), complete: None };
            find_changes_of_all(&mut state, &profiles, &mut list, &pods, &options);
            black_box(list);
            latencies.add(started.elapsed());
            count
        }
        // Measured without a snapshot.
        Question::SimulateDay | Question::SimulateOverload => 0,
    };
    let cpu_seconds = if question == Question::LoadSnapshot { loading.1 } else { thread_cpu_seconds() - cpu };
    Ok(measured(question, nodes, asked, latencies, cpu_seconds))
}

fn measured(question: Question, nodes: usize, asked: usize, latencies: Latencies, cpu_seconds: f64) -> Run {
    Run {
        workload: question.name().to_owned(),
        mode: "ask".to_owned(),
        nodes,
        pods: asked,
        pods_per_second: asked as f64 / latencies.total_seconds(),
        latency_us: latencies.summary(),
        cpu_seconds,
        peak_rss_bytes: Memory::read().peak_bytes,
        others: Vec::new(),
        writes: None,
    }
}

/// Asks about one pod of each template.
fn each_template(
    state: &mut State,
    latencies: &mut Latencies,
    mut ask: impl FnMut(&mut State, &Arc<PodInfo>),
) -> usize {
    let firsts: Vec<Arc<PodInfo>> = state.pending().take(TEMPLATES).cloned().collect();
    for pod in &firsts {
        let started = Instant::now();
        ask(state, pod);
        latencies.add(started.elapsed());
    }
    firsts.len()
}

fn changes_of(state: &mut State, profiles: &Profiles, pod: &PodInfo) -> usize {
    let json = written(state, &pod.metadata.namespace, &pod.metadata.name).expect("the snapshot has the pod");
    let profile = profiles.first().expect("the default configuration has a profile").clone();
    let options = ChangeOptions { max: CHANGES, ..ChangeOptions::at(NOW) };
    changes(state, &profile, Subject::as_written(&json), &options).len()
}

fn written(state: &State, namespace: &str, name: &str) -> Option<Value> {
    let written = state.written(resource_of("v1", "Pod")?, namespace, name)?;
    serde_json::from_str(written.get()).ok()
}

fn load(snapshot: &[u8]) -> State {
    let mut reader = SourceReader::default();
    reader.read("snapshot", &mut &*snapshot, Given::Directly);
    State::new(reader.finish())
}

/// The snapshot of a cluster: every node is nearly full, and most pending pods fit nowhere.
fn snapshot(nodes: usize, pods: usize, pending: usize) -> Result<Vec<u8>, Error> {
    let nodes_json = (0..nodes).map(|i| ("Node", "", format!("node-{i:06}"), node(i)));
    let running = (0..pods).map(|i| ("Pod", "prod", format!("run-{i:07}"), running(i, nodes)));
    // Pods sort by name: one of each template comes first.
    let waiting = (0..pending).map(|i| ("Pod", "prod", format!("wait-{i:07}"), waiting(i)));
    let objects = nodes_json.chain(running).chain(waiting).map(|(kind, namespace, name, json)| {
        let json: Box<RawValue> = to_raw_value(&json)?;
        let resource = resource_of("v1", kind).expect("nodes and pods are read");
        Ok(SourceObject { resource, namespace: namespace.into(), name: name.into(), json })
    });
    let objects = ClusterObjects { objects: objects.collect::<Result<_, Error>>()?, ..ClusterObjects::default() };
    let mut bytes = Vec::new();
    write_snapshot(&objects, Redaction::None, &mut bytes)?;
    Ok(bytes)
}

fn node(i: usize) -> Value {
    let name = format!("node-{i:06}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("node-uid-{i}"), "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", i % 3),
            "node.kubernetes.io/instance-type": if i.is_multiple_of(10) { "large" } else { "medium" },
        }},
        "spec": if i.is_multiple_of(20) {
            json!({"taints": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}]})
        } else {
            json!({})
        },
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    })
}

fn running(i: usize, nodes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("run-{i:07}"), "namespace": "prod", "uid": format!("run-uid-{i}"),
            "labels": {"app": format!("app-{}", i % 500), "pod-template-hash": format!("{:x}", i % 500)}},
        "spec": {
            "nodeName": format!("node-{:06}", i % nodes), "schedulerName": "default-scheduler", "priority": 0,
            "containers": [{"name": "main", "image": "registry.example/app:1",
                "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}],
        },
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
    })
}

/// Pods of fifty templates: most ask for more than is free, and some of those for more than that.
fn waiting(i: usize) -> Value {
    let template = i % TEMPLATES;
    let mut spec = json!({
        "schedulerName": "default-scheduler", "priority": (template % 3) * 100,
        "containers": [{"name": "main", "image": "registry.example/waiting:1", "resources": {
            "requests": {"cpu": format!("{}m", 1900 + template * 250), "memory": "8Gi"}}}],
    });
    let labels = json!({"app": format!("waiting-{template}")});
    match template % 5 {
        1 => spec["nodeSelector"] = json!({"node.kubernetes.io/instance-type": "huge"}),
        2 => {
            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}]);
        }
        3 => {
            spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "app-7"}}}]}});
        }
        4 => spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": "zone-1"}),
        _ => {}
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("wait-{i:07}"), "namespace": "prod", "uid": format!("wait-uid-{i}"),
            "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending"},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_is_answered_on_a_small_cluster() {
        for question in Question::ALL {
            let run = run(question, 20, 600).unwrap();
            assert_eq!(Question::named(&run.workload), Some(question));
            assert!(run.pods >= TEMPLATES && run.latency_us.max > 0.0, "{run:?}");
        }
    }

    #[test]
    fn most_pending_pods_fit_nowhere_and_changes_are_found_for_them() {
        let mut state = load(&snapshot(20, 600, TEMPLATES).unwrap());
        let profiles = Profiles::build(&Configuration::default(), &Registry::default()).unwrap();
        let pods: Vec<Arc<PodInfo>> = state.pending().cloned().collect();
        let changed = pods.iter().filter(|pod| changes_of(&mut state, &profiles, pod) > 0).count();
        assert!(changed * 2 > pods.len(), "{changed} of {}", pods.len());
    }
}
