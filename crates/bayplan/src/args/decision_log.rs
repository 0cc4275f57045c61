//! The flags of the decision log.

use std::path::{Path, PathBuf};

use bayplan_model::quantity::Quantity;
use bayplan_runner::decision_log::{DecisionLogConfig, FILES};
use clap::Args;
use serde_json::Value;

/// What the flag takes for no log.
const NONE: &str = "none";
/// A log that begins a new file every few decisions would be nothing but states.
const SIZE_MIN: i64 = 1 << 20;

/// Where decisions are logged, and how much of the log is kept.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Decision log")]
pub(crate) struct DecisionLog {
    /// Write every decision to this file, with all that is needed to decide again; `none` writes none
    /// [default: none; of `up`, decisions.jsonl in the data folder].
    #[arg(long, value_name = "PATH")]
    pub(crate) decision_log: Option<PathBuf>,
    /// Begin a new file when the file is larger; older ones are kept as PATH.1, PATH.2 and so on.
    #[arg(long, value_name = "QUANTITY", default_value = "256Mi", value_parser = size)]
    pub(crate) decision_log_max_size: u64,
    /// How many files are kept, the one that is written included.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = FILES as u32,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) decision_log_max_files: u32,
}

fn size(text: &str) -> Result<u64, String> {
    let quantity: Quantity = text.parse().map_err(|_| "not a size such as 256Mi".to_owned())?;
    match quantity.value() {
        bytes if bytes >= SIZE_MIN => Ok(bytes.unsigned_abs()),
        _ => Err("must be at least 1Mi".to_owned()),
    }
}

/// `--log FILE` of `why` and `simulate` is their decision log: no filter of the log on standard error is the name of a
/// file that is there.
pub(crate) fn named(arguments: Vec<String>) -> Vec<String> {
    named_among(arguments, |path| Path::new(path).is_file())
}

fn named_among(mut arguments: Vec<String>, is_file: impl Fn(&str) -> bool) -> Vec<String> {
    let verb = arguments.iter().skip(1).find(|argument| !argument.starts_with('-'));
    if !verb.is_some_and(|verb| verb == "why" || verb == "simulate") {
        return arguments;
    }
    for at in 1..arguments.len() {
        if let Some(file) = arguments[at].strip_prefix("--log=").filter(|file| is_file(file)) {
            arguments[at] = format!("--decision-log={file}");
        } else if arguments[at] == "--log" && arguments.get(at + 1).is_some_and(|file| is_file(file)) {
            arguments[at] = "--decision-log".to_owned();
        }
    }
    arguments
}

impl DecisionLog {
    /// The log to write; `default` is where it goes when nothing is said.
    pub(crate) fn config(&self, default: Option<&Path>, configuration: Value) -> Option<DecisionLogConfig> {
        let path = self.decision_log.as_deref().or(default).filter(|path| path.as_os_str() != NONE)?;
        Some(DecisionLogConfig {
            file_bytes: self.decision_log_max_size,
            files: self.decision_log_max_files as usize,
            ..DecisionLogConfig::new(path.to_owned(), configuration)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_a_question_names_a_decision_log_when_it_names_a_file() {
        for (given, expected) in [
            ("bayplan why --log d.jsonl pod/x", "bayplan why --decision-log d.jsonl pod/x"),
            ("bayplan simulate --log=d.jsonl", "bayplan simulate --decision-log=d.jsonl"),
            ("bayplan why --log debug pod/x", "bayplan why --log debug pod/x"),
            ("bayplan scheduler --log d.jsonl", "bayplan scheduler --log d.jsonl"),
        ] {
            let given = given.split(' ').map(str::to_owned).collect();
            assert_eq!(named_among(given, |file| file == "d.jsonl").join(" "), expected);
        }
    }

    #[test]
    fn a_size_is_a_quantity_of_at_least_a_mebibyte() {
        assert_eq!(size("2Mi"), Ok(2 << 20));
        assert!(size("1k").is_err());
        assert!(size("large").is_err());
    }
}
