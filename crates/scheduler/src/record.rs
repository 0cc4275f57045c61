//! What a decision log is written from: each input that changes what decisions read, and each decision, in order.
//!
//! The core keeps records only when it is asked to (`Scheduler::with_records`); otherwise each costs a branch. A record
//! holds handles on objects, so that whoever writes them does the work on a thread of its own.

use std::sync::Arc;

use bayplan_model::decision_log::{Changed, Decision};
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use crate::cluster::Object;

/// Something that happened, and when.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time that the core was given.
    pub time: Timestamp,
    /// What happened.
    pub what: Recorded,
}

impl Record {
    /// Whether memory goes with this record that the core allocated: a decision's own, or an object that nobody else
    /// has any more. Whoever has read it gives it back, so that memory stays with the thread that uses it.
    pub fn holds_memory(&self) -> bool {
        match &self.what {
            Recorded::Changed(Changed::Put(Object::Pod(pod))) => Arc::strong_count(pod) == 1,
            Recorded::Changed(_) | Recorded::Decided(_) => true,
        }
    }
}

/// What can happen to the state that decisions are made from.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// Something changed.
    Changed(Changed<Object>),
    /// A pod was tried.
    Decided(DecisionRecord),
}

/// One attempt to place a pod, and its answer. Small, and without memory of its own as a rule: one is made in every
/// attempt, and its memory would be given back by another thread.
#[derive(Clone, Debug)]
pub struct DecisionRecord {
    /// The pod, in the version that was decided.
    pub(crate) pod: Arc<Pod>,
    pub(crate) attempt: u32,
    pub(crate) node: Option<String>,
    pub(crate) tied: Option<u32>,
    pub(crate) feasible: Option<u32>,
    /// What was drawn last; counts for pods that were not placed.
    pub(crate) random: Option<u64>,
    pub(crate) start: u64,
    pub(crate) nanoseconds: Option<u64>,
    /// For a pod that was not placed.
    pub(crate) refusal: Option<Box<Refusal>>,
}

/// Why a pod was not placed, and what preemption did about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal {
    pub(crate) message: Option<String>,
    pub(crate) nominated: Option<String>,
    pub(crate) victims: Vec<String>,
}

impl DecisionRecord {
    pub(crate) fn new(pod: Arc<Pod>, attempt: u32, start: u64) -> Self {
        DecisionRecord {
            pod,
            attempt,
            node: None,
            tied: None,
            feasible: None,
            random: None,
            start,
            nanoseconds: None,
            refusal: None,
        }
    }

    pub(crate) fn refusal(&mut self) -> &mut Refusal {
        self.refusal.get_or_insert_default()
    }

    /// The decision as a log has it.
    pub fn to_decision(&self) -> Decision {
        let mut decision = Decision::default();
        self.fill(&mut decision);
        decision
    }

    /// Writes the decision over another one, whose memory is used again.
    pub fn fill(&self, decision: &mut Decision) {
        let DecisionRecord { pod, attempt, node, tied, feasible, random, start, nanoseconds, refusal } = self;
        let refusal = refusal.as_deref();
        decision.namespace.clone_from(&pod.metadata.namespace);
        decision.name.clone_from(&pod.metadata.name);
        decision.uid.clone_from(&pod.metadata.uid);
        decision.attempt = *attempt;
        decision.node.clone_from(node);
        decision.message = refusal.and_then(|refusal| refusal.message.clone());
        decision.nominated = refusal.and_then(|refusal| refusal.nominated.clone());
        decision.victims = refusal.map_or_else(Vec::new, |refusal| refusal.victims.clone());
        decision.tied = *tied;
        decision.feasible = *feasible;
        // Nothing was preempted for a pod that was placed.
        decision.random = random.filter(|_| decision.message.is_some());
        decision.start = *start;
        decision.nanoseconds = *nanoseconds;
    }
}

/// Keeps records until the shell takes them.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) records: Vec<Record>,
    /// The attempt that runs.
    pub(crate) attempt: Option<DecisionRecord>,
}

impl Recorder {
    pub(crate) fn push(&mut self, time: Timestamp, change: Changed<Object>) {
        self.records.push(Record { time, what: Recorded::Changed(change) });
    }
}
