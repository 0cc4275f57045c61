//! `bayplan bench`: runs workloads, each in a process of its own so that memory figures are its own, and tells what they cost.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_bench::e2e::{self, Deployments, Embedded};
use bayplan_bench::report::{Run, grouped, table};
use bayplan_bench::trace::Trace;
use bayplan_bench::workload::{self, Workload};
use bayplan_bench::{engine, plot};
use bayplan_client::Client;

use crate::args::{Bench, BenchMode, BenchOutput};

/// How often progress is told: on a terminal the line is written over, elsewhere every line stays.
const TOLD_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Nodes and pods of Deployments unless told otherwise.
const DEPLOYMENT_SIZE: (usize, usize) = (5_000, 10_000);

/// Measures what was asked for, and prints it.
pub(crate) async fn run(args: Bench) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if args.list {
        return list(&mut out);
    }
    let jobs = jobs(&args)?;
    let mut runs = Vec::new();
    let mut failures = 0;
    for job in &jobs {
        let outcome = if jobs.len() == 1 { vec![job.run(&args).await] } else { job.run_apart(&args) };
        for result in outcome {
            match result {
                Ok(run) => runs.push(run),
                Err(error) => {
                    failures += 1;
                    note(&format!("{}: {error:#}", job.name()));
                }
            }
        }
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::growth(&runs)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.output {
        BenchOutput::Json => writeln!(out, "{}", serde_json::to_string_pretty(&runs)?)?,
        BenchOutput::Table if runs.is_empty() => {}
        BenchOutput::Table => write!(out, "{}", table(&runs))?,
    }
    if failures > 0 { bail!("{failures} of {} runs gave no figure", jobs.len()) } else { Ok(()) }
}

fn list(out: &mut impl Write) -> Result<()> {
    let width = workload::all().iter().map(|w| w.name.len()).max().unwrap_or(0);
    for Workload { name, about, nodes, pods, .. } in workload::all() {
        let (nodes, pods) = (grouped(*nodes as u64), grouped(*pods as u64));
        writeln!(out, "{name:<width$}  {nodes:>6} nodes  {pods:>6} pods  {about}")?;
    }
    Ok(())
}

/// What is measured.
#[derive(Clone, Copy)]
enum What {
    Workload(&'static Workload),
    /// Deployments until all their pods run; end to end only.
    Deployments(Deployments),
    Trace,
}

impl What {
    fn named(name: &str, mode: BenchMode) -> Result<Self> {
        match Deployments::named(name) {
            Some(deployments) if mode == BenchMode::E2e => Ok(What::Deployments(deployments)),
            Some(deployments) => bail!("{} is measured with --mode e2e", deployments.name()),
            None => Ok(What::Workload(workload::find(name)?)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            What::Workload(workload) => &workload.name,
            What::Deployments(deployments) => deployments.name(),
            What::Trace => "Trace",
        }
    }

    /// How many nodes, and pods on so many nodes, unless told otherwise.
    fn nodes(self) -> usize {
        if let What::Workload(workload) = self { workload.nodes } else { DEPLOYMENT_SIZE.0 }
    }

    fn pods(self, nodes: usize) -> usize {
        if let What::Workload(workload) = self { workload.pods_on(nodes) } else { DEPLOYMENT_SIZE.1 }
    }
}

/// One run of one workload.
struct Job {
    what: What,
    nodes: usize,
    pods: usize,
    seed: u64,
}

fn jobs(args: &Bench) -> Result<Vec<Job>> {
    let seeds = || args.seed..args.seed + u64::from(args.runs);
    if !args.trace.is_empty() {
        return Ok(seeds().map(|seed| Job { what: What::Trace, nodes: 0, pods: 0, seed }).collect());
    }
    let whats: Vec<What> = match args.workloads.as_slice() {
        [] if args.mode == BenchMode::E2e => {
            let deployments = Deployments::ALL.map(What::Deployments);
            [What::named("SchedulingBasic", args.mode)?].into_iter().chain(deployments).collect()
        }
        [] => workload::all().iter().map(What::Workload).collect(),
        names => names.iter().map(|name| What::named(name, args.mode)).collect::<Result<_>>()?,
    };
    let mut jobs = Vec::new();
    for what in whats {
        let sizes = if args.nodes.is_empty() { vec![what.nodes()] } else { args.nodes.clone() };
        for nodes in sizes {
            let pods = args.pods.unwrap_or_else(|| what.pods(nodes));
            jobs.extend(seeds().map(|seed| Job { what, nodes, pods, seed }));
        }
    }
    Ok(jobs)
}

impl Job {
    fn name(&self) -> &str {
        self.what.name()
    }

