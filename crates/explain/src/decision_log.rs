//! A decision log replayed: the state at any decision of it, and the decision made again.
//!
//! ```text
//!   LogEntry ─changes─▶ Replay (a scheduler without a shell) ─▶ its state before the decision
//!                          ▲                                ─▶ the decision again, with the recorded random choices
//!                          └─ what was recorded to follow: bound, undone, evicted
//! ```

use std::sync::Arc;

use bayplan_model::decision_log::{Allocated, Decision, Evicted, Identity, Place};
use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{
    Binding, Effect, Input, Object, Recorded, RecordedChoice, Registry, Scheduler, TieBreak, inspect::Nominator,
};
use bayplan_sources::decision_log::{LogChange, LogChanged, LogEntry};
use bayplan_sources::{ClusterObjects, Origin, OriginKind, RESOURCES, SourceObject, resource_of};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::State;

/// The most notes that are kept.
const NOTES_MAX: usize = 20;

/// A log that is replayed, at one point of it.
pub struct Replay {
    configuration: Configuration,
    registry: Registry,
    scheduler: Scheduler,
    /// Bindings whose end is not replayed yet, by UID.
    bindings: FxHashMap<String, Binding>,
    time: Timestamp,
    notes: Vec<String>,
}

/// A decision made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The node that is chosen.
    pub node: Option<String>,
    /// Why the pod is not placed.
    pub message: Option<String>,
}

impl Replayed {
    /// Whether it is the decision that was recorded.
    pub fn agrees(&self, recorded: &Decision) -> bool {
        self.node == recorded.node && self.message == recorded.message
    }
}

impl Replay {
    /// Begins a replay. Extenders of the configuration are not called.
    pub fn new(configuration: &Configuration, registry: Registry) -> Result<Self, bayplan_scheduler::Error> {
        let scheduler = Scheduler::new(configuration, &registry, TieBreak::SmallestName)?.with_records();
        Ok(Replay {
            configuration: configuration.clone(),
            registry,
            scheduler,
            bindings: FxHashMap::default(),
            time: Timestamp::UNIX_EPOCH,
            notes: Vec::new(),
        })
    }

    /// Applies what changed before the decision of an entry.
    pub fn apply(&mut self, entry: &LogEntry) -> Result<(), bayplan_scheduler::Error> {
        if let Some(begins) = &entry.begins {
            self.scheduler =
                Scheduler::new(&self.configuration, &self.registry, TieBreak::SmallestName)?.with_records();
            self.bindings.clear();
            self.time = begins.time;
        }
        for change in &entry.changes {
            self.change(change);
        }
        if let Some(time) = entry.time {
            self.time = time;
        }
        Ok(())
    }

    fn change(&mut self, LogChange { time, what }: &LogChange) {
        let now = time.unwrap_or(self.time);
        match what {
            LogChanged::Put(object) => match decode(object) {
                Some(object) => self.put(object, now),
                None => self.note(format!("{} {} of the log cannot be read", object.resource.kind, object.name)),
            },
            LogChanged::Gone(identity) => {
                if let Some(object) = object_of(identity) {
                    self.scheduler.handle(Input::delete(object), now);
                }
            }
            LogChanged::Assumed(Place { uid, node }) => {
                self.scheduler.assume_again(uid, node, now);
            }
            LogChanged::Nominated(Place { uid, node }) => self.scheduler.nominate_again(uid, node),
            LogChanged::AssumedVolume(object) => {
                if let Some(object) = decode(object) {
                    self.scheduler.assume_volume_again(object);
                }
            }
            LogChanged::Allocated(allocated) => self.scheduler.allocate_again(Allocated::clone(allocated)),
            LogChanged::Image(image) => self.scheduler.size_image_again(image),
            LogChanged::Undone(undone) => {
                let binding = self.bindings.remove(&undone.uid);
                self.scheduler.undo_again(undone, binding, now);
            }
            LogChanged::Evicted(Evicted { uid, failed }) => {
                let result = if *failed { Err("a victim could not be evicted".to_owned()) } else { Ok(()) };
                self.scheduler.handle(Input::Preempted { uid: uid.clone(), result }, now);
            }
        }
        self.scheduler.take_records();
        self.keep_bindings();
    }

    fn put(&mut self, object: Object, now: Timestamp) {
        let bound = match &object {
            Object::Pod(pod) if pod.is_assigned() => self.bindings.remove(&pod.metadata.uid),
            _ => None,
        };
        self.scheduler.handle(Input::upsert(object), now);
        if let Some(binding) = bound {
            self.scheduler.end_binding(binding, true, now);
        }
    }

