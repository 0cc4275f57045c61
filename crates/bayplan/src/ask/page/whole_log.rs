//! A decision log from its beginning to its end: all its entries, and the cluster that it leaves.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};
use bayplan_explain::State;
use bayplan_explain::decision_log::Replay;
use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use bayplan_sources::decision_log::{DecisionLogReader, LogEntry};

use super::super::logged;

/// A log that was read to its end.
pub(super) struct WholeLog {
    /// The cluster at its end.
    pub(super) state: State,
    /// What its last decisions were made with.
    pub(super) configuration: Configuration,
    /// The entries of its last file and of the one before: what a slider goes through.
    pub(super) entries: Vec<LogEntry>,
}

/// Reads a log. The cluster is made from its last file alone, because each begins with the whole state.
pub(super) fn read(path: &Path) -> Result<WholeLog> {
    let files = logged::files(path);
    let mut entries = Vec::new();
    if let [.., before, _] = files.as_slice() {
        // Its end may be cut; the last file begins with the whole state.
        entries.extend(open(before)?.by_ref());
    }
    let mut replay: Option<(Replay, Configuration)> = None;
    let mut reader = open(path)?;
    for entry in reader.by_ref() {
        if let Some(begins) = &entry.begins {
            let configuration = match &begins.configuration {
                Some(json) => Configuration::from_yaml(json.get()).context("the log's configuration")?,
                None => Configuration::default(),
            };
            replay = Some((Replay::new(&configuration, Registry::default())?, configuration));
        }
        if let Some((replay, _)) = &mut replay {
            replay.apply(&entry)?;
            if let Some(decision) = &entry.decision {
                replay.decide(decision);
            }
        }
        entries.push(entry);
    }
    let nothing = || match reader.notes().first() {
        Some(note) => format!("{} is no decision log: {note}", path.display()),
        None => format!("{} is empty", path.display()),
    };
    let (replay, configuration) = replay.with_context(nothing)?;
    Ok(WholeLog { state: replay.state(), configuration, entries })
}

fn open(path: &Path) -> Result<DecisionLogReader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(DecisionLogReader::new(BufReader::new(file)))
}
