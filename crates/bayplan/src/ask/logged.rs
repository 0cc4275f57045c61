//! A decision of a log, with the state that it was made in.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bayplan_explain::State;
use bayplan_explain::decision_log::Replay;
use bayplan_model::decision_log::Decision;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, TieBreak};
use bayplan_sources::decision_log::DecisionLogReader;
use jiff::Timestamp;

/// A decision, and what it was made from.
pub(crate) struct Logged {
    /// The state right before it.
    pub(crate) state: State,
    /// The configuration that the scheduler had.
    pub(crate) configuration: Configuration,
    /// What was decided.
    pub(crate) decision: Decision,
    /// When.
    pub(crate) time: Timestamp,
    /// One line for each thing that the log could not tell.
    pub(crate) notes: Vec<String>,
}

/// Where a decision is: its file, the number of its entry there, and its time.
type Position = (PathBuf, usize, Timestamp);

/// What was found of a pod in the files of a log.
#[derive(Default)]
struct Search {
    found: Option<Position>,
    /// The first decision about the pod, even if it came too late.
    first: Option<Timestamp>,
    /// The first and the last decision about any pod.
    span: Option<(Timestamp, Timestamp)>,
    notes: Vec<String>,
}

impl Search {
    fn read(&mut self, file: &Path, (namespace, name): (&str, &str), until: Option<Timestamp>) -> Result<()> {
        let mut reader = DecisionLogReader::new(open(file)?);
        for (number, entry) in reader.by_ref().enumerate() {
            let Some((decision, time)) = entry.decision.as_ref().zip(entry.time) else { continue };
            self.span = Some((self.span.map_or(time, |(first, _)| first), time));
            if decision.namespace != namespace || decision.name != name {
                continue;
            }
            self.first = self.first.or(Some(time));
            if until.is_none_or(|until| time <= until) {
                self.found = Some((file.to_owned(), number, time));
            }
        }
        self.notes.extend(reader.notes().iter().map(|note| format!("{}: {note}", file.display())));
        Ok(())
    }

    /// Why there is nothing to tell.
    fn nothing(self, log: &Path, pod: &str, until: Option<Timestamp>) -> anyhow::Error {
        let log = log.display();
        match (self.first, until, self.span, self.notes.first()) {
            (Some(first), Some(until), ..) => {
                anyhow!("pod {pod} was not decided by {until}: {log} has it first at {first}")
            }
            (_, _, Some((from, to)), _) => {
                anyhow!("there is no decision about pod {pod} in {log}, which has those from {from} to {to}")
            }
            (_, _, None, Some(note)) => anyhow!("there is no decision to read: {note}"),
            (_, _, None, None) => anyhow!("there is no decision in {log} yet"),
        }
    }
}

impl Logged {
    /// The last decision about a pod up to a time, or of all time.
    pub(crate) fn find(log: &Path, namespace: &str, name: &str, until: Option<Timestamp>) -> Result<Self> {
        let mut search = Search::default();
        for file in files(log) {
            search.read(&file, (namespace, name), until)?;
        }
        match search.found.take() {
            Some((file, number, time)) => Logged::replay(&file, number, time, search.notes),
            None => Err(search.nothing(log, &format!("{namespace}/{name}"), until)),
        }
    }

    /// Replays a file up to an entry.
    fn replay(file: &Path, number: usize, time: Timestamp, mut notes: Vec<String>) -> Result<Self> {
        let mut replay: Option<(Replay, Configuration)> = None;
        for (at, entry) in DecisionLogReader::new(open(file)?).enumerate() {
            if let Some(begins) = &entry.begins {
                let configuration = match &begins.configuration {
                    Some(json) => Configuration::from_yaml(json.get()).context("the log's configuration")?,
                    None => Configuration::default(),
                };
                replay = Some((Replay::new(&configuration, Registry::default())?, configuration));
            }
            let Some((replay, configuration)) = &mut replay else { continue };
            replay.apply(&entry)?;
            let Some(decision) = entry.decision else { continue };
            if at == number {
                let (state, configuration) = (replay.state(), configuration.clone());
                notes.extend(replay.notes().iter().map(|note| format!("{}: {note}", file.display())));
                return Ok(Logged { state, configuration, decision, time, notes });
            }
            replay.decide(&decision);
        }
        Err(anyhow!("{} has changed while it was read; ask again", file.display()))
    }

    /// The random choices that were made then.
    pub(crate) fn ties(&self) -> TieBreak {
        let random = self.decision.random.unwrap_or_default();
        TieBreak::Recorded { node: self.decision.node.as_deref().unwrap_or_default().into(), random }
    }

    /// What was decided, in one line.
    pub(crate) fn line(&self) -> String {
        let Decision { attempt, node, message, .. } = &self.decision;
        let (time, what) = (self.time, "as it was decided at");
        match (node, message) {
            (Some(node), None) => format!("{what} {time}: attempt {attempt} chose {node}"),
            (Some(node), Some(message)) => format!("{what} {time}: attempt {attempt} chose {node}, then: {message}"),
            (None, message) => {
                let message = message.as_deref().unwrap_or_default();
                format!("{what} {time}: attempt {attempt}: {message}")
            }
        }
    }
}

/// The files of a log, oldest first.
pub(crate) fn files(log: &Path) -> Vec<PathBuf> {
    let older = |number: usize| {
        let mut name = log.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let mut files: Vec<PathBuf> = (1..).map(older).take_while(|file| file.exists()).collect();
    files.reverse();
    files.push(log.to_owned());
    files
}

/// Opens a file of a log.
pub(crate) fn open(file: &Path) -> Result<BufReader<File>> {
    let shown = file.display();
    let input = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "there is no decision log {shown}: name the file of `bayplan scheduler --decision-log`, or decisions.jsonl \
             in the data folder of `bayplan up`"
        ),
        opened => opened.with_context(|| format!("cannot read the decision log {shown}"))?,
    };
    let is_folder = input.metadata().is_ok_and(|metadata| metadata.is_dir());
    ensure!(!is_folder, "{shown} is a folder and no decision log; that of `bayplan up` is {shown}/decisions.jsonl");
    Ok(BufReader::new(input))
}
