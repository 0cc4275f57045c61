//! A decision log as a history: what came and went is kept, where pods were put is decided again.

use std::sync::Arc;

use bayplan_model::decision_log::Identity;
use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use bayplan_sources::SourceObject;
use bayplan_sources::decision_log::{LogChange, LogChanged, LogEntry};
use jiff::Timestamp;
use rustc_hash::FxHashSet;
use serde_json::Value;

use super::history::{Change, Event, History};
use crate::decision_log::object_of;

/// Makes a history of the entries of a log.
#[derive(Default)]
pub struct LoggedHistory {
    history: History,
    now: Option<Timestamp>,
    /// When the log began again: what it repeats then is no state of the beginning.
    began_anew: Option<Timestamp>,
    /// Whether anything was decided yet. A scheduler knows the whole state before it decides, but may come to know it
    /// object by object.
    decided: bool,
    /// The pods that are there, by `namespace/name`.
    pods: FxHashSet<String>,
    unreadable: usize,
}

impl LoggedHistory {
    /// Takes in the next entry.
    pub fn entry(&mut self, entry: &LogEntry) {
        if let Some(begins) = &entry.begins {
            self.began_anew = self.now.map(|_| begins.time);
            self.now.get_or_insert(begins.time);
        }
        for change in &entry.changes {
            self.change(change, entry.time);
        }
        self.now = entry.time.max(self.now);
        self.decided |= entry.decision.is_some();
    }

    /// The history; notes are those of the reader.
    pub fn finish(mut self, notes: &[String]) -> History {
        self.history.notes.extend_from_slice(notes);
        if self.unreadable > 0 {
            self.history.notes.push(format!("{} objects of the log cannot be read", self.unreadable));
        }
        self.history.sort();
        self.history
    }

    fn change(&mut self, change: &LogChange, entry_time: Option<Timestamp>) {
        // What has no time is the state with which the log begins.
        let time = change.time.or(entry_time).or(self.began_anew);
        match &change.what {
            LogChanged::Put(object) => match decode(object) {
                Some(object) => self.put(object, time),
                None => self.unreadable += 1,
            },
            LogChanged::Gone(identity) => self.gone(identity, time),
            // What became of the decisions of the time does not matter: others are made.
            LogChanged::Assumed(_)
            | LogChanged::Nominated(_)
            | LogChanged::AssumedVolume(_)
            | LogChanged::Allocated(_)
            | LogChanged::Image(_)
            | LogChanged::Undone(_)
            | LogChanged::Evicted(_) => {}
        }
    }

    fn put(&mut self, object: Object, time: Option<Timestamp>) {
        let is_pending = matches!(&object, Object::Pod(pod) if !pod.is_assigned());
        let time = time.filter(|_| self.decided || is_pending);
        let Object::Pod(pod) = &object else {
            return match time {
                Some(time) => self.push(time, Change::Put(object)),
                None => self.history.objects.push(object),
            };
        };
        let key = pod.metadata.key();
        match time {
            None if pod.is_terminal() || self.pods.contains(&key) => {}
            None => {
                self.pods.insert(key);
                self.history.objects.push(object);
            }
            Some(time) if pod.is_terminal() => self.delete_pod(pod, time),
            Some(time) => {
                if self.pods.insert(key) {
                    let change = Change::CreatePod { pod: pod.clone(), runs_for: None };
                    self.push(time, change);
                }
            }
        }
    }

    fn delete_pod(&mut self, pod: &Arc<Pod>, time: Timestamp) {
        let meta = &pod.metadata;
        if self.pods.remove(&meta.key()) {
            self.push(time, Change::DeletePod(meta.namespace.clone(), meta.name.clone()));
        }
    }

    fn gone(&mut self, identity: &Identity, time: Option<Timestamp>) {
        let Some(time) = time.or(self.now) else { return };
        match object_of(identity) {
            Some(Object::Pod(pod)) => self.delete_pod(&pod, time),
            Some(object) => self.push(time, Change::Delete(object)),
            None => {}
        }
    }

    fn push(&mut self, time: Timestamp, change: Change) {
        self.history.events.push(Event { time, change });
    }
}

fn decode(object: &SourceObject) -> Option<Object> {
    let value: Value = serde_json::from_str(object.json.get()).ok()?;
    Object::decode(&value)?.ok()
}
