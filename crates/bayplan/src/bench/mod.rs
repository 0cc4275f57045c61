//! `bayplan bench`: runs workloads, each in its own process so that memory is measured apart, and prints the figures.

mod servers;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_bench::ask::{self, Question};
use bayplan_bench::e2e::{self, ControllerWorkload, Deployments, Embedded};
use bayplan_bench::report::{Run, grouped, log_costs, table};
use bayplan_bench::trace;
use bayplan_bench::workload::{self, Workload};
use bayplan_bench::{engine, plot};
use bayplan_client::Client;

use crate::args::{Bench, BenchLog, BenchMode, BenchOutput, BenchServer};
use crate::failure;
use crate::progress::Progress;
use servers::MeasuredServer;

/// The default numbers of nodes and pods of Deployments.
const DEPLOYMENT_SIZE: (usize, usize) = (5_000, 10_000);

/// The default number of nodes of questions.
const QUESTION_NODES: usize = 5_000;

/// Runs the benchmarks and prints their figures.
pub(crate) async fn run(args: Bench) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.list {
        return list(&mut out);
    }
    let jobs = jobs(&args)?;
    let mut runs = Vec::new();
    let mut failures = 0;
    if let [job] = &*jobs {
        let failed = |error: anyhow::Error| anyhow!("{}: {}", job.name(), failure::one_line(&error));
        runs.extend(job.run(&args).await.map_err(failed)?);
    } else {
        for job in &jobs {
            match job.runs_of_child(&args) {
                Ok(measured) => runs.extend(measured),
                // The child has said why on our standard error.
                Err(_) => failures += 1,
            }
        }
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::growth(&runs)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.output {
        BenchOutput::Json => writeln!(out, "{}", serde_json::to_string_pretty(&runs)?)?,
        BenchOutput::Table if runs.is_empty() => {}
        BenchOutput::Table => write!(out, "{}{}", table(&runs), log_costs(&runs))?,
    }
    if failures > 0 { bail!("{failures} of {} runs failed", jobs.len()) } else { Ok(()) }
}

fn list(out: &mut impl Write) -> Result<()> {
    let workloads = workload::all().iter().map(Benchmark::Workload);
    let deployments = Deployments::ALL.map(Benchmark::Deployments);
    let deployments = deployments.into_iter().chain(ControllerWorkload::ALL.map(Benchmark::Controllers));
    let all: Vec<Benchmark> = workloads.chain(deployments).chain(Question::ALL.map(Benchmark::Question)).collect();
    let width = all.iter().map(|benchmark| benchmark.name().len()).max().unwrap_or(0);
    for benchmark in all {
        let (name, nodes) = (benchmark.name(), benchmark.nodes());
        let (nodes, pods) = (grouped(nodes as u64), grouped(benchmark.pods(nodes) as u64));
        writeln!(out, "{name:<width$}  {nodes:>6} nodes  {pods:>6} pods  {}", benchmark.about())?;
    }
    Ok(())
}

