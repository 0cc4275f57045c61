//! A failed attempt: the pod goes back to the queue, with an event and a condition that say why. Upstream's
//! `handleSchedulingFailure`.

use std::collections::BTreeSet;

use bayplan_model::api::EventType;
use jiff::Timestamp;
use tracing::field;

use super::queue_plugins::ProfilePlugins;
use super::{ATTEMPTS, Scheduler};
use crate::effect::Effect;
use crate::framework::{Diagnosis, Nomination, PluginName, QueuedPod, Status};
use crate::metrics::AttemptResult;
use crate::shell::{StatusUpdate, pod_event};

/// Why a pod goes back to the queue.
pub(super) struct Failure {
    /// The reason of the `PodScheduled` condition.
    reason: &'static str,
    message: String,
    nomination: Nomination,
    unschedulable_plugins: BTreeSet<PluginName>,
    pending_plugins: BTreeSet<PluginName>,
}

impl Failure {
    /// A rejection or an error of the cycle as a whole.
    pub(super) fn of(status: Status) -> Self {
        Failure {
            reason: if status.is_rejected() { "Unschedulable" } else { "SchedulerError" },
            message: status.message(),
            nomination: Nomination::Override(String::new()),
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
        }
    }

    /// A rejection or an error after a node was chosen.
    pub(super) fn after_placing(node: &str, status: Status) -> Self {
        match status.is_rejected() {
            true => Failure::unschedulable(&Diagnosis::for_node(node, status), Nomination::Override(String::new())),
            false => Failure::of(status),
        }
    }

    /// No node fits.
    pub(super) fn unschedulable(diagnosis: &Diagnosis, nomination: Nomination) -> Self {
        Failure {
            reason: "Unschedulable",
            message: diagnosis.message(),
            nomination,
            unschedulable_plugins: diagnosis.unschedulable_plugins.clone(),
            pending_plugins: diagnosis.pending_plugins.clone(),
        }
    }

    fn attempt_result(&self) -> AttemptResult {
        if self.reason == "Unschedulable" { AttemptResult::Unschedulable } else { AttemptResult::Error }
    }
}

impl Scheduler {
    /// Puts a pod that could not be placed back into the queue, and reports why.
    pub(super) fn fail(&mut self, mut pod: QueuedPod, failure: Failure, now: Timestamp) {
        tracing::debug!(
            target: ATTEMPTS,
            pod = %pod.info.key(),
            reason = failure.reason,
            why = failure.message,
            attempt = pod.attempts,
            latency = self.latency(&pod).map(field::debug),
            "pod not scheduled"
        );
        self.note_failure(&failure.message, &failure.nomination);
        let profile = self.profile(&pod.info.spec.scheduler_name);
        if let Some(metrics) = profile.and_then(|profile| profile.metrics.as_ref()) {
            metrics.attempt_finished(pod.attempt_started, failure.attempt_result());
        }
        self.collect_points(&pod);
        self.end_trace(&mut pod, failure.attempt_result(), None, Some(&failure.message));
        let meta = &pod.info.metadata;
        let uid = meta.uid.clone();
        let current = self.cluster.objects.pods.get(&meta.namespace, &meta.name).cloned();
        let Some(current) = current.filter(|now| now.metadata.uid == uid && !now.is_assigned()) else {
            return self.queue.done(&uid);
        };
        if current.metadata.resource_version != meta.resource_version {
            pod.info = self.pod_infos.info(current);
        }
        let info = pod.info.clone();
        pod.unschedulable_plugins = failure.unschedulable_plugins;
        pod.pending_plugins = failure.pending_plugins;
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.add_unschedulable(pod, now, &plugins);
        self.queue.nominator.add(&info, &failure.nomination);
        let event = pod_event(&info, EventType::Warning, "FailedScheduling", "Scheduling", failure.message.clone());
        self.effects.push(Effect::record(&info, event));
        let nominated = match &failure.nomination {
            Nomination::Keep => None,
            Nomination::Override(node) => Some(node.as_str()),
        };
        let why = (failure.reason, failure.message.as_str());
        let update = StatusUpdate::of(&info, "PodScheduled", "False", why, nominated, now);
        self.effects.extend(update.map(|update| Effect::UpdateStatus(Box::new(update))));
    }
}

/// Adds plugin and extension point to errors; rejections pass through.
pub(super) fn with_extension_point(point: &str, status: Status) -> Status {
    if status.is_rejected() {
        return status;
    }
    let name = status.plugin;
    Status::error(format!("running {point} plugin {name:?}: {status}")).by(name)
}
