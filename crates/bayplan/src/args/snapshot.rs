//! The arguments of `bayplan snapshot`.

use std::path::PathBuf;

use clap::Args;

use super::source::Source;

/// What to write and of which cluster.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    /// The file to write, `cluster.bpz` for example; `-` is standard output.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: PathBuf,
    /// Replace names, labels and images by pseudonyms, so that the snapshot can be given to others. Names of resources
    /// and drivers, and Kubernetes' own words, stay.
    #[arg(long)]
    pub(crate) redact: bool,
    #[command(flatten)]
    pub(crate) source: Source,
}
