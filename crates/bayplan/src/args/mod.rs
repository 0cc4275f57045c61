//! The command line: commands and flags, parsed but not yet acted upon.

pub(crate) mod apiserver;
mod autoscaling;
pub(crate) mod backup;
pub(crate) mod component;
pub(crate) mod controllers;
pub(crate) mod decision_log;
pub(crate) mod endpoints;
pub(crate) mod foreign;
pub(crate) mod given;
pub(crate) mod go;
pub(crate) mod mcp;
pub(crate) mod migrate;
pub(crate) mod nodes;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod shadow;
mod signing;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod source;
pub(crate) mod whatif;
pub(crate) mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use bayplan_scheduler::config::GoDuration;
use clap::builder::TypedValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

use crate::ask::Outcome;
use component::{Component, LeaderElection};
use controllers::Controllers;
use decision_log::DecisionLog;
use nodes::EachNode;
use output::{Output, formats};

/// The most nodes `up` simulates: one /24 of pod addresses a node, out of 10.0.0.0/8 less the service range.
pub(crate) const NODES_MAX: u32 = 60_000;

const NODES_HEADING: &str = "Simulated nodes";
const ENGINE_HEADING: &str = "Engine mode";
const E2E_HEADING: &str = "End-to-end mode";
const OUTPUT_HEADING: &str = "Output";

/// The most nodes or pods `bench` makes: as many as an index of 32 bits and a machine's memory can be hoped to hold.
pub(crate) const BENCH_MAX: i64 = 100_000_000;

/// Kubernetes' placement brain: scheduler, control loops and API server in one binary.
#[derive(Debug, Parser)]
#[command(name = "bayplan", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What to log on standard error: a level (error, warn, info, debug, trace) or a filter such as
    /// `warn,bayplan_scheduler=debug` [default: $RUST_LOG, or else warn;
    /// info for the scheduler and the controller manager].
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    pub(crate) log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster: API server, store, controllers, scheduler and simulated nodes in this process.
    Up(Up),
    /// Start the API server alone, also where a kube-apiserver stood: it takes that one's flags.
    Apiserver(Box<apiserver::Apiserver>),
    /// Run the scheduler against any Kubernetes API server.
    Scheduler(Box<Scheduler>),
    /// Run the controllers against any Kubernetes API server.
    ControllerManager(Box<ControllerManager>),
    /// Register and run simulated nodes against any Kubernetes API server.
    Nodes(Box<nodes::Nodes>),
    /// Write the objects and keys of a data folder into one file, also while a cluster runs on it.
    Backup(backup::Backup),
    /// Make a data folder of a backup.
    Restore(backup::Restore),
    /// Move a cluster's objects from a data folder into etcd, or from etcd into a data folder.
    Migrate(Box<migrate::Migrate>),
    /// Ask why a pod is pending, or why it is where it is.
    Why(Box<why::Why>),
    /// Ask what would happen if: workloads created or scaled, nodes added, drained or deleted, priorities changed.
    Whatif(Box<whatif::Whatif>),
    /// Run a history under one or several configurations and compare what comes of it.
    Simulate(Box<simulate::Simulate>),
    /// Watch a live cluster beside its kube-scheduler, with read rights only, and judge every binding it makes.
    Shadow(shadow::Shadow),
    /// Write what decisions depend on into one file, of a live cluster or a dump.
    Snapshot(snapshot::Snapshot),
    /// Show a cluster or a dump of one in a browser: pending pods, nodes, and what would let a pod in.
    Page(page::Page),
    /// Answer questions of Model Context Protocol clients about one cluster, over standard input and output.
    Mcp(mcp::Mcp),
    /// Install `kubectl why` and `kubectl whatif`.
    Plugin(Plugin),
    /// Measure the scheduler with workloads named after scheduler_perf's, or questions.
    Bench(Bench),
    /// Print the version of Bayplan and of the Kubernetes it mirrors.
    Version(Version),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual page of `bayplan`, or write the pages of all commands into a folder.
    Man(Man),
}

impl Command {
    /// The exit code of a command that fails: scripts tell a question that could not be answered from an answer.
    pub(crate) fn exit_code_of_failure(&self) -> ExitCode {
        match self {
            Command::Mcp(_)
            | Command::Page(_)
            | Command::Shadow(_)
            | Command::Simulate(_)
            | Command::Snapshot(_)
            | Command::Whatif(_)
            | Command::Why(_) => ExitCode::from(Outcome::Unknown),
            Command::Up(_)
            | Command::Apiserver(_)
            | Command::Scheduler(_)
            | Command::ControllerManager(_)
            | Command::Nodes(_)
            | Command::Backup(_)
            | Command::Restore(_)
            | Command::Migrate(_)
            | Command::Bench(_)
            | Command::Plugin(_)
            | Command::Version(_)
            | Command::Completions(_)
            | Command::Man(_) => ExitCode::FAILURE,
        }
    }
}

