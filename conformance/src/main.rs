//! `conformance SUITE FILE...`: how many recorded cases the product answers as upstream does.
//!
//! Exit code 0 when all are equal, 1 when some differ, 2 when the arguments are invalid.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use conformance::{runner, suites};

const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            // Nothing can be reported when even this cannot be written.
            let _ = writeln!(io::stderr(), "conformance: {problem}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let known = suites::SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    let [name, files @ ..] = arguments else {
        return Err(format!("usage: conformance SUITE FILE... (suites: {known})"));
    };
    let suite = suites::find(name).ok_or_else(|| format!("unknown suite {name:?} (suites: {known})"))?;
    if files.is_empty() {
        return Err(format!("no files given for suite {name}"));
    }
    let mut report = BufWriter::new(io::stdout().lock());
    let score = runner::run(suite, files, &mut report).map_err(|error| error.to_string())?;
    report.flush().map_err(|error| error.to_string())?;
    Ok(score.is_perfect())
}
