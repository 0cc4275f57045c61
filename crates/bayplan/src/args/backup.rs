//! The arguments of `bayplan backup` and `bayplan restore`.

use std::path::PathBuf;

use clap::Args;

/// What to back up, and where to.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The file to write, `cluster.backup` for example; `-` is standard output. One that is there is replaced once the
    /// new one is whole.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: PathBuf,
    /// The data folder; a cluster may be running on it
    /// [default: $XDG_DATA_HOME/bayplan or ~/.local/share/bayplan].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Leave out the private keys and certificates. A cluster that is restored without them makes new ones, and
    /// refuses the kubeconfigs and tokens that were issued before.
    #[arg(long)]
    pub(crate) without_keys: bool,
}

/// What to restore, and where to.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// The backup; `-` is standard input. It is read to its end and checked before anything is written.
    #[arg(value_name = "PATH")]
    pub(crate) backup: PathBuf,
    /// The data folder to make: new or empty
    /// [default: $XDG_DATA_HOME/bayplan or ~/.local/share/bayplan].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Check the backup and say what is in it; write nothing.
    #[arg(long, conflicts_with = "data_dir")]
    pub(crate) check: bool,
}
