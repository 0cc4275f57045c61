//! What a user sees of `bayplan bench`.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::process::{Command, Output};

use bayplan_testkit::Etcd;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bayplan")).arg("bench").args(arguments).output().unwrap()
}

#[test]
fn the_table_has_a_line_for_each_workload_and_size_and_the_picture_a_point() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("growth.svg");
    let workloads = ["SchedulingBasic", "dra", "--nodes", "20,40", "--pods", "30", "--runs", "2"];
    let output = bench(&[&workloads[..], &["--plot", plot.to_str().unwrap()]].concat());
    let (out, progress) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{progress}");
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..6], ["WORKLOAD", "MODE", "NODES", "PODS", "RUNS", "PODS/S"], "{out}");
    let rows: Vec<&[&str]> = lines[1..].iter().map(|line| &line[..5]).collect();
    let (basic, dra) = ("SchedulingBasic", "ResourceClaimTemplate");
    let wanted = [(basic, "20"), (basic, "40"), (dra, "20"), (dra, "40")].map(|(w, n)| [w, "engine", n, "30", "2"]);
    assert_eq!(rows, wanted.each_ref().map(|row| &row[..]), "{out}");
    assert!(progress.contains("SchedulingBasic: "), "{progress}");
    assert_eq!(std::fs::read_to_string(&plot).unwrap().matches("<circle").count(), 4);
}

#[test]
fn json_is_a_list_with_one_object_per_run() {
    let output = bench(&["PodAffinity", "--nodes", "20", "--pods", "30", "--runs", "3", "-o", "json"]);
    let runs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 3);
    assert_eq!((&runs[0]["workload"], &runs[0]["nodes"]), (&"PodAffinity".into(), &20.into()));
    assert!(runs[2]["pods_per_second"].as_f64().unwrap() > 0.0);
    assert!(runs[2]["peak_rss_bytes"].as_u64().unwrap() > 1_000_000);
}

#[test]
fn what_cannot_be_measured_is_an_error_that_says_why() {
    let output = bench(&["Nonsense"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("there is no workload \"Nonsense\""), "{stderr}");
    let output = bench(&["PodAntiAffinity", "--nodes", "10", "--pods", "20"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("only 8 of 20 pods found a node"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_decision_log_is_measured_against_runs_without_it() {
    let sizes = ["--nodes", "20", "--pods", "30", "--runs", "2"];
    let output = bench(&[&["SchedulingBasic", "--decision-log"], &sizes[..]].concat());
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[1][1], lines[1][4], lines[2][1], lines[2][4]), ("engine", "2", "engine+log", "2"), "{out}");
    assert!(out.contains("SchedulingBasic on 20 nodes: the decision log takes "), "{out}");
    assert!(out.ends_with("processor time (medians of 2 pairs)\n"), "{out}");
    let output = bench(&["SchedulingBasic", "--mode", "e2e", "--decision-log"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("--decision-log is measured with --mode engine"), "{stderr}");
}

/// Its own store and an etcd, and kube-apiserver where there is one: a line for each, with what every process used.
#[test]
fn servers_are_compared_in_one_table() {
    let Some(etcd) = Etcd::start("servers_are_compared_in_one_table") else { return };
    let folder = std::env::var("KUBEBUILDER_ASSETS").unwrap_or_default();
    let binary = std::path::Path::new(&folder).join("kube-apiserver");
    let mut arguments = vec!["--mode", "e2e", "--nodes", "20", "--pods", "30"];
    let url = etcd.url();
    arguments.extend(["--etcd-servers", &url]);
    let mut modes = vec!["embedded", "etcd"];
    if binary.is_file() {
        arguments.extend(["--kube-apiserver", binary.to_str().unwrap()]);
        modes.push("kube-apiserver");
    }
    let output = bench(&arguments);
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(out.lines().next().unwrap().ends_with("CPU OF OTHERS"), "{out}");
    let rows: Vec<&[&str]> = lines[1..].iter().map(|line| &line[..5]).collect();
    let wanted: Vec<[&str; 5]> = modes.iter().map(|mode| ["SchedulingBasic", mode, "20", "30", "1"]).collect();
    assert_eq!(rows, wanted.iter().map(|row| &row[..]).collect::<Vec<_>>(), "{out}");
    let others = |row: usize| out.lines().nth(row).unwrap().split(" MiB ").nth(1).unwrap().trim();
    assert!(others(1).starts_with("API server ") && !others(1).contains("etcd"), "{out}");
    assert!(others(2).starts_with("API server ") && others(2).contains(", etcd "), "{out}");
}
