//! What PostFilter asks for when no node fits: evictions, and the end of bindings that have not reached the API server.

use bayplan_model::api::{EventType, Request};
use jiff::Timestamp;

use super::Scheduler;
use super::failure::Failure;
use crate::cluster::PodInfo;
use crate::effect::Effect;
use crate::framework::preemption::Preemption;
use crate::framework::{ExtensionPoints, QueuedPod, Status};
use crate::metrics::OwnerMetrics;
use crate::profile::Profile;
use crate::queue::QueueStage;
use crate::shell::{StatusUpdate, pod_event};

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

    /// Starts a preemption: the victims that are not bound yet are rejected in memory, and those left to evict through
    /// the API are returned. The last victim goes only when nothing else can fail.
    fn begin_preemption(&mut self, mut preemption: Preemption, now: Timestamp) -> Option<Preemption> {
        self.note_attempt(|attempt| {
            attempt.refusal().victims = preemption.victims.iter().map(|pod| pod.key()).collect();
        });
        let (preemptor, node) = (&preemption.preemptor, &preemption.node);
        tracing::debug!(pod = %preemptor.key(), node, victims = preemption.victims.len(), "preemption started");
        let mut victims = std::mem::take(&mut preemption.victims);
        victims.retain(|victim| {
            tracing::debug!(pod = %victim.key(), node, preemptor = %preemptor.key(), "victim chosen");
            !victim.is_terminating() && self.cluster.placed(victim.uid()).is_some()
        });
        let last = victims.pop()?;
        for pod in &preemption.lower_priority_nominated {
            self.effects.push(Effect::UpdateStatus(Box::new(StatusUpdate::nominate(pod, ""))));
        }
        victims.retain(|victim| !self.preempt_in_memory(&preemption, victim, now));
        let uid = preemption.preemptor.uid().to_owned();
        if victims.is_empty() {
            if self.preempt_in_memory(&preemption, &last, now) {
                return None;
            }
            victims.push(last);
        } else if self.is_waiting(last.uid()) || self.binding.get(last.uid()).is_some_and(|bind| bind.is_running()) {
            self.last_victims.insert(uid.clone(), Preemption { victims: vec![last], ..preemption.clone() });
        } else {
            victims.push(last);
        }
        preemption.victims = victims;
        if let Some(metrics) = &mut self.metrics {
            metrics.evictions.insert(uid.clone(), metrics.all.now());
        }
        self.cluster.preempting.insert(uid);
        Some(preemption)
    }

    /// Ends the wait or the PreBind of a victim that is not bound yet; false when there is none to end.
    fn preempt_in_memory(&mut self, preemption: &Preemption, victim: &PodInfo, now: Timestamp) -> bool {
        if self.is_waiting(victim.uid()) {
            self.reject_waiting(victim.uid(), Status::error("preempted"), now);
        } else if !self.binding.get(victim.uid()).is_some_and(|binding| binding.cancel()) {
            return false;
        }
        let (by, node) = (preemption.preemptor.uid(), &preemption.node);
        let note = format!("Preempted by pod {by} on node {node} (in kube-scheduler memory).");
        let event = pod_event(victim, EventType::Normal, "Preempted", "Preempting", note);
        self.effects.push(Effect::record(&preemption.preemptor, event));
        true
    }

    /// The evictions for a preemptor ended.
    pub(super) fn eviction_finished(&mut self, uid: &str, result: Result<(), String>, now: Timestamp) {
        let last = self.last_victims.remove(uid);
        if let (Some(preemption), Ok(())) = (last, &result)
            && let Some(victim) = preemption.victims.first().cloned()
            && !self.preempt_in_memory(&preemption, &victim, now)
            && self.cluster.placed(victim.uid()).is_some()
        {
            // It was bound in the meantime.
            return self.effects.push(Effect::Preempt(Box::new(preemption)));
        }
        self.cluster.preempting.remove(uid);
        if let Some(metrics) = &mut self.metrics
            && let Some(since) = metrics.evictions.remove(uid)
        {
            metrics.all.eviction_finished(since, result.is_err());
        }
        match result {
            Err(error) => {
                tracing::debug!(preemptor_uid = uid, error, "eviction failed");
                // No event would tell that the preemptor has to find other victims.
                self.activate(&[uid.to_owned()], now);
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
