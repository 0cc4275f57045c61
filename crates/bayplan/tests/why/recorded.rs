//! Recorded decisions and preemptions of upstream, asked through the binary and its JSON.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde_json::{Value, json};

use crate::BESIDE;

/// One of so many recorded cases is asked: starting a process for each takes time, and the conformance suite asks all.
const EVERY: usize = 60;

fn cases(suite: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/corpus").join(suite);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let lines = files.iter().flat_map(|file| {
        let text = flate2::read::GzDecoder::new(fs::File::open(file).unwrap());
        BufReader::new(text).lines().map(Result::unwrap).step_by(EVERY)
    });
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

/// `why -f pod.json --as-written --per-node --from dump.json --config config.json -o json`.
fn ask(case: &Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| fs::write(folder.path().join(name), value.to_string()).unwrap();
    write("dump.json", &json!({"apiVersion": "v1", "kind": "List", "items": case["objects"]}));
    write("pod.json", &case["pod"]);
    write("config.json", &case["config"]);
    let config = if case["config"].is_null() { "" } else { "--config config.json" };
    let command = format!("bayplan why -f pod.json --as-written --per-node --from dump.json {config} -o json");
    let output = BESIDE.shell(&command, folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{}: {error}: {errors}", case["name"]))
}

fn sorted(list: &Value) -> Vec<String> {
    let mut all: Vec<String> = list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

#[test]
fn recorded_decisions_are_explained_node_by_node() {
    let cases = cases("decisions");
    assert!(cases.len() > 40);
    for case in cases {
        let (name, expected, answer) = (&case["name"], &case["expected"], ask(&case));
        assert_eq!(answer.get("best"), expected.get("best"), "{name}");
        assert_eq!(answer.get("message"), expected.get("fitError"), "{name}");
        let node = |of: &str| -> Value {
            let mut entries = answer["perNode"].as_array().into_iter().flatten();
            entries.find(|entry| entry["node"] == of).cloned().unwrap_or_default()
        };
        for (of, status) in expected["nodes"].as_object().into_iter().flatten() {
            let entry = node(of);
            assert_eq!((&entry["code"], &entry["plugin"]), (&status["code"], &status["plugin"]), "{name} {of}");
            assert_eq!(sorted(&entry["reasons"]), sorted(&status["reasons"]), "{name} {of}");
        }
        for (of, total) in expected["totals"].as_object().into_iter().flatten() {
            assert_eq!(node(of)["total"], *total, "{name} {of}");
        }
        for (field, part) in [("rawScores", "raw"), ("scores", "score")] {
            for (plugin, nodes) in expected[field].as_object().into_iter().flatten() {
                for (of, score) in nodes.as_object().unwrap() {
                    let scores = node(of)["scores"].as_array().unwrap().clone();
                    let own = scores.iter().find(|score| score["plugin"] == *plugin).unwrap();
                    assert_eq!(own[part], *score, "{name} {of} {plugin} {field}");
                }
            }
        }
    }
}

#[test]
fn recorded_preemptions_have_the_same_candidates_and_victims() {
    for case in cases("preemption") {
        let (name, expected, answer) = (&case["name"], &case["expected"], ask(&case));
        let preemption = &answer["preemption"];
        assert_eq!(preemption["eligible"], expected["eligible"], "{name}");
        assert_eq!(preemption.get("acceptable"), expected.get("acceptable"), "{name}");
        let candidates: Value = preemption["candidates"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|candidate| {
                let victims = json!({"victims": candidate["victims"], "numPDBViolations": candidate["pdbViolations"]});
                (candidate["node"].as_str().unwrap().to_owned(), victims)
            })
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(candidates, expected["candidates"], "{name}");
    }
}
