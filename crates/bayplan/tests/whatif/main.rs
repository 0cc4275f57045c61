//! `bayplan whatif` and `bayplan simulate` as their users see them: transcripts, and the JSON against its schema.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod schema;
#[path = "../transcript/mod.rs"]
mod transcript;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file beside the tests.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whatif").join(name)
}

/// A shell in which `bayplan` is the binary that is tested.
fn shell(command: &str, folder: &Path) -> Output {
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let link = programs.join("bayplan");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bayplan"), &link).unwrap();
    }
    for name in ["cluster.yaml", "web.yaml", "arrivals.jsonl", "packed.yaml"] {
        std::fs::copy(beside(name), folder.join(name)).unwrap();
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", command]).current_dir(folder).env("PATH", path).env("HOME", folder);
    bash.env_remove("KUBECONFIG").env_remove("RUST_LOG").env_remove("NO_COLOR");
    bash.output().unwrap()
}

#[test]
fn every_transcript_reads_as_written() {
    let mut transcripts: Vec<PathBuf> =
        std::fs::read_dir(beside("transcripts")).unwrap().map(|entry| entry.unwrap().path()).collect();
    transcripts.sort();
    assert!(transcripts.len() >= 3);
    for path in transcripts {
        let folder = tempfile::tempdir().unwrap();
        transcript::play(&path, |command| shell(command, folder.path()));
    }
}
