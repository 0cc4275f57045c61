//! What PostFilter asks for when no node fits: evictions, and the end of bindings that have not reached the API server.

use bayplan_model::api::{EventType, Request};
use jiff::Timestamp;

use super::Scheduler;
use super::failure::Failure;
use super::queue_plugins::ProfilePlugins;
use crate::effect::Effect;
use crate::framework::preemption::Preemption;
use crate::framework::{ExtensionPoints, QueuedPod, Status};
use crate::metrics::OwnerMetrics;
use crate::profile::Profile;
use crate::queue::QueueStage;
use crate::shell::pod_event;

/// Why no node fits, and what PostFilter asks for.
pub(super) struct PostFilterOutcome {
    pub(super) failure: Failure,
    pub(super) preemption: Option<Preemption>,
    pub(super) calls: Vec<Request>,
}

impl Scheduler {
    /// Fails a pod that no node fits, and starts what PostFilter asks for.
    pub(super) fn no_node_fits(
        &mut self,
        profile: &Profile,
        pod: QueuedPod,
        outcome: PostFilterOutcome,
        now: Timestamp,
    ) {
        let PostFilterOutcome { failure, preemption, calls } = outcome;
        self.report_preemption(profile, preemption.as_ref());
        let preemption = preemption.and_then(|preemption| self.begin_preemption(preemption, now));
        self.fail(pod, failure, now);
        self.effects.extend(preemption.map(|preemption| Effect::Preempt(Box::new(preemption))));
        self.push_calls(calls);
    }

    fn report_preemption(&self, profile: &Profile, preemption: Option<&Preemption>) {
        let Some(OwnerMetrics { all, .. }) = &self.metrics else { return };
        let mut plugins = profile.at(ExtensionPoints::POST_FILTER).iter().map(|&at| profile.plugin(at).name());
        let attempted = plugins.any(|plugin| plugin == "DefaultPreemption");
        all.preemption_considered(attempted, preemption.map(|preemption| preemption.victims.len()));
    }

    /// Rejects victims that are not bound yet in memory; the victims left to evict through the API are returned.
    fn begin_preemption(&mut self, mut preemption: Preemption, now: Timestamp) -> Option<Preemption> {
        let (preemptor, node) = (&preemption.preemptor, &preemption.node);
        let victims = preemption.victims.len();
        tracing::debug!(pod = %preemptor.key(), node, victims, "preemption started");
        preemption.victims.retain(|victim| {
            tracing::debug!(pod = %victim.key(), node, preemptor = %preemptor.key(), "victim chosen");
            if !self.cancel_binding(victim.uid(), now) {
                return !victim.is_terminating() && self.cluster.placed(victim.uid()).is_some();
            }
            let by = preemptor.uid();
            let note = format!("Preempted by pod {by} on node {node} (in kube-scheduler memory).");
            let event = pod_event(victim, EventType::Normal, "Preempted", "Preempting", note);
            self.effects.push(Effect::record(preemptor, event));
            false
        });
        if preemption.victims.is_empty() {
            return None;
        }
        let uid = preemption.preemptor.uid().to_owned();
        if let Some(metrics) = &mut self.metrics {
            metrics.evictions.insert(uid.clone(), metrics.all.now());
        }
        self.cluster.preempting.insert(uid);
        Some(preemption)
    }

    /// Ends the wait or the PreBind of an assumed pod; false when there is none to end.
    fn cancel_binding(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.waiting.contains_key(uid) {
            self.reject_waiting(uid, Status::error("preempted"), now);
            return true;
        }
        self.binding.get(uid).is_some_and(|binding| binding.cancel())
    }

    /// The evictions for a preemptor ended.
    pub(super) fn eviction_finished(&mut self, uid: &str, result: Result<(), String>, now: Timestamp) {
        self.cluster.preempting.remove(uid);
        let failed = result.is_err();
        if let Some(metrics) = &mut self.metrics
            && let Some(since) = metrics.evictions.remove(uid)
        {
            metrics.all.eviction_finished(since, failed);
        }
        match result {
            Err(error) => {
                tracing::debug!(preemptor_uid = uid, error, "eviction failed");
                let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
                self.queue.retry_after_error(uid, now, &plugins);
            }
            Ok(()) => {
                tracing::debug!(preemptor_uid = uid, "victims evicted");
                if self.queue.stage(uid) == Some(QueueStage::Gated) {
                    self.activate(&[uid.to_owned()], now);
                }
            }
        }
    }
}
