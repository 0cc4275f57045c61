//! `bayplan why` as its users see it: transcripts, the JSON against its schema, and recorded answers of upstream
//! through the binary.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod etcd;
mod recorded;
mod schema;
#[path = "../transcript/mod.rs"]
mod transcript;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file beside the tests.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/why").join(name)
}

/// A shell in which `bayplan` is the binary that is tested.
fn shell(command: &str, folder: &Path) -> Output {
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    let link = programs.join("bayplan");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bayplan"), &link).unwrap();
    }
    for name in ["cluster.yaml", "new-pod.yaml"] {
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

#[test]
fn colours_are_for_terminals_only() {
    let folder = tempfile::tempdir().unwrap();
    let is_red =
        |command: &str| String::from_utf8(shell(command, folder.path()).stdout).unwrap().contains("\x1b[1;31m");
    assert!(!is_red("bayplan why pod/picky --from cluster.yaml"));
    let in_terminal =
        |more: &str| is_red(&format!("{more} script -qec 'bayplan why pod/picky --from cluster.yaml' /dev/null"));
    // `script` gives the command a terminal; not every machine has it.
    if shell("command -v script", folder.path()).status.success() {
        assert!(in_terminal(""));
        assert!(!in_terminal("NO_COLOR=1"));
    }
}
