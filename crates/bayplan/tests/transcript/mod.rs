//! Transcripts: commands and what they print.
//!
//! The form:
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

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// How long a `~` command may take to match; generous because shared machines stall.
pub(crate) const EVENTUALLY: Duration = Duration::from_secs(60);

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

/// Plays a transcript: every command is given to `run`, and must print what is written.
pub(crate) fn play(transcript: &Path, run: impl Fn(&str) -> Output) {
    let name = transcript.file_name().unwrap().to_string_lossy();
    for step in parse(&std::fs::read_to_string(transcript).unwrap()) {
        let deadline = Instant::now() + EVENTUALLY;
        loop {
            let output = run(&step.command);
            let text = [&output.stdout[..], &output.stderr[..]].concat();
            let lines: Vec<String> =
                String::from_utf8_lossy(&text).lines().map(squeeze).filter(|l| !l.is_empty()).collect();
            let ended_well = output.status.success() != (step.mode == Mode::Fails);
            if ended_well && matches(&step.expected, &lines) {
                break;
            }
            assert!(
                step.mode == Mode::Eventually && Instant::now() < deadline,
                "{name}:{}: {}\nexit: {}\nexpected:\n  {}\ngot:\n  {}",
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
