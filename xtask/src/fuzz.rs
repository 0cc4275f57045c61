//! `cargo xtask fuzz [seconds] [target…]`: runs the targets of `fuzz/` under libFuzzer, each for so many seconds.
//!
//! The inputs that a run adds stay in `target/fuzz/<target>` for the next one; those that break a promise are in
//! `target/fuzz/found` and go to `fuzz/corpus` together with the fix.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// How long each target runs when nothing is said: what CI gives it.
const SECONDS: &str = "10";
/// The short form tries the same inputs each time, as far as its seconds go: CI fails for a change, not by chance.
/// Longer runs are there to find what nobody has tried yet.
const SHORT_SEED: &str = "-seed=1";
/// The longest input: larger ones are slower and find the same, since all work is bounded by the input's size.
const INPUT_BYTES_MAX: &str = "-max_len=8192";
/// An input that takes longer than this many seconds is a find.
const INPUT_TIMEOUT: &str = "-timeout=20";
/// A target that takes more than this many MB is a find.
const MEMORY_MAX: &str = "-rss_limit_mb=2048";
/// The end of a failing run that is shown.
const LINES_SHOWN: usize = 40;

/// What one target did.
struct Run {
    target: String,
    executions: String,
    failure: Option<String>,
}

/// Builds the targets and runs them, as many at once as there are processors.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let (seconds, names) = match arguments.split_first() {
        Some((first, names)) if first.chars().all(|c| c.is_ascii_digit()) => (first.as_str(), names),
        _ => (SECONDS, arguments),
    };
    let mut targets = targets(root)?;
    if let Some(unknown) = names.iter().find(|name| !targets.contains(name)) {
        return Err(format!("there is no target {unknown}; there are {}", targets.join(", ")));
    }
    targets.retain(|target| names.is_empty() || names.contains(target));
    let program = build(root)?;
    let waiting = Mutex::new(targets);
    let done = Mutex::new(Vec::new());
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.pop());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = next() {
                    let run = run_target(root, &program, target, seconds);
                    if let Ok(mut done) = done.lock() {
                        done.push(run);
                    }
                }
            });
        }
    });
    report(done.into_inner().map_err(|error| error.to_string())?)
}

/// Every folder of the corpus is a target.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Builds the program of all targets, with the features of the other tests so that only our own crates are built anew.
fn build(root: &Path) -> Result<PathBuf, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["test", "--locked", "--workspace", "--features", "bayplan-fuzz/libfuzzer", "--test", "libfuzzer"])
        .args(["--no-run", "--message-format=json-render-diagnostics"])
        .env("RUSTC_WORKSPACE_WRAPPER", root.join("fuzz/instrument"))
        .stderr(std::process::Stdio::inherit())
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let program = messages.lines().find_map(|line| {
        let (_, path) = line.split_once("\"executable\":\"")?;
        path.split('"').next().filter(|path| path.contains("/libfuzzer-"))
    });
    program.map(PathBuf::from).ok_or_else(|| "the targets could not be built".to_owned())
}

fn run_target(root: &Path, program: &Path, target: String, seconds: &str) -> Run {
    let folder = root.join("target/fuzz");
    let (grown, found) = (folder.join(&target), folder.join("found"));
    let ran = std::fs::create_dir_all(&grown).and_then(|()| std::fs::create_dir_all(&found)).and_then(|()| {
        Command::new(program)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/{target}-", found.display()))
            .arg(format!("-dict={}", root.join("fuzz/words.dict").display()))
            .args((seconds == SECONDS).then_some(SHORT_SEED))
            .args(["-print_final_stats=1", INPUT_BYTES_MAX, INPUT_TIMEOUT, MEMORY_MAX])
            .arg(&grown)
            .arg(root.join("fuzz/corpus").join(&target))
            .env("BAYPLAN_FUZZ_TARGET", &target)
            .output()
    });
    match ran {
        Ok(output) => outcome(target, &output),
        Err(error) => Run { target, executions: "0".to_owned(), failure: Some(error.to_string()) },
    }
}

fn outcome(target: String, output: &Output) -> Run {
    let log = String::from_utf8_lossy(&output.stderr);
    let executions = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let executions = executions.unwrap_or("0").trim().to_owned();
    let failure = (!output.status.success()).then(|| {
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    });
    Run { target, executions, failure }
}

fn report(mut runs: Vec<Run>) -> Result<String, String> {
    runs.sort_by(|a, b| a.target.cmp(&b.target));
    let mut lines: Vec<String> = Vec::new();
    for Run { target, executions, failure } in &runs {
        let end = if failure.is_some() { ", the last of them a find" } else { "" };
        lines.push(format!("{target:<24} {executions:>9} inputs{end}"));
    }
    let failures: Vec<&str> = runs.iter().filter_map(|run| run.failure.as_deref()).collect();
    let text = lines.join("\n");
    if failures.is_empty() { Ok(text) } else { Err(format!("{}\n\n{text}", failures.join("\n\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_find_fails_the_run_and_every_target_says_how_much_it_tried() {
        let run = |target: &str, failure: Option<&str>| Run {
            target: target.to_owned(),
            executions: "12".to_owned(),
            failure: failure.map(str::to_owned),
        };
        let good = report(vec![run("b", None), run("a", None)]).unwrap();
        assert_eq!(good.split_whitespace().collect::<Vec<_>>(), ["a", "12", "inputs", "b", "12", "inputs"]);
        let bad = report(vec![run("a", Some("panicked"))]).unwrap_err();
        assert!(bad.starts_with("panicked\n\na ") && bad.ends_with("12 inputs, the last of them a find"), "{bad}");
    }

    #[test]
    fn an_unknown_target_is_named() {
        let error = run(&crate::root(), &["5".to_owned(), "nothing".to_owned()]).unwrap_err();
        assert!(error.starts_with("there is no target nothing; there are bodies, "), "{error}");
    }
}
