//! The arguments of `simulate`.

use std::path::PathBuf;

use clap::Args;

use super::output::{Output, formats};
use super::source::Source;
use super::whatif::Decisions;

const HISTORY_HEADING: &str = "The history";

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("history").required(true).args(["arrivals", "openb", "log"]))]
pub(crate) struct Simulate {
    /// What comes and goes: a file with one JSON object a line, {"time": …, "action": "create"|"delete",
    /// "object"|"pod": …}, or a SimKube trace as JSON; `-` is standard input. It begins with the cluster of --from or
    /// of a kubeconfig.
    #[arg(long, value_name = "FILE", help_heading = HISTORY_HEADING)]
    pub(crate) arrivals: Option<PathBuf>,
    /// Nodes and pods in the form of Alibaba's openb trace.
    #[arg(
        long,
        num_args = 2,
        value_names = ["NODES.CSV", "PODS.CSV"],
        conflicts_with_all = ["from", "kubeconfig", "context"],
        help_heading = HISTORY_HEADING
    )]
    pub(crate) openb: Vec<PathBuf>,
    /// A decision log, as `bayplan scheduler --decision-log` writes it; where pods were put is decided anew.
    /// Repeatable, in the order of time. The filter of the log on standard error stands before the verb:
    /// `bayplan --log debug simulate`.
    // Of the same type as the filter that has this name before the verb: clap keeps both in one place.
    #[arg(
        long,
        alias = "decision-log",
        value_name = "FILE",
        conflicts_with_all = ["from", "kubeconfig", "context", "as_written"],
        help_heading = HISTORY_HEADING
    )]
    pub(crate) log: Vec<String>,
    /// Files, folders or archives with the cluster at the beginning; `-` is standard input. Repeatable.
    #[arg(long, value_name = "SOURCE", conflicts_with_all = ["kubeconfig", "context"], help_heading = HISTORY_HEADING)]
    pub(crate) from: Vec<PathBuf>,
    /// The kubeconfig of a live cluster to begin with, which is only read.
    #[arg(long, value_name = "PATH", help_heading = HISTORY_HEADING)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = HISTORY_HEADING)]
    pub(crate) context: Option<String>,
    /// Take arrivals exactly as they are instead of completing them as an API server would.
    #[arg(long, help_heading = HISTORY_HEADING)]
    pub(crate) as_written: bool,
    /// A KubeSchedulerConfiguration to simulate, with a name for it; `NAME=` alone means upstream's defaults. Several
    /// are compared. Repeatable [default: default=].
    #[arg(long, value_name = "NAME=PATH", value_parser = named_config)]
    pub(crate) config: Vec<(String, Option<PathBuf>)>,
    #[command(flatten)]
    pub(crate) decisions: Decisions,
    /// Print a table, JSON, YAML, or one HTML file with plots.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = formats([Output::Text, Output::Json, Output::Yaml, Output::Html]),
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}

impl Simulate {
    /// The cluster at the beginning.
    pub(crate) fn source(&self) -> Source {
        Source {
            from: self.from.clone(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            config: None,
        }
    }
}

/// `NAME=PATH`, or a path that is its own name.
fn named_config(text: &str) -> Result<(String, Option<PathBuf>), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("it is not of the form NAME=PATH, for example packed=packed.yaml".into()),
        Some((name, "")) => Ok((name.to_owned(), None)),
        Some((name, path)) => Ok((name.to_owned(), Some(path.into()))),
        None => Ok((text.to_owned(), Some(text.into()))),
    }
}
