//! Records for a decision log, and decisions made again from one.

use std::sync::Arc;

use bayplan_model::decision_log::{Allocated, Changed, ImageSize, Place, Undone};
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
        self.swap_records(Vec::new())
    }

    /// Whether there are records to take.
    pub fn has_records(&self) -> bool {
        self.recorder.as_ref().is_some_and(|recorder| !recorder.records.is_empty())
    }

    /// The records since the last call, oldest first. The next ones are kept in the memory that is given, which is
    /// emptied: whoever has written records can give it back.
    pub fn swap_records(&mut self, mut memory: Vec<Record>) -> Vec<Record> {
        let Some(recorder) = &mut self.recorder else { return Vec::new() };
        memory.clear();
        std::mem::replace(&mut recorder.records, memory)
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
    /// have it. For a decision that is not made again as it was recorded.
    pub fn place_again(&mut self, uid: &str, node: &str, now: Timestamp) -> bool {
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

    /// Puts a pod of the queue on a node, as a record says; false when the queue does not have it. What Reserve did for
    /// it has records of its own: run again, it might choose other volumes.
    pub fn assume_again(&mut self, uid: &str, node: &str, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        let Some(pod) = self.queue.pop_pod(uid, &plugins) else { return false };
        self.queue.done(uid);
        self.queue.nominator.remove(uid);
        self.cluster.assume(pod.info, node).is_ok()
    }

    /// Assumes a version of a volume or of a volume claim, as a record says.
    pub fn assume_volume_again(&mut self, object: Object) {
        let _ = match object {
            Object::PersistentVolume(volume) => self.cluster.assume_volume(volume),
            Object::PersistentVolumeClaim(claim) => self.cluster.assume_claim(claim),
            _ => Ok(()),
        };
    }

    /// Allocates devices as a record says.
    pub fn allocate_again(&mut self, allocated: Allocated) {
        let Allocated { owner, allocation } = allocated;
        self.cluster.allocate_claim(ClaimKey::from(&owner), Arc::new(allocation));
    }

    /// Nominates a pod as a record says; to no node when the name is empty.
    pub fn nominate_again(&mut self, uid: &str, node: &str) {
        match self.queue.info(uid).cloned() {
            Some(pod) => self.queue.nominator.add(&pod, &Nomination::Override(node.to_owned())),
            None => self.queue.nominator.remove(uid),
        }
    }

    /// Has an image count with a size, as a record says.
    pub fn size_image_again(&mut self, image: &ImageSize) {
        self.cluster.set_image_size(&image.name, image.size_bytes);
    }

    /// Takes an assumed pod off its node, as a record says. What Unreserve gave back is recorded, too: it depends on
    /// what the binding cycle had written by then. Without a binding, it was in flight where the log began.
    pub fn undo_again(&mut self, undone: &Undone, binding: Option<Binding>, now: Timestamp) {
        let uid = &undone.uid;
        self.binding.remove(uid);
        let waiting = self.waiting.remove(uid).map(|waiting| waiting.binding);
        let placed = self.cluster.placed(uid).filter(|_| self.cluster.is_assumed(uid)).cloned();
        self.cluster.release(undone);
        self.cluster.forget(uid);
        if let Some(binding) = binding.or(waiting) {
            return self.fail_unreserved(binding, Status::error("the binding failed"), now);
        }
        let current = placed.and_then(|placed| {
            let meta = &placed.metadata;
            self.cluster.objects.pods.get(&meta.namespace, &meta.name).cloned()
        });
        if let Some(pod) = current.filter(|pod| pod.metadata.uid == *uid && !pod.is_assigned()) {
            let info = self.pod_infos.info(pod);
            let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.add(info.clone(), now, &plugins);
            // A pod that fails loses its nomination.
            self.queue.nominator.add(&info, &Nomination::Override(String::new()));
        }
    }

    /// The whole state as records, with which a log can begin.
    ///
    /// The order of nodes and of the pods on each node is kept, because preemption looks at both in order. A node that
    /// changed its zone since a node last came or went is in its new zone's place.
    pub fn state_records(&self, now: Timestamp) -> Vec<Record> {
        let nodes = self.cluster.nodes().filter_map(|node| Some(Object::Node(node.node_object()?.clone())));
        let mut changes: Vec<Changed<Object>> = nodes.map(Changed::Put).collect();
        self.cluster.objects.each(&mut |object| match &object {
            Object::Pod(pod) if self.cluster.placed(&pod.metadata.uid).is_some() => {}
            _ => changes.push(Changed::Put(object)),
        });
        self.cluster.each_placed(&mut |pod, node, is_assumed| {
            let meta = &pod.metadata;
            let stored = self.cluster.objects.pods.get(&meta.namespace, &meta.name);
            changes.push(Changed::Put(Object::Pod(pod.pod.clone())));
            if is_assumed {
                changes.push(Changed::Assumed(Place { uid: meta.uid.clone(), node: node.to_owned() }));
                // On its node it counts as it was decided, whatever became of it since.
                let later = stored.filter(|stored| !Arc::ptr_eq(stored, &pod.pod));
                changes.extend(later.map(|pod| Changed::Put(Object::Pod(pod.clone()))));
            }
        });
        changes.extend(self.cluster.assumed_volumes().map(Changed::AssumedVolume));
        for (claim, allocation) in self.cluster.allocations_in_flight() {
            let allocated = Allocated { owner: claim.into(), allocation: AllocationResult::clone(allocation) };
            changes.push(Changed::Allocated(Box::new(allocated)));
        }
        changes.extend(self.cluster.disputed_image_sizes().into_iter().map(Changed::Image));
        self.nomination_records(&mut changes);
        changes.into_iter().map(|change| Record { time: now, what: Recorded::Changed(change) }).collect()
    }

    /// The nominations, in their order; and the pods whose status names a node that they are no longer nominated to.
    fn nomination_records(&self, changes: &mut Vec<Changed<Object>>) {
        let nominator = &self.queue.nominator;
        for node in nominator.nodes() {
            let pods = nominator.on_node(node).iter();
            changes.extend(
                pods.map(|pod| Changed::Nominated(Place { uid: pod.uid().to_owned(), node: node.to_string() })),
            );
        }
        for pod in self.cluster.objects.pods.iter().filter(|pod| !pod.is_assigned() && pod.is_nominated()) {
            let uid = &pod.metadata.uid;
            if nominator.node_of(uid).is_none() {
                changes.push(Changed::Nominated(Place { uid: uid.clone(), node: String::new() }));
            }
        }
    }

    /// Records an input, unless it is part of the attempt that runs: deciding again does it again.
    pub(super) fn record(&mut self, now: Timestamp, change: impl FnOnce() -> Changed<Object>) {
        if let Some(recorder) = &mut self.recorder
            && recorder.attempt.is_none()
        {
            recorder.push(now, change());
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
        recorder.attempt = Some(DecisionRecord::new(Arc::clone(&pod.info.pod), pod.attempts, self.next_start as u64));
    }

    /// Notes what the failure of the attempt says.
    pub(super) fn note_failure(&mut self, message: &str, nomination: &Nomination) {
        self.note_attempt(|attempt| {
            let refusal = attempt.refusal();
            refusal.message = Some(message.to_owned());
            refusal.nominated = match nomination {
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
            attempt.random = Some(random);
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
