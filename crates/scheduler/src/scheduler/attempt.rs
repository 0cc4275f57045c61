//! A scheduling attempt: pops a pod, decides where it goes, assumes it there and runs Reserve and Permit. Upstream's
//! `ScheduleOne`.

use std::sync::Arc;

use bayplan_model::api::EventType;
use jiff::Timestamp;

use super::Scheduler;
use super::failure::Failure;
use super::permit::{PermitOutcome, WaitingPod};
use super::preemption::PostFilterOutcome;
use super::queue_plugins::ProfilePlugins;
use crate::bind::Binding;
use crate::cycle::filter::Search;
use crate::cycle::score::Scores;
use crate::cycle::{Attempt, Decision};
use crate::effect::Effect;
use crate::engine::{DecisionInput, DecisionKind, DecisionTimes, EngineDecision, Timing};
use crate::framework::{CycleStates, QueuedPod, Status};
use crate::metrics::OwnerMetrics;
use crate::profile::Profile;
use crate::shell::{StatusUpdate, pod_event};

impl Scheduler {
    /// Tries to place the next pod; false when no pod is ready.
    pub fn schedule_one(&mut self, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.pop(&plugins).map(|pod| self.schedule(pod, now)).is_some()
    }

    /// Tries to place the next pod that was never tried, unless a more important one waits to be tried again; false
    /// when there is none.
    pub fn schedule_new_one(&mut self, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.pop_new(&plugins).map(|pod| self.schedule(pod, now)).is_some()
    }

    /// The number of pods that could be tried again now.
    pub fn retries(&self) -> usize {
        self.queue.retries()
    }

    pub(super) fn schedule(&mut self, mut pod: QueuedPod, now: Timestamp) {
        pod.attempt_started = self.metrics_now();
        let uid = pod.info.uid().to_owned();
        let Some(profile) = self.profiles.index_of(&pod.info.spec.scheduler_name) else {
            return self.queue.done(&uid);
        };
        tracing::debug!(pod = %pod.info.key(), attempt = pod.attempts, "pod popped");
        if pod.info.is_terminating() {
            let note = format!("skip schedule deleting pod: {}", pod.info.key());
            let event = pod_event(&pod.info, EventType::Warning, "FailedScheduling", "Scheduling", note);
            self.effects.push(Effect::record(&pod.info, event));
            self.queue.done(&uid);
        } else if self.cluster.placed(&uid).is_some() {
            self.queue.done(&uid);
        } else {
            self.begin_record(&pod);
            self.begin_trace(&mut pod);
            self.attempt(profile, pod, now);
            self.end_record(now);
        }
    }

    fn attempt(&mut self, at: usize, pod: QueuedPod, now: Timestamp) {
        let profile = Arc::clone(self.profiles.profile(at));
        let search = Search { start: self.next_start, percentage: profile.percentage.or(self.percentage) };
        let sampled = self.metrics.as_ref().is_some_and(|metrics| metrics.all.sample_cycle());
        if search.is_exhaustive() {
            let (decision, times) = self.ask_engine(at, &profile, &pod, now);
            match decision {
                EngineDecision::Node(node, mut states) => {
                    let is_only = self.cluster.node_count() == 1;
                    let kind = if is_only { DecisionKind::OnlyNode } else { DecisionKind::Scored };
                    self.report_points(at, &profile, kind, times);
                    states.sampled = sampled;
                    self.report_decision_time(&pod);
                    return self.place(profile, pod, node.to_string(), states, now);
                }
                EngineDecision::NoNodeFits => {
                    if let Some(outcome) = self.ask_engine_why(at, &profile, &pod, now) {
                        self.report_points(at, &profile, DecisionKind::NoNode, times);
                        self.report_decision_time(&pod);
                        return self.no_node_fits(&profile, pod, outcome, now);
                    }
                }
                EngineDecision::AskPlainCycle => {}
            }
        }
        self.attempt_in_plain_cycle(profile, pod, search, sampled, now);
    }

    fn attempt_in_plain_cycle(
        &mut self,
        profile: Arc<Profile>,
        pod: QueuedPod,
        search: Search,
        sampled: bool,
        now: Timestamp,
    ) {
        let info = pod.info.clone();
        let mut attempt = Attempt::new(&profile, &self.cluster, &self.queue.nominator, &info, now).sampled(sampled);
        let (decision, evaluated) = attempt.decide(search, &mut self.ties);
        attempt.report_metrics();
        let Attempt { states, scores, feasible, .. } = attempt;
        self.note_attempt(|attempt| attempt.feasible = Some(feasible));
        self.report_decision_time(&pod);
        self.next_start = (self.next_start + evaluated) % self.cluster.node_count().max(1);
        match decision {
            Decision::Node(node) => {
                log_plain_decision(&pod, &node, scores.as_ref());
                self.place(Arc::clone(&profile), pod, node, states, now);
            }
            Decision::NoNodes => {
                let status = Status::unresolvable("no nodes available to schedule pods");
                self.fail(pod, Failure::of(status), now);
            }
            Decision::Failed(status) => self.fail(pod, Failure::of(status), now),
            Decision::Unschedulable(unschedulable) => {
                let unschedulable = *unschedulable;
                let outcome = PostFilterOutcome {
                    failure: Failure::unschedulable(&unschedulable.diagnosis, unschedulable.nomination),
                    preemption: unschedulable.preemption,
                    calls: unschedulable.calls,
                };
                self.no_node_fits(&profile, pod, outcome, now);
            }
        }
    }

