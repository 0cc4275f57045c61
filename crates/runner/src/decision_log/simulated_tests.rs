//! A log that the writer wrote, as a history of `simulate`: under the same configuration pods go where they went.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use bayplan_explain::simulate::{History, LoggedHistory, Options, placements};
use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Effect, Input, Object, Registry, TieBreak};
use bayplan_sources::decision_log::DecisionLogReader;
use bayplan_testkit::{node, pod};
use jiff::SignedDuration;

use super::*;

/// A scheduler that binds at once, and its log.
struct Logged {
    scheduler: Scheduler,
    log: DecisionLog,
    now: Timestamp,
    version: u64,
}

impl Logged {
    fn new(path: &Path) -> Self {
        let (configuration, ties) = (Configuration::default(), TieBreak::SmallestName);
        let scheduler = Scheduler::new(&configuration, &Registry::default(), ties).unwrap().with_records();
        let config = DecisionLogConfig::new(path.to_owned(), serde_json::json!({}));
        let log = DecisionLog::start(config).unwrap();
        Logged { scheduler, log, now: Timestamp::from_second(1_700_000_000).unwrap(), version: 0 }
    }

    fn put_pod(&mut self, pod: &Pod, on: &str) -> Arc<Pod> {
        self.version += 1;
        let mut pod = pod.clone();
        pod.metadata.resource_version = self.version.to_string();
        on.clone_into(&mut pod.spec.node_name);
        let pod = Arc::new(pod);
        self.scheduler.handle(Input::upsert(Object::Pod(pod.clone())), self.now);
        pod
    }

    /// Decides all that can be decided, binds it, and lets some seconds pass.
    fn settle(&mut self, pods: &mut [Arc<Pod>]) {
        self.scheduler.tick(self.now);
        while self.scheduler.schedule_one(self.now) {}
        for effect in self.scheduler.take_effects() {
            let Effect::Bind(binding) = effect else { continue };
            let node = binding.node().to_owned();
            let known = pods.iter_mut().find(|pod| pod.metadata.uid == binding.pod_uid()).unwrap();
            self.scheduler.handle(Input::Bound(Box::new(binding.succeeded())), self.now);
            *known = self.put_pod(&known.clone(), &node);
        }
        self.log.write(&mut self.scheduler);
        self.now += SignedDuration::from_secs(20);
    }
}

fn read(path: &Path) -> (History, Vec<(String, String)>) {
    let (mut logged, mut decided) = (LoggedHistory::default(), Vec::new());
    for entry in DecisionLogReader::new(BufReader::new(File::open(path).unwrap())) {
        if let Some(decision) = &entry.decision
            && let Some(node) = &decision.node
        {
            decided.push((format!("{}/{}", decision.namespace, decision.name), node.clone()));
        }
        logged.entry(&entry);
    }
    (logged.finish(&[]), decided)
}

#[test]
fn a_log_is_simulated_as_it_was_decided() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut logged = Logged::new(&path);
    for name in ["n1", "n2", "n3"] {
        let node = Arc::new(node(name).zone(if name == "n1" { "a" } else { "b" }).view());
        logged.scheduler.handle(Input::upsert(Object::Node(node)), logged.now);
    }
    // It ran before the log began, and stays where it is.
    let mut pods = vec![logged.put_pod(&pod("old").request("cpu", "3").view(), "n1")];
    for number in 0..9 {
        let cpu = ["1", "2", "3"][number % 3];
        pods.push(logged.put_pod(&pod(&format!("p{number}")).request("cpu", cpu).view(), ""));
        logged.settle(&mut pods);
    }
    // Some wait until others leave.
    assert!(pods.iter().any(|pod| !pod.is_assigned()), "the cluster is full");
    for gone in [0, 1, 3] {
        logged.scheduler.handle(Input::delete(Object::Pod(pods[gone].clone())), logged.now);
        logged.settle(&mut pods);
    }
    drop(logged);
    let (history, decided) = read(&path);
    let options = Options { ties: TieBreak::SmallestName, preempt: true };
    let simulated = placements(&history, &Configuration::default(), &options).unwrap();
    let simulated: Vec<(String, String)> = simulated.into_iter().map(|placed| (placed.pod, placed.node)).collect();
    assert!(decided.len() > 6, "{decided:?}");
    assert_eq!(simulated, decided);
}
