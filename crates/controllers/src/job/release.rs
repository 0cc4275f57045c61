//! Counts the pods that ended, exactly once each, and lets them go; upstream's `trackJobStatusAndRemoveFinalizers`.
//!
//! ```text
//!   pod ended ─▶ PUT status: its UID is uncounted ─▶ PATCH pod: finalizer gone ─▶ PUT status: UID gone, counter + 1
//! ```
//!
//! A crash between any two steps leaves a UID that is uncounted and a pod with or without finalizer: whoever comes next
//! goes on from there. An index of an Indexed Job needs no UID to succeed once.

use std::sync::Arc;

use bayplan_model::api::{Api, ListOptions, PatchKind, Request, Verb, decode};
use bayplan_model::keyed::KeyedSet;
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::status::Status;
use futures::future::join_all;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::conditions::{self, COMPLETE, Verdict};
use super::indexes::{Indexes, completion_index};
use super::object::{Job, JobStatus, TRACKING_FINALIZER, Uncounted};
use super::tally::{Tally, has_place, is_failed, judge, saturate};
use super::{JobController, reference};
use crate::controller::{Context, lock};
use crate::error::{Error, not_found};
use crate::pod::{Phase, Pod};
use crate::requests::{self, JOBS, PODS};

/// At most this many UIDs are uncounted at a time: the status stays below 20 KB, and one Job does not keep a worker.
pub const UNCOUNTED_MAX: usize = 500;

/// Whether a pod's finalizer is removed only if the pod is as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfUnchanged {
    Yes,
    No,
}

/// Removes the finalizer by which a Job holds a pod.
pub(super) async fn remove_finalizer(
    api: &dyn Api,
    pod: &ObjectMeta,
    if_unchanged: IfUnchanged,
) -> Result<ObjectMeta, Status> {
    let mut patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    if if_unchanged == IfUnchanged::Yes {
        patch["metadata"]["resourceVersion"] = json!(pod.resource_version);
    }
    requests::patch(api, &PODS, pod, PatchKind::Strategic, &patch).await
}

/// The UIDs of the selected pods that have the finalizer now, read live.
pub(super) async fn held_pods(api: &dyn Api, namespace: &str, selector: String) -> Result<KeyedSet<String>, Status> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct List {
        items: Vec<PartialObjectMetadata>,
    }
    let options = ListOptions { label_selector: selector, ..ListOptions::default() };
    let request = Request::collection(&PODS, namespace, Verb::List(options)).metadata_only();
    let list: List = decode(&api.call(request).await?)?;
    let held = list.items.into_iter().map(|pod| pod.metadata);
    let held = held.filter(|pod| pod.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER));
    Ok(held.map(|pod| pod.uid).collect())
}

/// What is to be written and released.
struct Plan {
    release: Vec<Arc<Pod>>,
    changed: bool,
    /// Some pods are left for the next time.
    full: bool,
}

impl JobController {
    /// Counts and releases the pods that ended, and ends the Job when that is all there is to it.
    pub(super) async fn track(
        &self,
        key: &str,
        mut job: Job,
        tally: &mut Tally,
        verdict: Option<Verdict>,
        changed: bool,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let held = tally.pods.iter().filter(|pod| tally.is_tracked(pod)).map(|pod| pod.metadata.uid.clone());
        let mut held: KeyedSet<String> = held.collect();
        let changed = settle_uncounted(&mut job.status, &held) || changed;
        let mut plan = plan(&mut job, tally, verdict.as_ref());
        plan.changed |= changed;
        if let Some(verdict) = verdict.as_ref().filter(|verdict| !verdict.announced) {
            job.status.conditions.push(verdict.interim(context.second()));
            plan.changed = true;
        }
        if plan.changed {
            job = self.write_status(key, &job, context.api).await?;
            lock(&self.memory).entry(key, &job.metadata.uid).backoff = tally.backoff.clone();
        }
        let refused = self.release(key, &job, &plan.release, &mut held, context).await;
        let mut changed = settle_uncounted(&mut job.status, &held);
        if let Some(status) = refused {
            if changed {
                self.write_status(key, &job, context.api).await?;
            }
            return Err(Error::Api(status));
        }
        let ended = verdict.filter(|_| !plan.full && may_end(&job.status, tally));
        if let Some(verdict) = &ended {
            end(&mut job.status, verdict, context.second());
            changed = true;
        }
        if changed {
            job = self.write_status(key, &job, context.api).await?;
        }
        if let Some(verdict) = &ended {
            lock(&self.memory).entry(key, &job.metadata.uid).finished = true;
            tell(&job, verdict, context);
        }
        Ok(())
    }

    async fn write_status(&self, key: &str, job: &Job, api: &dyn Api) -> Result<Job, Status> {
        let stored: Job = requests::update_status(api, &JOBS, &job.metadata, job).await?;
        let (uid, version) = (&stored.metadata.uid, &stored.metadata.resource_version);
        lock(&self.consistency).wrote_owner(key, uid, version);
        lock(&self.memory).entry(key, uid).written.clone_from(version);
        Ok(stored)
    }

    /// Removes the finalizers of pods; those that are gone leave `held`. Returns the first refusal.
    async fn release(
        &self,
        key: &str,
        job: &Job,
        pods: &[Arc<Pod>],
        held: &mut KeyedSet<String>,
        context: Context<'_>,
    ) -> Option<Status> {
        let uid = &job.metadata.uid;
        lock(&self.memory).entry(key, uid).releasing.extend(pods.iter().map(|pod| pod.metadata.uid.clone()));
        let removals = pods.iter().map(|pod| remove_finalizer(context.api, &pod.metadata, IfUnchanged::No));
        let answers = join_all(removals).await;
        let mut refused = None;
        for (pod, answer) in pods.iter().zip(answers) {
            match answer {
                Ok(written) => lock(&self.consistency).wrote_pod(key, uid, &written.resource_version),
                Err(status) => {
                    // No event will tell of this pod.
                    lock(&self.memory).entry(key, uid).releasing.remove(&pod.metadata.uid);
                    if !not_found(&status) {
                        refused = refused.or(Some(status));
                        continue;
                    }
                }
            }
            held.remove(&pod.metadata.uid);
        }
        refused
    }
}