/// One thing that can be measured.
#[derive(Clone, Copy)]
enum Benchmark {
    Workload(&'static Workload),
    /// Deployments until all their pods run; end to end only.
    Deployments(Deployments),
    /// What other controllers do with much; end to end only.
    Controllers(ControllerWorkload),
    /// A question about a cluster of pending pods.
    Question(Question),
    Trace,
}

impl Benchmark {
    fn named(name: &str, mode: BenchMode) -> Result<Self> {
        match (Question::named(name), mode) {
            (Some(question), BenchMode::Ask) => return Ok(Benchmark::Question(question)),
            (Some(question), _) => bail!("{} is measured with --mode ask", question.name()),
            (None, BenchMode::Ask) => {
                let known = Question::ALL.map(Question::name).join(", ");
                bail!("--mode ask measures {known}, not {name}");
            }
            (None, _) => {}
        }
        match ControllerWorkload::named(name) {
            Some(what) if mode == BenchMode::E2e => return Ok(Benchmark::Controllers(what)),
            Some(what) => bail!("{} is measured with --mode e2e", what.name()),
            None => {}
        }
        match Deployments::named(name) {
            Some(deployments) if mode == BenchMode::E2e => Ok(Benchmark::Deployments(deployments)),
            Some(deployments) => bail!("{} is measured with --mode e2e", deployments.name()),
            None => Ok(Benchmark::Workload(workload::find(name)?)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Benchmark::Workload(workload) => &workload.name,
            Benchmark::Deployments(deployments) => deployments.name(),
            Benchmark::Controllers(what) => what.name(),
            Benchmark::Question(question) => question.name(),
            Benchmark::Trace => "Trace",
        }
    }

    fn about(self) -> String {
        match self {
            Benchmark::Workload(workload) => workload.about.clone(),
            Benchmark::Deployments(deployments) => format!("{} (--mode e2e only)", deployments.about()),
            Benchmark::Controllers(what) => format!("{} (--mode e2e only)", what.about()),
            Benchmark::Question(question) => format!("{} (--mode ask only)", question.about()),
            Benchmark::Trace => "a recorded cluster".to_owned(),
        }
    }

    /// The default number of nodes.
    fn nodes(self) -> usize {
        match self {
            Benchmark::Workload(workload) => workload.nodes,
            Benchmark::Question(_) => QUESTION_NODES,
            Benchmark::Deployments(_) | Benchmark::Controllers(_) | Benchmark::Trace => DEPLOYMENT_SIZE.0,
        }
    }

    /// The default number of measured pods on so many nodes.
    fn pods(self, nodes: usize) -> usize {
        match self {
            Benchmark::Workload(workload) => workload.pods_on(nodes),
            Benchmark::Question(question) => question.pods(),
            Benchmark::Controllers(what) => what.pods(nodes),
            Benchmark::Deployments(_) | Benchmark::Trace => DEPLOYMENT_SIZE.1,
        }
    }
}

/// One run of one workload, or several that are compared with each other.
struct Job {
    benchmark: Benchmark,
    nodes: usize,
    pods: usize,
    seed: u64,
    log: Option<BenchLog>,
    /// Pairs of runs without and with a decision log, where these are compared. They share a process and take turns, so
    /// that both meet the same machine and the same memory.
    pairs: u32,
    /// The server that is measured, where several are compared.
    server: Option<BenchServer>,
}

/// The servers that are compared; `None` is the one that is measured alone.
fn servers(args: &Bench) -> Result<Vec<Option<BenchServer>>> {
    if args.etcd_servers.is_empty() {
        return Ok(vec![None]);
    }
    if args.mode != BenchMode::E2e {
        bail!("--etcd-servers is measured with --mode e2e");
    }
    if let Some(server) = args.server {
        return Ok(vec![Some(server)]);
    }
    let upstream = args.kube_apiserver.is_some().then_some(BenchServer::KubeApiserver);
    Ok([Some(BenchServer::Embedded), Some(BenchServer::Etcd), upstream].into_iter().filter(Option::is_some).collect())
}

fn jobs(args: &Bench) -> Result<Vec<Job>> {
    if args.mode != BenchMode::Engine && args.decision_log.is_some() {
        bail!("--decision-log is measured with --mode engine")
    }
    let (log, compares) = (args.decision_log, args.decision_log == Some(BenchLog::Compare));
    let (jobs_of_each, pairs) = if compares { (1, args.runs) } else { (args.runs, 0) };
    let seeds = || args.seed..args.seed + u64::from(jobs_of_each);
    if !args.trace.is_empty() {
        ensure_readable(&args.trace)?;
        let job = |seed| Job { benchmark: Benchmark::Trace, nodes: 0, pods: 0, seed, log, pairs, server: None };
        return Ok(seeds().map(job).collect());
    }
    let benchmarks: Vec<Benchmark> = match args.workloads.as_slice() {
        [] if !args.etcd_servers.is_empty() => vec![Benchmark::named("SchedulingBasic", args.mode)?],
        [] if args.mode == BenchMode::E2e => {
            let deployments = Deployments::ALL.map(Benchmark::Deployments);
            [Benchmark::named("SchedulingBasic", args.mode)?].into_iter().chain(deployments).collect()
        }
        [] if args.mode == BenchMode::Ask => Question::ALL.map(Benchmark::Question).into(),
        [] => workload::all().iter().map(Benchmark::Workload).collect(),
        names => names.iter().map(|name| Benchmark::named(name, args.mode)).collect::<Result<_>>()?,
    };
    let servers = servers(args)?;
    let mut jobs = Vec::new();
    for benchmark in benchmarks {
        let sizes = if args.nodes.is_empty() { vec![benchmark.nodes()] } else { args.nodes.clone() };
        for nodes in sizes {
            let pods = args.pods.unwrap_or_else(|| benchmark.pods(nodes));
            for server in &servers {
                let server = *server;
                jobs.extend(seeds().map(|seed| Job { benchmark, nodes, pods, seed, log, pairs, server }));
            }
        }
    }
    Ok(jobs)
}

/// Refuses a file that is missing before anything runs.
fn ensure_readable(files: &[PathBuf]) -> Result<()> {
    for path in files {
        if let Err(error) = std::fs::File::open(path) {
            bail!(
                "cannot read {}: {error}; --trace takes two CSV files, the nodes of a trace and its pods",
                path.display()
            );
        }
    }
    Ok(())
}

impl Job {
    fn name(&self) -> &str {
        self.benchmark.name()
    }

