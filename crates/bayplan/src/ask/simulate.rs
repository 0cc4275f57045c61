//! `bayplan simulate`: a history under one or several configurations.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bayplan_explain::simulate::{Arrivals, History, LoggedHistory, Openb, Options, report, simulate, table};
use bayplan_explain::{Completion, State};
use bayplan_scheduler::Object;
use bayplan_scheduler::config::Configuration;
use bayplan_sources::decision_log::DecisionLogReader;
use jiff::Timestamp;

use super::load::{configuration_of, load};
use super::logged;
use crate::args::output::Output;
use crate::args::simulate::Simulate;
use crate::output;
use crate::progress::Progress;

/// The longest line of arrivals: more than any API server takes for an object, less than memory.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// The largest table of a trace.
const TABLE_BYTES_MAX: u64 = 1 << 30;

/// An arbitrary day on which traces without dates begin.
const TRACE_START_SECONDS: i64 = 1_700_000_000;

/// How long a simulation takes before it is worth a line.
const PROGRESS_DELAY: Duration = Duration::from_millis(500);

/// The name of a configuration when none is given.
const DEFAULT_NAME: &str = "default";

/// Runs the simulation and prints it.
pub(crate) async fn run(args: Simulate) -> Result<ExitCode> {
    let configurations = configurations(&args)?;
    let history = history(&args).await?;
    let options = Options { ties: args.decisions.rule(), preempt: !args.decisions.no_preemption };
    let mut progress = Progress::after(PROGRESS_DELAY);
    let mut report_progress = |done: usize, total: usize| progress.report(&format!("{done} of {total} events"));
    let simulation = simulate(&history, &configurations, &options, &mut report_progress)?;
    progress.clear();
    output::print(args.output, &simulation, || match args.output {
        Output::Html => report(&simulation),
        _ => table(&simulation),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn configurations(args: &Simulate) -> Result<Vec<(String, Configuration)>> {
    if args.config.is_empty() {
        return Ok(vec![(DEFAULT_NAME.to_owned(), Configuration::default())]);
    }
    let mut names = BTreeSet::new();
    let read = |(name, path): &(String, Option<PathBuf>)| {
        ensure!(names.insert(name.clone()), "two configurations are called {name}: give them names, NAME=PATH");
        let configuration = path.as_deref().map_or_else(|| Ok(Configuration::default()), configuration_of)?;
        Ok((name.clone(), configuration))
    };
    args.config.iter().map(read).collect()
}

async fn history(args: &Simulate) -> Result<History> {
    if let [nodes, pods] = args.openb.as_slice() {
        let start = Timestamp::from_second(TRACE_START_SECONDS)?;
        return Ok(read_openb(nodes, pods)?.history(start));
    }
    if !args.log.is_empty() {
        return read_log(&args.log);
    }
    let state = State::new(load(&args.source()).await?);
    let path = args.arrivals.as_deref().context("there is no history: give --arrivals, --openb or --log")?;
    let start = state.origin().time.map_or_else(|| Timestamp::from_second(TRACE_START_SECONDS), Ok)?;
    let mut arrivals = Arrivals::new(Completion::of(&state), start, args.as_written);
    read_lines(path, &mut arrivals)?;
    let mut history = arrivals.finish().with_context(|| format!("cannot use {}", path.display()))?;
    history.notes.extend(state.notes().iter().cloned());
    history.objects = objects_of(&state);
    Ok(history)
}

/// All objects of a state that the scheduler reads.
fn objects_of(state: &State) -> Vec<Object> {
    let mut objects = Vec::new();
    for resource in bayplan_sources::RESOURCES {
        for (_, _, json) in state.all_written(resource) {
            let value = serde_json::from_str(json.get()).unwrap_or_default();
            objects.extend(Object::decode(&value).and_then(Result::ok));
        }
    }
    objects
}

fn read_lines(path: &Path, arrivals: &mut Arrivals) -> Result<()> {
    let shown = path.display();
    let input: Box<dyn Read> = match path.as_os_str() == "-" {
        true => Box::new(std::io::stdin()),
        false => Box::new(File::open(path).with_context(|| format!("cannot read {shown}"))?),
    };
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        let count = read.with_context(|| format!("cannot read {shown}"))?;
        ensure!(count as u64 <= LINE_BYTES_MAX, "a line of {shown} is longer than {} MiB", LINE_BYTES_MAX >> 20);
        if count == 0 {
            return Ok(());
        }
        arrivals.line(&String::from_utf8_lossy(&line));
    }
}

fn read_log(paths: &[String]) -> Result<History> {
    let (mut logged, mut notes) = (LoggedHistory::default(), Vec::new());
    for path in paths {
        let file = logged::open(Path::new(path))?;
        let mut reader = DecisionLogReader::new(file);
        reader.by_ref().for_each(|entry| logged.entry(&entry));
        notes.extend(reader.notes().iter().map(|note| format!("{path}: {note}")));
    }
    let history = logged.finish(&notes);
    ensure!(history.span().is_some(), "nothing happens in the decision log{}", first_of(&notes));
    Ok(history)
}

fn first_of(notes: &[String]) -> String {
    notes.first().map(|note| format!(": {note}")).unwrap_or_default()
}

fn read_openb(nodes: &Path, pods: &Path) -> Result<Openb> {
    let text = |path: &Path| -> Result<String> {
        let shown = path.display();
        let mut text = String::new();
        let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
        let count = file.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text);
        let count = count.with_context(|| format!("cannot read {shown}"))?;
        ensure!(count as u64 <= TABLE_BYTES_MAX, "{shown} is larger than {} MiB", TABLE_BYTES_MAX >> 20);
        Ok(text)
    };
    let trace = Openb::nodes_of(&text(nodes)?).with_context(|| nodes.display().to_string())?;
    trace.with_pods_of(&text(pods)?).with_context(|| pods.display().to_string())
}
