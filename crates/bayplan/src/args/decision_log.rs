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

/// Takes `--log FILTER` out of the arguments of a verb whose own `--log` names a decision log. clap would hand it on to
/// the verb, because it knows both by one name.
pub(crate) fn without_filter(mut arguments: Vec<String>) -> (Vec<String>, Option<String>) {
    let (mut verb, mut filter) = (1, None);
    while let Some(argument) = arguments.get(verb) {
        if let Some(value) = argument.strip_prefix("--log=") {
            filter = Some(value.to_owned());
            verb += 1;
        } else if argument == "--log" && verb + 1 < arguments.len() {
            filter = arguments.get(verb + 1).cloned();
            verb += 2;
        } else {
            break;
        }
    }
    match arguments.get(verb).map(String::as_str) {
        Some("page" | "simulate" | "why") => {
            arguments.drain(1..verb);
            (arguments, filter)
        }
        _ => (arguments, None),
    }
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
    fn log_is_a_filter_before_a_question_and_a_decision_log_behind_it() {
        for (given, expected, filter) in [
            ("bayplan why --log d.jsonl pod/x", "bayplan why --log d.jsonl pod/x", None),
            ("bayplan --log debug why --log d.jsonl", "bayplan why --log d.jsonl", Some("debug")),
            ("bayplan --log=debug simulate --log d.jsonl", "bayplan simulate --log d.jsonl", Some("debug")),
            ("bayplan --log debug page --log d.jsonl", "bayplan page --log d.jsonl", Some("debug")),
            ("bayplan --log debug whatif", "bayplan --log debug whatif", None),
            ("bayplan scheduler --log debug", "bayplan scheduler --log debug", None),
            ("bayplan --log", "bayplan --log", None),
        ] {
            let (arguments, found) = without_filter(given.split(' ').map(str::to_owned).collect());
            assert_eq!((arguments.join(" ").as_str(), found.as_deref()), (expected, filter), "{given}");
        }
    }

    #[test]
    fn a_size_is_a_quantity_of_at_least_a_mebibyte() {
        assert_eq!(size("2Mi"), Ok(2 << 20));
        assert!(size("1k").is_err());
        assert!(size("large").is_err());
    }
}