/// Where the API server listens and where it keeps its objects.
#[derive(Debug, Args)]
#[command(next_help_heading = "API server")]
pub(crate) struct Server {
    /// The folder for objects, certificates and the kubeconfig, kept between runs: new, empty, or of an earlier run
    /// [default: $XDG_DATA_HOME/bayplan or ~/.local/share/bayplan].
    #[arg(long, value_name = "FOLDER", conflicts_with = "in_memory")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Start although the data folder has lost objects that it held, with what is left of them.
    #[arg(long, conflicts_with = "in_memory")]
    pub(crate) accept_lost_writes: bool,
    /// Keep everything in memory and forget it at the end; a kubeconfig that --write-kubeconfig wrote stays.
    #[arg(long)]
    pub(crate) in_memory: bool,
    /// The port of the API server; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub(crate) port: u16,
    /// Also write the administrator's kubeconfig here.
    #[arg(long, value_name = "PATH")]
    pub(crate) write_kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) etcd: apiserver::Etcd,
    /// How many nodes to simulate, beside those that an earlier run left in the data folder.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(NODES_MAX)),
        help_heading = NODES_HEADING
    )]
    pub(crate) nodes: u32,
    #[command(flatten, next_help_heading = NODES_HEADING)]
    pub(crate) each: EachNode,
    #[command(flatten)]
    pub(crate) decision_log: DecisionLog,
    /// The port of the page that shows the cluster in a browser; 0 picks a free one
    /// [default: that of the last run with this data folder, or a free one].
    #[arg(long, value_name = "PORT", help_heading = "Page")]
    pub(crate) page_port: Option<u16>,
    /// Do not serve the page.
    #[arg(long, conflicts_with = "page_port", help_heading = "Page")]
    pub(crate) no_page: bool,
}

