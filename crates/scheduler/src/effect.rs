//! What the scheduler asks the shell to do, and what comes back: bindings, status patches, evictions and events, as
//! futures over the API.

use bayplan_model::api::{DeleteOptions, Event, EventType, Request, Verb};
use bayplan_model::delta::Delta;
use bayplan_model::status::reason;
use futures::future::try_join_all;

use crate::bind::{BindOutcome, Binding};
use crate::cluster::{Object, PodInfo};
use crate::framework::preemption::Preemption;
use crate::shell::{PODS, Shell, StatusUpdate, caught, pod_event};

/// What the scheduler reacts to.
pub enum Input {
    /// An object changed, as the informer reports it.
    Delta(Delta<Object>),
    /// A binding cycle ended.
    Bound(Box<BindOutcome>),
    /// The evictions of a preemption ended.
    Preempted {
        /// The UID of the preemptor.
        uid: String,
        /// Success when all victims are deleted or gone.
        result: Result<(), String>,
    },
}

impl Input {
    /// An object exists in this version, for callers without an informer: the cluster state knows whether it is new.
    pub fn upsert(object: Object) -> Self {
        Input::Delta(Delta::Added(object))
    }

    /// An object is gone; this is its last known version.
    pub fn delete(object: Object) -> Self {
        Input::Delta(Delta::Deleted(object))
    }
}

/// Something to do outside the task that owns the cluster.
///
/// Small, because thousands of effects may wait for their turn.
pub enum Effect {
    /// Bind a pod.
    Bind(Box<Binding>),
    /// Patch the status of a pod.
    UpdateStatus(Box<StatusUpdate>),
    /// Evict the victims of a preemption.
    Preempt(Box<Preemption>),
    /// Record an event.
    Record {
        /// The reporting scheduler's name.
        scheduler: String,
        /// The event.
        event: Box<Event>,
    },
    /// Send the calls of a plugin, one after the other.
    Call(Vec<Request>),
}

impl Effect {
    /// True for bindings, which the shell runs apart from other effects.
    pub fn is_binding(&self) -> bool {
        matches!(self, Effect::Bind(_))
    }

    /// The UID of the pod whose status or node the effect writes. The shell must run the effects of one pod one after
    /// the other: otherwise an old status could overwrite a newer one.
    pub fn pod_uid(&self) -> Option<&str> {
        match self {
            Effect::Bind(binding) => Some(binding.pod.info.uid()),
            Effect::UpdateStatus(update) => Some(&update.uid),
            Effect::Preempt(_) | Effect::Record { .. } | Effect::Call(_) => None,
        }
    }

    /// The name of the scheduler that reports the effect's events; empty when it records none.
    pub fn scheduler_name(&self) -> &str {
        match self {
            Effect::Bind(binding) => &binding.profile.name,
            Effect::Preempt(preemption) => &preemption.preemptor.spec.scheduler_name,
            Effect::Record { scheduler, .. } => scheduler,
            Effect::UpdateStatus(_) | Effect::Call(_) => "",
        }
    }

    /// Records an event, reported by a pod's scheduler.
    pub(crate) fn record(by: &PodInfo, event: Event) -> Self {
        Effect::Record { scheduler: by.spec.scheduler_name.clone(), event: Box::new(event) }
    }

    /// Carries the effect out. The answer goes to [`Scheduler::handle`](crate::Scheduler::handle).
    pub async fn run(self, shell: Shell<'_>) -> Option<Input> {
        match self {
            Effect::Bind(binding) => Some(Input::Bound(Box::new(binding.run(shell).await))),
            Effect::UpdateStatus(update) => {
                // The next attempt of the pod writes its status again.
                drop(caught(update.run(shell)).await);
                None
            }
            Effect::Preempt(preemption) => {
                let result = caught(evict(&preemption, shell)).await.flatten();
                Some(Input::Preempted { uid: preemption.preemptor.uid().to_owned(), result })
            }
            Effect::Record { event, .. } => {
                shell.recorder.record(*event);
                None
            }
            Effect::Call(calls) => {
                drop(caught(call_all(calls, shell)).await);
                None
            }
        }
    }
}

/// Sends calls until one fails. Success shows in the objects; a plugin that still needs a call asks again in the next
/// cycle.
async fn call_all(calls: Vec<Request>, shell: Shell<'_>) {
    for call in calls {
        if shell.api.call(call).await.is_err() {
            return;
        }
    }
}

/// Evicts the victims; the last one only when all others were evicted. When one of them stays, the preemptor finds no
/// room, and the last victim need not go for nothing.
async fn evict(preemption: &Preemption, shell: Shell<'_>) -> Result<(), String> {
    let Some((last, others)) = preemption.victims.split_last() else { return Ok(()) };
    try_join_all(others.iter().map(|victim| evict_one(preemption, victim, shell))).await?;
    evict_one(preemption, last, shell).await
}

async fn evict_one(preemption: &Preemption, victim: &PodInfo, shell: Shell<'_>) -> Result<(), String> {
    let by = &preemption.preemptor.spec.scheduler_name;
    let message = format!("{by}: preempting to accommodate a higher priority pod");
    let why = ("PreemptionByScheduler", message.as_str());
    if let Some(update) = StatusUpdate::of(victim, "DisruptionTarget", "True", why, None, shell.timer.now())
        && let Some(failure) = update.run(shell).await
        && !failure.is(reason::NOT_FOUND)
    {
        return Err(failure.message);
    }
    let meta = &victim.metadata;
    let verb = Verb::Delete(DeleteOptions::default());
    match shell.api.call(Request::object(&PODS, &meta.namespace, &meta.name, verb)).await {
        Ok(_) => {}
        Err(failure) if failure.is(reason::NOT_FOUND) => {}
        Err(failure) => return Err(failure.message),
    }
    let note = format!("Preempted by pod {} on node {}", preemption.preemptor.uid(), preemption.node);
    shell.recorder.record(pod_event(victim, EventType::Normal, "Preempted", "Preempting", note));
    Ok(())
}
