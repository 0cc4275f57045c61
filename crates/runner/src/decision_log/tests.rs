//! Random histories are logged, read back and decided again.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use bayplan_explain::decision_log::Replay;
use bayplan_model::decision_log::{Changed, Decision};
use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Attempt, Search};
use bayplan_scheduler::{Binding, Effect, Input, Object, Recorded, Registry, Rng as TieRng, TieBreak};
use bayplan_sources::decision_log::{DecisionLogReader, LogEntry};
use bayplan_testkit::Rng;
use jiff::SignedDuration;
use random_objects::{ZONES, namespaces, pods::template, storage_and_devices};
use serde_json::json;

use super::*;

#[path = "../../../scheduler/tests/random_objects/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod random_objects;

const HISTORIES: u64 = 40;
const STEPS: usize = 150;
/// Seeds with which a decision was once made otherwise.
const ONCE_DIFFERENT: &[u64] = &[50];
/// So small that every history fills several files.
const SMALL_FILE: u64 = 20_000;

/// A cluster in which things happen at random.
struct History {
    rng: Rng,
    scheduler: Scheduler,
    now: Timestamp,
    made: usize,
    templates: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Arc<Pod>>,
    bindings: Vec<Binding>,
}

fn decode(json: &Value) -> Object {
    Object::decode(json).expect("a known kind").expect("a readable object")
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let ties = TieBreak::Random(TieRng::new(seed));
        let scheduler = Scheduler::new(&Configuration::default(), &Registry::default(), ties).unwrap().with_records();
        let templates = (0..6).map(|_| template(&mut rng)).collect();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let (nodes, pods, bindings) = (Vec::new(), Vec::new(), Vec::new());
        let mut history = History { rng, scheduler, now, made: 0, templates, nodes, pods, bindings };
        namespaces().for_each(|namespace| history.upsert(&namespace));
        for object in storage_and_devices::basics(&mut history.rng) {
            history.upsert(&object);
        }
        (0..6).for_each(|_| history.add_node());
        history
    }

    fn upsert(&mut self, json: &Value) {
        self.scheduler.handle(Input::upsert(decode(json)), self.now);
    }

    fn version(&mut self) -> String {
        self.made += 1;
        self.made.to_string()
    }

    fn add_node(&mut self) {
        let version = self.version();
        let name = format!("n{version}");
        let zone = *self.rng.pick(&ZONES);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "resourceVersion": version, "labels": {
                "kubernetes.io/hostname": name, "disk": self.rng.pick(&["ssd", "hdd"]),
                "topology.kubernetes.io/zone": zone,
            }},
            "status": {"allocatable": {
                "cpu": (2 + self.rng.below(3)).to_string(), "memory": "8Gi", "pods": "8",
                "example.com/gpu": self.rng.below(3).to_string(),
            }},
        });
        self.upsert(&node);
        self.nodes.push(node);
        for object in storage_and_devices::of_node(&name, &mut self.rng) {
            self.upsert(&object);
        }
    }

    fn add_pod(&mut self) {
        let version = self.version();
        let at = self.rng.below(self.templates.len());
        let mut pod = self.templates[at].clone();
        pod["metadata"]["name"] = format!("p{version}").into();
        pod["metadata"]["uid"] = format!("uid-{version}").into();
        pod["metadata"]["resourceVersion"] = version.into();
        pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "hidden"});
        pod["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": "hidden"}]);
        let Object::Pod(view) = decode(&pod) else { panic!("a pod") };
        self.pods.push(view);
        self.upsert(&pod);
    }

    fn delete_pod(&mut self, pod: &Pod) {
        let Some(at) = self.pods.iter().position(|known| known.metadata.uid == pod.metadata.uid) else { return };
        let pod = self.pods.swap_remove(at);
        self.scheduler.handle(Input::delete(Object::Pod(pod)), self.now);
    }

    fn schedule(&mut self) {
        self.scheduler.schedule_one(self.now);
        for effect in self.scheduler.take_effects() {
            match effect {
                Effect::Bind(binding) => self.bindings.push(*binding),
                Effect::Preempt(preemption) => {
                    for victim in &preemption.victims {
                        self.delete_pod(victim);
                    }
                    let uid = preemption.preemptor.uid().to_owned();
                    self.scheduler.handle(Input::Preempted { uid, result: Ok(()) }, self.now);
                }
                _ => {}
            }
        }
    }

    /// Ends a binding; most succeed.
    fn bind(&mut self) {
        if self.bindings.is_empty() {
            return;
        }
        let binding = self.bindings.swap_remove(self.rng.below(self.bindings.len()));
        let at = self.pods.iter().position(|pod| pod.metadata.uid == binding.pod_uid());
        let bound = at.is_some() && !self.rng.one_in(5);
        if let Some(at) = at.filter(|_| bound) {
            let mut pod = Pod::clone(&self.pods[at]);
            pod.spec.node_name = binding.node().to_owned();
            pod.metadata.resource_version = self.version();
            self.pods[at] = Arc::new(pod);
            self.scheduler.handle(Input::upsert(Object::Pod(self.pods[at].clone())), self.now);
        }
        self.scheduler.end_binding(binding, bound, self.now);
    }

    fn step(&mut self) {
        self.now += SignedDuration::from_millis(137);
        match self.rng.below(16) {
            0..=4 => self.add_pod(),
            5..=9 => (0..3).for_each(|_| self.schedule()),
            10 | 11 => (0..3).for_each(|_| self.bind()),
            12 if !self.pods.is_empty() => {
                let pod = Arc::clone(&self.pods[self.rng.below(self.pods.len())]);
                self.delete_pod(&pod);
            }
            13 if self.rng.one_in(2) => self.add_node(),
            14 if self.nodes.len() > 3 => {
                let node = self.nodes.swap_remove(self.rng.below(self.nodes.len()));
                self.scheduler.handle(Input::delete(decode(&node)), self.now);
            }
            _ => {
                self.now += SignedDuration::from_secs(20);
                self.scheduler.tick(self.now);
            }
        }
    }
}

