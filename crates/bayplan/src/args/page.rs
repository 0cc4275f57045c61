//! `bayplan page`.

use clap::Args;

use super::source::Source;

#[derive(Debug, Args)]
pub(crate) struct Page {
    #[command(flatten)]
    pub(crate) source: Source,
    /// The port on loopback; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
}
