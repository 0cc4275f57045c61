//! What a user sees: transcripts of a real kubectl against `bayplan up`.
//!
//! Each file in `tests/kubectl/` is one session on a cluster of its own. The form:
//!
//! ```text
//! # a comment
//! $ kubectl get nodes            a command, then the output it must print (stdout, then stderr)
//! NAME   STATUS [..]             `[..]` stands for any text within a line
//! ...                            stands for any number of lines
//! ! kubectl get pod none         the same, for a command that must fail
//! ~ kubectl get pods             the same, tried again until it matches (for at most EVENTUALLY)
//! ```
//!
//! Runs of blanks count as one: column widths follow from names that are not ours.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking and tell how far it came")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a `~` command may take to match; generous because shared machines stall.
const EVENTUALLY: Duration = Duration::from_secs(60);

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

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Succeeds,
    Fails,
    Eventually,
}

struct Step {
    line: usize,
    mode: Mode,
    command: String,
    expected: Vec<String>,
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mode = match line.get(..2) {
            Some("$ ") => Some(Mode::Succeeds),
            Some("! ") => Some(Mode::Fails),
            Some("~ ") => Some(Mode::Eventually),
            _ => None,
        };
        match (mode, steps.last_mut()) {
            (Some(mode), _) => steps.push(Step { line: index + 1, mode, command: line[2..].into(), expected: vec![] }),
            (None, Some(step)) if !line.starts_with('#') && !line.is_empty() => step.expected.push(squeeze(line)),
            _ => {}
        }
    }
    steps
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn matches_line(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    let mut parts = pattern.split("[..]").peekable();
    let mut first = true;
    while let Some(part) = parts.next() {
        let at = match (first, parts.peek()) {
            (true, None) => return rest == part,
            (true, _) => rest.starts_with(part).then_some(0),
            (false, None) => return rest.ends_with(part),
            (false, _) => rest.find(part),
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
        first = false;
    }
    true
}

fn matches(expected: &[String], lines: &[String]) -> bool {
    match (expected.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((pattern, others)), _) if pattern == "..." => {
            matches(others, lines) || (!lines.is_empty() && matches(expected, &lines[1..]))
        }
        (Some((pattern, others)), Some((line, rest))) => matches_line(pattern, line) && matches(others, rest),
        _ => false,
    }
}

fn play(transcript: &Path) {
    let cluster = Cluster::start();
    for step in parse(&std::fs::read_to_string(transcript).unwrap()) {
        println!("{}:{}: {}", transcript.file_name().unwrap().to_string_lossy(), step.line, step.command);
        let deadline = Instant::now() + EVENTUALLY;
        loop {
            let output = cluster.run(&step.command);
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            let lines: Vec<String> =
                String::from_utf8_lossy(&text).lines().map(squeeze).filter(|l| !l.is_empty()).collect();
            let ended_well = output.status.success() != (step.mode == Mode::Fails);
            if ended_well && matches(&step.expected, &lines) {
                break;
            }
            assert!(
                step.mode == Mode::Eventually && Instant::now() < deadline,
                "{}:{}: {}\nexit: {}\nexpected:\n  {}\ngot:\n  {}",
                transcript.file_name().unwrap().to_string_lossy(),
                step.line,
                step.command,
                output.status,
                step.expected.join("\n  "),
                lines.join("\n  "),
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
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

#[test]
fn a_transcript_line_matches_only_what_it_says() {
    assert!(matches_line("a[..]c", "abc"));
    assert!(matches_line("a[..]", "abc"));
    assert!(matches_line("[..]b[..]", "abc"));
    assert!(!matches_line("a[..]d", "abc"));
    assert!(!matches_line("ab", "abc"));
    let lines = |text: &str| text.lines().map(squeeze).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nc"), &lines("a\nb\nb\nc")));
    assert!(!matches(&lines("a\n...\nc"), &lines("a\nb")));
    assert!(!matches(&lines("a"), &lines("a\nb")));
}
