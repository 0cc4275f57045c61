//! Which Jobs a change concerns, and which expectations it meets.

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::meta::OwnerReference;

use super::object::Job;
use super::tally::has_finalizer;
use super::{BATCH_PERIOD, JobController, Work};
use crate::controller::{Wakeup, lock};
use crate::pod::Pod;

/// Whether a deletion has begun or is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deletion {
    Begun,
    Over,
}

impl JobController {
    pub(super) fn observe_job(&self, delta: &Delta<Arc<Job>>) -> Vec<Wakeup> {
        match delta {
            Delta::Added(job) => vec![Wakeup::now(job.metadata.key())],
            Delta::Updated { old, new } if old.metadata.uid != new.metadata.uid => {
                let mut wakeups = self.job_deleted(old);
                wakeups.push(Wakeup::now(new.metadata.key()));
                wakeups
            }
            // Its pods are free already; this is in case they are not.
            Delta::Updated { new, .. } if new.is_finished() => free_selected(new),
            // Nothing but the status changed, mostly because of pods: several such changes are one reconcile.
            Delta::Updated { old, new } if old.metadata.generation == new.metadata.generation => vec![batched(new)],
            Delta::Updated { new, .. } => vec![Wakeup::now(new.metadata.key())],
            Delta::Deleted(job) => self.job_deleted(job),
        }
    }

    fn job_deleted(&self, job: &Job) -> Vec<Wakeup> {
        let (key, uid) = (job.metadata.key(), &job.metadata.uid);
        lock(&self.consistency).forget(&key, Some(uid));
        lock(&self.expectations).forget(&key);
        lock(&self.memory).forget(&key, Some(uid));
        let mut wakeups = free_selected(job);
        wakeups.push(Wakeup::now(key));
        wakeups
    }

    pub(super) fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        match delta {
            Delta::Added(pod) if pod.metadata.deletion_timestamp.is_some() => self.pod_deleted(pod, Deletion::Begun),
            Delta::Added(pod) => self.pod_added(pod),
            Delta::Updated { old, new } => self.pod_updated(old, new),
            Delta::Deleted(pod) => self.pod_deleted(pod, Deletion::Over),
        }
    }

    fn pod_added(&self, pod: &Pod) -> Vec<Wakeup> {
        let Some(owner) = pod.metadata.controller() else { return self.orphan(pod, true) };
        let Some(job) = self.resolve(&pod.metadata.namespace, owner) else { return Vec::new() };
        lock(&self.expectations).creation_observed(&job.metadata.key());
        concerned(&job, pod)
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) -> Vec<Wakeup> {
        if old.metadata.resource_version == new.metadata.resource_version {
            return Vec::new();
        }
        if new.metadata.deletion_timestamp.is_some() {
            return self.pod_deleted(new, Deletion::Begun);
        }
        let mut wakeups = Vec::new();
        let owners = [old, new].map(|pod| pod.metadata.controller());
        let moved = owners[0] != owners[1];
        for owner in [owners[0].filter(|_| moved), owners[1]].into_iter().flatten() {
            let Some(job) = self.resolve(&new.metadata.namespace, owner) else { continue };
            if !has_finalizer(new) {
                lock(&self.memory).released(&job.metadata.key(), &new.metadata.uid);
            }
            wakeups.extend(concerned(&job, new));
        }
        if owners[1].is_none() {
            wakeups.extend(self.orphan(new, moved || old.metadata.labels != new.metadata.labels));
        }
        wakeups
    }

    fn pod_deleted(&self, pod: &Pod, deletion: Deletion) -> Vec<Wakeup> {
        let job = pod.metadata.controller().and_then(|owner| self.resolve(&pod.metadata.namespace, owner));
        let Some(job) = job.filter(|job| !job.is_finished()) else { return free_pod(pod).into_iter().collect() };
        let key = job.metadata.key();
        lock(&self.expectations).deletion_observed(&key, &pod.metadata.key());
        if deletion == Deletion::Over || !has_finalizer(pod) {
            lock(&self.memory).released(&key, &pod.metadata.uid);
        }
        vec![batched(&job)]
    }

    /// A pod without controller: its finalizer means nothing, and a Job may want to adopt it if it is new to it.
    fn orphan(&self, pod: &Pod, is_new: bool) -> Vec<Wakeup> {
        let mut wakeups: Vec<Wakeup> = free_pod(pod).into_iter().collect();
        if is_new {
            let jobs = self.cache.jobs();
            let selects = |job: &&Arc<Job>| {
                job.spec.selector.as_ref().is_some_and(|selector| selector.matches(&pod.metadata.labels))
            };
            wakeups.extend(jobs.namespace(&pod.metadata.namespace).filter(selects).map(|job| batched(job)));
        }
        wakeups
    }

    /// The Job that a reference means, by name and UID.
    pub(super) fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<Arc<Job>> {
        let job = (owner.kind == "Job").then(|| self.cache.jobs().get(namespace, &owner.name))??;
        (job.metadata.uid == owner.uid).then_some(job)
    }
}

/// The Job, or the pod itself when its Job is over: another manager may have created it too late to be counted.
fn concerned(job: &Job, pod: &Pod) -> Vec<Wakeup> {
    match job.is_finished() && !job.is_managed_elsewhere() {
        true => free_pod(pod).into_iter().collect(),
        false => vec![batched(job)],
    }
}

fn batched(job: &Job) -> Wakeup {
    Wakeup::after(job.metadata.key(), BATCH_PERIOD)
}

fn free_pod(pod: &Pod) -> Option<Wakeup> {
    let work = || Work::FreePod { namespace: &pod.metadata.namespace, name: &pod.metadata.name };
    has_finalizer(pod).then(|| Wakeup::now(work().key()))
}

fn free_selected(job: &Job) -> Vec<Wakeup> {
    let selector = job.spec.selector.as_ref().and_then(|selector| selector.compiled());
    let work = selector.map(|selector| {
        Work::FreeSelected { namespace: &job.metadata.namespace, selector: &selector.to_string() }.key()
    });
    work.map(Wakeup::now).into_iter().collect()
}
