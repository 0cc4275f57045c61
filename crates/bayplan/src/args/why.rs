//! The arguments of `why`.

use std::path::PathBuf;

use clap::Args;

use super::output::{Output, formats};
use super::source::Source;
use super::whatif::Decisions;

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// What to ask about: `pod/NAME` or `NAME`, `deployment/NAME` (also replicaset, statefulset, daemonset, job and
    /// replicationcontroller) for its pending pods, or `node/NAME` [default: the pending pods of the namespace].
    #[arg(value_name = "WHAT", num_args = 0..=2, conflicts_with_all = ["filename", "all_namespaces"])]
    pub(crate) what: Vec<String>,
    /// The namespace of the pod or workload [default: that of the kubeconfig's context, or else `default`].
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Ask about all pending pods, grouped by template and cause.
    #[arg(short = 'A', long, conflicts_with_all = ["filename", "namespace"])]
    pub(crate) all_namespaces: bool,
    /// Ask about pods that do not exist yet: a YAML or JSON file of pods and workloads; `-` is standard input. Other
    /// objects in it count as if they existed. Repeatable.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// Take the objects of --filename exactly as they are instead of completing them as an API server would.
    // What is asked by name excludes --filename, and clap then no longer requires it.
    #[arg(long, requires = "filename", conflicts_with_all = ["what", "all_namespaces"])]
    pub(crate) as_written: bool,
    /// Ask every filter about this node, not only until the first refuses it.
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// A decision log: the file of `bayplan scheduler --decision-log`, or decisions.jsonl in the data folder of
    /// `bayplan up`. The last decision about the pod, or that of --at, is explained on the state in which it was made.
    /// The filter of the log on standard error stands before the verb: `bayplan --log debug why`.
    // Of the same type as the filter that has this name before the verb: clap keeps both in one place.
    #[arg(
        long,
        alias = "decision-log",
        value_name = "FILE",
        conflicts_with_all = ["from", "kubeconfig", "context", "filename", "config"]
    )]
    pub(crate) log: Option<String>,
    /// The time up to which decisions of the log are looked at, for example 2026-01-02T03:04:05Z.
    #[arg(long, value_name = "TIME", requires = "log")]
    pub(crate) at: Option<jiff::Timestamp>,
    #[command(flatten)]
    pub(crate) decisions: Decisions,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Print text, text with every node and score, JSON, YAML, or one HTML file that opens offline.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = formats([Output::Text, Output::Wide, Output::Json, Output::Yaml, Output::Html]),
        help_heading = "Output"
    )]
    pub(crate) output: Output,
    /// Add an entry for every node to JSON and YAML, and all candidates of preemption.
    #[arg(long, help_heading = "Output")]
    pub(crate) per_node: bool,
    /// Print nothing but kube-scheduler's FailedScheduling message, whole.
    #[arg(long, help_heading = "Output")]
    pub(crate) message: bool,
}