    /// Runs it here.
    async fn run(&self, args: &Bench) -> Result<Run> {
        match args.mode {
            BenchMode::Engine => self.run_engine(args),
            BenchMode::E2e => self.run_e2e(args).await,
        }
    }

    async fn run_e2e(&self, args: &Bench) -> Result<Run> {
        let mut progress = Progress::new(self.name());
        let mut tell = |what: &str, done: usize, of: usize| progress.tell(what, done, of);
        let Job { nodes, pods, seed, .. } = *self;
        let options = e2e::Options { nodes, pods, rate: args.rate, external_scheduler: args.external_scheduler, seed };
        let run = match (self.what, &args.kubeconfig) {
            (What::Trace, _) => bail!("a trace is replayed in engine mode only"),
            (What::Deployments(_), Some(_)) => bail!("Deployments are measured on the embedded cluster only"),
            (What::Workload(workload), Some(path)) => {
                let client = Client::from_kubeconfig(Some(path), None).await?;
                let cluster = e2e::Cluster { admin: client.clone(), scheduler: client };
                e2e::run(workload, &options, &cluster, &mut tell).await
            }
            (What::Workload(workload), None) => {
                let embedded = Embedded::start().await?;
                let run = e2e::run(workload, &options, &embedded.cluster(), &mut tell).await;
                embedded.stop().await;
                run
            }
            (What::Deployments(what), None) => {
                let embedded = Embedded::start().await?;
                let run = e2e::run_deployments(what, &options, &embedded, &mut tell).await;
                embedded.stop().await;
                run
            }
        };
        progress.end();
        Ok(run?)
    }

    fn run_engine(&self, args: &Bench) -> Result<Run> {
        let mut progress = Progress::new(self.name());
        let Job { nodes, pods, seed, .. } = *self;
        let options = engine::Options { nodes, pods, seed, confirmations: args.confirmations };
        let mut tell = |what: &str, done: usize, of: usize| progress.tell(what, done, of);
        let run = match (self.what, args.trace.as_slice()) {
            (What::Workload(workload), _) => engine::run(workload, &options, &mut tell),
            (_, [nodes, pods]) => engine::run_trace(&Trace::read(nodes, pods)?, &options, &mut tell),
            _ => bail!("--trace takes two files: nodes and pods"),
        };
        progress.end();
        Ok(run?)
    }

    /// Runs it in a process of its own: what one run leaves in memory is not counted for the next.
    fn run_apart(&self, args: &Bench) -> Vec<Result<Run>> {
        match self.runs_of_child(args) {
            Ok(runs) => runs.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn runs_of_child(&self, args: &Bench) -> Result<Vec<Run>> {
        let mut child = Command::new(std::env::current_exe().context("cannot find this program again")?);
        child.arg("bench").args(["-o", "json", "--runs", "1", "--seed", &self.seed.to_string()]);
        child.args(["--mode", args.mode.name()]);
        if args.confirmations {
            child.arg("--confirmations");
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
        match self.what {
            What::Trace => drop(child.arg("--trace").args(&args.trace)),
            what => {
                child.args([what.name(), "--nodes", &self.nodes.to_string(), "--pods", &self.pods.to_string()]);
            }
        }
        let output = child.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start a run")?;
        if !output.status.success() {
            return Err(anyhow!("the run ended with {}", output.status));
        }
        serde_json::from_slice(&output.stdout).context("cannot read what the run printed")
    }
}

fn note(text: &str) {
    // Standard error may be closed; that is no reason to stop measuring.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Tells how far a run is, not too often.
struct Progress {
    name: String,
    told: Option<Instant>,
    terminal: bool,
}

impl Progress {
    fn new(name: &str) -> Self {
        Progress { name: name.to_owned(), told: None, terminal: std::io::stderr().is_terminal() }
    }

    fn tell(&mut self, what: &str, done: usize, of: usize) {
        let every = if self.terminal { TOLD_EVERY.0 } else { TOLD_EVERY.1 };
        // The end of a step is always told, for its figure.
        if done < of && self.told.is_some_and(|told| told.elapsed() < every) {
            return;
        }
        self.told = Some(Instant::now());
        let (done, of) = (grouped(done as u64), grouped(of as u64));
        let line = format!("{}: {done} of {of} {what}", self.name);
        let mut stderr = std::io::stderr().lock();
        let _ = match self.terminal {
            true => write!(stderr, "\r\x1b[K{line}"),
            false => writeln!(stderr, "{line}"),
        };
    }

    fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