    /// Runs it in this process.
    async fn run(&self, args: &Bench) -> Result<Vec<Run>> {
        match args.mode {
            BenchMode::Engine if self.pairs > 0 => self.run_pairs(args),
            BenchMode::Engine => Ok(vec![self.run_engine(args, self.seed, self.log.is_some())?]),
            BenchMode::E2e => Ok(vec![self.run_e2e(args).await?]),
            BenchMode::Ask => Ok(vec![self.run_question()?]),
        }
    }

    /// Runs it without and with a decision log in turn. What comes first changes from pair to pair.
    fn run_pairs(&self, args: &Bench) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for pair in 0..u64::from(self.pairs) {
            for logged in [pair % 2 == 1, pair % 2 == 0] {
                runs.push(self.run_engine(args, self.seed + pair, logged)?);
            }
        }
        Ok(runs)
    }

    fn run_question(&self) -> Result<Run> {
        match self.benchmark {
            Benchmark::Question(question) => Ok(ask::run(question, self.nodes, self.pods)?),
            _ => bail!("{} is not measured with --mode ask", self.name()),
        }
    }

    async fn run_e2e(&self, args: &Bench) -> Result<Run> {
        let mut progress = Progress::new();
        let mut report = |what: &str, done: usize, of: usize| self.report(&mut progress, what, done, of);
        let Job { nodes, pods, seed, .. } = *self;
        let options = e2e::Options { nodes, pods, rate: args.rate, external_scheduler: args.external_scheduler, seed };
        if let Some(server) = self.server {
            let run = self.run_server(server, args, &options, &mut report).await;
            progress.clear();
            return run;
        }
        let run = match (self.benchmark, &args.kubeconfig) {
            (Benchmark::Trace, _) => bail!("a trace is replayed in engine mode only"),
            (Benchmark::Question(_), _) => bail!("questions are measured with --mode ask"),
            (Benchmark::Deployments(_), Some(_)) => bail!("Deployments are measured on the embedded cluster only"),
            (Benchmark::Controllers(what), Some(_)) => {
                bail!("{} is measured on the embedded cluster only", what.name())
            }
            (Benchmark::Workload(workload), Some(path)) => {
                let client = Client::from_kubeconfig(Some(path), None).await?;
                let cluster = e2e::Cluster { admin: client.clone(), scheduler: client };
                e2e::run(workload, &options, &cluster, &mut report).await
            }
            (Benchmark::Workload(workload), None) => {
                let embedded = Embedded::start().await?;
                let run = e2e::run(workload, &options, &embedded.cluster(), &mut report).await;
                embedded.stop().await;
                run
            }
            (Benchmark::Deployments(what), None) => {
                let embedded = Embedded::start().await?;
                let run = e2e::run_deployments(what, &options, &embedded, &mut report).await;
                embedded.stop().await;
                run
            }
            (Benchmark::Controllers(what), None) => {
                let embedded = Embedded::start().await?;
                let run = e2e::run_controller_workload(what, &options, &embedded, &mut report).await;
                embedded.stop().await;
                run
            }
        };
        progress.clear();
        Ok(run?)
    }

