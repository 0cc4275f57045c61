//! What happens in a simulation: a cluster at the beginning, and what comes and goes.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use jiff::{SignedDuration, Timestamp};

/// A change of the cluster.
#[derive(Clone, Debug)]
pub enum Change {
    /// A pod is created; where it was before does not matter.
    CreatePod {
        /// The pod.
        pod: Arc<Pod>,
        /// It is gone so long after it was placed; without it, it stays until it is deleted.
        runs_for: Option<SignedDuration>,
    },
    /// A pod is deleted, by namespace and name.
    DeletePod(String, String),
    /// Another object is there in this version.
    Put(Object),
    /// Another object is gone.
    Delete(Object),
}

/// A change and its time.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it happens.
    pub time: Timestamp,
    /// What happens.
    pub change: Change,
}

/// A cluster, and what happens to it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The objects at the beginning: pods on nodes stay there, pending ones are decided first.
    pub objects: Vec<Object>,
    /// What happens, in order of time.
    pub events: Vec<Event>,
    /// One line for each thing that could not be read.
    pub notes: Vec<String>,
}

impl History {
    /// Sorts events by time. At one time deletions come first, so that what is created finds their resources free.
    pub(crate) fn sort(&mut self) {
        let is_creation = |event: &Event| matches!(event.change, Change::CreatePod { .. } | Change::Put(_));
        self.events.sort_by_key(|event| (event.time, is_creation(event)));
    }

    /// The times of the first and of the last event.
    pub fn span(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.events.first()?.time, self.events.last()?.time))
    }
}
