//! The lines of a decision log. `bayplan_sources::decision_log` reads them.

use std::io::{self, Write};
use std::sync::Arc;

use bayplan_model::resource_claim::AllocationResult;
use bayplan_scheduler::{ClaimKey, DecisionRecord, Object, Record, Recorded};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::files::LogFiles;

/// Changes that share a line; with more, a line without a decision is written.
const CHANGES_MAX: usize = 256;

/// The first line of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Header<'a> {
    api_version: &'static str,
    kind: &'static str,
    time: Timestamp,
    /// Records that were left out before this line.
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
    configuration: &'a Value,
}

/// What changed since the line before, and the decision that was made then.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changes: &'a [Change],
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision<'a>>,
}

#[derive(Serialize)]
struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum What {
    Put(Object),
    Gone(Identity),
    Assumed(Place),
    Nominated(Place),
    AssumedVolume(Object),
    Allocated(Allocated),
    Undone(Uid),
    Evicted(Evicted),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    api_version: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
}

#[derive(Serialize)]
struct Place {
    uid: String,
    node: String,
}

/// Devices of a claim, or of the extended resources of a pod.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Allocated {
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pod_uid: String,
    allocation: Arc<AllocationResult>,
}

impl Allocated {
    fn new(claim: ClaimKey, allocation: Arc<AllocationResult>) -> Self {
        let (namespace, name, uid, pod_uid) = match claim {
            ClaimKey::Claim(namespace, name, uid) => (namespace, name, uid, String::new()),
            ClaimKey::ExtendedResources(namespace, pod) => (namespace, String::new(), String::new(), pod),
        };
        Allocated { namespace, name, uid, pod_uid, allocation }
    }
}

#[derive(Serialize)]
struct Uid {
    uid: String,
}

#[derive(Serialize)]
struct Evicted {
    uid: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nominated: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    victims: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tied: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feasible: Option<u32>,
    /// As text: not every reader of JSON has 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    random: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    start: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanoseconds: Option<u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

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

impl What {
    /// None for a decision, which is no change.
    fn of(what: Recorded) -> Result<Self, Box<DecisionRecord>> {
        Ok(match what {
            Recorded::Put(object) => What::Put(pruned(object)),
            Recorded::Gone(object) => {
                let (api_version, kind) = object.type_meta();
                let meta = object.metadata();
                let (namespace, name, uid) = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
                What::Gone(Identity { api_version, kind, namespace, name, uid })
            }
            Recorded::Assumed { uid, node } => What::Assumed(Place { uid, node }),
            Recorded::Nominated { uid, node } => What::Nominated(Place { uid, node }),
            Recorded::AssumedVolume(object) => What::AssumedVolume(pruned(object)),
            Recorded::Allocated { claim, allocation } => What::Allocated(Allocated::new(claim, allocation)),
            Recorded::Undone { uid } => What::Undone(Uid { uid }),
            Recorded::Evicted { uid, failed } => What::Evicted(Evicted { uid, failed }),
            Recorded::Decided(decision) => return Err(decision),
        })
    }
}

impl<'a> From<&'a DecisionRecord> for Decision<'a> {
    fn from(record: &'a DecisionRecord) -> Self {
        let meta = &record.pod.metadata;
        Decision {
            namespace: &meta.namespace,
            name: &meta.name,
            uid: &meta.uid,
            attempt: record.attempts,
            node: record.node.as_deref(),
            message: record.message.as_deref(),
            nominated: record.nominated.as_deref(),
            victims: &record.victims,
            tied: record.tied,
            feasible: record.feasible,
            random: record.message.is_some().then(|| record.random.to_string()),
            start: record.start as u64,
            nanoseconds: record.nanoseconds,
        }
    }
}

/// Makes lines of records.
pub(super) struct Lines {
    configuration: Value,
    /// Changes that wait for a decision.
    changes: Vec<Change>,
    buffer: Vec<u8>,
}

impl Lines {
    pub(super) fn new(configuration: Value) -> Self {
        Lines { configuration, changes: Vec::new(), buffer: Vec::new() }
    }

    /// Forgets the changes that were not written.
    pub(super) fn forget(&mut self) {
        self.changes.clear();
    }

    pub(super) fn header(&self, output: &mut impl Write, time: Timestamp, lost: u64) -> io::Result<()> {
        let (api_version, kind, configuration) = ("bayplan.dev/v1", "DecisionLog", &self.configuration);
        serde_json::to_writer(&mut *output, &Header { api_version, kind, time, lost, configuration })?;
        output.write_all(b"\n")
    }

    /// A line of the state with which a file begins.
    pub(super) fn state(&mut self, output: &mut impl Write, what: Recorded) -> io::Result<()> {
        let Ok(what) = What::of(what) else { return Ok(()) };
        self.write(output, &Line { time: None, changes: &[Change { time: None, what }], decision: None })
    }

    /// Writes a decision, or keeps a change for the line of the next one.
    pub(super) fn record(&mut self, files: &mut LogFiles, record: Record) -> io::Result<()> {
        let Record { time, what } = record;
        match What::of(what) {
            Ok(what) => {
                self.changes.push(Change { time: Some(time), what });
                if self.changes.len() >= CHANGES_MAX { self.finish(files) } else { Ok(()) }
            }
            Err(decision) => {
                let changes = std::mem::take(&mut self.changes);
                let line = Line { time: Some(time), changes: &changes, decision: Some((&*decision).into()) };
                self.write(files.output()?, &line)
            }
        }
    }

    /// Writes the changes that wait for a decision.
    pub(super) fn finish(&mut self, files: &mut LogFiles) -> io::Result<()> {
        let changes = std::mem::take(&mut self.changes);
        match changes.last() {
            None => Ok(()),
            Some(last) => self.write(files.output()?, &Line { time: last.time, changes: &changes, decision: None }),
        }
    }

    fn write(&mut self, output: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
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
