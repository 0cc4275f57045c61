//! Makes the lines of a decision log of what the scheduler recorded.

use std::io::{self, Write};
use std::sync::Arc;

use bayplan_model::decision_log::{Change, Changed, Decision, Line, write_line};
use bayplan_model::pod_changes::PodChanges;
use bayplan_scheduler::{Object, Record, Recorded};
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::bases::{Base, Bases};
use super::files::LogFiles;

/// Changes that share a line; with more, a line without a decision is written.
const CHANGES_MAX: usize = 256;

/// Annotations that decisions may read are those of Kubernetes' own controllers. Others may hold anything, as kubectl's
/// copy of a whole manifest does.
fn keeps_annotation(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let is_kubernetes = ["kubernetes.io", "k8s.io"]
        .iter()
        .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')));
    is_kubernetes && !domain.starts_with("kubectl.")
}

fn pruned(object: Object) -> Object {
    match object {
        // No decision reads an annotation of a pod.
        Object::Pod(_) => object.retain_annotations(&|_| false),
        other => other.retain_annotations(&keeps_annotation),
    }
}

/// The change without what is nobody's business.
fn pruned_change(change: Changed<Object>) -> Changed<Object> {
    match change {
        Changed::Put(object) => Changed::Put(pruned(object)),
        Changed::AssumedVolume(object) => Changed::AssumedVolume(pruned(object)),
        other => other,
    }
}

/// Makes lines of records.
pub(super) struct Lines {
    configuration: Option<Box<RawValue>>,
    bases: Bases,
    /// Changes that wait for a decision, as text with commas between them.
    changes: Vec<u8>,
    /// How many they are, and when the last of them was seen.
    waiting: (usize, Option<Timestamp>),
    /// Used again for each line, and so is the decision's memory.
    line: Vec<u8>,
    decision: Decision,
}

impl Lines {
    pub(super) fn new(configuration: &Value) -> Self {
        Lines {
            configuration: serde_json::value::to_raw_value(configuration).ok(),
            bases: Bases::default(),
            changes: Vec::new(),
            waiting: (0, None),
            line: Vec::new(),
            decision: Decision::default(),
        }
    }

    /// Forgets the changes that were not written.
    pub(super) fn forget(&mut self) {
        self.changes.clear();
        self.waiting = (0, None);
    }

    /// Begins a file. What is in it refers to nothing before it.
    pub(super) fn header(&mut self, output: &mut impl Write, time: Timestamp, lost: u64) -> io::Result<()> {
        self.bases.clear();
        self.line.clear();
        let line = Line::<Object>::beginning(time, lost, self.configuration.clone());
        serde_json::to_writer(&mut self.line, &line)?;
        self.line.push(b'\n');
        output.write_all(&self.line)
    }

    /// A line of the state with which a file begins.
    pub(super) fn state(&mut self, output: &mut impl Write, what: &Recorded) -> io::Result<()> {
        let Recorded::Changed(change) = what else { return Ok(()) };
        self.change(None, change)?;
        self.write(output, None, false)
    }

    /// Writes a decision, or keeps a change for the line of the next one.
    pub(super) fn record(&mut self, files: &mut LogFiles, record: &Record) -> io::Result<()> {
        let Record { time, what } = record;
        match what {
            Recorded::Changed(change) => {
                self.change(Some(*time), change)?;
                if self.waiting.0 >= CHANGES_MAX { self.finish(files) } else { Ok(()) }
            }
            Recorded::Decided(decision) => {
                decision.fill(&mut self.decision);
                self.write(files.output()?, Some(*time), true)
            }
        }
    }

    /// Writes the changes that wait for a decision.
    pub(super) fn finish(&mut self, files: &mut LogFiles) -> io::Result<()> {
        match self.waiting {
            (0, _) => Ok(()),
            (_, time) => self.write(files.output()?, time, false),
        }
    }

    /// Adds a change to those that wait.
    fn change(&mut self, time: Option<Timestamp>, change: &Changed<Object>) -> io::Result<()> {
        let (count, last) = &mut self.waiting;
        if *count > 0 {
            self.changes.push(b',');
        }
        (*count, *last) = (*count + 1, time);
        let Changed::Put(Object::Pod(pod)) = change else {
            serde_json::to_writer(&mut self.changes, &Change::new(time, pruned_change(change.clone())))?;
            return Ok(());
        };
        match self.bases.of(pod) {
            Base::Earlier(number, base) => {
                let change = Change::new(time, Changed::Put(PodChanges { base, pod })).like(number);
                serde_json::to_writer(&mut self.changes, &change)?;
            }
            Base::Itself(number) => {
                let change = Change::new(time, Changed::Put(pruned(Object::Pod(Arc::clone(pod))))).numbered(number);
                serde_json::to_writer(&mut self.changes, &change)?;
            }
        }
        Ok(())
    }

    /// Writes the changes that wait, with the decision or without one.
    fn write(&mut self, output: &mut impl Write, time: Option<Timestamp>, decided: bool) -> io::Result<()> {
        self.line.clear();
        write_line(&mut self.line, time, &self.changes, decided.then_some(&self.decision))?;
        self.forget();
        output.write_all(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_kubernetes_own_controllers_are_kept_and_no_others() {
        for (name, kept) in [
            ("pv.kubernetes.io/bind-completed", true),
            ("volume.kubernetes.io/selected-node", true),
            ("resource.kubernetes.io/extended-resource-claim", true),
            ("storage.alpha.kubernetes.io/migrated-plugins", true),
            ("kubectl.kubernetes.io/last-applied-configuration", false),
            ("example.com/token", false),
            ("notkubernetes.io/x", false),
            ("plain", false),
        ] {
            assert_eq!(keeps_annotation(name), kept, "{name}");
        }
    }
}
