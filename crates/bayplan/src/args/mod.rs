//! The command line: what can be asked of `bayplan`, before anything is looked at or opened.

pub(crate) mod component;
pub(crate) mod controllers;
pub(crate) mod go;

use std::path::PathBuf;

use bayplan_scheduler::config::GoDuration;
use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

use component::{Component, LeaderElection};
use controllers::Controllers;

/// The most nodes `up` simulates: one /24 of pod addresses a node, out of 10.0.0.0/8 less the service range.
pub(crate) const NODES_MAX: u32 = 60_000;

/// The most nodes or pods `bench` makes: as many as an index of 32 bits and a machine's memory can be hoped to hold.
pub(crate) const BENCH_MAX: i64 = 100_000_000;

/// Kubernetes' placement brain: scheduler, control loops and API server in one binary.
#[derive(Debug, Parser)]
#[command(name = "bayplan", version, about, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What to log on standard error: error, warn, info, debug, or a filter such as `bayplan_scheduler=debug`
    /// [default: warn].
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster: API server, store, controllers, scheduler and simulated nodes in this process.
    Up(Up),
    /// Start the API server alone, on its embedded store.
    Apiserver(Apiserver),
    /// Run the scheduler against any Kubernetes API server.
    Scheduler(Box<Scheduler>),
    /// Run the controllers against any Kubernetes API server.
    ControllerManager(Box<ControllerManager>),
    /// Measure the scheduler with workloads named after scheduler_perf's.
    Bench(Bench),
}

/// Where the API server listens and where it keeps its objects.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// The folder for objects, certificates and the kubeconfig; kept between runs [default: a per-user data folder].
    #[arg(long, value_name = "FOLDER", conflicts_with = "in_memory")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Keep everything in memory: nothing is durable, and nothing is left behind but the kubeconfig.
    #[arg(long)]
    pub(crate) in_memory: bool,
    /// The port of the API server; 0 picks a free one.
    #[arg(long, default_value_t = 6443)]
    pub(crate) port: u16,
    /// Also write the administrator's kubeconfig here.
    #[arg(long, value_name = "PATH")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) server: Server,
    /// How many nodes to simulate.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=i64::from(NODES_MAX)))]
    pub(crate) nodes: u32,
    /// Processor capacity of each node.
    #[arg(long, default_value = "8", value_name = "QUANTITY", value_parser = capacity)]
    pub(crate) node_cpu: String,
    /// Memory capacity of each node.
    #[arg(long, default_value = "32Gi", value_name = "QUANTITY", value_parser = capacity)]
    pub(crate) node_memory: String,
    /// How many pods each node takes.
    #[arg(long, default_value_t = 110)]
    pub(crate) node_pods: u32,
    /// Over how many zones the nodes are spread.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) zones: u32,
    /// How long a pod takes from bound to running.
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = delay)]
    pub(crate) pod_start_delay: SignedDuration,
}

#[derive(Debug, Args)]
pub(crate) struct Apiserver {
    #[command(flatten)]
    pub(crate) server: Server,
}

/// How to reach an API server.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// The kubeconfig to use [default: $KUBECONFIG, then ~/.kube/config, then the pod's own service account].
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The address of the API server; wins over the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
    /// Requests per second; nothing is throttled that nobody asked to throttle.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kube_api_qps: Option<f32>,
    /// Requests at once, within that budget.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kube_api_burst: Option<i32>,
    #[arg(long, hide = true)]
    pub(crate) kube_api_content_type: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go::boolean)]
    pub(crate) profiling: Option<bool>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go::boolean)]
    pub(crate) contention_profiling: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// A KubeSchedulerConfiguration file (kubescheduler.config.k8s.io/v1).
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Write the configuration with all its defaults to this file and exit.
    #[arg(long, value_name = "PATH")]
    pub(crate) write_config_to: Option<PathBuf>,
    /// After this long a pod that no event woke is tried again.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = go::duration)]
    pub(crate) pod_max_in_unschedulable_pods_duration: GoDuration,
    #[command(flatten)]
    pub(crate) election: LeaderElection,
    #[command(flatten)]
    pub(crate) component: Component,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerManager {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) controllers: Controllers,
    #[command(flatten)]
    pub(crate) election: LeaderElection,
    #[command(flatten)]
    pub(crate) component: Component,
}

