//! `bayplan page`.

use clap::Args;

use super::source::Source;

#[derive(Debug, Args)]
pub(crate) struct Page {
    #[command(flatten)]
    pub(crate) source: Source,
    /// A decision log, as `bayplan scheduler --decision-log` writes it: the cluster as the log leaves it, with a slider
    /// over its decisions. The filter of the log on standard error stands before the verb: `bayplan --log debug page`.
    // Of the same type as the filter that has this name before the verb: clap keeps both in one place.
    #[arg(
        long,
        alias = "decision-log",
        value_name = "FILE",
        conflicts_with_all = ["from", "kubeconfig", "context", "config"]
    )]
    pub(crate) log: Option<String>,
    /// The port on loopback; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}
