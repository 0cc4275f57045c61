//! Reads a decision log: what changed, what was decided, and when.
//!
//! `bayplan_model::decision_log` has the form of a line. Each file begins with the whole state, so any of them can be
//! read alone. A line that is cut (the process was killed) or that says nothing we know is left out and noted.

use std::collections::BTreeMap;
use std::io::BufRead;

use bayplan_model::decision_log::{Change, Changed, Decision, KIND, Line, NUMBERS_MAX};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cluster_objects::SourceObject;
use crate::resources::resource_of;

/// The longest line: 256 changes of objects that no API server takes larger than 3 MiB would be longer, but no cluster
/// has them.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// The most notes that are kept; a file of garbage needs no more.
const NOTES_MAX: usize = 20;

/// What a line says.
#[derive(Clone, Debug, Default)]
pub struct LogEntry {
    /// When it happened; absent for the state with which a log begins.
    pub time: Option<Timestamp>,
    /// The log begins here: what was known before is to be forgotten.
    pub begins: Option<LogBeginning>,
    /// What changed since the entry before, in order.
    pub changes: Vec<LogChange>,
    /// The decision that was made then.
    pub decision: Option<Decision>,
}

/// Where a log begins.
#[derive(Clone, Debug)]
pub struct LogBeginning {
    /// When.
    pub time: Timestamp,
    /// Changes and decisions that are missing before it, because the log could not keep up.
    pub lost: u64,
    /// The KubeSchedulerConfiguration that decisions were made with.
    pub configuration: Option<Box<RawValue>>,
}

/// A change, and when it was seen.
#[derive(Clone, Debug)]
pub struct LogChange {
    /// When; absent for the state with which a log begins.
    pub time: Option<Timestamp>,
    /// What changed.
    pub what: LogChanged,
}

/// What changed.
pub type LogChanged = Changed<SourceObject>;

/// What an object says about which one it is.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Typed {
    api_version: String,
    kind: String,
    metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    namespace: String,
    name: String,
}

/// The fields of a part of a pod that nobody has looked into.
type Fields = BTreeMap<String, Box<RawValue>>;

/// A pod by its parts: a whole one, or what one has other than another.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodParts {
    metadata: Fields,
    spec: Fields,
    status: Fields,
}

impl PodParts {
    /// The pod that has these fields, and those of its base where it has none.
    fn over(&self, base: &PodParts) -> Option<Box<RawValue>> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole<'a> {
            api_version: &'a str,
            kind: &'a str,
            metadata: BTreeMap<&'a String, &'a RawValue>,
            spec: BTreeMap<&'a String, &'a RawValue>,
            status: BTreeMap<&'a String, &'a RawValue>,
        }
        fn both<'a>(base: &'a Fields, own: &'a Fields) -> BTreeMap<&'a String, &'a RawValue> {
            base.iter().chain(own).map(|(name, value)| (name, &**value)).collect()
        }
        let whole = Whole {
            api_version: "v1",
            kind: "Pod",
            metadata: both(&base.metadata, &self.metadata),
            spec: both(&base.spec, &self.spec),
            status: both(&base.status, &self.status),
        };
        serde_json::value::to_raw_value(&whole).ok()
    }
}

/// Whether a first line is that of a decision log.
pub fn is_decision_log(first_line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_slice::<Kind>(first_line).is_ok_and(|line| line.kind == KIND)
}

/// The entries of a log, in order.
pub struct DecisionLogReader<R> {
    input: Option<R>,
    buffer: Vec<u8>,
    number: usize,
    begun: bool,
    /// The pods of this file that later ones refer to.
    bases: BTreeMap<u32, PodParts>,
    notes: Vec<String>,
}