/// What to measure, and how.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The workloads, as scheduler_perf names them (`--list` shows them) [default: all].
    pub(crate) workloads: Vec<String>,
    /// The scheduler's core alone, or everything from creating a pod to seeing it bound.
    #[arg(long, value_enum, default_value_t = BenchMode::Engine)]
    pub(crate) mode: BenchMode,
    /// How many nodes; several numbers are measured one after the other [default: the workload's].
    #[arg(long, value_delimiter = ',', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=BENCH_MAX).map(|n| n as usize))]
    pub(crate) nodes: Vec<usize>,
    /// How many pods are measured [default: the workload's].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=BENCH_MAX).map(|n| n as usize))]
    pub(crate) pods: Option<usize>,
    /// How often each is measured; the table shows medians.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Replay a trace in the form of Alibaba's openb instead of a workload.
    #[arg(long, num_args = 2, value_names = ["NODES.CSV", "PODS.CSV"], conflicts_with_all = ["workloads", "nodes", "pods"])]
    pub(crate) trace: Vec<PathBuf>,
    /// Engine mode: also time what the cluster answers (pods seen on their nodes, victims that are gone).
    #[arg(long)]
    pub(crate) confirmations: bool,
    /// End-to-end mode: offer so many pods per second instead of as many as the API server takes.
    #[arg(long, value_name = "PODS/S", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// End-to-end mode: an API server to measure against [default: one in this process, on a durable store]. It should be empty;
    /// what is created is left there.
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// With --kubeconfig: measure the scheduler that runs there instead of bringing one.
    #[arg(long, requires = "kubeconfig")]
    pub(crate) external_scheduler: bool,
    /// Print a table, or JSON with one object per run.
    #[arg(short, long, value_enum, default_value_t = BenchOutput::Table)]
    pub(crate) output: BenchOutput,
    /// Also draw time per pod over the number of nodes, as SVG.
    #[arg(long, value_name = "PATH")]
    pub(crate) plot: Option<PathBuf>,
    /// Breaks ties between equally good nodes; the next run takes the next number.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Show the workloads and what they are.
    #[arg(long)]
    pub(crate) list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchMode {
    /// Queue, decision and assume, without an API server.
    Engine,
    /// From creating a pod to seeing it bound, over an API server.
    E2e,
}

impl BenchMode {
    /// As the command line spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchMode::Engine => "engine",
            BenchMode::E2e => "e2e",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOutput {
    Table,
    Json,
}

fn capacity(text: &str) -> Result<String, String> {
    let quantity: bayplan_model::quantity::Quantity =
        text.parse().map_err(|_| "not a quantity such as 8, 500m or 32Gi".to_owned())?;
    if quantity.sign() > 0 { Ok(quantity.to_string()) } else { Err("must be more than zero".into()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number such as 1000".to_owned())?;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("must be more than zero".into()) }
}

fn delay(text: &str) -> Result<SignedDuration, String> {
    let delay: SignedDuration = text.parse().map_err(|_| "not a duration such as 1s, 200ms or 1m30s".to_owned())?;
    if delay.is_negative() { Err("must not be negative".into()) } else { Ok(delay) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bad_value_is_told_with_an_example_of_a_good_one() {
        for (flag, value, needle) in [
            ("--node-cpu", "many", "not a quantity such as"),
            ("--node-memory", "-1Gi", "more than zero"),
            ("--pod-start-delay", "soon", "not a duration such as"),
            ("--nodes", "70000", "0..=60000"),
            ("--zones", "0", "1..=1000"),
        ] {
            let error = Cli::try_parse_from(["bayplan", "up", &format!("{flag}={value}")]).unwrap_err().to_string();
            assert!(error.contains(needle), "{flag} {value}: {error}");
        }
    }
}
