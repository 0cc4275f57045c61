//! What a decision log is written from: each input that changes what decisions read, and each decision, in order.
//!
//! The core keeps records only when it is asked to (`Scheduler::with_records`); otherwise each costs a branch. A record
//! holds handles on objects, so that whoever writes them does the work on a thread of its own.

use std::sync::Arc;

use bayplan_model::decision_log::{Changed, Decision};
use jiff::Timestamp;

use crate::cluster::{Object, PodInfo};

/// Something that happened, and when.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time that the core was given.
    pub time: Timestamp,
    /// What happened.
    pub what: Recorded,
}

/// What can happen to the state that decisions are made from.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// Something changed.
    Changed(Changed<Object>),
    /// A pod was tried.
    Decided(Box<DecisionRecord>),
}

/// One attempt to place a pod, and its answer.
#[derive(Clone, Debug)]
pub struct DecisionRecord {
    /// The pod, in the version that was decided.
    pub pod: Arc<PodInfo>,
    /// The answer. Which pod it is about is left to [`DecisionRecord::into_decision`], on another thread.
    pub decision: Decision,
}

impl DecisionRecord {
    /// The decision with the name of its pod.
    pub fn into_decision(self) -> Decision {
        let meta = &self.pod.metadata;
        let (namespace, name, uid) = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
        Decision { namespace, name, uid, ..self.decision }
    }
}

/// Keeps records until the shell takes them.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) records: Vec<Record>,
    /// The attempt that runs.
    pub(crate) attempt: Option<Box<DecisionRecord>>,
}

impl Recorder {
    pub(crate) fn push(&mut self, time: Timestamp, change: Changed<Object>) {
        self.records.push(Record { time, what: Recorded::Changed(change) });
    }
}
