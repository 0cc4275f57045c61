//! Makes the lines of a decision log of what the scheduler recorded.

use std::io::{self, Write};

use bayplan_model::decision_log::{Change, Changed, Line};
use bayplan_scheduler::{Object, Record, Recorded};
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// Changes that wait for a decision.
    changes: Vec<Change<Object>>,
    buffer: Vec<u8>,
}

impl Lines {
    pub(super) fn new(configuration: &Value) -> Self {
        let configuration = serde_json::value::to_raw_value(configuration).ok();
        Lines { configuration, changes: Vec::new(), buffer: Vec::new() }
    }

    /// Forgets the changes that were not written.
    pub(super) fn forget(&mut self) {
        self.changes.clear();
    }

    pub(super) fn header(&mut self, output: &mut impl Write, time: Timestamp, lost: u64) -> io::Result<()> {
        let line = Line::beginning(time, lost, self.configuration.clone());
        self.write(output, &line)
    }

    /// A line of the state with which a file begins.
    pub(super) fn state(&mut self, output: &mut impl Write, what: Recorded) -> io::Result<()> {
        let Recorded::Changed(change) = what else { return Ok(()) };
        let changes = vec![Change::new(None, pruned_change(change))];
        self.write(output, &Line { changes, ..Line::default() })
    }

    /// Writes a decision, or keeps a change for the line of the next one.
    pub(super) fn record(&mut self, files: &mut LogFiles, record: Record) -> io::Result<()> {
        let Record { time, what } = record;
        match what {
            Recorded::Changed(change) => {
                self.changes.push(Change::new(Some(time), pruned_change(change)));
                if self.changes.len() >= CHANGES_MAX { self.finish(files) } else { Ok(()) }
            }
            Recorded::Decided(decision) => {
                let (changes, decision) = (std::mem::take(&mut self.changes), Some(decision.into_decision()));
                self.write(files.output()?, &Line { time: Some(time), changes, decision, ..Line::default() })
            }
        }
    }

    /// Writes the changes that wait for a decision.
    pub(super) fn finish(&mut self, files: &mut LogFiles) -> io::Result<()> {
        let changes = std::mem::take(&mut self.changes);
        let Some(last) = changes.last() else { return Ok(()) };
        self.write(files.output()?, &Line { time: last.time(), changes, ..Line::default() })
    }

    fn write(&mut self, output: &mut impl Write, line: &Line<Object>) -> io::Result<()> {
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, line)?;
        self.buffer.push(b'\n');
        output.write_all(&self.buffer)
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
