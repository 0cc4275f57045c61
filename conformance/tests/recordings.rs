//! The recordings in the repository, and the binary's contract.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

use conformance::{recording, runner, suites};

/// The key with which names are hashed, another one in each run: no answer may depend on it.
static HASH_KEY: LazyLock<[u64; 2]> = LazyLock::new(|| {
    let key = [0, 1].map(|half| RandomState::new().hash_one(half));
    bayplan_model::keyed::set_process_key(key);
    key
});

fn corpus(suite: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(suite);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn all_equal(name: &str, at_least: usize) {
    all_equal_of(name, name, at_least);
}

/// Runs the files of one suite through another that knows their form, too.
fn all_equal_of(name: &str, recorded: &str, at_least: usize) {
    let (mut report, key) = (Vec::new(), *HASH_KEY);
    let score = runner::run(suites::find(name).unwrap(), &corpus(recorded), &mut report).unwrap();
    assert!(score.is_perfect(), "with the hash key {key:?}:\n{}", String::from_utf8_lossy(&report));
    assert!(score.total >= at_least, "only {} cases", score.total);
}

#[test]
fn every_recorded_rbac_decision_is_equal() {
    all_equal("rbac", 600);
}

#[test]
fn every_recorded_default_is_equal() {
    all_equal("defaulting", 1200);
}

#[test]
fn every_recorded_table_row_is_equal() {
    all_equal("tables", 794);
}

#[test]
fn every_recorded_scheduler_configuration_is_equal() {
    all_equal("config", 180);
}

#[test]
fn every_recorded_decision_is_equal() {
    all_equal("decisions", 2510);
}

#[test]
fn every_recorded_sequence_is_equal() {
    all_equal("sequences", 60);
}

#[test]
fn a_what_if_places_the_pods_of_every_recorded_sequence_where_upstream_did() {
    all_equal_of("whatif", "sequences", 60);
}

#[test]
fn every_recorded_preemption_is_equal() {
    all_equal("preemption", 320);
}

#[test]
fn the_whole_scheduler_decides_as_upstream_did() {
    all_equal_of("schedule-one", "decisions", 2510);
}

#[test]
fn the_whole_scheduler_places_one_pod_after_the_other_as_upstream_did() {
    all_equal_of("schedule-one", "sequences", 60);
}

#[test]
fn the_whole_scheduler_preempts_as_upstream_did() {
    all_equal_of("schedule-one", "preemption", 320);
}

#[test]
fn every_recorded_decision_is_explained_as_upstream_made_it() {
    all_equal_of("why", "decisions", 2510);
}

#[test]
fn every_recorded_preemption_is_explained_as_upstream_made_it() {
    all_equal_of("why", "preemption", 320);
}

#[test]
fn every_recorded_queueing_hint_is_equal() {
    all_equal("queueing-hints", 706);
}

#[test]
fn every_recorded_request_is_equal() {
    all_equal("requests", 240);
}

#[test]
fn every_recorded_selector_is_equal() {
    all_equal("selectors", 1498);
}

#[test]
fn every_recorded_strategic_merge_is_equal() {
    all_equal("strategic-merge", 895);
}

#[test]
fn every_recorded_controller_computation_and_scenario_is_equal() {
    all_equal("controllers", 1363 + 36);
}

#[test]
fn every_recorded_computation_and_run_of_the_second_group_of_controllers_is_equal() {
    all_equal_of("controllers", "controllers-more", 2496 + 128);
}

/// How many scenarios of each file of exchanges with the API server are equal. A floor only rises.
#[test]
fn the_exchanges_with_the_api_server_fall_behind_in_no_file() {
    let floors = [
        ("http", "train-00.jsonl.gz", 40),
        ("http", "train-01.jsonl.gz", 36), // 40
        ("http", "train-02.jsonl.gz", 13), // 17
        ("http", "train-90.jsonl.gz", 2),
        ("http-more", "train-00.jsonl.gz", 33), // 35
        ("http-more", "train-01.jsonl.gz", 33), // 35
        ("http-more", "train-02.jsonl.gz", 32), // 34
        ("server-side-apply", "train-00.jsonl.gz", 150),
    ];
    let files: Vec<PathBuf> = ["http", "http-more", "server-side-apply"].into_iter().flat_map(corpus).collect();
    assert_eq!(files.len(), floors.len(), "a file without a floor");
    for (file, (folder, name, floor)) in files.iter().zip(floors) {
        assert!(file.ends_with(Path::new(folder).join(name)), "{}", file.display());
        let mut report = Vec::new();
        let score = runner::run(suites::find("http").unwrap(), &[file], &mut report).unwrap();
        assert!(score.equal >= floor, "{folder}/{name}, at least {floor}:\n{}", String::from_utf8_lossy(&report));
    }
}

#[test]
fn every_recorded_validation_is_equal() {
    all_equal("validation", 2799);
}

fn conformance(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conformance")).args(arguments).output().unwrap()
}

/// A change to one recorded case.
type Alteration = fn(&mut serde_json::Value);

/// The first answer of a recording that the filter accepts, altered, as a file of its own.
fn altered(suite: &str, accept: &str, alter: Alteration) -> (tempfile::TempDir, String) {
    let cases = corpus(suite).into_iter().flat_map(|file| recording::read(&file).unwrap());
    let mut case = cases.map(|case| case.document).find(|case| case.pointer(accept).is_some()).unwrap();
    alter(&mut case);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("altered.jsonl");
    fs::write(&file, format!("{case}\n")).unwrap();
    let file = file.to_str().unwrap().into();
    (folder, file)
}

#[test]
fn an_altered_answer_is_reported_and_fails() {
    let alterations: [(&str, &str, Alteration, &str); 4] = [
        ("selectors", "/expect/add/string", |case| case["expect"]["add"]["string"] = "17".into(), ".add.string"),
        ("selectors", "/expect/matches/0", |case| case["expect"]["matches"] = [1].into(), ".matches[0]"),
        ("selectors", "/expect/error", |case| case["expect"]["error"] = "oops".into(), ".error"),
        (
            "strategic-merge",
            "/expect/result/metadata",
            |case| case["expect"]["result"]["metadata"] = 1.into(),
            ".result.metadata",
        ),
    ];
    let scenario: [(&str, &str, Alteration, &str); 4] = [
        (
            "http",
            "/steps/0/contentType",
            |case| case["steps"][0]["contentType"] = "text/plain".into(),
            "step 0 POST /api/v1/namespaces content-type (35 of 36 steps equal)",
        ),
        (
            "controllers",
            "/steps/0/expect/deployments/0/status/replicas",
            |case| case["steps"][0]["expect"]["deployments"][0]["status"]["replicas"] = 17.into(),
            "step 0 create.deployments[0].status.replicas",
        ),
        (
            "controllers",
            "/steps/3/expect/newEvents/1",
            |case| drop(case["steps"][3]["expect"]["newEvents"].as_array_mut().unwrap().pop()),
            "step 3 markReady.newEvents[1]",
        ),
        (
            "controllers",
            "/steps/3/expect/replicaSets/1",
            |case| case["steps"][3]["expect"]["replicaSets"][1]["spec"]["replicas"] = 17.into(),
            "step 3 markReady.netScaling.$RS2",
        ),
    ];
    for (suite, accept, alter, path) in alterations.into_iter().chain(scenario) {
        let (_folder, file) = altered(suite, accept, alter);
        let output = conformance(&[suite, &file]);
        let report = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert_eq!(lines.len(), 2, "{report}");
        assert!(lines[0].contains(&format!(": {path}: expected ")), "{report}");
        assert_eq!(lines[1], format!("{suite}: 0/1 equal"));
    }
}

#[test]
fn an_explanation_that_differs_from_the_recording_is_reported() {
    let alterations: [(&str, &str, Alteration, &str); 5] = [
        ("decisions", "/expected/fitError", |case| case["expected"]["fitError"] = "no".into(), ".fitError"),
        ("decisions", "/expected/totals", |case| case["expected"]["best"] = ["no"].into(), ".best[0]"),
        (
            "decisions",
            "/expected/rawScores/ImageLocality",
            |case| drop(case["expected"]["rawScores"].as_object_mut().unwrap().remove("ImageLocality")),
            ".rawScores.ImageLocality",
        ),
        (
            "preemption",
            "/expected/acceptable/0",
            |case| case["expected"]["acceptable"][0] = "x".into(),
            ".acceptable[0]",
        ),
        ("preemption", "/expected/eligible", |case| case["expected"]["eligible"] = 1.into(), ".eligible"),
    ];
    for (recorded, accept, alter, path) in alterations {
        let (_folder, file) = altered(recorded, accept, alter);
        let output = conformance(&["why", &file]);
        let report = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{report}");
        assert!(report.contains(&format!(": {path}: expected ")), "{report}");
    }
}

#[test]
fn equal_answers_end_in_the_score_alone() {
    let (_folder, file) = altered("strategic-merge", "/expect/result", |_| {});
    let output = conformance(&["strategic-merge", &file]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "strategic-merge: 1/1 equal\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn senseless_questions_are_one_line_and_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.jsonl");
    fs::write(&broken, "{}\n{\n").unwrap();
    for (arguments, said) in [
        (vec![], "usage:"),
        (vec!["jump", "x"], "unknown suite \"jump\""),
        (vec!["selectors"], "no files given"),
        (vec!["selectors", "/nonexistent"], "cannot read /nonexistent"),
        (vec!["selectors", broken.to_str().unwrap()], ":2: not a JSON document"),
    ] {
        let output = conformance(&arguments);
        let said_instead = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said_instead.lines().count()), (Some(2), 1), "{said_instead}");
        assert!(said_instead.contains(said), "{said_instead}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_case_of_another_form_differs_instead_of_stopping_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("odd.jsonl");
    fs::write(&file, "{\"id\":\"odd\",\"type\":\"quantity\",\"input\":{}}\n\n{}\n").unwrap();
    let output = conformance(&["selectors", file.to_str().unwrap()]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.starts_with("odd: unreadable case: "), "{report}");
    assert!(report.ends_with("selectors: 0/2 equal\n"), "{report}");
}