impl<R: BufRead> DecisionLogReader<R> {
    /// Reads a log from its beginning.
    pub fn new(input: R) -> Self {
        DecisionLogReader {
            input: Some(input),
            buffer: Vec::new(),
            number: 0,
            begun: false,
            bases: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// One line for each thing that could not be read so far.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// The next whole line; none at the end.
    fn line(&mut self) -> Option<Line<Box<RawValue>>> {
        loop {
            self.buffer.clear();
            self.number += 1;
            let input = self.input.as_mut()?;
            let read = std::io::Read::take(input, LINE_BYTES_MAX).read_until(b'\n', &mut self.buffer);
            let (number, ends) = (self.number, self.buffer.ends_with(b"\n"));
            match read {
                Ok(0) => {}
                Err(error) => self.note(format!("line {number}: the log cannot be read on: {error}")),
                Ok(_) if !ends && serde_json::from_slice::<&RawValue>(&self.buffer).is_err() => {
                    self.note(format!("line {number} is cut; it is left out"));
                }
                Ok(_) if self.buffer.trim_ascii().is_empty() => continue,
                Ok(_) => match serde_json::from_slice(&self.buffer) {
                    Ok(line) => return Some(line),
                    Err(error) => {
                        self.note(format!("line {number} is left out: {error}"));
                        continue;
                    }
                },
            }
            self.input = None;
            return None;
        }
    }

    fn object(&mut self, json: Box<RawValue>) -> Option<SourceObject> {
        let Typed { api_version, kind, metadata } = serde_json::from_str(json.get()).unwrap_or_default();
        let Some(resource) = resource_of(&api_version, &kind) else {
            self.note(format!("line {}: an object of kind {kind} {api_version} is left out", self.number));
            return None;
        };
        let (namespace, name) = (metadata.namespace.into(), metadata.name.into());
        Some(SourceObject { resource, namespace, name, json })
    }

    /// The whole pod, where one is written as what differs from another; and keeps one that others refer to.
    fn whole(&mut self, json: Box<RawValue>, number: Option<u32>, base: Option<u32>) -> Option<Box<RawValue>> {
        if number.is_none() && base.is_none() {
            return Some(json);
        }
        let parts: PodParts = serde_json::from_str(json.get()).unwrap_or_default();
        let Some(base) = base else {
            if let Some(number) = number.filter(|number| *number < NUMBERS_MAX) {
                self.bases.insert(number, parts);
            }
            return Some(json);
        };
        let whole = self.bases.get(&base).and_then(|base| parts.over(base));
        if whole.is_none() {
            self.note(format!("line {}: a pod like number {base}, which is missing, is left out", self.number));
        }
        whole
    }

    fn change(&mut self, change: Change<Box<RawValue>>) -> Option<LogChange> {
        let (time, number, base) = (change.time(), change.number(), change.base());
        let what = match change.what() {
            None => {
                self.note(format!("line {}: a change that this version does not know is left out", self.number));
                return None;
            }
            Some(Changed::Put(json)) => {
                let whole = self.whole(json, number, base)?;
                Changed::Put(self.object(whole)?)
            }
            Some(Changed::AssumedVolume(json)) => Changed::AssumedVolume(self.object(json)?),
            Some(Changed::Gone(identity)) => Changed::Gone(identity),
            Some(Changed::Assumed(place)) => Changed::Assumed(place),
            Some(Changed::Nominated(place)) => Changed::Nominated(place),
            Some(Changed::Allocated(allocated)) => Changed::Allocated(allocated),
            Some(Changed::Image(image)) => Changed::Image(image),
            Some(Changed::Undone(undone)) => Changed::Undone(undone),
            Some(Changed::Evicted(evicted)) => Changed::Evicted(evicted),
        };
        Some(LogChange { time, what })
    }
}

impl<R: BufRead> Iterator for DecisionLogReader<R> {
    type Item = LogEntry;

    fn next(&mut self) -> Option<LogEntry> {
        let line = self.line()?;
        if let (true, Some(time)) = (line.begins(), line.time) {
            let lost = line.lost;
            if lost > 0 {
                self.note(format!("{lost} changes and decisions before {time} are missing: the log has a gap"));
            }
            self.begun = true;
            self.bases.clear();
            let begins = Some(LogBeginning { time, lost, configuration: line.configuration });
            return Some(LogEntry { time: Some(time), begins, ..LogEntry::default() });
        }
        if !self.begun {
            self.note(format!("line {}: a decision log begins with a line of kind DecisionLog", self.number));
            self.input = None;
            return None;
        }
        let changes = line.changes.into_iter().filter_map(|change| self.change(change)).collect();
        Some(LogEntry { time: line.time, begins: None, changes, decision: line.decision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        r#"{"apiVersion":"bayplan.dev/v1","kind":"DecisionLog","time":"2026-01-02T03:04:05Z","configuration":{"a":1}}"#,
        "\n",
        r#"{"changes":[{"put":{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}}]}"#,
        "\n",
        r#"{"time":"2026-01-02T03:04:06Z","changes":[{"time":"2026-01-02T03:04:06Z","gone":{"apiVersion":"v1","#,
        r#""kind":"Pod","namespace":"d","name":"p","uid":"u"}}],"decision":{"namespace":"d","name":"q","uid":"v","#,
        r#""attempt":2,"node":"n","tied":3}}"#,
        "\n",
    );

    fn read(text: &str) -> (Vec<LogEntry>, Vec<String>) {
        let mut reader = DecisionLogReader::new(text.as_bytes());
        let entries: Vec<LogEntry> = reader.by_ref().collect();
        (entries, reader.notes().to_vec())
    }

    #[test]
    fn a_log_is_a_beginning_a_state_and_decisions() {
        let (entries, notes) = read(LOG);
        assert!(notes.is_empty(), "{notes:?}");
        let [begin, state, decided] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(begin.begins.as_ref().unwrap().configuration.as_ref().unwrap().get(), r#"{"a":1}"#);
        let LogChanged::Put(node) = &state.changes[0].what else { panic!("{state:?}") };
        assert_eq!((node.resource.kind, &*node.name), ("Node", "n"));
        let LogChanged::Gone(gone) = &decided.changes[0].what else { panic!("{decided:?}") };
        assert_eq!((gone.name.as_str(), gone.uid.as_str()), ("p", "u"));
        let decision = decided.decision.as_ref().unwrap();
        assert_eq!((decision.node.as_deref(), decision.tied, decision.attempt), (Some("n"), Some(3), 2));
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_noted() {
        let cut = &LOG[..LOG.len() - 20];
        let garbage = LOG.replacen("{\"changes\"", "what\n{\"changes\"", 1);
        let unknown = LOG.replace("\"Node\"", "\"Nodule\"");
        let gap = LOG.replace("\"configuration\"", "\"lost\":7,\"configuration\"");
        let headless = LOG.split_once('\n').unwrap().1;
        for (text, entries, note) in [
            (cut, 2, "line 3 is cut"),
            (&garbage, 3, "line 2 is left out"),
            (&unknown, 3, "an object of kind Nodule v1 is left out"),
            (&gap, 3, "7 changes and decisions before 2026-01-02T03:04:05Z are missing"),
            (headless, 0, "a decision log begins with"),
        ] {
            let (read, notes) = read(text);
            assert_eq!(read.len(), entries, "{note}");
            assert!(notes.len() == 1 && notes[0].contains(note), "{notes:?}");
        }
    }

    #[test]
    fn a_pod_is_what_it_has_other_than_an_earlier_one_of_its_file() {
        let begin = LOG.lines().next().unwrap();
        let base = r#"{"changes":[{"number":7,"put":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p",
            "namespace":"d","uid":"u"},"spec":{"nodeName":"n","containers":[]}}}]}"#
            .replace('\n', "");
        let like = r#"{"changes":[{"like":7,"put":{"metadata":{"name":"q"},"spec":{"nodeName":""},
            "status":{"phase":"Pending"}}}]}"#
            .replace('\n', "");
        let (entries, notes) = read(&format!("{begin}\n{base}\n{like}\n"));
        assert!(notes.is_empty(), "{notes:?}");
        let LogChanged::Put(pod) = &entries[2].changes[0].what else { panic!("{entries:?}") };
        assert_eq!((pod.resource.kind, &*pod.namespace, &*pod.name), ("Pod", "d", "q"));
        let whole: serde_json::Value = serde_json::from_str(pod.json.get()).unwrap();
        let wanted = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q", "namespace": "d", "uid": "u"},
            "spec": {"nodeName": "", "containers": []}, "status": {"phase": "Pending"},
        });
        assert_eq!(whole, wanted);
        // A file that begins has no pods yet, and numbers end.
        let too_large = (base.replace(":7", ":1024"), like.replace(":7", ":1024"));
        for text in [
            format!("{begin}\n{base}\n{begin}\n{like}\n"),
            format!("{begin}\n{}\n{}\n", too_large.0, too_large.1),
            format!("{begin}\n{}\n{like}\n", base.replace("\"number\":7", "\"number\":-7")),
        ] {
            let (entries, notes) = read(&text);
            assert!(entries.iter().skip(2).all(|entry| entry.changes.is_empty()), "{entries:?}");
            assert!(notes.iter().any(|note| note.contains("which is missing, is left out")), "{notes:?}");
        }
    }

    #[test]
    fn a_first_line_tells_a_decision_log_from_other_files() {
        assert!(is_decision_log(LOG.lines().next().unwrap().as_bytes()));
        assert!(!is_decision_log(b"{\"kind\":\"List\"}"));
        assert!(!is_decision_log(b"\x1f\x8b"));
    }
}
