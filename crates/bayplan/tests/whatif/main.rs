//! `bayplan whatif` and `bayplan simulate` as their users see them: transcripts, and the JSON against its schema.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

#[path = "../transcript/schema.rs"]
mod schema;
#[path = "../transcript/shell.rs"]
mod shell;
#[path = "../transcript/mod.rs"]
mod transcript;

use schema::Schema;
use serde_json::Value;
use shell::Beside;

const BESIDE: Beside = Beside("whatif");

fn answer(command: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = BESIDE.shell(command, folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command}: {error} {errors}"))
}

#[test]
fn every_transcript_reads_as_written() {
    BESIDE.play_all(4);
}

#[test]
fn every_answer_keeps_to_the_schema() {
    let schema = Schema::of("whatif.schema.json");
    for question in [
        "whatif --from cluster.yaml -f web.yaml",
        "whatif --from cluster.yaml --scale deploy/db=4 --add 1=general --drain n1 -f web.yaml --replicas 6",
        "whatif --from cluster.yaml --delete deploy/db",
        "simulate --from cluster.yaml --arrivals arrivals.jsonl --config spread= --config packed=packed.yaml",
    ] {
        assert_eq!(schema.check(&answer(&format!("bayplan {question} --ties name -o json"))), None, "{question}");
    }
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let schema = Schema::of("whatif.schema.json");
    let good = answer("bayplan whatif --from cluster.yaml -f web.yaml --ties name -o json");
    let alter = |change: fn(&mut Value)| {
        let mut altered = good.clone();
        change(&mut altered);
        schema.check(&altered).unwrap_or_default()
    };
    assert_eq!(alter(|answer| answer["extra"] = 1.into()), ".extra is not in the schema");
    assert_eq!(alter(|answer| drop(answer.as_object_mut().unwrap().remove("after"))), ": after is missing");
    assert!(alter(|answer| answer["placed"][0]["node"] = 2.into()).starts_with(".placed[0].node"));
    assert!(alter(|answer| answer["before"]["utilisation"]["cpu"] = "all".into()).starts_with(".before.utilisation"));
}
