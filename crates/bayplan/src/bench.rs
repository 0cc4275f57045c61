//! `bayplan bench`: runs workloads, each in a process of its own so that memory figures are its own, and tells what they cost.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_bench::report::{Run, grouped, table};
use bayplan_bench::trace::Trace;
use bayplan_bench::workload::{self, Workload};
use bayplan_bench::{engine, plot};

use crate::args::{Bench, BenchMode, BenchOutput};

/// How often progress is told: on a terminal the line is written over, elsewhere every line stays.
const TOLD_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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

/// One run of one workload.
struct Job {
    /// None replays the trace.
    workload: Option<&'static Workload>,
    nodes: usize,
    pods: usize,
    seed: u64,
}

fn jobs(args: &Bench) -> Result<Vec<Job>> {
    let seeds = || args.seed..args.seed + u64::from(args.runs);
    if !args.trace.is_empty() {
        return Ok(seeds().map(|seed| Job { workload: None, nodes: 0, pods: 0, seed }).collect());
    }
    let workloads: Vec<&Workload> = match args.workloads.as_slice() {
        [] => workload::all().iter().collect(),
        names => names.iter().map(|name| workload::find(name)).collect::<Result<_, _>>()?,
    };
    let mut jobs = Vec::new();
    for workload in workloads {
        let sizes = if args.nodes.is_empty() { vec![workload.nodes] } else { args.nodes.clone() };
        for nodes in sizes {
            let pods = args.pods.unwrap_or_else(|| workload.pods_on(nodes));
            jobs.extend(seeds().map(|seed| Job { workload: Some(workload), nodes, pods, seed }));
        }
    }
    Ok(jobs)
}

impl Job {
    fn name(&self) -> &str {
        self.workload.map_or("Trace", |workload| &workload.name)
    }

    /// Runs it here.
    async fn run(&self, args: &Bench) -> Result<Run> {
        match args.mode {
            BenchMode::Engine => self.run_engine(args),
        }
    }

    fn run_engine(&self, args: &Bench) -> Result<Run> {
        let mut progress = Progress::new(self.name());
        let Job { nodes, pods, seed, .. } = *self;
        let options = engine::Options { nodes, pods, seed, confirmations: args.confirmations };
        let mut tell = |what: &str, done: usize, of: usize| progress.tell(what, done, of);
        let run = match (self.workload, args.trace.as_slice()) {
            (Some(workload), _) => engine::run(workload, &options, &mut tell),
            (None, [nodes, pods]) => engine::run_trace(&Trace::read(nodes, pods)?, &options, &mut tell),
            (None, _) => bail!("--trace takes two files: nodes and pods"),
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
        match self.workload {
            Some(workload) => {
                child.args([&workload.name, "--nodes", &self.nodes.to_string(), "--pods", &self.pods.to_string()]);
            }
            None => drop(child.arg("--trace").args(&args.trace)),
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
