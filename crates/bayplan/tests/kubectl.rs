//! What a user sees: transcripts of a real kubectl against `bayplan up`.
//!
//! Each file in `tests/kubectl/` is one session on a cluster of its own. One that begins with `# Needs kubectl 1.N.` is
//! skipped by an older one. The kubectl is that of `KUBEBUILDER_ASSETS`, or else the one on the path.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and tell how far it came")]

#[path = "transcript/cluster.rs"]
mod cluster;
mod transcript;

use std::path::{Path, PathBuf};
use std::process::Command;

use bayplan_testkit::skipped;
use cluster::{Cluster, kubectl};
use serde_json::Value;

fn play(transcript: &Path) {
    let cluster = Cluster::start();
    transcript::play(transcript, |command| {
        println!("{}: {command}", transcript.file_name().unwrap().to_string_lossy());
        cluster.run(command)
    });
}

/// The N of kubectl 1.N.
fn kubectl_minor() -> u32 {
    let found = Command::new(kubectl()).args(["version", "--client", "-o", "json"]).output();
    let output = found.unwrap_or_else(|error| panic!("{}: {error}", kubectl().display()));
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    let minor = version["clientVersion"]["minor"].as_str().unwrap();
    minor.trim_end_matches('+').parse().unwrap()
}

/// The N of a transcript that needs kubectl 1.N.
fn needed_minor(transcript: &str) -> u32 {
    let first = transcript.lines().next().unwrap_or_default();
    first.strip_prefix("# Needs kubectl 1.").map_or(0, |rest| rest.trim_end_matches('.').parse().unwrap())
}

#[test]
#[ignore = "needs kubectl: .ci/run runs it"]
fn every_transcript_reads_as_written() {
    let minor = kubectl_minor();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let mut transcripts: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // `BAYPLAN_TRANSCRIPT=jobs.txt` plays one.
    let only = std::env::var("BAYPLAN_TRANSCRIPT").unwrap_or_default();
    transcripts.retain(|path| only.is_empty() || path.ends_with(&only));
    transcripts.sort();
    assert!(!transcripts.is_empty());
    transcripts.retain(|path| {
        let needed = needed_minor(&std::fs::read_to_string(path).unwrap());
        if needed > minor {
            skipped(&format!("{} needs kubectl 1.{needed}, this is 1.{minor}", path.display()));
        }
        needed <= minor
    });
    // Every transcript is played even when one fails, so that one run tells all that is wrong.
    let failures = transcripts.iter().filter(|transcript| std::panic::catch_unwind(|| play(transcript)).is_err());
    let failed: Vec<_> = failures.collect();
    assert!(failed.is_empty(), "{failed:?}");
}
