//! Where the cluster comes from that a question is asked of.

use std::path::PathBuf;

use clap::Args;

/// A live cluster, or files that describe one.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The cluster")]
pub(crate) struct Source {
    /// Files, folders or archives to read the cluster from instead of asking an API server; `-` is standard input.
    /// Snapshots, YAML and JSON, dumps, support bundles and etcd snapshots are told apart by their content. Repeatable.
    #[arg(long, value_name = "SOURCE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) from: Vec<PathBuf>,
    /// The kubeconfig of a live cluster, which is only read [default: $KUBECONFIG, then ~/.kube/config].
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// A KubeSchedulerConfiguration to decide with [default: upstream's defaults].
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
}