    /// The decision of the engine, and its times if it was timed.
    fn ask_engine(
        &mut self,
        at: usize,
        profile: &Profile,
        pod: &QueuedPod,
        now: Timestamp,
    ) -> (EngineDecision, Option<DecisionTimes>) {
        let nominator = &self.queue.nominator;
        let input = DecisionInput::new(profile, &self.cluster, nominator, &pod.info, now);
        let timing = profile.metrics.as_ref().and_then(|metrics| {
            let sampled = self.profiles.samples(at).next_is_timed();
            (sampled || metrics.all.trace.is_on()).then(|| Timing::start(metrics))
        });
        let decision = self.profiles.engine(at).decide(input.timed(timing.as_ref()), &mut self.ties);
        let scored = matches!(decision, EngineDecision::Node(..)) && self.cluster.node_count() > 1;
        let times = timing.map(|timing| timing.end(scored));
        if let EngineDecision::Node(node, _) = &decision
            && tracing::enabled!(tracing::Level::DEBUG)
        {
            let ranking = self.profiles.engine(at).ranking(input, node);
            let score = ranking.as_ref().map(|ranking| ranking.score);
            let runner_up = ranking.and_then(|ranking| ranking.runner_up);
            log_decision(pod, node, score, runner_up.as_ref().map(|(node, score)| (&**node, *score)));
        }
        (decision, times)
    }

    /// Reports what the extension points of a decision of the engine took.
    fn report_points(&mut self, at: usize, profile: &Profile, kind: DecisionKind, times: Option<DecisionTimes>) {
        let Some(metrics) = &profile.metrics else { return };
        match times {
            Some(times) => {
                self.profiles.samples(at).timed(kind, times, metrics);
                times.points().for_each(|point| metrics.all.trace.note(point));
            }
            None => self.profiles.samples(at).untimed(kind),
        }
    }

    /// Asks the engine why no node fits; none when only the plain cycle can tell.
    fn ask_engine_why(
        &mut self,
        at: usize,
        profile: &Profile,
        pod: &QueuedPod,
        now: Timestamp,
    ) -> Option<PostFilterOutcome> {
        let nominator = &self.queue.nominator;
        let input = DecisionInput::new(profile, &self.cluster, nominator, &pod.info, now);
        let (cached, answer) = self.profiles.engine(at).explain(input, &mut self.ties).ok()?;
        Some(PostFilterOutcome {
            failure: Failure::unschedulable(&cached.diagnosis, answer.nomination),
            preemption: answer.preemption,
            calls: answer.calls,
        })
    }

    /// Reports how long the decision took.
    fn report_decision_time(&mut self, pod: &QueuedPod) {
        self.note_decision(pod.attempt_started);
        if let Some(OwnerMetrics { all, .. }) = &self.metrics {
            all.observe_decision(pod.attempt_started);
        }
    }

    /// Assumes the pod on its node and runs Reserve and Permit.
    pub(super) fn place(
        &mut self,
        profile: Arc<Profile>,
        pod: QueuedPod,
        node: String,
        states: CycleStates,
        now: Timestamp,
    ) {
        let assumed = pod.info.clone();
        self.note_attempt(|attempt| attempt.node = Some(node.clone()));
        if let Err(error) = self.cluster.assume(assumed.clone(), &node) {
            return self.fail(pod, Failure::of(Status::error(error.to_string())), now);
        }
        self.queue.nominator.remove(pod.info.uid());
        let mut binding = Binding::new(profile, pod, assumed, node, states);
        let status = self.reserve(&mut binding);
        if !status.is_success() {
            return self.fail_in_cycle(binding, status, now);
        }
        let permitted = self.permit(&mut binding, now);
        self.collect_points(&binding.pod);
        match permitted {
            PermitOutcome::Rejected(status) => self.fail_in_cycle(binding, status, now),
            PermitOutcome::Approved => {
                self.activate_collected(&mut binding, now);
                self.start_binding(binding);
            }
            PermitOutcome::Wait(pending_plugins) => {
                self.activate_collected(&mut binding, now);
                tracing::debug!(pod = %binding.pod_key(), node = binding.node, "pod waits for Permit");
                let nominate = StatusUpdate::nominate(&binding.pod.info, &binding.node);
                self.effects.push(Effect::UpdateStatus(Box::new(nominate)));
                let since = self.metrics_now();
                let uid = binding.pod.info.uid().to_owned();
                self.waiting.insert(uid, WaitingPod { binding, pending_plugins, since });
            }
        }
    }
}

fn log_plain_decision(pod: &QueuedPod, node: &str, scores: Option<&Scores>) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let all = || scores.into_iter().flat_map(|scores| scores.nodes.iter().zip(&scores.totals));
    let score = all().find(|(name, _)| ***name == *node).map(|(_, total)| *total);
    let runner_up = all().filter(|(name, _)| ***name != *node).max_by_key(|(_, total)| **total);
    log_decision(pod, node, score, runner_up.map(|(name, total)| (&**name, *total)));
}

/// Logs a decision. The score is absent when only one node fits.
fn log_decision(pod: &QueuedPod, node: &str, score: Option<i64>, runner_up: Option<(&str, i64)>) {
    let (runner_up, runner_up_score) = runner_up.unzip();
    tracing::debug!(pod = %pod.info.key(), node, score, runner_up, runner_up_score, "node chosen");
}
