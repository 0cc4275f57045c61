//! Records for a decision log, and decisions made again from one.

use std::sync::Arc;

use bayplan_model::resource_claim::AllocationResult;
use jiff::Timestamp;

use super::queue_plugins::ProfilePlugins;
use super::{Scheduler, TieBreak};
use crate::bind::{BindOutcome, Binding};
use crate::cluster::{ClaimKey, Object};
use crate::effect::Input;
use crate::framework::{Nomination, QueuedPod, Status};
use crate::record::{DecisionRecord, Record, Recorded, Recorder};

/// The random choices of a recorded decision.
#[derive(Clone, Debug)]
pub struct RecordedChoice {
    /// The node that was chosen among equally good ones, and the number with which preemption began.
    pub ties: TieBreak,
    /// The node at which the search began.
    pub start: usize,
}

impl Scheduler {
    /// Keeps a record of each input and each decision, for [`Scheduler::take_records`].
    #[must_use]
    pub fn with_records(mut self) -> Self {
        self.recorder = Some(Box::default());
        self
    }

    /// The records since the last call, oldest first.
    pub fn take_records(&mut self) -> Vec<Record> {
        let Some(recorder) = &mut self.recorder else { return Vec::new() };
        // The next batch is likely to be as large.
        let next = Vec::with_capacity(recorder.records.len());
        std::mem::replace(&mut recorder.records, next)
    }

    /// Tries a pod that is in the queue, in whatever stage, with recorded choices; false when the queue does not have
    /// it.
    pub fn schedule_again(&mut self, uid: &str, choice: RecordedChoice, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        let Some(pod) = self.queue.pop_pod(uid, &plugins) else { return false };
        self.ties = choice.ties;
        self.next_start = choice.start;
        self.schedule(pod, now);
        true
    }

    /// Ends a binding as it was recorded to have ended, without running it.
    pub fn end_binding(&mut self, binding: Binding, bound: bool, now: Timestamp) {
        let status = if bound { Status::SUCCESS } else { Status::error("the binding failed") };
        self.handle(Input::Bound(Box::new(BindOutcome { binding, status })), now);
    }

    /// Puts a pod of the queue on a node as if it had been decided, and runs Reserve; false when the queue does not
    /// have it. For pods that were in flight when a log began.
    pub fn assume_again(&mut self, uid: &str, node: &str, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        let Some(pod) = self.queue.pop_pod(uid, &plugins) else { return false };
        let Some(at) = self.profiles.index_of(&pod.info.spec.scheduler_name) else { return false };
        let profile = Arc::clone(self.profiles.profile(at));
        let info = pod.info.clone();
        let mut attempt = crate::cycle::Attempt::new(&profile, &self.cluster, &self.queue.nominator, &info, now);
        // Filter gathers what Reserve needs; what it answers was decided already.
        let _ = attempt.find(crate::cycle::filter::Search::ALL);
        let states = attempt.states;
        self.place(profile, pod, node.to_owned(), states, now);
        true
    }

    /// Assumes a version of a volume or of a volume claim, as a record says; one that is assumed already stays, so that
    /// its pod can take it back.
    pub fn assume_volume_again(&mut self, object: Object) {
        match object {
            Object::PersistentVolume(volume)
                if self.cluster.persistent_volume(&volume.metadata.name) != Some(&volume) =>
            {
                let _ = self.cluster.assume_volume(volume);
            }
            Object::PersistentVolumeClaim(claim) => {
                let meta = &claim.metadata;
                if self.cluster.persistent_volume_claim(&meta.namespace, &meta.name) != Some(&claim) {
                    let _ = self.cluster.assume_claim(claim);
                }
            }
            _ => {}
        }
    }

