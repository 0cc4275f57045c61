//! What a decision log is written from: each input that changes what decisions read, and each decision, in order.
//!
//! The core keeps records only when it is asked to (`Scheduler::with_records`); otherwise each costs a branch. A record
//! holds handles on objects, so that whoever writes them does the work on a thread of its own.

use std::sync::Arc;

use bayplan_model::resource_claim::AllocationResult;
use jiff::Timestamp;

use crate::cluster::{ClaimKey, Object, PodInfo};

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
    /// An object is there in this version.
    Put(Object),
    /// An object is gone; this is its last known version.
    Gone(Object),
    /// A pod of this UID is assumed on a node. Written where a log begins; later ones are decided.
    Assumed {
        /// The pod's UID.
        uid: String,
        /// The node's name.
        node: String,
    },
    /// A volume or a volume claim is assumed to become this. Written where a log begins.
    AssumedVolume(Object),
    /// Devices are allocated, and the claim does not say so yet. Written where a log begins.
    Allocated {
        /// The claim.
        claim: ClaimKey,
        /// The devices.
        allocation: Arc<AllocationResult>,
    },
    /// A pod of this UID is nominated to a node, which its status does not say yet. Written where a log begins.
    Nominated {
        /// The pod's UID.
        uid: String,
        /// The node's name.
        node: String,
    },
    /// A pod was tried.
    Decided(Box<DecisionRecord>),
    /// An assumed pod does not go to its node: Permit or its binding cycle failed.
    Undone {
        /// The pod's UID.
        uid: String,
    },
    /// The evictions for a preemptor ended.
    Evicted {
        /// The preemptor's UID.
        uid: String,
        /// True when a victim could not be evicted.
        failed: bool,
    },
}

/// One attempt to place a pod, and its answer.
#[derive(Clone, Debug)]
pub struct DecisionRecord {
    /// The pod, in the version that was decided.
    pub pod: Arc<PodInfo>,
    /// The number of attempts, this one included.
    pub attempts: u32,
    /// The node that was chosen; with a message, Reserve or Permit refused it.
    pub node: Option<String>,
    /// Why the pod was not placed: the text of its FailedScheduling event.
    pub message: Option<String>,
    /// The node that preemption nominated the pod to.
    pub nominated: Option<String>,
    /// The victims of preemption, as `namespace/name`.
    pub victims: Vec<String>,
    /// The nodes that had the highest score, where that is known.
    pub tied: Option<u32>,
    /// The nodes that fit, where that is known.
    pub feasible: Option<u32>,
    /// The random number with which preemption began its search.
    pub random: u64,
    /// The node at which the search began; matters only when part of the nodes is scored.
    pub start: usize,
    /// How long the decision took, if the core has a clock.
    pub nanoseconds: Option<u64>,
}

/// Keeps records until the shell takes them.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) records: Vec<Record>,
    /// The attempt that runs.
    pub(crate) attempt: Option<Box<DecisionRecord>>,
}

impl Recorder {
    pub(crate) fn push(&mut self, time: Timestamp, what: Recorded) {
        self.records.push(Record { time, what });
    }
}