    /// Keeps the bindings that the scheduler would start; the log says how they end.
    fn keep_bindings(&mut self) {
        for effect in self.scheduler.take_effects() {
            if let Effect::Bind(binding) = effect {
                self.bindings.insert(binding.pod_uid().to_owned(), *binding);
            }
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Makes a recorded decision again, and goes on from what was recorded. None when the pod is not in the queue, as
    /// after a gap of the log.
    pub fn decide(&mut self, recorded: &Decision) -> Option<Replayed> {
        let random = recorded.random.unwrap_or_default();
        let node = recorded.node.as_deref().unwrap_or_default().into();
        let choice = RecordedChoice { ties: TieBreak::Recorded { node, random }, start: recorded.start as usize };
        let now = self.time;
        if !self.scheduler.schedule_again(&recorded.uid, choice, now) {
            self.note(format!("{}/{} was decided at {now} but is not in the queue", recorded.namespace, recorded.name));
            return None;
        }
        let decided = self.scheduler.take_records().into_iter().rev().find_map(|record| match record.what {
            Recorded::Decided(record) => Some(record.to_decision()),
            Recorded::Changed(_) => None,
        });
        self.keep_bindings();
        let replayed = decided.map(|decision| Replayed { node: decision.node, message: decision.message })?;
        if !replayed.agrees(recorded) {
            self.follow(recorded, &replayed);
        }
        Some(replayed)
    }

    /// Brings the state to what was recorded, where the decision made again is another one.
    fn follow(&mut self, recorded: &Decision, replayed: &Replayed) {
        let now = self.time;
        self.note(format!("{}/{} at {now} is decided otherwise now", recorded.namespace, recorded.name));
        if replayed.message.is_none() {
            match self.bindings.remove(&recorded.uid) {
                Some(binding) => self.scheduler.end_binding(binding, false, now),
                None => self.scheduler.reject(&recorded.uid, "", "as it was recorded".to_owned(), now),
            }
        }
        if let (Some(node), None) = (&recorded.node, &recorded.message) {
            self.scheduler.place_again(&recorded.uid, node, now);
        }
        self.scheduler.take_records();
        self.keep_bindings();
    }

    /// The time of the last entry.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// The scheduler as it was then.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// One line for each thing that could not be replayed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The state as the next decision sees it.
    pub fn state(&self) -> State {
        State::of_scheduler(&self.scheduler, self.cluster_objects())
    }

    /// The objects as decisions see them now: assumed pods are on their nodes, nominations are in their pods' status.
    pub fn cluster_objects(&self) -> ClusterObjects {
        let origin = Origin { kind: OriginKind::Log, time: Some(self.time), resource_version: None };
        let listed = RESOURCES.iter().map(|resource| resource.name).collect();
        let notes = self.notes.clone();
        let mut objects: FxHashMap<(&'static str, Box<str>, Box<str>), SourceObject> = FxHashMap::default();
        let mut order = Vec::new();
        let nominator = &self.scheduler.queue().nominator;
        self.scheduler.cluster().each_seen(&mut |object| {
            if let Some(written) = write(&nominated(object, nominator)) {
                let key = (written.resource.name, written.namespace.clone(), written.name.clone());
                if objects.insert(key.clone(), written).is_none() {
                    order.push(key);
                }
            }
        });
        let objects = order.iter().filter_map(|key| objects.remove(key)).collect();
        ClusterObjects { origin, objects, listed, notes, ..ClusterObjects::default() }
    }
}

/// A pod with the nomination that the scheduler knows of.
fn nominated(object: Object, nominator: &Nominator) -> Object {
    let Object::Pod(pod) = &object else { return object };
    let node = nominator.node_of(&pod.metadata.uid).unwrap_or_default();
    if pod.is_assigned() || pod.status.nominated_node_name == node {
        return object;
    }
    let mut pod = Pod::clone(pod);
    pod.status.nominated_node_name = node.to_owned();
    Object::Pod(Arc::new(pod))
}

fn write(object: &Object) -> Option<SourceObject> {
    let (api_version, kind) = object.type_meta();
    let meta = object.metadata();
    let json = serde_json::to_string(object).ok().and_then(|text| RawValue::from_string(text).ok())?;
    let (namespace, name) = (meta.namespace.as_str().into(), meta.name.as_str().into());
    Some(SourceObject { resource: resource_of(api_version, kind)?, namespace, name, json })
}

fn decode(object: &SourceObject) -> Option<Object> {
    if object.resource.kind == "Pod" {
        return serde_json::from_str(object.json.get()).ok().map(|pod| Object::Pod(Arc::new(pod)));
    }
    let value: Value = serde_json::from_str(object.json.get()).ok()?;
    Object::decode(&value)?.ok()
}

/// An object of which no more is known than which one it was.
pub(crate) fn object_of(identity: &Identity) -> Option<Object> {
    let Identity { api_version, kind, namespace, name, uid } = identity;
    let value = serde_json::json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "uid": uid},
    });
    Object::decode(&value)?.ok()
}
