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

mod pattern;

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

pub(crate) use pattern::EVENTUALLY;
use pattern::{matches, squeeze};

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
