//! What a user sees: transcripts of a real kubectl against `bayplan up`.
//!
//! Each file in `tests/kubectl/` is one session on a cluster of its own.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and tell how far it came")]

mod transcript;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use transcript::EVENTUALLY;

/// A `bayplan up` that ends with the test.
struct Cluster {
    process: Child,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut process = Command::new(env!("CARGO_BIN_EXE_bayplan"))
            .args(["up", "--in-memory", "--port", "0", "--nodes", "4", "--zones", "2"])
            .args(["--pod-start-delay", "200ms"])
            .arg("--write-kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        lines.by_ref().map(Result::unwrap).find(|line| line.contains("Try")).expect("bayplan up came up");
        std::thread::spawn(move || lines.for_each(drop));
        Cluster { process, folder }
    }

    fn run(&self, command: &str) -> Output {
        // A command that hangs fails its step instead of the whole run.
        Command::new("timeout")
            .args([&EVENTUALLY.as_secs().to_string(), "bash", "-c", command])
            .current_dir(self.folder.path())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("HOME", self.folder.path())
            .output()
            .unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn play(transcript: &Path) {
    let cluster = Cluster::start();
    transcript::play(transcript, |command| {
        println!("{}: {command}", transcript.file_name().unwrap().to_string_lossy());
        cluster.run(command)
    });
}

#[test]
#[ignore = "needs kubectl: .ci/run runs it"]
fn every_transcript_reads_as_written() {
    let found = Command::new("kubectl").args(["version", "--client"]).output();
    assert!(found.is_ok_and(|o| o.status.success()), "kubectl is not installed");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let mut transcripts: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    transcripts.sort();
    assert!(!transcripts.is_empty());
    // Every transcript is played even when one fails, so that one run tells all that is wrong.
    let failures = transcripts.iter().filter(|transcript| std::panic::catch_unwind(|| play(transcript)).is_err());
    let failed: Vec<_> = failures.collect();
    assert!(failed.is_empty(), "{failed:?}");
}