/// Chooses the pods to release, and notes them as uncounted.
fn plan(job: &mut Job, tally: &mut Tally, verdict: Option<&Verdict>) -> Plan {
    let mut plan = Plan { release: Vec::new(), changed: false, full: false };
    if job.is_indexed() {
        // So that indexes are introduced in order.
        tally.pods.sort_by_key(|pod| completion_index(pod));
    }
    let mut uncounted = job.status.uncounted_terminated_pods.take().unwrap_or_default();
    let known = |uids: &[String]| uids.iter().cloned().collect::<KeyedSet<String>>();
    let (known_succeeded, known_failed) = (known(&uncounted.succeeded), known(&uncounted.failed));
    let mut new_indexes: Vec<i64> = Vec::new();
    for pod in tally.pods.iter().filter(|pod| tally.is_tracked(pod)) {
        if !may_be_released(job, tally, verdict, pod) {
            continue;
        }
        plan.release.push(pod.clone());
        let uid = &pod.metadata.uid;
        if pod.phase == Phase::Succeeded && !known_failed.contains(uid) {
            if !job.is_indexed() {
                if !known_succeeded.contains(uid) {
                    uncounted.succeeded.push(uid.clone());
                    plan.changed = true;
                }
            } else if let Some(index) = completion_index(pod).filter(|_| has_place(job, pod))
                && !tally.succeeded_before.contains(index)
            {
                new_indexes.push(index);
                plan.changed = true;
            }
        } else if counts_as_failed(job, verdict, pod) && !known_failed.contains(uid) {
            uncounted.failed.push(uid.clone());
            plan.changed = true;
        }
        if new_indexes.len() + uncounted.succeeded.len() + uncounted.failed.len() >= UNCOUNTED_MAX {
            plan.full = true;
            break;
        }
    }
    job.status.uncounted_terminated_pods = Some(uncounted);
    if job.is_indexed() {
        plan.changed |= write_indexes(&mut job.status, tally, new_indexes);
    }
    plan
}

fn may_be_released(job: &Job, tally: &Tally, verdict: Option<&Verdict>, pod: &Pod) -> bool {
    if job.metadata.deletion_timestamp.is_some() || verdict.is_some() || pod.phase == Phase::Succeeded {
        return true;
    }
    // The pod that will be replaced stays until then: its replacement inherits its failures.
    let awaited = completion_index(pod).and_then(|index| tally.replaceable.get(&index));
    is_failed(job, pod) && awaited.is_none_or(|awaited| awaited.metadata.uid != pod.metadata.uid)
}

/// Whether a pod that is released without success is a failure: also one that had no time to end before its Job failed.
fn counts_as_failed(job: &Job, verdict: Option<&Verdict>, pod: &Pod) -> bool {
    let failed = is_failed(job, pod) || verdict.is_some_and(|verdict| !verdict.success);
    failed && has_place(job, pod) && judge(job, pod).counts()
}

fn write_indexes(status: &mut JobStatus, tally: &mut Tally, new: Vec<i64>) -> bool {
    tally.succeeded_indexes = tally.succeeded_indexes.union(&new.into_iter().collect::<Indexes>());
    let completed = tally.succeeded_indexes.to_string();
    let failed = tally.failed_indexes.as_ref().map(ToString::to_string);
    let changed = status.completed_indexes != completed || status.failed_indexes != failed;
    status.succeeded = i32::try_from(tally.succeeded_indexes.total()).unwrap_or(i32::MAX);
    status.completed_indexes = completed;
    status.failed_indexes = failed;
    changed
}

/// Moves the pods that are no longer held from the uncounted to the counters; answers whether there were any.
fn settle_uncounted(status: &mut JobStatus, held: &KeyedSet<String>) -> bool {
    let Uncounted { succeeded, failed } = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |uids: &mut Vec<String>, counter: &mut i32| {
        let before = uids.len();
        uids.retain(|uid| held.contains(uid));
        *counter = counter.saturating_add(saturate(before - uids.len()));
        before > uids.len()
    };
    let changed = settle(succeeded, &mut status.succeeded);
    settle(failed, &mut status.failed) || changed
}

/// A Job ends when all pods are counted and none is still on its way out.
fn may_end(status: &JobStatus, tally: &Tally) -> bool {
    let counted = |uncounted: &Uncounted| uncounted.succeeded.is_empty() && uncounted.failed.is_empty();
    status.uncounted_terminated_pods.as_ref().is_none_or(counted) && tally.terminating == 0
}

fn end(status: &mut JobStatus, verdict: &Verdict, second: Timestamp) {
    let condition = verdict.last(second);
    if condition.condition_type == COMPLETE {
        status.completion_time = Some(second);
    }
    conditions::set(&mut status.conditions, condition);
}

fn tell(job: &Job, verdict: &Verdict, context: Context<'_>) {
    if !verdict.success {
        return context.warning_of(reference(job), verdict.reason.clone(), verdict.message.clone());
    }
    if job.spec.completions.is_some_and(|completions| job.status.succeeded > completions) {
        let note = "Too many succeeded pods running after completion count reached";
        context.warning(reference(job), "TooManySucceededPods", note.into());
    }
    context.normal(reference(job), "Completed", "Job completed".into());
}
