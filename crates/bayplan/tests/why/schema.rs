//! The JSON of `why` against its schema.

use serde_json::Value;

use crate::BESIDE;
use crate::json_schema::Schema;

#[test]
fn every_answer_keeps_to_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::of("explanation.schema.json");
    let mut kinds = std::collections::BTreeSet::new();
    for question in [
        "pod/web-5f-a",
        "pod/urgent",
        "pod/urgent --per-node",
        "pod/small",
        "pod/small --per-node --ties name",
        "pod/small --node n-3",
        "pod/busy-1 --per-node",
        "pod/gated",
        "pod/picky --no-preemption",
        "stateful -n storage",
        "deployment/web",
        "-A",
        "-A --per-node",
        "node/n-2",
        "node/n-3",
        "-f new-pod.yaml --as-written",
    ] {
        let output = BESIDE.shell(&format!("bayplan why {question} --from cluster.yaml -o json"), folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{question}: {e} {errors}"));
        kinds.insert(answer["kind"].as_str().unwrap().to_owned());
        assert_eq!(schema.check(&answer), None, "{question}");
    }
    assert_eq!(kinds.len(), 3);
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::of("explanation.schema.json");
    let output = BESIDE.shell("bayplan why pod/urgent --from cluster.yaml -o json", folder.path());
    let good: Value = serde_json::from_slice(&output.stdout).unwrap();
    let alter = |change: fn(&mut Value)| {
        let mut altered = good.clone();
        change(&mut altered);
        schema.check(&altered).unwrap_or_default()
    };
    assert_eq!(alter(|answer| answer["verdict"] = "Perhaps".into()).split(':').next(), Some(".verdict"));
    assert_eq!(alter(|answer| answer["extra"] = 1.into()), ".extra is not in the schema");
    assert_eq!(alter(|answer| drop(answer.as_object_mut().unwrap().remove("nodes"))), ": nodes is missing");
    assert!(alter(|answer| answer["rejections"][0]["nodes"] = "2".into()).starts_with(".rejections[0].nodes"));
}
