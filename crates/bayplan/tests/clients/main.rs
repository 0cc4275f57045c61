//! Programs that others wrote against `bayplan up`: the clients of the Kubernetes project for Python and JavaScript,
//! and helm.
//!
//! `.ci/clients` installs the former and prints where, which `CLIENTS` names; `.ci/helm` builds helm, which `HELM`
//! names. What the clients do is in `client.py` and `client.mjs`, which fail at the first answer that is not as they
//! expect it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and tell how far it came")]

#[path = "../transcript/cluster.rs"]
mod cluster;
#[path = "../transcript/mod.rs"]
mod transcript;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use bayplan_testkit::skipped;
use cluster::Cluster;

/// How long a client may take for all of it; generous because shared machines stall.
const SECONDS: u64 = 300;

/// A file beside this one.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// What an environment variable names; without it, the test is skipped.
fn named_by(variable: &str, made_by: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    if path.is_none() {
        skipped(&format!("{variable} is not set, {made_by} prints what it names"));
    }
    path.map(|path| std::path::absolute(path).unwrap())
}

/// Runs a script beside this file, and prints what it says. It must do all of these steps.
fn run(cluster: &Cluster, interpreter: &Path, script: &str, steps: usize) {
    // In a folder from where its modules are found.
    std::fs::copy(beside(script), cluster.folder().join(script)).unwrap();
    let output = cluster.run_for(SECONDS, &format!("{} {script}", interpreter.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{script}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), steps, "{script}: a line for each step");
}

#[test]
#[ignore = "needs what .ci/clients installs: .ci/run runs it"]
fn the_python_client_finds_the_cluster_it_knows() {
    let Some(clients) = named_by("CLIENTS", ".ci/clients") else { return };
    run(&Cluster::start(), &clients.join("venv/bin/python"), "client.py", 17);
}

#[test]
#[ignore = "needs what .ci/clients installs: .ci/run runs it"]
fn the_javascript_client_finds_the_cluster_it_knows() {
    let Some(clients) = named_by("CLIENTS", ".ci/clients") else { return };
    let cluster = Cluster::start();
    symlink(clients.join("node_modules"), cluster.folder().join("node_modules")).unwrap();
    run(&cluster, Path::new("node"), "client.mjs", 9);
}

#[test]
#[ignore = "needs kubectl and helm: .ci/run runs it"]
fn helm_keeps_a_release_through_its_life() {
    let Some(helm) = named_by("HELM", ".ci/helm") else { return };
    let cluster = Cluster::start();
    cluster.bring("helm", &helm);
    let copied = Command::new("cp").arg("-r").args([&beside("chart"), cluster.folder()]).status().unwrap();
    assert!(copied.success());
    transcript::play(&beside("helm.txt"), |command| {
        println!("helm.txt: {command}");
        cluster.run_for(SECONDS, command)
    });
}