/// The files of a log, oldest first.
fn files(path: &Path) -> Vec<std::path::PathBuf> {
    let older = |number: usize| std::path::PathBuf::from(format!("{}.{number}", path.display()));
    (1..)
        .map(older)
        .take_while(|file| file.exists())
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .chain([path.into()])
        .collect()
}

fn entries(path: &Path) -> Vec<LogEntry> {
    let mut reader = DecisionLogReader::new(BufReader::new(File::open(path).unwrap()));
    let entries = reader.by_ref().collect();
    assert!(reader.notes().is_empty(), "{:?}", reader.notes());
    entries
}

/// The nodes of the highest score in the plain cycle, without any of the engine.
fn best_nodes(replay: &Replay, decision: &Decision) -> Vec<String> {
    let state = replay.state();
    let scheduler = replay.scheduler();
    let pod = state.pending().find(|pod| pod.uid() == decision.uid).expect("the pod is pending");
    let profile = scheduler.profile("default-scheduler").unwrap();
    let mut attempt = Attempt::new(profile, state.cluster(), state.nominator(), pod, replay.time());
    let found = attempt.find(Search::ALL).unwrap();
    let nodes = found.nodes();
    if nodes.len() < 2 {
        return nodes.iter().map(|node| node.name.to_string()).collect();
    }
    let scores = attempt.score(&nodes).unwrap();
    scores.best().into_iter().map(|at| scores.nodes[at].to_string()).collect()
}

/// Replays a file; the numbers of decisions with and without a node are returned.
fn replay(path: &Path, seed: u64) -> [usize; 2] {
    let mut replay = Replay::new(&Configuration::default(), Registry::default()).unwrap();
    let mut counts = [0; 2];
    for entry in entries(path) {
        replay.apply(&entry).unwrap();
        let Some(decision) = &entry.decision else { continue };
        if let (Some(node), None) = (&decision.node, &decision.message)
            && replay.scheduler().cluster().node(node).is_some()
            && decision.nominated.is_none()
        {
            let best = best_nodes(&replay, decision);
            // A nominated pod takes its nominated node, however it scores.
            let is_nominated = replay.scheduler().queue().nominator.node_of(&decision.uid) == Some(node);
            assert!(is_nominated || best.contains(node), "seed {seed} {}: {decision:?}: {best:?}", path.display());
            assert!(
                decision.tied.is_none_or(|tied| is_nominated || tied as usize == best.len()),
                "{decision:?}: {best:?}"
            );
        }
        let again = replay.decide(decision).unwrap_or_else(|| panic!("seed {seed}: {:?}", replay.notes()));
        assert!(again.agrees(decision), "seed {seed} {}: {decision:?}, now {again:?}", path.display());
        counts[usize::from(decision.message.is_some())] += 1;
    }
    assert!(replay.notes().is_empty(), "seed {seed}: {:?}", replay.notes());
    counts
}

