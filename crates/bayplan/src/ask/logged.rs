//! A decision of a log, with the state that it was made in.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bayplan_explain::State;
use bayplan_explain::decision_log::Replay;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, TieBreak};
use bayplan_sources::decision_log::{DecisionLogReader, LogEntry, LoggedDecision};
use jiff::Timestamp;

/// A decision, and what it was made from.
pub(crate) struct Logged {
    /// The state right before it.
    pub(crate) state: State,
    /// The configuration that the scheduler had.
    pub(crate) configuration: Configuration,
    /// What was decided.
    pub(crate) decision: LoggedDecision,
    /// When.
    pub(crate) time: Timestamp,
}

/// Where a decision is: its file, the number of its entry there, and its time.
type Position = (PathBuf, usize, Timestamp);

impl Logged {
    /// The last decision about a pod up to a time, or of all time.
    pub(crate) fn find(log: &Path, namespace: &str, name: &str, until: Option<Timestamp>) -> Result<Self> {
        let files = files(log);
        let mut found: Option<Position> = None;
        let mut first = None;
        for file in &files {
            for (number, entry) in read(file)?.enumerate() {
                let Some((decision, time)) = entry.decision.as_ref().zip(entry.time) else { continue };
                if decision.namespace != namespace || decision.name != name {
                    continue;
                }
                first = first.or(Some(time));
                if until.is_none_or(|until| time <= until) {
                    found = Some((file.clone(), number, time));
                }
            }
        }
        let Some((file, number, time)) = found else {
            match (first, until) {
                (Some(first), Some(_)) => bail!("pod {namespace}/{name} was not decided before then; first at {first}"),
                _ => bail!("there is no decision about pod {namespace}/{name} in {}", log.display()),
            }
        };
        Logged::replay(&file, number, time)
    }

    /// Replays a file up to an entry.
    fn replay(file: &Path, number: usize, time: Timestamp) -> Result<Self> {
        let mut replay: Option<(Replay, Configuration)> = None;
        for (at, entry) in read(file)?.enumerate() {
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
                return Ok(Logged { state, configuration, decision, time });
            }
            replay.decide(&decision);
        }
        Err(anyhow!("{} has changed while it was read", file.display()))
    }

    /// The random choices that were made then.
    pub(crate) fn ties(&self) -> TieBreak {
        let random = self.decision.random.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default();
        TieBreak::Recorded { node: self.decision.node.as_deref().unwrap_or_default().into(), random }
    }

    /// What was decided, in one line.
    pub(crate) fn line(&self) -> String {
        let LoggedDecision { attempt, node, message, .. } = &self.decision;
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

fn read(file: &Path) -> Result<impl Iterator<Item = LogEntry>> {
    let input = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(DecisionLogReader::new(BufReader::new(input)))
}
