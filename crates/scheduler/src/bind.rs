//! The binding cycle of one pod: PreBind, Bind and PostBind, run outside the task that owns the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bayplan_model::api::{Api, EventType};
use bayplan_model::trace::TracedApi;
use futures::future::{AbortHandle, AbortRegistration, Abortable, join_all};

use crate::cluster::PodInfo;
use crate::framework::{BindContext, Code, CycleStates, ExtensionPoints, QueuedPod, Status};
use crate::metrics::{PointTime, TimedPoint};
use crate::profile::Profile;
use crate::shell::{Shell, StatusUpdate, caught, pod_event};

const RUNNING: u8 = 0;
const FINISHED: u8 = 1;
const CANCELLED: u8 = 2;

/// PreBind of one pod. Until it ends, preemption can cancel the binding without a call to the API server.
pub(crate) struct CancellablePreBind {
    phase: AtomicU8,
    abort: AbortHandle,
}

impl CancellablePreBind {
    fn new() -> (Arc<Self>, AbortRegistration) {
        let (abort, registration) = AbortHandle::new_pair();
        (Arc::new(CancellablePreBind { phase: AtomicU8::new(RUNNING), abort }), registration)
    }

    /// Cancels PreBind; false when it has ended.
    pub(crate) fn cancel(&self) -> bool {
        let cancelled = self.end(CANCELLED);
        if cancelled {
            self.abort.abort();
        }
        cancelled
    }

    /// True until PreBind has ended.
    pub(crate) fn is_running(&self) -> bool {
        self.phase.load(Ordering::Acquire) == RUNNING
    }

