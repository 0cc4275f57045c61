//! Every change that is returned holds: on random clusters and on the recorded ones, applied from its JSON to fresh
//! objects and decided by a scheduler that knows nothing of how it was found.

#![allow(clippy::unwrap_used)]

#[path = "../../scheduler/tests/random_objects/mod.rs"]
#[allow(dead_code)] // The histories of the engine use more of it.
mod random_objects;
mod stranger;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use bayplan_testkit::{Rng, merge, node};
use flate2::read::MultiGzDecoder;
use random_objects::{APPS, NAMESPACES, ZONES, namespaces, pods, storage_and_devices, word};
use serde_json::{Value, json};

/// How many seeds are tried, unless `BAYPLAN_RUNS` says otherwise; `BAYPLAN_SEED` repeats one.
const RUNS: u64 = 150;
/// How many pods are asked about in each random cluster.
const PODS_ASKED: usize = 4;
/// One in so many recorded cases is tried by default.
const RECORDED_ONE_IN: usize = 16;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A small, crowded cluster.
fn random_cluster(rng: &mut Rng) -> Vec<Value> {
    let names: Vec<String> = (0..2 + rng.below(5)).map(|n| format!("n{}", 29 + n)).collect();
    let mut objects = storage_and_devices::basics(rng);
    objects.extend(namespaces());
    for name in &names {
        objects.push(random_node(name, rng));
        objects.extend(storage_and_devices::of_node(name, rng));
    }
    for n in 0..rng.below(names.len() * 5) {
        let mut placed = pods::template(rng);
        let name = format!("placed-{n}");
        merge(&mut placed, json!({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": rng.pick(&names)}}));
        if rng.one_in(4) {
            placed["status"] = json!({"startTime": format!("2026-01-01T00:0{}:00Z", rng.below(10))});
        }
        objects.push(placed);
    }
    for n in 0..rng.below(3) {
        let mut nominated = pods::template(rng);
        let name = format!("nominated-{n}");
        let node = rng.pick(&names);
        merge(&mut nominated, json!({"metadata": {"name": name, "uid": name}, "status": {"nominatedNodeName": node}}));
        objects.push(nominated);
    }
    for app in APPS.iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>() {
        let namespace = rng.pick(&NAMESPACES);
        objects.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"namespace": namespace, "name": app}, "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": rng.below(2)}}));
    }
    for value in [5, 15, 25].into_iter().filter(|_| rng.one_in(3)).collect::<Vec<_>>() {
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": format!("class-{value}")}, "value": value}));
    }
    objects
}

fn random_node(name: &str, rng: &mut Rng) -> Value {
    let mut node = node(name)
        .allocatable("cpu", &format!("{}m", 500 + 250 * rng.below(10)))
        .allocatable("memory", &format!("{}Mi", 512 + 256 * rng.below(10)))
        .allocatable("pods", &(1 + rng.below(8)).to_string());
    if !rng.one_in(4) {
        node = node.zone(word(rng, &ZONES));
    }
    if rng.one_in(2) {
        node = node.label("disk", word(rng, &["ssd", "hdd"]));
    }
    if rng.one_in(3) {
        node = node.label("pool", word(rng, &["one", "two"]));
    }
    if rng.one_in(3) {
        node = node.label("rack", word(rng, &["r1", "r2"]));
    }
    if rng.one_in(3) {
        node = node.allocatable("example.com/gpu", &rng.below(3).to_string());
    }
    if rng.one_in(4) {
        node = node.taint(word(rng, &["a", "b", "c"]), word(rng, &["", "x"]), word(rng, &["NoSchedule", "NoExecute"]));
    }
    if rng.one_in(6) {
        node = node.unschedulable().taint("node.kubernetes.io/unschedulable", "", "NoSchedule");
    }
    node.json()
}

/// A pod that is likely to fit nowhere.
fn random_subject(at: usize, rng: &mut Rng) -> Value {
    let mut pod = pods::template(rng);
    let name = format!("subject-{at}");
    merge(&mut pod, json!({"metadata": {"name": name, "uid": name}}));
    let mut container = |pod: &mut Value, list: &str, sidecar: bool| {
        let mut more = json!({"name": "m", "resources": {"requests": {"cpu": format!("{}m", rng.below(2500)),
            "memory": format!("{}Ki", rng.below(2_000_000))}}});
        if sidecar {
            more["restartPolicy"] = "Always".into();
        }
        match pod["spec"][list].as_array_mut() {
            Some(containers) => containers.push(more),
            None => pod["spec"][list] = json!([more]),
        }
    };
    match at % 4 {
        0 => container(&mut pod, "containers", false),
        1 => {
            container(&mut pod, "initContainers", true);
            container(&mut pod, "initContainers", false);
        }
        2 => pod["spec"]["overhead"] = json!({"cpu": "120m", "memory": "33Mi"}),
        _ => {}
    }
    if rng.one_in(8) {
        pod["spec"]["schedulingGates"] = json!([{"name": "g"}]);
    }
    if rng.one_in(10) {
        pod["spec"]["preemptionPolicy"] = "Never".into();
    }
    if rng.one_in(12) {
        pod["spec"]["nodeName"] = rng.pick(&["n29", "nowhere"]).to_string().into();
    }
    if rng.one_in(12) {
        pod["spec"]["resources"] = json!({"requests": {"cpu": "3", "memory": "3Gi"}});
    }
    pod
}

#[test]
fn every_change_for_pods_of_random_clusters_holds() {
    let profile = stranger::profile(&Value::Null);
    let seeds = match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    };
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let runs = seeds.end - seeds.start;
    for seed in seeds {
        // Seen with a failure only.
        println!("BAYPLAN_SEED={seed}");
        let mut rng = Rng::new(seed);
        let objects = random_cluster(&mut rng);
        for at in 0..PODS_ASKED {
            let pod = random_subject(at, &mut rng);
            for change in stranger::proven(&profile, &objects, &pod) {
                *kinds.entry(format!("{:?}", change.kind)).or_default() += 1;
            }
        }
    }
    println!("{kinds:#?}");
    if runs >= RUNS {
        assert_eq!(kinds.len(), 8, "every kind of change is found somewhere: {kinds:?}");
    }
}

fn recorded(suite: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/corpus").join(suite);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let mut text = String::new();
        #[allow(clippy::disallowed_methods, reason = "the core does no IO, its tests read recordings")]
        let recording = std::fs::File::open(file).unwrap();
        MultiGzDecoder::new(recording).read_to_string(&mut text).unwrap();
        cases.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    cases
}

/// Checks the changes of one in so many recorded cases in which nothing fits.
fn check_recorded(suite: &str, one_in: usize) {
    let mut changes = 0;
    for case in recorded(suite).iter().step_by(one_in) {
        let objects = case["objects"].as_array().unwrap();
        changes += stranger::proven(&stranger::profile(&case["config"]), objects, &case["pod"]).len();
    }
    assert!(changes > 0, "{suite}");
}

#[test]
fn every_change_for_recorded_decisions_holds() {
    check_recorded("decisions", RECORDED_ONE_IN);
}

#[test]
fn every_change_for_recorded_preemptions_holds() {
    check_recorded("preemption", RECORDED_ONE_IN);
}

#[test]
#[ignore = "all recorded cases: minutes without optimisation"]
fn every_change_for_all_recorded_cases_holds() {
    check_recorded("decisions", 1);
    check_recorded("preemption", 1);
}
