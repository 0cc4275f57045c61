//! The command line of `bayplan mcp`.

use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;
use super::source::Source;

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    #[command(flatten)]
    pub(crate) source: Source,
    /// How long one question may take before it is given up.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = go::duration)]
    pub(crate) timeout: GoDuration,
}