/// How to reach an API server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The kubeconfig to use [default: $KUBECONFIG, then ~/.kube/config, then the pod's own service account].
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The address of the API server; wins over the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub(crate) master: Option<String>,
    /// Requests per second [default: unlimited].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kube_api_qps: Option<f32>,
    /// Requests that may be sent at once before --kube-api-qps holds them back.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) kube_api_burst: Option<i32>,
    #[arg(long, hide = true)]
    pub(crate) kube_api_content_type: Option<String>,
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) profiling: Option<bool>,
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = go::boolean
    )]
    pub(crate) contention_profiling: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// A KubeSchedulerConfiguration file (kubescheduler.config.k8s.io/v1).
    #[arg(long, value_name = "PATH", help_heading = "Scheduling")]
    pub(crate) config: Option<PathBuf>,
    /// Write the configuration with all its defaults to this file and exit.
    #[arg(long, value_name = "PATH", help_heading = "Scheduling")]
    pub(crate) write_config_to: Option<PathBuf>,
    /// How long a pod stays unschedulable before it is tried again without any event that could help it.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        value_parser = go::duration,
        help_heading = "Scheduling"
    )]
    pub(crate) pod_max_in_unschedulable_pods_duration: GoDuration,
    #[command(flatten)]
    pub(crate) decision_log: DecisionLog,
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

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The workloads, as scheduler_perf names them (`--list` shows them) [default: all].
    pub(crate) workloads: Vec<String>,
    /// Measure the scheduler's core alone, everything from creating a pod to seeing it bound, or questions.
    #[arg(long, value_enum, default_value_t = BenchMode::Engine)]
    pub(crate) mode: BenchMode,
    /// How many nodes; several numbers are measured one after the other [default: the workload's].
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=BENCH_MAX).map(|n| n as usize)
    )]
    pub(crate) nodes: Vec<usize>,
    /// How many pods are measured [default: the workload's].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=BENCH_MAX).map(|n| n as usize))]
    pub(crate) pods: Option<usize>,
    /// How often each is measured; the table shows medians.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Replay a trace in the form of Alibaba's openb instead of a workload.
    #[arg(
        long,
        num_args = 2,
        value_names = ["NODES.CSV", "PODS.CSV"],
        conflicts_with_all = ["workloads", "nodes", "pods"],
        help_heading = ENGINE_HEADING
    )]
    pub(crate) trace: Vec<PathBuf>,
    /// Also time the cluster's answers: pods seen on their nodes, victims that are gone.
    #[arg(long, help_heading = ENGINE_HEADING)]
    pub(crate) confirmations: bool,
    /// Measure each in turn without and with a decision log, and say what the log costs; `on` measures with it alone.
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "compare",
        help_heading = ENGINE_HEADING
    )]
    pub(crate) decision_log: Option<BenchLog>,
    /// Create so many pods per second instead of as many as the API server takes.
    #[arg(long, value_name = "PODS/S", value_parser = rate, help_heading = E2E_HEADING)]
    pub(crate) rate: Option<f64>,
    /// An API server to measure against [default: one in this process, on a durable store]. It should be empty; what
    /// the run creates stays there.
    #[arg(long, value_name = "PATH", help_heading = E2E_HEADING)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Measure the scheduler that runs there instead of bringing one; needs --kubeconfig.
    #[arg(long, requires = "kubeconfig", help_heading = E2E_HEADING)]
    pub(crate) external_scheduler: bool,
    /// Compare API servers, each in a process of its own: this program's on its own store, on this etcd (http), and
    /// with --kube-apiserver that one on the same etcd. What the runs create stays there, behind prefixes that begin
    /// with /bayplan-bench-.
    #[arg(
        long,
        value_name = "URLS",
        value_delimiter = ',',
        conflicts_with_all = ["kubeconfig", "external_scheduler"],
        help_heading = E2E_HEADING
    )]
    pub(crate) etcd_servers: Vec<String>,
    /// The binary of kube-apiserver, to be compared on the same etcd.
    #[arg(long, value_name = "PATH", requires = "etcd_servers", help_heading = E2E_HEADING)]
    pub(crate) kube_apiserver: Option<PathBuf>,
    /// Measure only this one of the servers that are compared.
    #[arg(long, value_enum, value_name = "SERVER", requires = "etcd_servers", help_heading = E2E_HEADING)]
    pub(crate) server: Option<BenchServer>,
    /// Print a table, or JSON with one object per run.
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value_t = BenchOutput::Table,
        help_heading = OUTPUT_HEADING
    )]
    pub(crate) output: BenchOutput,
    /// Also draw time per pod over the number of nodes, as SVG.
    #[arg(long, value_name = "PATH", help_heading = OUTPUT_HEADING)]
    pub(crate) plot: Option<PathBuf>,
    /// Breaks ties between equally good nodes; the next run takes the next number.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// List the workloads: name, size and what each is.
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub(crate) list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchMode {
    /// Queue, decision and assume, without an API server.
    Engine,
    /// From creating a pod to seeing it bound, over an API server.
    E2e,
    /// Loading a snapshot and asking why.
    Ask,
}

impl BenchMode {
    /// As the command line spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchMode::Engine => "engine",
            BenchMode::E2e => "e2e",
            BenchMode::Ask => "ask",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchServer {
    /// This program's API server on its own store.
    Embedded,
    /// This program's API server on etcd.
    Etcd,
    /// kube-apiserver on etcd.
    KubeApiserver,
}

impl BenchServer {
    /// As the command line spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchServer::Embedded => "embedded",
            BenchServer::Etcd => "etcd",
            BenchServer::KubeApiserver => "kube-apiserver",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchLog {
    /// Without and with a decision log, in turn.
    Compare,
    /// With a decision log.
    On,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOutput {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct Plugin {
    #[command(subcommand)]
    pub(crate) action: PluginAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginAction {
    /// Make links to this binary under the names by which kubectl finds its plugins.
    Install {
        /// The folder of the links, which has to be in PATH [default: that of this binary].
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print lines for people, JSON or YAML.
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = formats([Output::Text, Output::Json, Output::Yaml])
    )]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell that reads the script, for example `source <(bayplan completions bash)`.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write one page per command into this folder instead.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output_dir: Option<PathBuf>,
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
    fn a_bad_value_is_refused_with_an_example_of_a_good_one() {
        for (flag, value, needle) in [
            ("--node-cpu", "many", "not a quantity such as"),
            ("--node-memory", "-1Gi", "more than zero"),
            ("--pod-start-delay", "soon", "not a duration such as"),
            ("--nodes", "70000", "0..=60000"),
            ("--zones", "1001", "0..=1000"),
        ] {
            let error = Cli::try_parse_from(["bayplan", "up", &format!("{flag}={value}")]).unwrap_err().to_string();
            assert!(error.contains(needle), "{flag} {value}: {error}");
        }
    }
}
