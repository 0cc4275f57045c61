//! Runs a suite over files and reports.

use std::{
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{
    recording::{self, Case},
    suites::{Outcome, Suite},
};

/// How many cases were equal, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Equal cases.
    pub equal: usize,
    /// All cases.
    pub total: usize,
}

impl Score {
    /// Whether every case was equal.
    pub fn is_perfect(self) -> bool {
        self.equal == self.total
    }
}

/// Why a run has no score.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    Recording(#[from] recording::Error),
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] io::Error),
}

/// Runs the suite over all cases of the files. Writes a line for each case that differs, and last the score.
pub fn run<P: AsRef<Path>>(suite: &Suite, files: &[P], report: &mut dyn Write) -> Result<Score, Error> {
    // Read everything first: the error of an unreadable file should not follow a thousand lines of report.
    let files: Vec<Vec<Case>> = files.iter().map(|file| recording::read(file.as_ref())).collect::<Result<_, _>>()?;
    let cases: Vec<&Case> = files.iter().flatten().collect();
    let mut score = Score::default();
    for (case, outcome) in cases.iter().zip(check_all(suite, &cases)) {
        score.total += 1;
        match outcome {
            Ok(()) => score.equal += 1,
            Err(difference) => writeln!(report, "{}: {difference}", case.name)?,
        }
    }
    writeln!(report, "{}: {}/{} equal", suite.name, score.equal, score.total)?;
    Ok(score)
}

/// Checks cases, as many at once as the suite allows, and returns their outcomes in the order of the cases.
fn check_all(suite: &Suite, cases: &[&Case]) -> Vec<Result<(), String>> {
    if suite.at_once == 1 {
        return cases.iter().map(|case| check(suite, case)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        while let Some((at, case)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            cases.get(at).map(|case| (at, case))
        } {
            outcomes.push((at, check(suite, case)));
        }
        outcomes
    };
    let mut outcomes: Vec<(usize, Result<(), String>)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..suite.at_once.min(cases.len())).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a check does not panic")).collect()
    });
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Checks one case; a panic is a difference, not the end of the run.
pub fn check(suite: &Suite, case: &Case) -> Result<(), String> {
    let outcome: Outcome =
        panic::catch_unwind(AssertUnwindSafe(|| (suite.check)(&case.document))).map_err(|cause| {
            let text =
                cause.downcast_ref::<String>().map(String::as_str).or_else(|| cause.downcast_ref::<&str>().copied());
            format!("panicked: {}", text.unwrap_or("for an unknown reason"))
        })?;
    outcome.map_err(|mismatch| mismatch.to_string())
}