    /// Ends PreBind; false when it has ended already. Cancelling and finishing exclude each other.
    fn end(&self, how: u8) -> bool {
        self.phase.compare_exchange(RUNNING, how, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The binding of a pod to its node.
pub struct Binding {
    pub(crate) profile: Arc<Profile>,
    pub(crate) pod: QueuedPod,
    /// The assumed pod.
    pub(crate) assumed: Arc<PodInfo>,
    pub(crate) node: String,
    pub(crate) states: CycleStates,
    pub(crate) pre_bind: Arc<CancellablePreBind>,
    registration: Option<AbortRegistration>,
}

/// How a binding cycle ended, with everything needed to undo the binding.
pub struct BindOutcome {
    pub(crate) binding: Binding,
    /// Success, or why the pod is not bound.
    pub status: Status,
}

impl BindOutcome {
    /// The pod's UID.
    pub fn uid(&self) -> &str {
        self.binding.pod.info.uid()
    }
}

impl Binding {
    pub(crate) fn new(
        profile: Arc<Profile>,
        pod: QueuedPod,
        assumed: Arc<PodInfo>,
        node: String,
        states: CycleStates,
    ) -> Self {
        let (pre_bind, registration) = CancellablePreBind::new();
        Binding { profile, pod, assumed, node, states, pre_bind, registration: Some(registration) }
    }

    /// The pod, as `namespace/name`.
    pub fn pod_key(&self) -> String {
        self.pod.info.key()
    }

    /// The pod's UID.
    pub fn pod_uid(&self) -> &str {
        self.pod.info.uid()
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The outcome of a binding that succeeds without anybody being asked: for simulations, in which volumes and
    /// devices stay as Reserve left them.
    pub fn succeeded(self) -> BindOutcome {
        self.pre_bind.end(FINISHED);
        BindOutcome { binding: self, status: Status::SUCCESS }
    }

    pub(crate) async fn run(mut self, shell: Shell<'_>) -> BindOutcome {
        let registration = self.registration.take();
        let status = caught(self.bind(shell, registration)).await;
        BindOutcome { status: status.unwrap_or_else(|panic| Status::error(format!("binding {panic}"))), binding: self }
    }

    async fn bind(&self, shell: Shell<'_>, registration: Option<AbortRegistration>) -> Status {
        let cx = BindContext {
            pod: &self.assumed,
            node: &self.node,
            api: shell.api,
            recorder: shell.recorder,
            timer: shell.timer,
            waits: &self.profile.waits,
        };
        let status = match registration {
            Some(registration) => Abortable::new(self.run_pre_bind(cx, shell), registration).await,
            None => Ok(self.run_pre_bind(cx, shell).await),
        };
        if !self.pre_bind.end(FINISHED) {
            return Status::error("preempted by DefaultPreemption");
        }
        match status {
            Ok(status) if status.is_success() => {}
            Ok(failed) => return failed,
            Err(aborted) => return Status::error(aborted.to_string()),
        }
        let watch = self.profile.stopwatch();
        let traced = self.pod.trace.as_ref().map(|trace| TracedApi { api: shell.api, span: trace.bind });
        let api = traced.as_ref().map_or(shell.api, |traced| traced as &dyn Api);
        let status = self.run_bind(BindContext { api, ..cx }).await;
        self.trace(watch.point(TimedPoint::Bind, status.code));
        if status.is_success() {
            let note = format!("Successfully assigned {} to {}", self.pod.info.key(), self.node);
            shell.recorder.record(pod_event(&self.pod.info, EventType::Normal, "Scheduled", "Binding", note));
            let watch = self.profile.stopwatch();
            for &plugin in self.profile.at(ExtensionPoints::POST_BIND) {
                // The pod is bound, whatever a plugin makes of it.
                drop(caught(self.states.get(plugin).post_bind(cx)).await);
            }
            self.trace(watch.point(TimedPoint::PostBind, Code::Success));
        }
        status
    }

    async fn run_pre_bind(&self, cx: BindContext<'_>, shell: Shell<'_>) -> Status {
        let watch = self.profile.stopwatch();
        let flight = self.pre_flight();
        watch.point(TimedPoint::PreBindPreFlight, flight.as_ref().err().map_or(Code::Success, |status| status.code));
        let groups = match flight {
            Ok(groups) => groups,
            Err(status) => return status,
        };
        if !groups.is_empty() {
            // Shows other components, and the next leader, where the pod will run; nothing depends on it.
            StatusUpdate::nominate(&self.pod.info, &self.node).run(shell).await;
        }
        let watch = self.profile.stopwatch();
        for group in groups {
            let running = group.iter().map(|&plugin| async move {
                let watch = self.profile.stopwatch_if(self.states.sampled);
                let status = self.states.get(plugin).pre_bind(cx).await;
                watch.plugin(plugin, TimedPoint::PreBind, status.code);
                self.named(plugin, "PreBind", status)
            });
            if let Some(failed) = join_all(running).await.into_iter().find(|status| !status.is_success()) {
                self.trace(watch.point(TimedPoint::PreBind, failed.code));
                return failed;
            }
        }
        self.trace(watch.point(TimedPoint::PreBind, Code::Success));
        Status::SUCCESS
    }

    /// Adds an extension point to the trace of the attempt.
    fn trace(&self, time: Option<PointTime>) {
        if let Some(trace) = &self.pod.trace {
            trace.add(time.map(PointTime::traced));
        }
    }

    /// The PreBind plugins that have something to do, in groups: neighbours that allow it run in parallel.
    fn pre_flight(&self) -> Result<Vec<Vec<usize>>, Status> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let mut open = false;
        for &plugin in self.profile.at(ExtensionPoints::PRE_BIND) {
            let answer = self.states.get(plugin).pre_bind_pre_flight(&self.assumed, &self.node);
            match answer.status.code {
                Code::Skip => continue,
                Code::Success => {}
                _ => {
                    let name = self.profile.plugin(plugin).name();
                    let text = format!("running PreBindPreFlight {name:?}: {}", answer.status);
                    return Err(Status::error(text).by(name));
                }
            }
            match groups.last_mut().filter(|_| open && answer.allow_parallel) {
                Some(group) => group.push(plugin),
                None => groups.push(vec![plugin]),
            }
            open = answer.allow_parallel;
        }
        Ok(groups)
    }

    async fn run_bind(&self, cx: BindContext<'_>) -> Status {
        let extenders = self.profile.extenders().iter();
        for extender in extenders.filter(|e| e.config().is_binder() && e.config().is_interested(cx.pod)) {
            match extender.bind(cx.pod, cx.node).await {
                Ok(()) => return Status::SUCCESS,
                Err(_) if extender.config().ignorable => {}
                Err(error) => return Status::error(error.to_string()),
            }
        }
        for &plugin in self.profile.at(ExtensionPoints::BIND) {
            let watch = self.profile.stopwatch_if(self.states.sampled);
            let status = self.states.get(plugin).bind(cx).await;
            watch.plugin(plugin, TimedPoint::Bind, status.code);
            if !status.is_skip() {
                return self.named(plugin, "Bind", status);
            }
        }
        Status::error("no Bind plugin took the pod")
    }

    /// Adds plugin and extension point to errors; rejections pass through.
    fn named(&self, plugin: usize, point: &str, status: Status) -> Status {
        let name = self.profile.plugin(plugin).name();
        if status.is_success() || status.is_rejected() {
            return status.by(name);
        }
        Status::error(format!("running {point} plugin {name:?}: {status}")).by(name)
    }
}
