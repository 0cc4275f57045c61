//! A snapshot answers as the cluster it was taken of does, and a redacted one under other names.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its functions too")]
#![allow(clippy::disallowed_methods, reason = "reads recorded files, and measures")]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bayplan_explain::why::{Options, explain};
use bayplan_explain::{Profiles, State};
use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Object, PodInfo, Registry};
use bayplan_sources::{ClusterObjects, Given, Redaction, SourceReader, write_snapshot};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

/// Every so manieth recorded decision is asked again; all of them are decoded.
const STEP: usize = 7;

/// The recorded decisions, by file.
fn recorded() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/corpus/decisions");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        cases.extend(text.lines().map(|line| (name.clone(), serde_json::from_str(line).unwrap())));
    }
    cases
}

fn cluster(objects: &[Value]) -> ClusterObjects {
    let dump = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    read(dump.as_bytes())
}

fn read(bytes: &[u8]) -> ClusterObjects {
    let mut reader = SourceReader::default();
    reader.read("x", &mut &*bytes, Given::Directly);
    reader.finish()
}

fn taken(objects: &ClusterObjects, redaction: Redaction) -> ClusterObjects {
    let mut snapshot = Vec::new();
    write_snapshot(objects, redaction, &mut snapshot).unwrap();
    read(&snapshot)
}

fn profiles(config: &Value) -> Profiles {
    let configuration = match config {
        Value::Null => Configuration::default(),
        config => Configuration::from_value(config.clone()).unwrap(),
    };
    Profiles::build(&configuration, &Registry::default()).unwrap()
}

/// The answer of `why --per-node --as-written`, without what it says about its source.
fn ask(objects: ClusterObjects, profiles: &Profiles, pod: &Value) -> Value {
    let mut state = State::new(objects);
    let pod = Arc::new(PodInfo::new(Arc::new(Pod::deserialize(pod).unwrap())));
    let options = Options { per_node: true, ..Options::at("2026-01-01T00:00:00Z".parse().unwrap()) };
    let mut answer = serde_json::to_value(explain(&mut state, profiles, &pod, &options)).unwrap();
    answer.as_object_mut().unwrap().remove("source");
    answer
}

/// What the scheduler reads of an object, without annotations that nobody reads and drivers' own parameters.
fn view(json: &Value) -> Option<String> {
    const READ: [&str; 6] = [
        "pv.kubernetes.io/",
        "volume.kubernetes.io/",
        "volume.beta.kubernetes.io/",
        "storage.alpha.kubernetes.io/",
        "resource.kubernetes.io/",
        "storageclass.kubernetes.io/",
    ];
    let mut json = json.clone();
    if let Some(annotations) = json.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| READ.iter().any(|prefix| key.starts_with(prefix)));
    }
    for config in ["/spec/config", "/spec/devices/config"] {
        if let Some(config) = json.pointer_mut(config) {
            *config = Value::Null;
        }
    }
    if let Some(config) = json.pointer_mut("/spec/devices").and_then(Value::as_object_mut) {
        config.remove("config");
    }
    if json["kind"] == "DeviceClass"
        && let Some(spec) = json["spec"].as_object_mut()
    {
        spec.remove("config");
    }
    Object::decode(&json).map(|object| format!("{:?}", object.unwrap()))
}

#[test]
fn the_scheduler_reads_the_same_of_pruned_objects() {
    let mut compared = BTreeMap::<String, usize>::new();
    for (file, case) in recorded() {
        let objects = case["objects"].as_array().unwrap();
        let pods = [case["pod"].clone()];
        for object in objects.iter().chain(&pods) {
            let kind = object["kind"].as_str().unwrap();
            let mut pruned = object.clone();
            bayplan_sources::prune(kind, &mut pruned).unwrap();
            assert_eq!(view(&pruned), view(object), "{file} {}: {object}", case["name"]);
            *compared.entry(kind.to_owned()).or_default() += 1;
        }
    }
    assert!(compared.len() > 12, "{compared:?}");
}

#[test]
fn a_snapshot_gives_the_answers_of_its_cluster() {
    for (file, case) in recorded().into_iter().step_by(STEP) {
        let objects = cluster(case["objects"].as_array().unwrap());
        let profiles = profiles(&case["config"]);
        let snapshot = taken(&objects, Redaction::None);
        let expected = ask(objects, &profiles, &case["pod"]);
        assert_eq!(ask(snapshot, &profiles, &case["pod"]), expected, "{file} {}", case["name"]);
    }
}

/// What an answer says about each node, by its name, and the best ones.
fn outcome(answer: &Value, name: &dyn Fn(&str) -> String) -> BTreeMap<String, Value> {
    let mut outcome = BTreeMap::new();
    for entry in answer["perNode"].as_array().into_iter().flatten() {
        let said = json!([entry["code"], entry["plugin"], entry["scores"], entry["total"]]);
        outcome.insert(name(entry["node"].as_str().unwrap()), said);
    }
    let mut best: Vec<String> =
        answer["best"].as_array().into_iter().flatten().map(|node| name(node.as_str().unwrap())).collect();
    best.sort();
    outcome.insert("best".to_owned(), json!(best));
    outcome.insert("verdict".to_owned(), answer["verdict"].clone());
    outcome
}

