//! A pod in the scheduling queue, as QueueSort plugins see it; upstream's `QueuedPodInfo`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::PluginName;
use crate::cluster::PodInfo;
use crate::trace::AttemptTrace;

/// A pod in the scheduling queue.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod.
    pub info: Arc<PodInfo>,
    /// When the pod last entered the queue.
    pub timestamp: Timestamp,
    /// When the pod first became active; none before that.
    pub initial_attempt: Option<Timestamp>,
    /// The number of scheduling attempts so far.
    pub attempts: u32,
    /// The number of attempts that ended because no node fits; the backoff grows with it.
    pub unschedulable_count: u32,
    /// The number of attempts in a row that ended with an error; the backoff grows with it.
    pub consecutive_errors: u32,
    /// The plugins that rejected the pod in its last attempt.
    pub unschedulable_plugins: BTreeSet<PluginName>,
    /// The plugins that answered Pending in its last attempt.
    pub pending_plugins: BTreeSet<PluginName>,
    /// The PreEnqueue plugin that holds the pod back.
    pub gating_plugin: Option<PluginName>,
    /// When the pod was last moved only because it had waited too long.
    pub(crate) flushed: Option<Timestamp>,
    /// Order of arrival.
    sequence: u64,
    /// When the current attempt began, in nanoseconds on the metrics' clock.
    pub(crate) attempt_started: u64,
    /// The trace of the current attempt, if it is traced.
    pub(crate) trace: Option<Arc<AttemptTrace>>,
}

impl QueuedPod {
    pub(crate) fn new(info: Arc<PodInfo>, now: Timestamp, sequence: u64) -> Self {
        QueuedPod {
            info,
            timestamp: now,
            initial_attempt: None,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
            gating_plugin: None,
            flushed: None,
            sequence,
            attempt_started: 0,
            trace: None,
        }
    }

    /// The pod's order of arrival, for QueueSort plugins to break ties with.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// True when the current attempt was made only because the pod had waited too long.
    pub(crate) fn was_flushed(&self) -> bool {
        self.flushed.is_some()
    }

    /// True when a plugin rejected the pod, as opposed to an error.
    pub(crate) fn is_rejected(&self) -> bool {
        !self.unschedulable_plugins.is_empty() || !self.pending_plugins.is_empty()
    }
}
