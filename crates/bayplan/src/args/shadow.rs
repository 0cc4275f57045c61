//! The arguments of `shadow`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bayplan_scheduler::config::GoDuration;
use clap::Args;

use super::go;
use super::output::{Output, formats};
use super::source::Source;

#[derive(Debug, Args)]
pub(crate) struct Shadow {
    /// The kubeconfig of the cluster, which is only read [default: $KUBECONFIG, then ~/.kube/config].
    #[arg(long, value_name = "PATH", help_heading = "The cluster")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = "The cluster")]
    pub(crate) context: Option<String>,
    /// The KubeSchedulerConfiguration of the scheduler that is judged [default: upstream's defaults].
    #[arg(long, value_name = "PATH", help_heading = "The cluster")]
    pub(crate) config: Option<PathBuf>,
    /// How long to watch [default: until a signal].
    #[arg(long = "for", value_name = "DURATION", value_parser = go::duration)]
    pub(crate) duration: Option<GoDuration>,
    /// Exit with 1 when less than this share of the bindings is explained, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) fail_under: Option<f64>,
    /// A folder for the states of bindings that nothing explains, one file each.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cases: Option<PathBuf>,
    /// Serve metrics over HTTP at this address, for example 127.0.0.1:9470 [default: none].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_bind_address: Option<SocketAddr>,
    /// Print text, JSON or YAML.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = formats([Output::Text, Output::Json, Output::Yaml]),
        help_heading = "Output"
    )]
    pub(crate) output: Output,
}

impl Shadow {
    /// The cluster, as other verbs name it.
    pub(crate) fn source(&self) -> Source {
        Source {
            from: Vec::new(),
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            config: self.config.clone(),
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.trim_end_matches('%').parse().map_err(|_| "not a percentage such as 99.9".to_owned())?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("must be between 0 and 100".to_owned()) }
}