    /// Measures a server in a process of its own, over the network, and what all processes cost.
    async fn run_server(
        &self,
        server: BenchServer,
        args: &Bench,
        options: &e2e::Options,
        report: &mut e2e::Progress<'_>,
    ) -> Result<Run> {
        let Benchmark::Workload(workload) = self.benchmark else {
            bail!("{} is not measured with --etcd-servers", self.name());
        };
        let measured = MeasuredServer::start(server, args).await?;
        let mut run = e2e::run_beside(workload, options, measured.clients(), &|| measured.costs(), report).await?;
        run.mode = server.name().to_owned();
        Ok(run)
    }

    fn run_engine(&self, args: &Bench, seed: u64, decision_log: bool) -> Result<Run> {
        let mut progress = Progress::new();
        let Job { nodes, pods, .. } = *self;
        let options = engine::Options { nodes, pods, seed, confirmations: args.confirmations, decision_log };
        let mut report = |what: &str, done: usize, of: usize| self.report(&mut progress, what, done, of);
        let run = match (self.benchmark, args.trace.as_slice()) {
            (Benchmark::Workload(workload), _) => engine::run(workload, &options, &mut report),
            (_, [nodes, pods]) => engine::run_trace(&trace::read(nodes, pods)?, &options, &mut report),
            _ => bail!("--trace takes two files: nodes and pods"),
        };
        progress.clear();
        Ok(run?)
    }

    /// Shows how far the run is; the end of a step always, for its figure.
    fn report(&self, progress: &mut Progress, what: &str, done: usize, of: usize) {
        let line = format!("{}: {} of {} {what}", self.name(), grouped(done as u64), grouped(of as u64));
        if done < of { progress.report(&line) } else { progress.show(&line) }
    }

    /// Runs it in a process of its own, so that its memory is not counted for the next.
    fn runs_of_child(&self, args: &Bench) -> Result<Vec<Run>> {
        let mut child = Command::new(std::env::current_exe().context("cannot find this program again")?);
        child.arg("bench").args(["-o", "json", "--runs", &self.pairs.max(1).to_string()]);
        child.args(["--seed", &self.seed.to_string()]);
        child.args(["--mode", args.mode.name()]);
        if args.confirmations {
            child.arg("--confirmations");
        }
        match self.log {
            Some(BenchLog::Compare) => drop(child.arg("--decision-log=compare")),
            Some(BenchLog::On) => drop(child.arg("--decision-log=on")),
            None => {}
        }
        if let Some(rate) = args.rate {
            child.args(["--rate", &rate.to_string()]);
        }
        if let Some(path) = &args.kubeconfig {
            child.arg("--kubeconfig").arg(path);
        }
        if args.external_scheduler {
            child.arg("--external-scheduler");
        }
        if let Some(server) = self.server {
            child.args(["--etcd-servers", &args.etcd_servers.join(","), "--server", server.name()]);
        }
        if let Some(path) = &args.kube_apiserver {
            child.arg("--kube-apiserver").arg(path);
        }
        match self.benchmark {
            Benchmark::Trace => drop(child.arg("--trace").args(&args.trace)),
            benchmark => {
                child.args([benchmark.name(), "--nodes", &self.nodes.to_string(), "--pods", &self.pods.to_string()]);
            }
        }
        let output = child.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start a run")?;
        if !output.status.success() {
            return Err(anyhow!("the run ended with {}", output.status));
        }
        serde_json::from_slice(&output.stdout).context("cannot read what the run printed")
    }
}