/// Logs a history and replays each file of it; the numbers of decisions with and without a node are returned.
fn log_and_replay(seed: u64) -> [usize; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions");
    let mut writer = Writer::start(config(&path, SMALL_FILE, 99)).unwrap();
    let mut history = History::new(seed);
    for _ in 0..STEPS {
        history.step();
        writer.handle(Message::Records(history.scheduler.take_records())).unwrap();
        if writer.wants_state.swap(false, Ordering::Relaxed) {
            let state = history.scheduler.state_records(history.now);
            writer.handle(Message::State { lost: 0, state }).unwrap();
        }
    }
    writer.lines.finish(&mut writer.files).and_then(|()| writer.files.flush()).unwrap();
    let files = files(&path);
    assert!(files.len() > 1, "the log is rotated");
    let mut counts = [0; 2];
    for file in files {
        assert!(!std::fs::read_to_string(&file).unwrap().contains("hidden"), "secrets do not enter the log");
        let [placed, failed] = replay(&file, seed);
        (counts[0], counts[1]) = (counts[0] + placed, counts[1] + failed);
    }
    counts
}

#[test]
fn every_decision_of_a_random_history_is_made_again_from_its_log() {
    let asked = std::env::var("BAYPLAN_HISTORIES").ok().and_then(|count| count.parse().ok());
    let mut counts = [0; 2];
    for seed in 0..asked.unwrap_or(HISTORIES) {
        let [placed, failed] = log_and_replay(seed);
        (counts[0], counts[1]) = (counts[0] + placed, counts[1] + failed);
    }
    assert!(counts[0] > 500 && counts[1] > 200, "{counts:?}");
}

/// The pods that are put, in order.
fn pods_of(records: &[Record]) -> impl Iterator<Item = Pod> {
    records.iter().filter_map(|record| match &record.what {
        Recorded::Changed(Changed::Put(Object::Pod(pod))) => {
            let mut pod = Pod::clone(pod);
            pod.metadata.annotations.retain(|_, _| false);
            Some(pod)
        }
        _ => None,
    })
}

#[test]
fn every_pod_is_read_as_it_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (mut whole, mut referring) = (0, 0);
    for seed in 0..HISTORIES {
        let path = folder.path().join(seed.to_string());
        let mut writer = Writer::start(config(&path, FILE_BYTES, 1)).unwrap();
        let (mut history, mut recorded) = (History::new(seed), Vec::new());
        for step in 0..STEPS {
            history.step();
            let records = history.scheduler.take_records();
            recorded.extend(pods_of(&records));
            writer.handle(Message::Records(records)).unwrap();
            if step == STEPS / 2 {
                // The log of one file begins again.
                let state = history.scheduler.state_records(history.now);
                recorded = pods_of(&state).collect();
                writer.handle(Message::State { lost: 0, state }).unwrap();
            }
        }
        writer.lines.finish(&mut writer.files).and_then(|()| writer.files.flush()).unwrap();
        let read: Vec<Pod> = entries(&path)
            .iter()
            .flat_map(|entry| &entry.changes)
            .filter_map(|change| match &change.what {
                Changed::Put(object) if object.resource.kind == "Pod" => serde_json::from_str(object.json.get()).ok(),
                _ => None,
            })
            .collect();
        assert_eq!(read, recorded, "seed {seed}");
        let text = std::fs::read_to_string(&path).unwrap();
        (whole, referring) =
            (whole + text.matches("\"number\":").count(), referring + text.matches("\"like\":").count());
    }
    assert!(whole > 0 && referring > 3 * whole, "{whole} whole, {referring} referring");
}

#[test]
fn histories_that_were_once_decided_otherwise_are_decided_as_they_were() {
    for seed in ONCE_DIFFERENT {
        log_and_replay(*seed);
    }
}