#[test]
fn a_redacted_snapshot_gives_the_same_answers_under_other_names() {
    let profiles = profiles(&Value::Null);
    let unbound = |case: &Value| case["config"].is_null() && case["pod"]["spec"]["nodeName"].is_null();
    let mut asked = 0;
    for (file, case) in recorded().into_iter().filter(|(_, case)| unbound(case)).step_by(STEP) {
        let mut objects = case["objects"].as_array().unwrap().clone();
        let scheduler = case["pod"]["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
        if scheduler != "default-scheduler" {
            continue;
        }
        objects.push(case["pod"].clone());
        let plain = cluster(&objects);
        let redacted = taken(&plain, Redaction::Names);
        assert_eq!(redacted.objects.len(), plain.objects.len(), "{file} {}", case["name"]);
        let names: BTreeMap<String, String> = (redacted.objects.iter().zip(&plain.objects))
            .filter(|(object, _)| object.resource.kind == "Node")
            .map(|(other, one)| (other.name.to_string(), one.name.to_string()))
            .collect();
        let pod: Value = serde_json::from_str(redacted.objects.last().unwrap().json.get()).unwrap();
        let expected = outcome(&ask(plain, &profiles, &case["pod"]), &str::to_owned);
        let answer = outcome(&ask(redacted, &profiles, &pod), &|name| names[name].clone());
        assert_eq!(answer, expected, "{file} {}", case["name"]);
        asked += 1;
    }
    assert!(asked > 100, "{asked}");
}

/// A node and a pod as a kubelet leaves them, with what a real one says besides.
fn large_cluster(nodes: usize, pods: usize) -> String {
    let mut lines = String::new();
    let images: Vec<Value> = (0..20)
        .map(|i| {
            json!({"names": [format!("registry.example/team/app-{i}@sha256:{i:064x}"),
            format!("registry.example/team/app-{i}:v1")], "sizeBytes": 1000 * i})
        })
        .collect();
    for n in 0..nodes {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("node-{n:05}"), "uid": format!("node-uid-{n:028}"),
                "resourceVersion": format!("{n}"),
                "labels": {"kubernetes.io/hostname": format!("node-{n:05}"),
                    "topology.kubernetes.io/zone": format!("zone-{}", n % 3)}},
            "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}, "images": images,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                    "message": "kubelet is posting ready status"}]},
        });
        lines.push_str(&format!("{node}\n"));
    }
    for p in 0..pods {
        let app = format!("app-{}", p % 500);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": format!("team-{}", p % 50), "name": format!("{app}-{:09x}", p * 7919),
                "uid": format!("{p:08x}-0000-4000-8000-{:012x}", p * 104_729),
                "resourceVersion": format!("{}", p + 100_000), "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"app": app, "pod-template-hash": "5d4f8c7b9"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                    "name": format!("{app}-5d4f8c7b9"), "uid": format!("{:036x}", p % 500), "controller": true}]},
            "spec": {"nodeName": format!("node-{:05}", p % nodes), "schedulerName": "default-scheduler",
                "priority": 0, "serviceAccountName": "default",
                "containers": [{"name": "main", "image": format!("registry.example/team/{app}:v1"),
                    "env": [{"name": "A", "value": "b"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                        "tolerationSeconds": 300}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "PodScheduled",
                "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]},
        });
        lines.push_str(&format!("{pod}\n"));
    }
    lines
}

#[test]
fn a_snapshot_is_small() {
    let objects = read(large_cluster(50, 1500).as_bytes());
    let mut snapshot = Vec::new();
    write_snapshot(&objects, Redaction::None, &mut snapshot).unwrap();
    // A hundredth of 5,000 nodes and 150,000 pods, which have to fit into 50 MB.
    assert!(snapshot.len() < 500_000, "{}", snapshot.len());
}

/// `cargo test --release -p bayplan-explain --test snapshots -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, for release builds"]
fn how_long_a_large_snapshot_takes() {
    let objects = read(large_cluster(5000, 150_000).as_bytes());
    let mut snapshot = Vec::new();
    let begin = std::time::Instant::now();
    write_snapshot(&objects, Redaction::None, &mut snapshot).unwrap();
    println!("written in {:?}, {:.1} MB", begin.elapsed(), snapshot.len() as f64 / 1e6);
    let begin = std::time::Instant::now();
    let objects = read(&snapshot);
    println!("read in {:?}", begin.elapsed());
    let state = State::new(objects);
    println!("loaded in {:?}, {} notes", begin.elapsed(), state.notes().len());
}