    /// Takes back what is assumed of the volumes of a pod that a record said to be in flight where a log began.
    pub fn restore_volumes_of(&mut self, uid: &str) {
        let Some(pod) = self.cluster.placed(uid).cloned() else { return };
        for volume in &pod.spec.volumes {
            let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => claim.claim_name.clone(),
                (None, Some(_)) => format!("{}-{}", pod.metadata.name, volume.name),
                (None, None) => continue,
            };
            let claim = self.cluster.persistent_volume_claim(&pod.metadata.namespace, &name).cloned();
            let Some(claim) = claim else { continue };
            if let Some(volume) = self.cluster.persistent_volume(&claim.spec.volume_name).cloned() {
                self.cluster.restore_volume(&volume);
            }
            self.cluster.restore_claim(&claim);
        }
    }

    /// Allocates devices as a record says.
    pub fn allocate_again(&mut self, claim: ClaimKey, allocation: AllocationResult) {
        self.cluster.allocate_claim(claim, Arc::new(allocation));
    }

    /// Nominates a pod as a record says.
    pub fn nominate_again(&mut self, uid: &str, node: &str) {
        let pod = self.queue.pods().find(|pod| pod.info.uid() == uid).map(|pod| pod.info.clone());
        if let Some(pod) = pod {
            self.queue.nominator.add(&pod, &Nomination::Override(node.to_owned()));
        }
    }

    /// The whole state as records, with which a log can begin.
    pub fn state_records(&self, now: Timestamp) -> Vec<Record> {
        let nodes = self.cluster.nodes().filter_map(|node| Some(Object::Node(node.node_object()?.clone())));
        let mut what: Vec<Recorded> = nodes.map(Recorded::Put).collect();
        self.cluster.objects.each(&mut |object| what.push(Recorded::Put(object)));
        for (pod, node) in self.cluster.assumed() {
            what.push(Recorded::Assumed { uid: pod.uid().to_owned(), node: node.to_owned() });
        }
        what.extend(self.cluster.assumed_volumes().map(Recorded::AssumedVolume));
        for (claim, allocation) in self.cluster.allocations_in_flight() {
            what.push(Recorded::Allocated { claim: claim.clone(), allocation: allocation.clone() });
        }
        for pod in self.queue.pods().filter(|pod| !pod.info.is_nominated()) {
            let uid = pod.info.uid();
            if let Some(node) = self.queue.nominator.node_of(uid) {
                what.push(Recorded::Nominated { uid: uid.to_owned(), node: node.to_owned() });
            }
        }
        what.into_iter().map(|what| Record { time: now, what }).collect()
    }

    /// Records an input, unless it is part of the attempt that runs: deciding again does it again.
    pub(super) fn record(&mut self, now: Timestamp, what: impl FnOnce() -> Recorded) {
        if let Some(recorder) = &mut self.recorder
            && recorder.attempt.is_none()
        {
            recorder.push(now, what());
        }
    }

    /// Notes something about the attempt that is recorded; does nothing outside one.
    pub(super) fn note_attempt(&mut self, note: impl FnOnce(&mut DecisionRecord)) {
        if let Some(attempt) = self.recorder.as_mut().and_then(|recorder| recorder.attempt.as_mut()) {
            note(attempt);
        }
    }

    pub(super) fn begin_record(&mut self, pod: &QueuedPod) {
        let Some(recorder) = &mut self.recorder else { return };
        self.ties.forget_draws();
        recorder.attempt = Some(Box::new(DecisionRecord {
            pod: pod.info.clone(),
            attempts: pod.attempts,
            node: None,
            message: None,
            nominated: None,
            victims: Vec::new(),
            tied: None,
            feasible: None,
            random: 0,
            start: self.next_start,
            nanoseconds: None,
        }));
    }

    /// Notes what the failure of the attempt says.
    pub(super) fn note_failure(&mut self, message: &str, nomination: &Nomination) {
        self.note_attempt(|attempt| {
            attempt.message = Some(message.to_owned());
            attempt.nominated = match nomination {
                Nomination::Override(node) if !node.is_empty() => Some(node.clone()),
                _ => None,
            };
        });
    }

    /// Notes the decision itself, before anything is done about it.
    pub(super) fn note_decision(&mut self, started: u64) {
        if self.recorder.is_none() {
            return;
        }
        let nanoseconds = self.metrics.as_ref().map(|metrics| metrics.all.now().saturating_sub(started));
        let (random, tied) = self.ties.last_draw();
        self.note_attempt(|attempt| {
            attempt.nanoseconds = nanoseconds;
            attempt.random = random;
            attempt.tied = tied;
        });
    }

    pub(super) fn end_record(&mut self, now: Timestamp) {
        if let Some(Recorder { records, attempt }) = self.recorder.as_deref_mut()
            && let Some(attempt) = attempt.take()
        {
            records.push(Record { time: now, what: Recorded::Decided(attempt) });
        }
    }
}