fn config(path: &Path, file_bytes: u64, files: usize) -> DecisionLogConfig {
    DecisionLogConfig { path: path.to_owned(), file_bytes, files, configuration: json!({}) }
}

fn notes(path: &Path) -> Vec<String> {
    let mut reader = DecisionLogReader::new(BufReader::new(File::open(path).unwrap()));
    reader.by_ref().for_each(drop);
    reader.notes().to_vec()
}

#[test]
fn no_more_files_are_kept_than_asked_for_and_none_is_much_larger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions");
    let mut history = History::new(1);
    let mut largest_batch = 0;
    let mut writer = Writer::start(config(&path, SMALL_FILE, 3)).unwrap();
    for _ in 0..8 * STEPS {
        history.step();
        let before = std::fs::metadata(&path).unwrap().len();
        writer.handle(Message::Records(history.scheduler.take_records())).unwrap();
        writer.files.flush().unwrap();
        largest_batch = largest_batch.max(std::fs::metadata(&path).unwrap().len() - before);
        if writer.wants_state.swap(false, Ordering::Relaxed) {
            let state = history.scheduler.state_records(history.now);
            writer.handle(Message::State { lost: 0, state }).unwrap();
        }
    }
    let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["decisions", "decisions.1", "decisions.2"]);
    for file in files(&path) {
        // A file is closed after the batch that fills it; one that begins with much state takes as much again.
        let state = entries(&file).iter().position(|entry| entry.time.is_some() && entry.begins.is_none());
        let text = std::fs::read_to_string(&file).unwrap();
        let state_bytes: usize = text.lines().take(state.unwrap()).map(|line| line.len() + 1).sum();
        let bound = SMALL_FILE.max(2 * state_bytes as u64) + largest_batch;
        assert!(text.len() as u64 <= bound, "{} has {} of {bound} bytes", file.display(), text.len());
    }
}

#[test]
fn a_full_disk_leaves_a_gap_that_the_reader_is_told_of_and_the_log_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("decisions");
    let mut history = History::new(2);
    let mut writer = Writer::start(config(&path, FILE_BYTES, 3)).unwrap();
    let mut log = |writer: &mut Writer, steps: usize| {
        (0..steps).for_each(|_| history.step());
        let records = history.scheduler.take_records();
        let count = records.len() as u64;
        writer.handle_or_rest(Message::Records(records));
        (count, history.scheduler.state_records(history.now))
    };
    log(&mut writer, 20);
    writer.files.fill_disk();
    // More than is gathered before it is written.
    let (full, _) = log(&mut writer, 8 * STEPS);
    let (_, lost) = writer.failing.expect("the disk is full");
    assert_eq!(lost, full);
    let (resting, _) = log(&mut writer, 20);
    assert_eq!(writer.failing.unwrap().1, full + resting, "nothing is written while it rests");
    assert!(!writer.wants_state.load(Ordering::Relaxed));
    writer.failing = Some((Instant::now(), full + resting));
    let (due, state) = log(&mut writer, 1);
    assert!(writer.wants_state.load(Ordering::Relaxed), "it is tried again");
    writer.handle_or_rest(Message::State { lost: 0, state });
    assert!(writer.failing.is_none());
    log(&mut writer, STEPS);
    writer.lines.finish(&mut writer.files).and_then(|()| writer.files.flush()).unwrap();
    let told = notes(&path);
    let missing = format!("{} changes and decisions before", full + resting + due);
    assert!(told.len() == 1 && told[0].starts_with(&missing), "{told:?}");
    assert!(notes(&files(&path)[0]).is_empty(), "what was written before is whole");
}

#[test]
fn a_folder_that_goes_away_does_not_stop_the_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut log = DecisionLog::start(config(&gone.join("decisions"), 1, 3)).unwrap();
    std::fs::remove_dir_all(&gone).unwrap();
    let mut history = History::new(3);
    for _ in 0..STEPS {
        history.step();
        log.write(&mut history.scheduler);
    }
    drop(log);
    assert!(!gone.exists());
    let cannot = DecisionLog::start(config(&gone.join("decisions"), 1, 3)).err().unwrap().to_string();
    assert!(cannot.starts_with("cannot write the decision log ") && cannot.contains("gone/decisions: "), "{cannot}");
}
