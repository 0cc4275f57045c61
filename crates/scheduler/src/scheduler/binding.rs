//! Reserve and the binding cycle as the scheduler sees it: started, finished, and undone.

use std::sync::Arc;

use bayplan_model::api::Request;
use bayplan_model::decision_log::{Changed, Undone};
use bayplan_model::delta::Delta;
use jiff::Timestamp;
use tracing::field;

use super::failure::{Failure, with_extension_point};
use super::{ATTEMPTS, Scheduler};
use crate::bind::{BindOutcome, Binding};
use crate::cluster::Object;
use crate::effect::Effect;
use crate::framework::{ClusterEvent, Code, EventResource, ExtensionPoints, Status, action};
use crate::metrics::{AttemptResult, TimedPoint};
use crate::queue::ClusterChange;

impl Scheduler {
    pub(super) fn reserve(&mut self, binding: &mut Binding) -> Status {
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        let status = self.run_reserve(binding);
        watch.point(TimedPoint::Reserve, status.code);
        status
    }

    fn run_reserve(&mut self, binding: &mut Binding) -> Status {
        for &plugin in binding.profile.at(ExtensionPoints::RESERVE) {
            let watch = binding.profile.stopwatch_if(binding.states.sampled);
            let state = binding.states.get_mut(plugin);
            let status = state.reserve(&mut self.cluster, &binding.assumed, &binding.node);
            watch.plugin(plugin, TimedPoint::Reserve, status.code);
            if !status.is_success() {
                return with_extension_point("Reserve", status);
            }
        }
        Status::SUCCESS
    }

    /// Runs Unreserve and forgets the assumed pod; the calls to the API server that plugins need for it are returned.
    fn unreserve(&mut self, binding: &mut Binding) -> Vec<Request> {
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        // What other pods gave back before is none of this pod's.
        self.cluster.take_released();
        let mut calls = Vec::new();
        for &plugin in binding.profile.at(ExtensionPoints::RESERVE).iter().rev() {
            let state = binding.states.get_mut(plugin);
            calls.extend(state.unreserve(&mut self.cluster, &binding.assumed, &binding.node));
        }
        watch.point(TimedPoint::Unreserve, Code::Success);
        self.cluster.forget(binding.assumed.uid());
        calls
    }

    pub(super) fn start_binding(&mut self, binding: Binding) {
        tracing::debug!(pod = %binding.pod_key(), node = binding.node, "binding started");
        let uid = binding.pod.info.uid();
        self.queue.done(uid);
        self.binding.insert(uid.to_owned(), Arc::clone(&binding.pre_bind));
        self.effects.push(Effect::Bind(Box::new(binding)));
    }

    /// Activates the pods that plugins collected in the cycle of a pod.
    pub(super) fn activate_collected(&mut self, binding: &mut Binding, now: Timestamp) {
        for &plugin in binding.profile.activating_plugins() {
            let uids = binding.states.get_mut(plugin).take_pods_to_activate();
            self.activate(&uids, now);
        }
    }

    pub(super) fn binding_finished(&mut self, mut outcome: BindOutcome, now: Timestamp) {
        self.binding.remove(outcome.uid());
        if !outcome.status.is_success() {
            return self.fail_binding_cycle(outcome.binding, outcome.status, now);
        }
        self.log_bound(&outcome.binding);
        self.activate_collected(&mut outcome.binding, now);
        let Binding { pod, node, .. } = &mut outcome.binding;
        self.end_trace(pod, AttemptResult::Scheduled, Some(node), None);
        let pod = &outcome.binding.pod;
        if let Some(metrics) = &outcome.binding.profile.metrics {
            metrics.attempt_finished(pod.attempt_started, AttemptResult::Scheduled);
            let waited = now.duration_since(pod.initial_attempt.unwrap_or(now)).unsigned_abs();
            let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            metrics.all.pod_bound(pod.attempts, waited, pod.was_flushed());
        }
    }

    fn log_bound(&self, binding: &Binding) {
        let Binding { pod, node, .. } = binding;
        tracing::debug!(
            target: ATTEMPTS,
            pod = %pod.info.key(),
            node,
            attempt = pod.attempts,
            latency = self.latency(pod).map(field::debug),
            "pod bound"
        );
    }

    /// Fails a pod in the scheduling cycle that assumed it. No other cycle has seen its resources taken, so no event
    /// tells that they are free again.
    pub(super) fn fail_in_cycle(&mut self, mut binding: Binding, status: Status, now: Timestamp) {
        let calls = self.unreserve(&mut binding);
        self.push_calls(calls);
        let failure = Failure::after_placing(&binding.node, status);
        self.fail(binding.pod, failure, now);
    }

    /// Fails a pod after its scheduling cycle, and moves pods that fit into the freed resources. Upstream's
    /// `handleBindingCycleError`.
    pub(super) fn fail_binding_cycle(&mut self, mut binding: Binding, status: Status, now: Timestamp) {
        tracing::debug!(pod = %binding.pod_key(), node = binding.node, reason = %status, "binding failed");
        let calls = self.unreserve(&mut binding);
        let (uid, released) = (binding.pod.info.uid().to_owned(), self.cluster.take_released());
        self.record(now, || Changed::Undone(Box::new(Undone { uid, ..released })));
        self.push_calls(calls);
        self.fail_unreserved(binding, status, now);
    }

    /// Fails a pod that has given back all it had taken, and moves pods that fit into it.
    pub(super) fn fail_unreserved(&mut self, binding: Binding, status: Status, now: Timestamp) {
        let rejected = status.is_rejected();
        let failure = Failure::after_placing(&binding.node, status);
        let uid = binding.pod.info.uid().to_owned();
        let event = ClusterEvent::new(EventResource::AssignedPod, action::DELETE);
        let freed = Delta::Deleted(Object::Pod(binding.assumed.pod_on(&binding.node)));
        let freed = ClusterChange::of_object(event, freed);
        if rejected {
            // A rejected pod is not moved by its own removal.
            self.fail(binding.pod, failure, now);
            self.requeue_for(&freed, &|pod| pod.uid() != uid, now);
        } else {
            self.requeue_for(&freed, &|_| true, now);
            self.fail(binding.pod, failure, now);
        }
    }

    /// Sends calls that plugins ask for.
    pub(super) fn push_calls(&mut self, calls: Vec<Request>) {
        if !calls.is_empty() {
            self.effects.push(Effect::Call(calls));
        }
    }
}
